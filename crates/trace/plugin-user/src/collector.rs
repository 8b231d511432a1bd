//! What the threads share.

use crate::guest::{self, Calibration, Program};
use crate::heap::Heap;
use crate::modules::{Mapping, Modules};
use crate::options::Options;
use std::collections::HashSet;
use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, RwLock};
use unconvoy_trace_collector::collection::{Collection, locks};
use unconvoy_trace_collector::memory::Memory as _;
use unconvoy_trace_stream::{Module, Record, Region};

/// See the [module](self).
pub struct Collector {
    pub collection: Collection,
    /// Allocations are recorded.
    pub has_heap: bool,
    pub calibration: Calibration,
    modules: Mutex<Modules>,
    /// Code was mapped since the modules were looked at.
    pub mapped: AtomicBool,
    settled: Settled,
    /// Unlocks whose mutex was looked at, and those of them that had the unlocking thread as owner,
    /// where glibc for x86-64 has it.
    owners: [AtomicU32; 2],
    /// Where callers of allocators go on.
    pub allocator_returns: RwLock<HashSet<u64>>,
    pub threads: AtomicU32,
    /// Unlocks of what was never seen locked.
    pub unmatched: AtomicU64,
    /// Processes that the program made, and nobody follows.
    pub forks: AtomicU32,
    /// The program handles or ignores SIGABRT.
    pub survives_abort: AtomicBool,
    /// Of the program, once it is known; [`i32::MIN`] before.
    pub status: AtomicI32,
    /// Whoever writes counts, so that the last ones written are the latest.
    counting: Mutex<()>,
}

/// What every callback reads, and hardly anything changes: apart from what sections write.
#[derive(Default)]
#[repr(align(128))]
struct Settled {
    /// Where the dynamic linker begins and ends: as the modules have it, for those who cannot wait
    /// for them.
    linker: [AtomicU64; 2],
    /// All locking functions are the C library's, and no mutex showed another layout.
    layout_known: AtomicBool,
    /// Enough owners were looked at.
    owners_seen: AtomicBool,
    /// Counts up whenever threads are to publish what they have counted.
    requests: AtomicU32,
}

/// So many unlocks are looked at.
const OWNERS: u32 = 16;

static COLLECTOR: OnceLock<Collector> = OnceLock::new();
static HEAP: Heap = Heap::new();

/// The heap of the program.
pub fn heap() -> &'static Heap {
    &HEAP
}

/// The collector, once the plug-in is installed and as long as it collects.
pub fn collector() -> Option<&'static Collector> {
    COLLECTOR.get().filter(|collector| !collector.collection.log.is_closed())
}

impl Collector {
    /// Begins the stream; what hinders it otherwise.
    pub fn set_up((options, has_heap): (Options, bool)) -> Result<(), String> {
        let collector = Collector {
            collection: Collection::new(options)?,
            has_heap,
            calibration: Calibration::new(),
            modules: Mutex::new(Modules::before_program()),
            mapped: AtomicBool::new(false),
            settled: Settled::default(),
            owners: [const { AtomicU32::new(0) }; 2],
            allocator_returns: RwLock::new(HashSet::new()),
            threads: AtomicU32::new(0),
            unmatched: AtomicU64::new(0),
            forks: AtomicU32::new(0),
            survives_abort: AtomicBool::new(false),
            status: AtomicI32::new(i32::MIN),
            counting: Mutex::new(()),
        };
        COLLECTOR.set(collector).map_err(|_| "the plug-in was loaded twice".to_string())
    }

    /// Writes what runs, once its stack is there: argc and the arguments lie at its initial
    /// pointer.
    pub fn write_context(&self) {
        let stack = self.calibration.initial_stack();
        let word = |index: u64| Program.word(stack + index * 8).unwrap_or(0);
        let arguments = (0..word(0).min(4096)).map(|index| Program.string(word(1 + index), 1 << 16));
        let program: Vec<String> = arguments.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect();
        let processors = std::thread::available_parallelism().map_or(0, |count| count.get() as u32);
        self.collection.write_context("qemu-user", &program, processors);
    }

    /// Finds what was mapped, with its functions.
    pub fn look_at_modules(&self) {
        self.mapped.store(false, Ordering::Relaxed);
        let mut modules = self.modules();
        let fresh = modules.look(&program());
        for Mapping { region, offset, path } in &fresh {
            let module = Module { region: *region, offset: *offset, path: path.as_os_str().as_bytes() };
            self.collection.log.append_record(&Record::Module(module));
        }
        // Written once, when a function is bound: no section's data.
        modules.take_linkage().into_iter().for_each(|table| locks().mark(table));
        let linker = modules.linker();
        self.settled.linker[0].store(linker.address, Ordering::Relaxed);
        self.settled.linker[1].store(linker.end(), Ordering::Relaxed);
        let [looked, fits] = self.owners.each_ref().map(|count| count.load(Ordering::Relaxed));
        let refuted = looked >= OWNERS && fits == 0;
        self.settled.layout_known.store(modules.locks_are_libcs() && !refuted, Ordering::Relaxed);
    }

    pub fn modules(&self) -> MutexGuard<'_, Modules> {
        self.modules.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Whether locks have the layout of glibc for x86-64, as far as is known.
    pub fn layout_known(&self) -> bool {
        self.settled.layout_known.load(Ordering::Relaxed)
    }

    /// A mutex is about to be unlocked, by its owner or not: the first few show whether the layout
    /// is right.
    #[inline]
    pub fn check_owner(&self, is_owner: bool) {
        if !self.settled.owners_seen.load(Ordering::Relaxed) {
            self.count_owner(is_owner);
        }
    }

    #[cold]
    fn count_owner(&self, is_owner: bool) {
        let [looked, fits] = &self.owners;
        fits.fetch_add(is_owner.into(), Ordering::Relaxed);
        // The last of them sees all that fit: each is counted there before it is here.
        if looked.fetch_add(1, Ordering::AcqRel) + 1 == OWNERS {
            self.settled.owners_seen.store(true, Ordering::Relaxed);
            if fits.load(Ordering::Relaxed) == 0 {
                self.settled.layout_known.store(false, Ordering::Relaxed);
                self.note(
                    "mutexes have another layout than glibc's: contention and recursion were not seen".to_string(),
                );
            }
        }
    }

    /// Whether `pc` is the dynamic linker's.
    pub fn is_linker(&self, pc: u64) -> bool {
        let [base, end] = &self.settled.linker;
        Region::between(base.load(Ordering::Relaxed), end.load(Ordering::Relaxed)).contains(pc)
    }

    /// Remembers, for the end record, what could not be seen.
    pub fn note(&self, what: String) {
        self.collection.notes.add(what);
    }

    /// Has all threads publish what they have counted: each does, before its next lock or system
    /// call.
    pub fn request_counts(&self) {
        self.settled.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// What threads compare to see that there was a [request](Self::request_counts).
    #[inline]
    pub fn requests(&self) -> u32 {
        self.settled.requests.load(Ordering::Relaxed)
    }

    /// Writes the totals of the locks that were acquired since they were last written: as they
    /// stand, less what threads have not published yet.
    pub fn write_counts(&self) {
        let _counting = self.counting();
        for lock in locks().all() {
            if lock.has_news() {
                self.collection.log.append_record(&Record::Counts(lock.counts()));
            }
        }
    }

    /// Writes the totals and everything else, and ends the stream.
    pub fn finish(&self) {
        let _counting = self.counting();
        let status = self.status.load(Ordering::Relaxed);
        self.collection.finish(false, (status != i32::MIN).then_some(status), |end| {
            let modules = self.modules();
            let found = modules.found().iter().map(|(path, count)| format!("{count} in {}", path.display()));
            let calibrated = match self.calibration.phase() {
                guest::Phase::Found => None,
                _ => Some("this QEMU keeps its state elsewhere: nothing was sampled".to_string()),
            };
            end.value("threads", self.threads.load(Ordering::Relaxed))
                .value("unmatched_unlocks", self.unmatched.load(Ordering::Relaxed))
                .value("forks_not_followed", self.forks.load(Ordering::Relaxed))
                .list("functions", found)
                .list("notes", modules.notes().into_iter().chain(self.collection.notes.all()).chain(calibrated))
        });
    }

    fn counting(&self) -> MutexGuard<'_, ()> {
        self.counting.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn program() -> std::path::PathBuf {
    // SAFETY: called while a program runs: QEMU knows its path, a string.
    let path = unsafe { crate::api::qemu_plugin_path_to_binary() };
    if path.is_null() {
        return std::path::PathBuf::new();
    }
    // SAFETY: as above.
    let path = unsafe { CStr::from_ptr(path) };
    let path = Path::new(std::ffi::OsStr::from_bytes(path.to_bytes()));
    // As in /proc/self/maps.
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf())
}
