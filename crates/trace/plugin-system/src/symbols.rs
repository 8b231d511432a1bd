//! The kernel's functions that lock, unlock, wait and free, and its variables that say where its
//! memory is.

use std::collections::{BTreeSet, HashMap};
use unconvoy_trace_stream::Region;

/// What a function means to its caller's sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// It has the lock in its first argument when it returns.
    Acquire { size: u32 },
    /// It has, if it returns true.
    Try { size: u32 },
    /// Its first argument is released.
    Release,
    /// It waits for the lock in its first argument.
    Wait,
    /// It frees the object that its first argument points to.
    Free,
    /// It frees the object that its second argument points to, of the slab cache in the first.
    FreeOfCache,
    /// It frees objects: their number is its second argument, the third points to an array of
    /// pointers to them.
    FreeMany,
    /// It frees pages: its first argument points to their structure, the second is the logarithm of
    /// their number.
    FreePages,
    /// `sethostname(2)`, by which the guest says when to begin and when to end.
    Name,
}

/// Where a function lies that locks, unlocks or waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    pub region: Region,
    /// A lock may be acquired when it returns.
    pub acquires: bool,
}

/// Bytes of a `raw_spinlock_t` without debugging, and of an `rwlock_t`.
const SPIN: u32 = 4;
const READ_WRITE: u32 = 8;

/// Without these nothing can be collected.
const NECESSARY: &[&str] = &["_raw_spin_lock", "_raw_spin_unlock", "__x64_sys_sethostname"];

/// See the [module](self).
#[derive(Debug, Default)]
pub struct Symbols {
    functions: HashMap<u64, Function>,
    /// Where functions lie that lock, unlock or wait: what they touch themselves is not a
    /// section's.
    locking: Vec<Code>,
    /// What returns for others, where a kernel is built so.
    thunks: Vec<u64>,
    variables: HashMap<&'static str, u64>,
}

/// Variables that are asked for.
const VARIABLES: &[&str] = &[
    "__per_cpu_start",
    "__per_cpu_offset",
    "pcpu_unit_size",
    "pcpu_hot",
    "hardirq_stack_ptr",
    "page_offset_base",
    "vmemmap_base",
    "slab_caches",
    "node_data",
];

impl Symbols {
    /// From the text of `/proc/kallsyms`; what is missing otherwise.
    pub fn parse(text: &str) -> Result<Symbols, String> {
        let mut symbols = Symbols::default();
        let mut names = HashMap::<&str, u64>::new();
        // Where functions begin.
        let mut code = BTreeSet::new();
        for (number, line) in text.lines().enumerate() {
            let mut fields = line.split_ascii_whitespace();
            let (Some(address), Some(kind), Some(name)) = (fields.next(), fields.next(), fields.next()) else {
                return Err(format!("line {} of the symbols is not of the form ADDRESS TYPE NAME", number + 1));
            };
            let address = u64::from_str_radix(address, 16)
                .map_err(|_| format!("line {} of the symbols: {address} is not an address", number + 1))?;
            // A module's symbol of the same name is another.
            if fields.next().is_none() {
                names.entry(name).or_insert(address);
            }
            if matches!(kind, "t" | "T" | "w" | "W") {
                code.insert(address);
            }
        }
        if !names.is_empty() && names.values().all(|address| *address == 0) {
            return Err("all symbols are 0: they were read without privilege (kernel.kptr_restrict)".to_string());
        }
        let missing: Vec<&str> = NECESSARY.iter().filter(|name| !names.contains_key(**name)).copied().collect();
        if !missing.is_empty() {
            return Err(format!("the kernel's symbols lack {}", missing.join(", ")));
        }
        for (name, address) in &names {
            if !code.contains(address) {
                continue;
            }
            let Some(function) = function(name) else {
                if name.contains("return_thunk") || *name == "__x86_return_skl" {
                    symbols.thunks.push(*address);
                }
                continue;
            };
            symbols.functions.insert(*address, function);
            if function.locks() {
                let end = code.range(address + 1..).next().map_or(address + 0x1000, |end| *end);
                let region = Region::between(*address, end);
                symbols.locking.push(Code { region, acquires: function != Function::Release });
            }
        }
        symbols.locking.sort_unstable_by_key(|code| code.region.address);
        symbols.variables = VARIABLES.iter().filter_map(|name| Some((*name, *names.get(name)?))).collect();
        Ok(symbols)
    }

    /// The function that begins at `pc`, if it is of concern.
    pub fn function(&self, pc: u64) -> Option<Function> {
        self.functions.get(&pc).copied()
    }

    /// The function that `pc` lies in, if it locks, unlocks or waits.
    pub fn locking_code(&self, pc: u64) -> Option<&Code> {
        let after = self.locking.partition_point(|code| code.region.address <= pc);
        self.locking[..after].last().filter(|code| code.region.contains(pc))
    }

    /// Whether a jump to `target` is a return.
    pub fn is_return_thunk(&self, target: u64) -> bool {
        self.thunks.contains(&target)
    }

    /// Where a variable is.
    pub fn variable(&self, name: &str) -> Option<u64> {
        self.variables.get(name).copied()
    }

    /// How many functions are listened to, by what they mean.
    pub fn counts(&self) -> Vec<String> {
        let count = |what: &str, is: fn(&Function) -> bool| {
            format!("{} that {what}", self.functions.values().filter(|function| is(function)).count())
        };
        vec![
            count("lock", |function| matches!(function, Function::Acquire { .. } | Function::Try { .. })),
            count("unlock", |function| *function == Function::Release),
            count("wait", |function| *function == Function::Wait),
            count("free", |function| {
                matches!(function, Function::Free | Function::FreeOfCache | Function::FreeMany | Function::FreePages)
            }),
        ]
    }
}

/// By their numbers.
const FUNCTIONS: [Function; 11] = [
    Function::Acquire { size: SPIN },
    Function::Acquire { size: READ_WRITE },
    Function::Try { size: SPIN },
    Function::Try { size: READ_WRITE },
    Function::Release,
    Function::Wait,
    Function::Free,
    Function::FreeOfCache,
    Function::FreeMany,
    Function::FreePages,
    Function::Name,
];

impl Function {
    /// A number for it, to go through a callback's data.
    pub fn number(self) -> u64 {
        FUNCTIONS.iter().position(|function| *function == self).unwrap_or(0) as u64
    }

    /// The function of a [number](Function::number).
    pub fn numbered(number: u64) -> Function {
        FUNCTIONS[number as usize]
    }

    /// Whether it locks, unlocks or waits.
    fn locks(self) -> bool {
        matches!(self, Function::Acquire { .. } | Function::Try { .. } | Function::Release | Function::Wait)
    }
}

/// What the kernel's function of this name means.
fn function(name: &str) -> Option<Function> {
    match name {
        "__x64_sys_sethostname" => return Some(Function::Name),
        "kfree" => return Some(Function::Free),
        // The second's first argument is no cache; what it frees after a grace period is not used
        // any more.
        "kmem_cache_free" | "kvfree_call_rcu" => return Some(Function::FreeOfCache),
        "kmem_cache_free_bulk" => return Some(Function::FreeMany),
        "__free_frozen_pages" | "free_unref_page" => return Some(Function::FreePages),
        "native_queued_spin_lock_slowpath"
        | "__pv_queued_spin_lock_slowpath"
        | "queued_spin_lock_slowpath"
        | "queued_read_lock_slowpath"
        | "queued_write_lock_slowpath" => return Some(Function::Wait),
        _ => {}
    }
    let name = name.strip_prefix("_raw_")?;
    let (size, name) = match (name.strip_prefix("spin_"), name.strip_prefix("read_"), name.strip_prefix("write_")) {
        (Some(rest), ..) => (SPIN, rest),
        (_, Some(rest), _) | (_, _, Some(rest)) => (READ_WRITE, rest),
        _ => return None,
    };
    // What follows is how interrupts are kept away; but these are parts that the compiler has split
    // off (`_raw_spin_lock.cold`).
    if name.contains('.') {
        return None;
    }
    match name.split('_').next()? {
        "lock" => Some(Function::Acquire { size }),
        "trylock" => Some(Function::Try { size }),
        "unlock" => Some(Function::Release),
        _ => None,
    }
}
