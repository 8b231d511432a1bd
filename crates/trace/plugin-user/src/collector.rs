//! What the threads share.

use crate::guest::{self, Calibration};
use crate::heap::Heap;
use crate::modules::{Mapping, Modules};
use crate::options::Options;
use crate::rhythm;
use std::collections::HashSet;
use std::ffi::CStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, RwLock};
use unconvoy_trace_collector::end::{EndJson, Notes};
use unconvoy_trace_collector::locks::Locks;
use unconvoy_trace_collector::log::{self, Log};
use unconvoy_trace_collector::places::Places;
use unconvoy_trace_stream::{Context, End, MAGIC, Module, Record, append};

/// See the [module](self).
pub struct Collector {
    pub options: Options,
    pub log: Log,
    pub calibration: Calibration,
    pub modules: Mutex<Modules>,
    /// Code was mapped since the modules were looked at.
    pub mapped: AtomicBool,
    settled: Settled,
    /// Unlocks whose mutex was looked at, and those of them that had the unlocking thread as owner, where glibc for x86-64 has it.
    owners: [AtomicU32; 2],
    pub places: Places,
    /// Where callers of allocators go on.
    pub allocator_returns: RwLock<HashSet<u64>>,
    pub threads: AtomicU32,
    pub sections: AtomicU64,
    /// Unlocks of what was never seen locked.
    pub unmatched: AtomicU64,
    forks: AtomicU32,
    /// The program handles or ignores SIGABRT.
    pub survives_abort: AtomicBool,
    /// Of the program, once it is known; [`i32::MIN`] before.
    pub status: AtomicI32,
    notes: Notes,
    /// Whoever tells counts, so that the last ones told are the latest.
    counting: Mutex<()>,
}

/// What every callback reads, and hardly anything changes: apart from what sections write.
#[derive(Default)]
#[repr(align(128))]
struct Settled {
    /// Where the dynamic linker is: as the modules have it, for those who cannot wait for them.
    linker: [AtomicU64; 2],
    /// All locking functions are the C library's, and no mutex showed another layout.
    layout_known: AtomicBool,
    /// Enough owners were looked at.
    owners_seen: AtomicBool,
    /// Counts up whenever threads are to tell what they have counted.
    asked: AtomicU32,
}

/// So many unlocks are looked at.
const OWNERS: u32 = 16;

static COLLECTOR: OnceLock<Collector> = OnceLock::new();
static LOCKS: Locks = Locks::new();
static HEAP: Heap = Heap::new();

/// The locks of the program.
pub fn locks() -> &'static Locks {
    &LOCKS
}

/// The heap of the program.
pub fn heap() -> &'static Heap {
    &HEAP
}

/// The collector, once the plug-in is installed and as long as it collects.
pub fn collector() -> Option<&'static Collector> {
    COLLECTOR.get().filter(|collector| !collector.log.is_closed())
}

/// Starts collecting; what hinders it otherwise.
pub fn install(options: Options) -> Result<(), String> {
    let out = &options.out;
    let file = File::options().write(true).create(true).truncate(true).open(out);
    let file = file.map_err(|error| format!("{}: {error}", out.display()))?;
    let collector = Collector {
        options,
        log: Log::new(file),
        calibration: Calibration::new(),
        modules: Mutex::new(Modules::before_program()),
        mapped: AtomicBool::new(false),
        settled: Settled::default(),
        owners: [const { AtomicU32::new(0) }; 2],
        places: Places::new(),
        allocator_returns: RwLock::new(HashSet::new()),
        threads: AtomicU32::new(0),
        sections: AtomicU64::new(0),
        unmatched: AtomicU64::new(0),
        forks: AtomicU32::new(0),
        survives_abort: AtomicBool::new(false),
        status: AtomicI32::new(i32::MIN),
        notes: Notes::new(),
        counting: Mutex::new(()),
    };
    collector.log.append(&MAGIC, |_, _| {});
    COLLECTOR.set(collector).map_err(|_| "the plug-in was loaded twice".to_string())?;
    rhythm::start().map_err(|error| format!("it has no thread of its own: {error}"))
}

impl Collector {
    /// Tells what runs, once its stack is there: argc and the arguments lie at its initial pointer.
    pub fn tell_context(&self) {
        let stack = self.calibration.initial_stack();
        let word = |index: u64| guest::try_read::<8>(stack + index * 8).map_or(0, u64::from_le_bytes);
        let arguments = (0..word(0).min(4096)).map(|index| guest::try_read_string(word(1 + index), 1 << 16));
        let program: Vec<String> = arguments.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect();
        let context = Context {
            source: "qemu-user",
            program: &program,
            rate: self.options.rate,
            processors: std::thread::available_parallelism().map_or(0, |count| count.get() as u32),
            page_size: 4096,
            seed: self.options.seed,
            version: env!("CARGO_PKG_VERSION"),
        };
        self.log.tell(&Record::Context(&context.json()));
    }

    /// Finds what was mapped, with its functions.
    pub fn look_at_modules(&self) {
        self.mapped.store(false, Ordering::Relaxed);
        let mut modules = self.modules();
        let fresh = modules.look(&program());
        for Mapping { base, end, offset, path } in &fresh {
            let path = path.as_os_str().as_bytes();
            self.log.tell(&Record::Module(Module { base: *base, end: *end, offset: *offset, path }));
        }
        // Written once, when a function is bound: no section's data.
        for (address, size) in modules.take_linkage() {
            locks().mark(address, size as u32);
        }
        let (base, end) = modules.linker();
        self.settled.linker[0].store(base, Ordering::Relaxed);
        self.settled.linker[1].store(end, Ordering::Relaxed);
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

    /// A mutex is about to be unlocked, by its owner or not: the first few tell whether the layout is right.
    #[inline]
    pub fn sees_owner(&self, is_owner: bool) {
        if !self.settled.owners_seen.load(Ordering::Relaxed) {
            self.looks_at_owner(is_owner);
        }
    }

    #[cold]
    fn looks_at_owner(&self, is_owner: bool) {
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
        (base.load(Ordering::Relaxed)..end.load(Ordering::Relaxed)).contains(&pc)
    }

    /// The program makes a process, which is not followed.
    pub fn forked(&self) {
        self.forks.fetch_add(1, Ordering::Relaxed);
    }

    /// Remembers, for the end record, what could not be seen.
    pub fn note(&self, what: String) {
        self.notes.add(what);
    }

    /// Has all threads tell what they have counted: each does, before its next lock or system call.
    pub fn asks_for_counts(&self) {
        self.settled.asked.fetch_add(1, Ordering::Relaxed);
    }

    /// What threads compare to see that they were [asked](Self::asks_for_counts).
    #[inline]
    pub fn asked(&self) -> u32 {
        self.settled.asked.load(Ordering::Relaxed)
    }

    /// Tells the totals of the locks that were acquired since they were last told: as they stand, less what threads have not told yet.
    pub fn tell_counts(&self) {
        let _counting = self.counting();
        for lock in locks().all() {
            if lock.has_news() {
                self.log.tell(&Record::Counts(lock.counts()));
            }
        }
    }

    /// Tells the totals, writes everything, and ends the stream.
    pub fn finish(&self) {
        let _counting = self.counting();
        let mut out = Vec::new();
        let mut seen = 0;
        let mut all = locks().all();
        all.sort_unstable_by_key(|lock| lock.number);
        for lock in all {
            let counts = lock.counts();
            seen += counts.acquisitions;
            append(&mut out, &Record::Counts(counts));
            if out.len() > log::CAPACITY / 2 {
                self.log.append(&out, |_, _| {});
                out.clear();
            }
        }
        let status = self.status.load(Ordering::Relaxed);
        let end = End {
            sections: self.sections.load(Ordering::Relaxed),
            seen,
            lost: self.log.lost(),
            exit_status: (status != i32::MIN).then_some(status),
        };
        append(&mut out, &Record::End(&self.end_json(end)));
        self.log.end(&out);
    }

    /// The end record: the stream's own keys, and what only this collector knows.
    fn end_json(&self, end: End) -> String {
        let modules = self.modules();
        let found = modules.found().iter().map(|(path, count)| format!("{count} in {}", path.display()));
        let calibrated = match self.calibration.phase() {
            guest::Phase::Found => None,
            _ => Some("this QEMU keeps its state elsewhere: nothing was sampled".to_string()),
        };
        EndJson::new(end)
            .number("threads", self.threads.load(Ordering::Relaxed).into())
            .number("unmatched_unlocks", self.unmatched.load(Ordering::Relaxed))
            .number("forks_not_followed", self.forks.load(Ordering::Relaxed).into())
            .list("functions", found)
            .list("notes", modules.notes().iter().cloned().chain(self.notes.all()).chain(calibrated))
            .finish()
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
