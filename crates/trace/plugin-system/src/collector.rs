//! State shared by all processors.

use crate::api;
use crate::layout::Layout;
use crate::messages;
use crate::objects::{Caches, Offsets};
use crate::options::Options;
use crate::symbols::Symbols;
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use unconvoy_trace_collector::api::Id;
use unconvoy_trace_collector::collection::Collection;
use unconvoy_trace_collector::messages as shared;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Waits for the guest's start signal.
    Waiting,
    /// QEMU is about to drop all translations.
    Beginning,
    Collecting,
    /// QEMU is about to drop all translations again.
    Ending,
    Ended,
}

pub struct Collector {
    pub collection: Collection,
    pub id: Id,
    pub processors: usize,
    pub symbols: Symbols,
    pub offsets: Option<Offsets>,
    pub phase: AtomicU8,
    scoreboard: Scoreboard,
    /// Set when the collection starts.
    pub sampling: OnceLock<Sampling>,
    /// Numbers of threads, by the start of their stacks.
    threads: Mutex<HashMap<u64, u32>>,
}

struct Scoreboard(*mut api::Scoreboard);

// SAFETY: created once by QEMU, which lets all threads use it.
unsafe impl Send for Scoreboard {}
// SAFETY: as above.
unsafe impl Sync for Scoreboard {}

/// Facts about the guest at the start of the collection.
#[derive(Debug, Default)]
pub struct Sampling {
    /// Whether sections can be sampled at all.
    pub works: bool,
    pub layout: Layout,
    pub caches: Option<Caches>,
}

static COLLECTOR: OnceLock<Collector> = OnceLock::new();

/// Available once the plug-in is installed.
pub fn collector() -> Option<&'static Collector> {
    COLLECTOR.get()
}

impl Collector {
    /// Starts the stream. The scoreboard has `counted` bytes for each processor.
    ///
    /// # Errors
    ///
    /// A file cannot be opened, the symbols are unusable, or the plug-in is loaded twice.
    pub fn set_up(
        id: Id,
        processors: usize,
        counted: usize,
        options: Options,
    ) -> Result<(), String> {
        let text = |path: &Path| {
            let text = std::fs::read(path).map_err(|error| shared::file(path, error))?;
            Ok::<_, String>(String::from_utf8_lossy(&text).into_owned())
        };
        let symbols = Symbols::parse(&text(&options.symbols)?);
        let symbols = symbols.map_err(|error| shared::file(&options.symbols, error))?;
        let (offsets, note) = match &options.offsets {
            Some(path) => match Offsets::parse(&text(path)?) {
                Ok(offsets) => (Some(offsets), None),
                Err(error) => (None, Some(messages::bad_offsets(path, &error))),
            },
            None => (None, Some(messages::no_offsets())),
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
        COLLECTOR.set(collector).map_err(|_| shared::loaded_twice())
    }

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

    /// Changes the phase if it is `from`. Returns whether this call changed it.
    pub fn advance(&self, from: Phase, to: Phase) -> bool {
        self.phase
            .compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Memory for the processors' counts of instructions.
    pub fn scoreboard(&self) -> *mut api::Scoreboard {
        self.scoreboard.0
    }

    /// Facts about the guest, once the collection has started.
    pub fn sampling(&self) -> &Sampling {
        static NOTHING: OnceLock<Sampling> = OnceLock::new();
        self.sampling.get().unwrap_or_else(|| NOTHING.get_or_init(Sampling::default))
    }

    pub fn threads(&self) -> MutexGuard<'_, HashMap<u64, u32>> {
        self.threads.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The number of the thread whose stack starts at `stack`.
    pub fn thread(&self, stack: u64) -> u32 {
        let mut threads = self.threads();
        let next = threads.len() as u32;
        *threads.entry(stack).or_insert(next)
    }
}
