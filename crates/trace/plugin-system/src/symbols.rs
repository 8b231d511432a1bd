//! The kernel's functions that lock, unlock, wait and free, and the variables that locate its
//! memory.

use crate::messages;
use std::collections::{BTreeSet, HashMap};
use unconvoy_trace_stream::Region;

/// What a function does to its caller's sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// Holds the lock of its first argument when it returns.
    Acquire { size: u32 },
    /// Holds the lock if it returns true.
    Try { size: u32 },
    /// Releases the lock of its first argument.
    Release,
    /// Waits for the lock of its first argument.
    Wait,
    /// Frees the object of its first argument.
    Free,
    /// Frees the object of its second argument, from the slab cache of the first.
    FreeOfCache,
    /// Frees several objects: the second argument is their number, the third an array of pointers.
    FreeMany,
    /// Frees pages: the first argument points to their structure, the second is the base-2
    /// logarithm of their number.
    FreePages,
    /// `sethostname(2)`, by which the guest starts and ends the collection.
    SetHostname,
}

/// The code of a function that locks, unlocks or waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    pub region: Region,
    /// Whether it may hold a lock when it returns.
    pub acquires: bool,
}

/// Bytes of a `raw_spinlock_t` without debugging, and of an `rwlock_t`.
const SPIN: u32 = 4;
const READ_WRITE: u32 = 8;

/// Required symbols.
const NECESSARY: &[&str] = &["_raw_spin_lock", "_raw_spin_unlock", "__x64_sys_sethostname"];

#[derive(Debug, Default)]
pub struct Symbols {
    functions: HashMap<u64, Function>,
    /// Functions that lock, unlock or wait. Their own accesses do not belong to a section.
    locking: Vec<Code>,
    /// Return thunks, if the kernel is built with them.
    thunks: Vec<u64>,
    variables: HashMap<&'static str, u64>,
}

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
    /// Parses the text of `/proc/kallsyms`.
    ///
    /// # Errors
    ///
    /// A malformed line, missing symbols, or addresses hidden from an unprivileged reader.
    pub fn parse(text: &str) -> Result<Symbols, String> {
        let mut symbols = Symbols::default();
        let mut names = HashMap::<&str, u64>::new();
        // Start addresses of all functions.
        let mut code = BTreeSet::new();
        for (number, line) in text.lines().enumerate() {
            let mut fields = line.split_ascii_whitespace();
            let (Some(address), Some(kind), Some(name)) =
                (fields.next(), fields.next(), fields.next())
            else {
                return Err(messages::malformed_symbol(number + 1));
            };
            let address = u64::from_str_radix(address, 16)
                .map_err(|_| messages::malformed_address(number + 1, address))?;
            // A module's symbol may have the same name: skip it.
            if fields.next().is_none() {
                names.entry(name).or_insert(address);
            }
            if matches!(kind, "t" | "T" | "w" | "W") {
                code.insert(address);
            }
        }
        if !names.is_empty() && names.values().all(|address| *address == 0) {
            return Err(messages::hidden_symbols());
        }
        let missing: Vec<&str> =
            NECESSARY.iter().filter(|name| !names.contains_key(**name)).copied().collect();
        if !missing.is_empty() {
            return Err(messages::missing_symbols(&missing));
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
        symbols.variables =
            VARIABLES.iter().filter_map(|name| Some((*name, *names.get(name)?))).collect();
        Ok(symbols)
    }

    /// The function that starts at `pc`, if it is observed.
    pub fn function(&self, pc: u64) -> Option<Function> {
        self.functions.get(&pc).copied()
    }

    /// The locking, unlocking or waiting function that contains `pc`.
    pub fn locking_code(&self, pc: u64) -> Option<&Code> {
        let after = self.locking.partition_point(|code| code.region.address <= pc);
        self.locking[..after].last().filter(|code| code.region.contains(pc))
    }

    /// Whether a jump to `target` is a return.
    pub fn is_return_thunk(&self, target: u64) -> bool {
        self.thunks.contains(&target)
    }

    pub fn variable(&self, name: &str) -> Option<u64> {
        self.variables.get(name).copied()
    }

    /// The number of observed functions of each kind, in words.
    pub fn counts(&self) -> Vec<String> {
        let count = |what: &str, is: fn(&Function) -> bool| {
            format!(
                "{} that {what}",
                self.functions.values().filter(|function| is(function)).count()
            )
        };
        vec![
            count("lock", |function| {
                matches!(function, Function::Acquire { .. } | Function::Try { .. })
            }),
            count("unlock", |function| *function == Function::Release),
            count("wait", |function| *function == Function::Wait),
            count("free", |function| {
                matches!(
                    function,
                    Function::Free
                        | Function::FreeOfCache
                        | Function::FreeMany
                        | Function::FreePages
                )
            }),
        ]
    }
}

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
    Function::SetHostname,
];

impl Function {
    /// A number for a callback's data.
    pub fn number(self) -> u64 {
        FUNCTIONS.iter().position(|function| *function == self).unwrap_or(0) as u64
    }

    /// The function with this [number](Function::number).
    pub fn numbered(number: u64) -> Function {
        FUNCTIONS[number as usize]
    }

    fn locks(self) -> bool {
        matches!(
            self,
            Function::Acquire { .. } | Function::Try { .. } | Function::Release | Function::Wait
        )
    }
}

/// What the kernel function of this name does.
fn function(name: &str) -> Option<Function> {
    match name {
        "__x64_sys_sethostname" => return Some(Function::SetHostname),
        "kfree" => return Some(Function::Free),
        // The first argument of `kvfree_call_rcu` is not a cache. The memory it frees after a grace
        // period is no longer in use.
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
    let (size, name) =
        match (name.strip_prefix("spin_"), name.strip_prefix("read_"), name.strip_prefix("write_"))
        {
            (Some(rest), ..) => (SPIN, rest),
            (_, Some(rest), _) | (_, _, Some(rest)) => (READ_WRITE, rest),
            _ => return None,
        };
    // The rest of the name says how interrupts are disabled. A dot marks a part that the compiler
    // split off (`_raw_spin_lock.cold`).
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
