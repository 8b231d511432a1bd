//! The files mapped by the program, and the addresses of the functions that the plug-in observes.

use crate::guest;
use crate::locks::Lockable;
use crate::messages;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SymbolKind};
use std::collections::{BTreeMap, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use unconvoy_trace_collector::notes::Notes;
use unconvoy_trace_stream::Region;

/// What a function does, and which arguments it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Function {
    /// Acquires the lock of the first argument.
    Lock(Lockable),
    /// Tries to acquire it; the result says whether it did.
    TryLock(Lockable),
    Unlock(Lockable),
    /// Initialises or destroys it.
    Remake(Lockable),
    /// Waits for the condition of the first argument with the mutex of the second.
    Wait,
    /// Signals or initialises the condition of the first argument.
    Condition,
    /// Destroys it.
    Forget,
    Allocate(Size),
    /// Frees the allocation of the first argument and allocates the size in the second.
    Reallocate,
    /// Frees the allocation of the first argument.
    Free,
}

/// Which arguments hold an allocation's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Size {
    First,
    Second,
    /// The product of the first two.
    Product,
    /// The third; the address is stored where the first points.
    ThirdStored,
}

use Function::{
    Allocate, Condition, Forget, Free, Lock, Reallocate, Remake, TryLock, Unlock, Wait,
};
use Lockable::{Mutex, Read, ReadWrite, Spin, Write};

/// The observed functions. If two share an address (glibc's `pthread_spin_init` is its
/// `pthread_spin_unlock`), the earlier entry counts.
const FUNCTIONS: &[(&str, Function)] = &[
    ("pthread_mutex_lock", Lock(Mutex)),
    ("pthread_mutex_trylock", TryLock(Mutex)),
    ("pthread_mutex_timedlock", TryLock(Mutex)),
    ("pthread_mutex_clocklock", TryLock(Mutex)),
    ("pthread_mutex_unlock", Unlock(Mutex)),
    ("pthread_mutex_init", Remake(Mutex)),
    ("pthread_mutex_destroy", Remake(Mutex)),
    ("pthread_cond_wait", Wait),
    ("pthread_cond_timedwait", Wait),
    ("pthread_cond_clockwait", Wait),
    ("pthread_cond_signal", Condition),
    ("pthread_cond_broadcast", Condition),
    ("pthread_cond_init", Condition),
    ("pthread_cond_destroy", Forget),
    ("pthread_rwlock_rdlock", Lock(Read)),
    ("pthread_rwlock_tryrdlock", TryLock(Read)),
    ("pthread_rwlock_timedrdlock", TryLock(Read)),
    ("pthread_rwlock_clockrdlock", TryLock(Read)),
    ("pthread_rwlock_wrlock", Lock(Write)),
    ("pthread_rwlock_trywrlock", TryLock(Write)),
    ("pthread_rwlock_timedwrlock", TryLock(Write)),
    ("pthread_rwlock_clockwrlock", TryLock(Write)),
    ("pthread_rwlock_unlock", Unlock(ReadWrite)),
    ("pthread_rwlock_init", Remake(ReadWrite)),
    ("pthread_rwlock_destroy", Remake(ReadWrite)),
    ("pthread_spin_lock", Lock(Spin)),
    ("pthread_spin_trylock", TryLock(Spin)),
    ("pthread_spin_unlock", Unlock(Spin)),
    ("pthread_spin_init", Remake(Spin)),
    ("pthread_spin_destroy", Remake(Spin)),
    ("malloc", Allocate(Size::First)),
    ("calloc", Allocate(Size::Product)),
    ("aligned_alloc", Allocate(Size::Second)),
    ("memalign", Allocate(Size::Second)),
    ("posix_memalign", Allocate(Size::ThirdStored)),
    ("_Znwm", Allocate(Size::First)),
    ("_Znam", Allocate(Size::First)),
    ("realloc", Reallocate),
    ("free", Free),
    ("_ZdlPv", Free),
    ("_ZdaPv", Free),
    ("_ZdlPvm", Free),
    ("_ZdaPvm", Free),
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub region: Region,
    pub offset: u64,
    pub path: PathBuf,
}

#[derive(Default)]
pub struct Modules {
    /// Mappings made before the program started: QEMU's own, as host addresses.
    own: Vec<Region>,
    mappings: Vec<Mapping>,
    /// Files already searched for functions, with their base addresses.
    searched: Vec<(PathBuf, u64)>,
    functions: HashMap<u64, &'static Function>,
    /// The found functions: index into [`FUNCTIONS`], address, and whether it is in the C library.
    by_name: Vec<(usize, u64, bool)>,
    /// The dynamic linker's code; empty if there is none.
    linker: Region,
    /// Linkage tables not [taken](Modules::take_linkage) yet.
    linkage: Vec<Region>,
    /// For the report: number of functions found in each file.
    found: BTreeMap<PathBuf, usize>,
    notes: Notes,
}

impl Modules {
    /// Excludes everything mapped so far, which is QEMU's.
    pub fn before_program() -> Self {
        let maps = std::fs::read("/proc/self/maps").unwrap_or_default();
        let own = maps.split(|byte| *byte == b'\n').filter_map(parse).map(|mapping| mapping.region);
        Modules { own: own.collect(), ..Modules::default() }
    }

    /// Whether all locking functions are the C library's, so that its locks have the known layout.
    pub fn locks_are_libcs(&self) -> bool {
        let locking = |line: usize| !matches!(FUNCTIONS[line].1, Allocate(_) | Reallocate | Free);
        self.by_name.iter().all(|(line, _, libc)| *libc || !locking(*line))
    }

    /// Scans the current mappings. Returns the new ones.
    pub fn scan(&mut self, program: &Path) -> Vec<Mapping> {
        let Ok(maps) = std::fs::read("/proc/self/maps") else {
            self.notes.add(messages::no_maps());
            return Vec::new();
        };
        let mut fresh = Vec::new();
        for mut mapping in maps.split(|byte| *byte == b'\n').filter_map(parse) {
            let region = mapping.region;
            let own =
                self.own.iter().any(|own| region.address < own.end() && own.address < region.end());
            mapping.region.address = guest::address(region.address);
            if !own && !self.mappings.contains(&mapping) {
                fresh.push(mapping.clone());
                self.mappings.push(mapping);
            }
        }
        for mapping in &fresh {
            if mapping.offset == 0
                && !self
                    .searched
                    .iter()
                    .any(|(path, base)| path == &mapping.path && *base == mapping.region.address)
            {
                self.searched.push((mapping.path.clone(), mapping.region.address));
                self.search(mapping, program);
            }
        }
        fresh
    }

    pub fn function(&self, pc: u64) -> Option<&'static Function> {
        self.functions.get(&pc).copied()
    }

    /// The linkage tables of newly mapped files.
    pub fn take_linkage(&mut self) -> Vec<Region> {
        std::mem::take(&mut self.linkage)
    }

    pub fn linker(&self) -> Region {
        self.linker
    }

    pub fn found(&self) -> &BTreeMap<PathBuf, usize> {
        &self.found
    }

    pub fn notes(&self) -> Vec<String> {
        self.notes.all()
    }

    /// Finds the functions in a file whose first piece is mapped at `mapping`.
    fn search(&mut self, mapping: &Mapping, program: &Path) {
        let name = mapping.path.file_name().unwrap_or_default().to_string_lossy();
        let is_program = mapping.path == program;
        let is_linker = name.starts_with("ld-linux") || name.starts_with("ld-2.");
        if is_linker {
            // The linker consists of all mappings of its file, which are contiguous.
            let base = mapping.region.address;
            let pieces = self
                .mappings
                .iter()
                .filter(|other| other.path == mapping.path && other.region.address >= base);
            let end = pieces.map(|piece| piece.region.end()).max().unwrap_or(mapping.region.end());
            self.linker = Region::between(base, end);
        }
        // The dynamic linker has its own allocator under the same names, used before the program's
        // exists.
        if is_linker || !(is_program || name.contains(".so")) {
            return;
        }
        let bytes = match std::fs::read(&mapping.path) {
            Ok(bytes) => bytes,
            Err(error) => {
                return self.notes.add(messages::unreadable_module(&mapping.path, error));
            }
        };
        let file = match object::File::parse(&*bytes) {
            Ok(file) => file,
            // Not every mapped file is code.
            Err(_) => return,
        };
        // The link address of the lowest segment, which the first mapping belongs to.
        let asked = file.segments().map(|segment| segment.address() & !0xfff).min().unwrap_or(0);
        let bias = mapping.region.address.wrapping_sub(asked);
        for section in
            file.sections().filter(|section| matches!(section.name(), Ok(".got" | ".got.plt")))
        {
            self.linkage.push(Region::new(section.address().wrapping_add(bias), section.size()));
        }
        let mut here: Vec<(usize, u64)> = Vec::new();
        // Static programs have their functions in the symbol table; libraries have dynamic symbols,
        // stripped or not.
        let statics = is_program.then(|| file.symbols()).into_iter().flatten();
        for symbol in file.dynamic_symbols().chain(statics) {
            let defined = symbol.is_definition()
                && symbol.address() != 0
                && symbol.kind() == SymbolKind::Text;
            let Ok(name) = symbol.name() else { continue };
            if let Some(line) =
                FUNCTIONS.iter().position(|(function, _)| defined && *function == name)
            {
                here.push((line, symbol.address().wrapping_add(bias)));
            }
        }
        here.sort_unstable();
        here.dedup();
        if here.is_empty() {
            return;
        }
        *self.found.entry(mapping.path.clone()).or_default() += here.len();
        // A static program contains the C library.
        let libc = ["libc.so", "libc-2.", "libpthread"].iter().any(|start| name.starts_with(start))
            || is_program && file.dynamic_symbols().next().is_none();
        self.by_name.extend(here.into_iter().map(|(line, address)| (line, address, libc)));
        self.by_name.sort_unstable();
        // A function that another library or the program defines replaces the C library's and
        // usually calls it. Observing both would count twice.
        self.functions.clear();
        for (line, address, libc) in &self.by_name {
            if !libc || self.by_name.iter().all(|(other, _, libc)| other != line || *libc) {
                self.functions.entry(*address).or_insert(&FUNCTIONS[*line].1);
            }
        }
    }
}

/// Parses a line of `/proc/self/maps` that maps a file; host addresses.
fn parse(line: &[u8]) -> Option<Mapping> {
    let mut fields = line.splitn(6, |byte| *byte == b' ');
    let (base, end) = std::str::from_utf8(fields.next()?).ok()?.split_once('-')?;
    let _permissions = fields.next()?;
    let offset = std::str::from_utf8(fields.next()?).ok()?;
    let path = fields.nth(2)?.trim_ascii_start();
    if !path.starts_with(b"/") {
        return None;
    }
    let address = |text: &str| u64::from_str_radix(text, 16).ok();
    Some(Mapping {
        region: Region::between(address(base)?, address(end)?),
        offset: u64::from_str_radix(offset, 16).ok()?,
        path: Path::new(std::ffi::OsStr::from_bytes(path)).to_path_buf(),
    })
}
