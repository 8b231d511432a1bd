//! What is mapped where, and where the functions are that the plug-in listens to.

use crate::guest;
use crate::locks::Lockable;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SymbolKind};
use std::collections::{BTreeMap, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use unconvoy_trace_collector::notes::Notes;
use unconvoy_trace_stream::Region;

/// What a function does, and with which arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Function {
    /// Acquires the lock of the first argument.
    Lock(Lockable),
    /// Tries to; whether it did is its result.
    TryLock(Lockable),
    Unlock(Lockable),
    /// Initialises or destroys it.
    Remake(Lockable),
    /// Waits for the condition of the first argument, the mutex of the second released meanwhile.
    Wait,
    /// Signals, initialises, or destroys the condition of the first argument.
    Condition,
    /// Allocates; which of the arguments tell the size.
    Allocate(Size),
    /// Gives back the piece of the first argument, and allocates as much as the second says.
    Reallocate,
    /// Gives back the piece of the first argument.
    Free,
}

/// Where an allocation's size is told, and its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Size {
    First,
    Second,
    /// The product of the first two.
    Product,
    /// The third; the address is stored where the first points.
    ThirdStored,
}

use Function::{Allocate, Condition, Free, Lock, Reallocate, Remake, TryLock, Unlock, Wait};
use Lockable::{Mutex, Read, ReadWrite, Spin, Write};

/// The functions listened to. Where two share an address (glibc's `pthread_spin_init` is its
/// `pthread_spin_unlock`), the earlier line counts.
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
    ("pthread_cond_destroy", Condition),
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
];

/// A mapped piece of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub region: Region,
    pub offset: u64,
    pub path: PathBuf,
}

/// The program's files in memory.
#[derive(Default)]
pub struct Modules {
    /// What was mapped before the program: QEMU's, in the host's addresses.
    own: Vec<Region>,
    mappings: Vec<Mapping>,
    /// Files that were searched for functions, by path and where they are.
    searched: Vec<(PathBuf, u64)>,
    functions: HashMap<u64, &'static Function>,
    /// The same by name, and whether it is in the C library.
    by_name: Vec<(usize, u64, bool)>,
    /// Where the dynamic linker's own code is; empty if there is none.
    linker: Region,
    /// Linkage tables that nobody has [taken](Modules::take_linkage).
    linkage: Vec<Region>,
    /// For the report: how many of the functions were found in which file.
    found: BTreeMap<PathBuf, usize>,
    notes: Notes,
}

impl Modules {
    /// Knows nothing; what is mapped now is not the program's.
    pub fn before_program() -> Self {
        let maps = std::fs::read("/proc/self/maps").unwrap_or_default();
        let own = maps.split(|byte| *byte == b'\n').filter_map(parse).map(|mapping| mapping.region);
        Modules { own: own.collect(), ..Modules::default() }
    }

    /// Whether all locking functions are the C library's, so that its locks have the layout that is
    /// known.
    pub fn locks_are_libcs(&self) -> bool {
        let locking = |line: usize| !matches!(FUNCTIONS[line].1, Allocate(_) | Reallocate | Free);
        self.by_name.iter().all(|(line, _, libc)| *libc || !locking(*line))
    }

    /// Looks at what is mapped now. The mappings that were not there before are returned.
    pub fn look(&mut self, program: &Path) -> Vec<Mapping> {
        let Ok(maps) = std::fs::read("/proc/self/maps") else {
            self.notes.add("/proc/self/maps cannot be read: no functions were found".to_string());
            return Vec::new();
        };
        let mut fresh = Vec::new();
        for mut mapping in maps.split(|byte| *byte == b'\n').filter_map(parse) {
            let region = mapping.region;
            let own = self.own.iter().any(|own| region.address < own.end() && own.address < region.end());
            mapping.region.address = guest::address(region.address);
            if !own && !self.mappings.contains(&mapping) {
                fresh.push(mapping.clone());
                self.mappings.push(mapping);
            }
        }
        for mapping in &fresh {
            if mapping.offset == 0
                && !self.searched.iter().any(|(path, base)| path == &mapping.path && *base == mapping.region.address)
            {
                self.searched.push((mapping.path.clone(), mapping.region.address));
                self.search(mapping, program);
            }
        }
        fresh
    }

    /// The function that begins at `pc`.
    pub fn function(&self, pc: u64) -> Option<&'static Function> {
        self.functions.get(&pc).copied()
    }

    /// Where the linkage tables are of files that were not there before.
    pub fn take_linkage(&mut self) -> Vec<Region> {
        std::mem::take(&mut self.linkage)
    }

    /// Where the dynamic linker's own code is.
    pub fn linker(&self) -> Region {
        self.linker
    }

    /// Files in which functions were found, with how many.
    pub fn found(&self) -> &BTreeMap<PathBuf, usize> {
        &self.found
    }

    /// What went wrong.
    pub fn notes(&self) -> Vec<String> {
        self.notes.all()
    }

    /// Finds the functions in a file whose first piece is mapped so.
    fn search(&mut self, mapping: &Mapping, program: &Path) {
        let name = mapping.path.file_name().unwrap_or_default().to_string_lossy();
        let is_program = mapping.path == program;
        let is_linker = name.starts_with("ld-linux") || name.starts_with("ld-2.");
        if is_linker {
            // All of its mappings; it has no gaps.
            let base = mapping.region.address;
            let pieces =
                self.mappings.iter().filter(|other| other.path == mapping.path && other.region.address >= base);
            let end = pieces.map(|piece| piece.region.end()).max().unwrap_or(mapping.region.end());
            self.linker = Region::between(base, end);
        }
        // The linker has an allocator of its own under the same names, for the time before the
        // program's is there.
        if is_linker || !(is_program || name.contains(".so")) {
            return;
        }
        let bytes = match std::fs::read(&mapping.path) {
            Ok(bytes) => bytes,
            Err(error) => {
                return self
                    .notes
                    .add(format!("{} cannot be read ({error}): its functions are not known", mapping.path.display()));
            }
        };
        let file = match object::File::parse(&*bytes) {
            Ok(file) => file,
            // Not every mapped file is code.
            Err(_) => return,
        };
        // Where its lowest segment asked to be; the first mapping is of that segment.
        let asked = file.segments().map(|segment| segment.address() & !0xfff).min().unwrap_or(0);
        let bias = mapping.region.address.wrapping_sub(asked);
        for section in file.sections().filter(|section| matches!(section.name(), Ok(".got" | ".got.plt"))) {
            self.linkage.push(Region::new(section.address().wrapping_add(bias), section.size()));
        }
        let mut here: Vec<(usize, u64)> = Vec::new();
        // The symbol table proper has a static program's functions; a library's are dynamic
        // symbols, stripped or not.
        let statics = is_program.then(|| file.symbols()).into_iter().flatten();
        for symbol in file.dynamic_symbols().chain(statics) {
            let defined = symbol.is_definition() && symbol.address() != 0 && symbol.kind() == SymbolKind::Text;
            let Ok(name) = symbol.name() else { continue };
            if let Some(line) = FUNCTIONS.iter().position(|(function, _)| defined && *function == name) {
                here.push((line, symbol.address().wrapping_add(bias)));
            }
        }
        here.sort_unstable();
        here.dedup();
        if here.is_empty() {
            return;
        }
        *self.found.entry(mapping.path.clone()).or_default() += here.len();
        // A static program has the C library's.
        let libc = ["libc.so", "libc-2.", "libpthread"].iter().any(|start| name.starts_with(start))
            || is_program && file.dynamic_symbols().next().is_none();
        self.by_name.extend(here.into_iter().map(|(line, address)| (line, address, libc)));
        self.by_name.sort_unstable();
        // A function that another library or the program has too replaces the C library's, and most
        // often calls it: listening to both would count twice.
        self.functions.clear();
        for (line, address, libc) in &self.by_name {
            if !libc || self.by_name.iter().all(|(other, _, libc)| other != line || *libc) {
                self.functions.entry(*address).or_insert(&FUNCTIONS[*line].1);
            }
        }
    }
}

/// A line of `/proc/self/maps`, if it is of a file; in the host's addresses.
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
