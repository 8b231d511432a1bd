//! State shared by all threads.

use crate::guest::{self, Calibration, Program};
use crate::heap::Heap;
use crate::messages;
use crate::modules::{Mapping, Modules};
use crate::options::Options;
use std::collections::HashSet;
use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, RwLock};
use unconvoy_trace_collector::collection::{Collection, locks};
use unconvoy_trace_collector::memory::{Memory as _, OwnMemory};
use unconvoy_trace_stream::{Module, Record, Region};

pub struct Collector {
    pub collection: Collection,
    pub has_heap: bool,
    pub calibration: Calibration,
    modules: Mutex<Modules>,
    /// Whether code was mapped since the modules were last scanned.
    pub mapped: AtomicBool,
    read_mostly: ReadMostly,
    /// The number of mutexes checked at their unlock, and how many of these had the unlocking
    /// thread's number where glibc for x86-64 stores the owner.
    owners: [AtomicU32; 2],
    /// Return addresses of allocator calls.
    pub allocator_returns: RwLock<HashSet<u64>>,
    pub threads: AtomicU32,
    /// Unlocks of locks never seen locked.
    pub unmatched: AtomicU64,
    /// Child processes, which are not followed.
    pub forks: AtomicU32,
    /// Whether the program called `exec`.
    pub replaced: AtomicBool,
    /// Whether the program handles or ignores SIGABRT.
    pub survives_abort: AtomicBool,
    /// The program's exit status; [`i32::MIN`] until known.
    pub status: AtomicI32,
    /// Serializes writers of counts: the last counts written are the latest.
    counting: Mutex<()>,
}

/// Fields that every callback reads and few change, on cache lines that sections do not write.
#[derive(Default)]
#[repr(align(128))]
struct ReadMostly {
    /// Start and end of the dynamic linker, copied from the modules for callbacks that must not
    /// wait for their mutex.
    linker: [AtomicU64; 2],
    /// Whether all locking functions are the C library's and no mutex contradicted glibc's layout.
    layout_known: AtomicBool,
    /// Whether enough owners were checked.
    owners_seen: AtomicBool,
    /// Incremented to ask the threads to publish their counts.
    requests: AtomicU32,
}

/// Number of unlocks at which to check the mutex's owner.
const OWNERS: u32 = 16;

static COLLECTOR: OnceLock<Collector> = OnceLock::new();
static HEAP: Heap = Heap::new();

pub fn heap() -> &'static Heap {
    &HEAP
}

/// The collector, from installation to the end of the collection.
pub fn collector() -> Option<&'static Collector> {
    COLLECTOR.get().filter(|collector| !collector.collection.log.is_closed())
}

impl Collector {
    /// Starts the stream.
    ///
    /// # Errors
    ///
    /// The output file cannot be opened, or the plug-in is loaded twice.
    pub fn set_up((options, has_heap): (Options, bool)) -> Result<(), String> {
        let collector = Collector {
            collection: Collection::new(options)?,
            has_heap,
            calibration: Calibration::new(),
            modules: Mutex::new(Modules::before_program()),
            mapped: AtomicBool::new(false),
            read_mostly: ReadMostly::default(),
            owners: [const { AtomicU32::new(0) }; 2],
            allocator_returns: RwLock::new(HashSet::new()),
            threads: AtomicU32::new(0),
            unmatched: AtomicU64::new(0),
            forks: AtomicU32::new(0),
            replaced: AtomicBool::new(false),
            survives_abort: AtomicBool::new(false),
            status: AtomicI32::new(i32::MIN),
            counting: Mutex::new(()),
        };
        COLLECTOR.set(collector).map_err(|_| unconvoy_trace_collector::messages::loaded_twice())
    }

    /// Writes the context record. argc and the arguments lie at the initial stack pointer, so the
    /// stack must exist.
    pub fn write_context(&self) {
        let stack = self.calibration.initial_stack();
        let word = |index: u64| Program.word(stack + index * 8).unwrap_or(0);
        let arguments =
            (0..word(0).min(4096)).map(|index| Program.string(word(1 + index), 1 << 16));
        let program: Vec<String> =
            arguments.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect();
        let processors = std::thread::available_parallelism().map_or(0, |count| count.get() as u32);
        self.collection.write_context("qemu-user", &program, processors);
    }

    /// Scans the mappings and finds the functions in new ones.
    pub fn scan_modules(&self) {
        self.mapped.store(false, Ordering::Relaxed);
        let mut modules = self.modules();
        let fresh = modules.scan(&program());
        for Mapping { region, offset, path } in &fresh {
            let module =
                Module { region: *region, offset: *offset, path: path.as_os_str().as_bytes() };
            self.collection.log.append_record(&Record::Module(module));
        }
        // The dynamic linker writes each slot of these tables once, when it binds a function. The
        // slots are not data of a section, so mark them like locks.
        modules.take_linkage().into_iter().for_each(|table| locks().mark(table));
        let linker = modules.linker();
        self.read_mostly.linker[0].store(linker.address, Ordering::Relaxed);
        self.read_mostly.linker[1].store(linker.end(), Ordering::Relaxed);
        let [looked, fits] = self.owners.each_ref().map(|count| count.load(Ordering::Relaxed));
        let refuted = looked >= OWNERS && fits == 0;
        self.read_mostly
            .layout_known
            .store(modules.locks_are_libcs() && !refuted, Ordering::Relaxed);
    }

    pub fn modules(&self) -> MutexGuard<'_, Modules> {
        self.modules.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub fn layout_known(&self) -> bool {
        self.read_mostly.layout_known.load(Ordering::Relaxed)
    }

    /// Counts whether the thread that unlocks a mutex is its owner. The first few mutexes show
    /// whether glibc's layout applies.
    #[inline]
    pub fn check_owner(&self, is_owner: bool) {
        if !self.read_mostly.owners_seen.load(Ordering::Relaxed) {
            self.count_owner(is_owner);
        }
    }

    #[cold]
    fn count_owner(&self, is_owner: bool) {
        let [looked, fits] = &self.owners;
        fits.fetch_add(is_owner.into(), Ordering::Relaxed);
        // AcqRel: the last increment of `looked` sees all increments of `fits`, because each thread
        // increments `fits` before `looked`.
        if looked.fetch_add(1, Ordering::AcqRel) + 1 == OWNERS {
            self.read_mostly.owners_seen.store(true, Ordering::Relaxed);
            if fits.load(Ordering::Relaxed) == 0 {
                self.read_mostly.layout_known.store(false, Ordering::Relaxed);
                self.note(messages::unknown_mutex_layout());
            }
        }
    }

    pub fn is_linker(&self, pc: u64) -> bool {
        let [base, end] = &self.read_mostly.linker;
        Region::between(base.load(Ordering::Relaxed), end.load(Ordering::Relaxed)).contains(pc)
    }

    /// Adds a note about something that could not be seen to the end record.
    pub fn note(&self, what: String) {
        self.collection.notes.add(what);
    }

    /// Asks all threads to publish their counts, before their next lock or system call.
    pub fn request_counts(&self) {
        self.read_mostly.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of [requests](Self::request_counts); threads compare it with the last one they
    /// saw.
    #[inline]
    pub fn requests(&self) -> u32 {
        self.read_mostly.requests.load(Ordering::Relaxed)
    }

    /// Writes the totals of the locks acquired since their last record, without counts that threads
    /// have not published.
    pub fn write_counts(&self) {
        let _counting = self.counting();
        for lock in locks().all() {
            if lock.has_unwritten_counts() {
                self.collection.log.append_record(&Record::Counts(lock.counts()));
            }
        }
    }

    /// Writes all totals and pending records, and ends the stream.
    pub fn finish(&self) {
        let _counting = self.counting();
        let status = self.status.load(Ordering::Relaxed);
        self.collection.finish(false, (status != i32::MIN).then_some(status), |end| {
            let modules = self.modules();
            let found = modules
                .found()
                .iter()
                .map(|(path, count)| format!("{count} in {}", path.display()));
            let calibrated = match self.calibration.phase() {
                guest::Phase::Found => None,
                _ if !OwnMemory.is_readable() => Some(messages::refused_reads()),
                _ => Some(messages::unknown_state()),
            };
            end.value("threads", self.threads.load(Ordering::Relaxed))
                .value("unmatched_unlocks", self.unmatched.load(Ordering::Relaxed))
                .value("forks_not_followed", self.forks.load(Ordering::Relaxed))
                .value("replaced_by_exec", self.replaced.load(Ordering::Relaxed))
                .list("functions", found)
                .list(
                    "notes",
                    modules
                        .notes()
                        .into_iter()
                        .chain(self.collection.notes.all())
                        .chain(calibrated),
                )
        });
    }

    fn counting(&self) -> MutexGuard<'_, ()> {
        self.counting.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn program() -> std::path::PathBuf {
    // SAFETY: no preconditions once a program runs. The result is null or a terminated string.
    let path = unsafe { crate::api::qemu_plugin_path_to_binary() };
    if path.is_null() {
        return std::path::PathBuf::new();
    }
    // SAFETY: as above.
    let path = unsafe { CStr::from_ptr(path) };
    let path = Path::new(std::ffi::OsStr::from_bytes(path.to_bytes()));
    // /proc/self/maps lists files by their canonical paths.
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf())
}
