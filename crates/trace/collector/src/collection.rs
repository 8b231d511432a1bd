//! State shared by all threads of a collector.

use crate::locks::Locks;
use crate::log::{self, Log};
use crate::messages;
use crate::notes::Notes;
use crate::options::Options;
use crate::places::Places;
use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};
use unconvoy_trace_stream::{Context, End, Json, MAGIC, Record, append};

/// The table of locks is not part of [`Collection`], because its size is two megabytes.
static LOCKS: Locks = Locks::new();

/// The locks of the emulated program or kernel.
pub fn locks() -> &'static Locks {
    &LOCKS
}

/// See the [module](self).
pub struct Collection {
    /// The options of the plug-in.
    pub options: Options,
    /// The stream.
    pub log: Log,
    places: Places,
    /// What the collector could not see.
    pub notes: Notes,
    sections: AtomicU64,
}

impl Collection {
    /// Starts the stream.
    ///
    /// # Errors
    ///
    /// The output file cannot be opened; the text says why.
    pub fn new(options: Options) -> Result<Self, String> {
        let out = &options.out;
        let file = File::options().write(true).create(true).truncate(true).open(out);
        let log = Log::new(file.map_err(|error| messages::file(out, error))?);
        log.append(&MAGIC);
        Ok(Collection {
            options,
            log,
            places: Places::new(),
            notes: Notes::new(),
            sections: AtomicU64::new(0),
        })
    }

    /// Writes the context record.
    pub fn write_context(&self, source: &str, program: &[String], processors: u32) {
        let Options { rate, sampling, seed, .. } = self.options;
        let version = env!("CARGO_PKG_VERSION");
        let context =
            Context { source, program, rate, sampling, processors, page_size: 4096, seed, version };
        self.log.append_record(&Record::Context(&context.json()));
    }

    /// The number of the place at `pc`.
    pub fn place(&self, pc: u64) -> u32 {
        self.places.number(&self.log, pc)
    }

    /// Counts a written section.
    pub fn count_section(&self) {
        self.sections.fetch_add(1, Ordering::Relaxed);
    }

    /// Writes the locks' totals and the end record, and ends the stream. `is_timed` adds the times
    /// for which locks were held and waited for; `complete` adds the front end's keys to the end
    /// record.
    pub fn finish(
        &self,
        is_timed: bool,
        exit_status: Option<i32>,
        complete: impl FnOnce(Json) -> Json,
    ) {
        let (mut out, mut seen) = (Vec::new(), 0);
        let mut all = locks().all();
        all.sort_unstable_by_key(|lock| lock.number);
        for lock in all {
            let counts = lock.counts();
            seen += counts.acquisitions;
            append(&mut out, &Record::Counts(counts));
            if is_timed {
                append(&mut out, &Record::Held(lock.held()));
            }
            if out.len() > log::CAPACITY / 2 {
                self.log.append(&out);
                out.clear();
            }
        }
        let end = End {
            sections: self.sections.load(Ordering::Relaxed),
            seen,
            lost: self.log.lost(),
            exit_status,
        };
        append(&mut out, &Record::End(&complete(end.open_json()).finish()));
        self.log.end(&out);
    }
}
