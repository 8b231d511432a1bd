//! What the processors share, and the course of collecting: waiting for the guest to say so, collecting, and the end of the stream.

use crate::api;
use crate::guest::Guest;
use crate::layout::{self, Layout};
use crate::memory::Memory;
use crate::objects::{Caches, Offsets};
use crate::options::Options;
use crate::processor::{Instructions, Totals};
use crate::state::Registers;
use crate::symbols::Symbols;
use crate::translate;
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use unconvoy_trace_collector::end::{EndJson, Notes};
use unconvoy_trace_collector::locks::Locks;
use unconvoy_trace_collector::log::{self, Log};
use unconvoy_trace_collector::places::Places;
use unconvoy_trace_stream::{Context, End, Held, MAGIC, Object, Record, append};

/// The host names by which the guest says when.
const BEGIN: &[u8] = b"unconvoy-begin";
const END: &[u8] = b"unconvoy-end";

/// The course of collecting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// For the guest to say that it begins.
    Waiting,
    /// All translations are about to be forgotten.
    Beginning,
    Collecting,
    /// All are about to be forgotten again.
    Ending,
    Ended,
}

/// See the [module](self).
pub struct Collector {
    id: api::Id,
    processors: usize,
    pub options: Options,
    pub symbols: Symbols,
    offsets: Option<Offsets>,
    pub log: Log,
    pub places: Places,
    /// A [`Phase`].
    phase: AtomicU8,
    scoreboard: Scoreboard,
    sampling: OnceLock<Sampling>,
    threads: Mutex<HashMap<u64, u32>>,
    pub sections: AtomicU64,
    notes: Notes,
}

struct Scoreboard(*mut api::Scoreboard);

// SAFETY: QEMU's, made once, and meant for all threads.
unsafe impl Send for Scoreboard {}
// SAFETY: as above.
unsafe impl Sync for Scoreboard {}

/// What is known of the guest when collecting begins.
#[derive(Debug, Default)]
pub struct Sampling {
    /// Whether sections can be sampled at all.
    pub works: bool,
    pub layout: Layout,
    pub caches: Option<Caches>,
}

static COLLECTOR: OnceLock<Collector> = OnceLock::new();
static LOCKS: Locks = Locks::new();

/// The locks of the kernel.
pub fn locks() -> &'static Locks {
    &LOCKS
}

/// The collector, once the plug-in is installed.
pub fn collector() -> Option<&'static Collector> {
    COLLECTOR.get()
}

/// Starts waiting; what hinders it otherwise.
pub fn install(id: api::Id, processors: usize, options: Options) -> Result<(), String> {
    let text = |path: &Path| {
        let text = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok::<_, String>(String::from_utf8_lossy(&text).into_owned())
    };
    let symbols = text(&options.symbols)?;
    let symbols = Symbols::parse(&symbols).map_err(|error| format!("{}: {error}", options.symbols.display()))?;
    let notes = Notes::new();
    let offsets = match &options.offsets {
        Some(path) => {
            let offsets = Offsets::parse(&text(path)?);
            offsets
                .map_err(|what| notes.add(format!("objects of the heap have no names: {}: {what}", path.display())))
                .ok()
        }
        None => {
            notes.add(
                "objects of the heap have no names, and a lock in freed memory stays the same: no offsets were given"
                    .to_string(),
            );
            None
        }
    };
    let out = &options.out;
    let file = File::options().write(true).create(true).truncate(true).open(out);
    let file = file.map_err(|error| format!("{}: {error}", out.display()))?;
    // SAFETY: of the size that the processors' words have.
    let scoreboard = Scoreboard(unsafe { api::qemu_plugin_scoreboard_new(size_of::<Instructions>()) });
    let context = Context {
        source: "qemu-system",
        program: &[],
        rate: options.rate,
        processors: processors as u32,
        page_size: 4096,
        seed: options.seed,
        version: env!("CARGO_PKG_VERSION"),
    };
    let log = Log::new(file);
    log.append(&MAGIC, |_, _| {});
    log.tell(&Record::Context(&context.json()));
    let collector = Collector {
        id,
        processors,
        options,
        symbols,
        offsets,
        log,
        places: Places::new(),
        phase: AtomicU8::new(Phase::Waiting as u8),
        scoreboard,
        sampling: OnceLock::new(),
        threads: Mutex::default(),
        sections: AtomicU64::new(0),
        notes,
    };
    COLLECTOR.set(collector).map_err(|_| "the plug-in was loaded twice".to_string())?;
    // SAFETY: the functions live as long as the process, and so does what they use.
    unsafe { listen(id) };
    Ok(())
}

/// Has QEMU call back.
///
/// # Safety
///
/// Called when the plug-in is installed or reset.
unsafe fn listen(id: api::Id) {
    // SAFETY: by this function's contract.
    unsafe {
        api::qemu_plugin_register_vcpu_tb_trans_cb(id, translate::translated);
        api::qemu_plugin_register_atexit_cb(id, exits, std::ptr::null_mut());
    }
}

impl Collector {
    /// Where collecting is.
    #[inline]
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Waiting,
            1 => Phase::Beginning,
            2 => Phase::Collecting,
            3 => Phase::Ending,
            _ => Phase::Ended,
        }
    }

    /// From one phase to the next; whether it was this call that did it.
    fn goes_on(&self, from: Phase, to: Phase) -> bool {
        self.phase.compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// The processors' [`Instructions`].
    pub fn scoreboard(&self) -> *mut api::Scoreboard {
        self.scoreboard.0
    }

    /// What is known of the guest, once collecting has begun.
    pub fn sampling(&self) -> &Sampling {
        static NOTHING: OnceLock<Sampling> = OnceLock::new();
        self.sampling.get().unwrap_or_else(|| NOTHING.get_or_init(Sampling::default))
    }

    /// The number of the thread with the stack that begins at `stack`.
    pub fn thread(&self, stack: u64) -> u32 {
        let mut threads = self.threads.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let next = threads.len() as u32;
        *threads.entry(stack).or_insert(next)
    }

    /// At the entry of `sethostname(2)`: the guest may say that it begins or ends.
    pub fn names_itself(&self) {
        /// Of the first and the second argument, in the kernel's `struct pt_regs`.
        const ARGUMENTS: [u64; 2] = [112, 104];
        let registers = Registers::ask();
        let argument = |offset: u64| Guest.word(registers.get(c"rdi")?.wrapping_add(offset));
        let [Some(name), Some(length)] = ARGUMENTS.map(argument) else { return };
        let name = Guest.string(name, length.min(64) as usize);
        match self.phase() {
            Phase::Waiting if name == BEGIN => self.begins(&registers),
            Phase::Collecting if name == END => self.wants_end(),
            _ => {}
        }
    }

    fn begins(&self, registers: &Registers) {
        if !self.goes_on(Phase::Waiting, Phase::Beginning) {
            return;
        }
        let layout = Layout::look(&Guest, &self.symbols, self.processors, &mut |note| self.notes.add(note));
        let unfit = layout::unfit(registers.get(c"cr4").unwrap_or(0), &layout);
        let works = unfit.is_none();
        unfit.into_iter().for_each(|note| self.notes.add(note));
        let caches = self.offsets.and_then(|offsets| Caches::look(&Guest, &self.symbols, &layout, offsets));
        if caches.is_none() && self.offsets.is_some() {
            self.notes.add("objects of the heap have no names: the kernel's slab caches were not found".to_string());
        }
        for (address, size) in caches.iter().flat_map(|caches| caches.nodes(&Guest, &self.symbols)) {
            self.log.tell(&Record::Object(Object { address, size, name: b"pglist_data" }));
        }
        let _ = self.sampling.set(Sampling { works, layout, caches });
        // SAFETY: the id is this plug-in's, the function lives for ever.
        unsafe { api::qemu_plugin_reset(self.id, resumes) };
    }

    fn wants_end(&self) {
        if self.goes_on(Phase::Collecting, Phase::Ending) {
            // SAFETY: as above.
            unsafe { api::qemu_plugin_reset(self.id, ends) };
        }
    }

    /// Collecting makes no sense any more.
    pub fn fails(&self, why: String) {
        self.notes.add(why);
        self.wants_end();
    }

    /// Tells the totals, writes everything, and ends the stream. All processors are stopped.
    fn finish(&self) {
        if self.phase.swap(Phase::Ended as u8, Ordering::AcqRel) == Phase::Ended as u8 {
            return;
        }
        let totals = translate::all_end();
        let mut all = locks().all();
        all.sort_unstable_by_key(|lock| lock.number);
        let (mut out, mut seen) = (Vec::new(), 0);
        for lock in all {
            let counts = lock.counts();
            seen += counts.acquisitions;
            append(&mut out, &Record::Counts(counts));
            let (held, waited) = (lock.held.load(Ordering::Relaxed), lock.waited.load(Ordering::Relaxed));
            append(&mut out, &Record::Held(Held { lock: lock.number, held, waited }));
            if out.len() > log::CAPACITY / 2 {
                self.log.append(&out, |_, _| {});
                out.clear();
            }
        }
        let end =
            End { sections: self.sections.load(Ordering::Relaxed), seen, lost: self.log.lost(), exit_status: None };
        append(&mut out, &Record::End(&self.end_json(end, &totals)));
        self.log.append(&out, |_, _| {});
        self.log.write();
        self.log.close();
    }

    fn end_json(&self, end: End, totals: &[Totals]) -> String {
        let sum = |of: fn(&Totals) -> u64| totals.iter().map(of).sum::<u64>();
        let threads = self.threads.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).len();
        let never = self
            .sampling
            .get()
            .is_none()
            .then(|| "collecting never began: the guest did not set its host name to unconvoy-begin".to_string());
        let instructions = [
            ("kernel", sum(|totals| totals.kernel)),
            ("user", sum(|totals| totals.user)),
            ("waited", sum(|totals| totals.waited)),
        ];
        EndJson::new(end)
            .number("threads", threads as u64)
            .number("unmatched_unlocks", sum(|totals| totals.unmatched))
            .number("abandoned", sum(|totals| totals.abandoned))
            .number("open", sum(|totals| totals.open))
            .numbers("instructions", &instructions)
            .list("per_cpu", self.sampling().layout.per_cpu_offsets.iter().map(|offset| format!("{offset:#x}")))
            .list("functions", self.symbols.counts())
            .list("notes", self.notes.all().into_iter().chain(never))
            .finish()
    }
}

/// All translations are forgotten, and all processors stopped: collecting begins.
extern "C" fn resumes(id: api::Id) {
    translate::guarded(|| {
        if let Some(collector) = collector() {
            collector.goes_on(Phase::Beginning, Phase::Collecting);
        }
    });
    // SAFETY: the plug-in was just reset.
    unsafe { listen(id) };
}

/// All translations are forgotten, and all processors stopped: collecting ends.
extern "C" fn ends(id: api::Id) {
    translate::guarded(|| {
        if let Some(collector) = collector() {
            collector.finish();
        }
    });
    // Nothing is inserted any more. But without a plug-in that listens to translations, QEMU 10.0 crashes at the first one after one that a page fault has ended: that leaves its
    // marks for memory callbacks on, which only the translation of a listened-to block clears.
    // SAFETY: the plug-in was just reset.
    unsafe { listen(id) };
}

/// QEMU ends, and all processors are stopped.
extern "C" fn exits(_: api::Id, _: *mut std::ffi::c_void) {
    translate::guarded(|| {
        if let Some(collector) = collector() {
            collector.finish();
        }
    });
}
