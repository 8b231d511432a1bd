//! What the processors share.

use crate::api;
use crate::layout::Layout;
use crate::objects::{Caches, Offsets};
use crate::options::Options;
use crate::symbols::Symbols;
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use unconvoy_trace_collector::api::Id;
use unconvoy_trace_collector::collection::Collection;

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
    pub collection: Collection,
    pub id: Id,
    pub processors: usize,
    pub symbols: Symbols,
    pub offsets: Option<Offsets>,
    /// A [`Phase`].
    pub phase: AtomicU8,
    scoreboard: Scoreboard,
    /// Set when collecting begins.
    pub sampling: OnceLock<Sampling>,
    /// The numbers of threads, by where their stacks begin.
    threads: Mutex<HashMap<u64, u32>>,
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

/// The collector, once the plug-in is installed.
pub fn collector() -> Option<&'static Collector> {
    COLLECTOR.get()
}

impl Collector {
    /// Begins the stream; what hinders it otherwise. Each processor counts in `counted` bytes.
    pub fn set_up(id: Id, processors: usize, counted: usize, options: Options) -> Result<(), String> {
        let text = |path: &Path| {
            let text = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
            Ok::<_, String>(String::from_utf8_lossy(&text).into_owned())
        };
        let symbols = Symbols::parse(&text(&options.symbols)?);
        let symbols = symbols.map_err(|error| format!("{}: {error}", options.symbols.display()))?;
        let (offsets, note) = match &options.offsets {
            Some(path) => match Offsets::parse(&text(path)?) {
                Ok(offsets) => (Some(offsets), None),
                Err(what) => (None, Some(format!("objects of the heap have no names: {}: {what}", path.display()))),
            },
            None => {
                let note = "objects of the heap have no names, and a lock in freed memory stays the same: no offsets were given";
                (None, Some(note.to_string()))
            }
        };
        let collection = Collection::new(options.common)?;
        note.into_iter().for_each(|note| collection.notes.add(note));
        collection.write_context("qemu-system", &[], processors as u32);
        let collector = Collector {
            collection,
            id,
            processors,
            symbols,
            offsets,
            phase: AtomicU8::new(Phase::Waiting as u8),
            // SAFETY: no preconditions.
            scoreboard: Scoreboard(unsafe { api::qemu_plugin_scoreboard_new(counted) }),
            sampling: OnceLock::new(),
            threads: Mutex::default(),
        };
        COLLECTOR.set(collector).map_err(|_| "the plug-in was loaded twice".to_string())
    }

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
    pub fn advance(&self, from: Phase, to: Phase) -> bool {
        self.phase.compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// What the processors count in.
    pub fn scoreboard(&self) -> *mut api::Scoreboard {
        self.scoreboard.0
    }

    /// What is known of the guest, once collecting has begun.
    pub fn sampling(&self) -> &Sampling {
        static NOTHING: OnceLock<Sampling> = OnceLock::new();
        self.sampling.get().unwrap_or_else(|| NOTHING.get_or_init(Sampling::default))
    }

    pub fn threads(&self) -> MutexGuard<'_, HashMap<u64, u32>> {
        self.threads.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The number of the thread with the stack that begins at `stack`.
    pub fn thread(&self, stack: u64) -> u32 {
        let mut threads = self.threads();
        let next = threads.len() as u32;
        *threads.entry(stack).or_insert(next)
    }
}
