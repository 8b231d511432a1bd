//! Starts the collection on the guest's signal, and ends it.

use crate::api;
use crate::collector::{Collector, Phase, Sampling, collector};
use crate::guest::Guest;
use crate::layout::{self, Layout};
use crate::messages;
use crate::objects::Caches;
use crate::processor::{BY_NUMBER, Processor, Seen};
use crate::registers::Registers;
use std::sync::atomic::Ordering;
use unconvoy_trace_collector::api::Id;
use unconvoy_trace_collector::front::{guarded, listen};
use unconvoy_trace_collector::memory::Memory as _;
use unconvoy_trace_stream::{Json, Object, Record};

/// Host names that start and end the collection.
const BEGIN: &[u8] = b"unconvoy-begin";
const END: &[u8] = b"unconvoy-end";

impl Collector {
    /// Handles the entry of `sethostname(2)`, which may start or end the collection.
    pub fn handle_hostname(&self) {
        /// Offsets of the first two arguments in the kernel's `struct pt_regs`.
        const ARGUMENTS: [u64; 2] = [112, 104];
        let registers = Registers::read_all();
        let argument = |offset: u64| Guest.word(registers.get(c"rdi")?.wrapping_add(offset));
        let [Some(name), Some(length)] = ARGUMENTS.map(argument) else { return };
        let name = Guest.string(name, length.min(64) as usize);
        match self.phase() {
            Phase::Waiting if name == BEGIN => self.prepare(&registers),
            Phase::Collecting if name == END => self.request_end(),
            _ => {}
        }
    }

    fn prepare(&self, registers: &Registers) {
        if !self.advance(Phase::Waiting, Phase::Beginning) {
            return;
        }
        let note = |note| self.collection.notes.add(note);
        let layout = Layout::read(&Guest, &self.symbols, self.processors, &mut |what| note(what));
        let unfit = layout::unfit(registers.get(c"cr4").unwrap_or(0), &layout);
        let works = unfit.is_none();
        unfit.into_iter().for_each(note);
        let caches =
            self.offsets.and_then(|offsets| Caches::read(&Guest, &self.symbols, &layout, offsets));
        if caches.is_none() && self.offsets.is_some() {
            note(messages::no_slab_caches());
        }
        for region in caches.iter().flat_map(|caches| caches.nodes(&Guest, &self.symbols)) {
            self.collection
                .log
                .append_record(&Record::Object(Object { region, name: b"pglist_data" }));
        }
        let _ = self.sampling.set(Sampling { works, layout, caches });
        // SAFETY: this plug-in's id; the function has static lifetime.
        unsafe { api::qemu_plugin_reset(self.id, start) };
    }

    pub fn request_end(&self) {
        if self.advance(Phase::Collecting, Phase::Ending) {
            // SAFETY: as above.
            unsafe { api::qemu_plugin_reset(self.id, stop) };
        }
    }

    /// Writes all totals and pending records, and ends the stream. All processors are stopped, none
    /// in a callback.
    pub fn finish(&self) {
        if self.phase.swap(Phase::Ended as u8, Ordering::AcqRel) == Phase::Ended as u8 {
            return;
        }
        let seen: Vec<Seen> = BY_NUMBER.all().map(Processor::finish).collect();
        let sum = |of: fn(&Seen) -> u64| seen.iter().map(of).sum::<u64>();
        let instructions = Json::default()
            .value("kernel", sum(|seen| seen.kernel))
            .value("user", sum(|seen| seen.user))
            .value("waited", sum(|seen| seen.waited))
            .finish();
        let never = self.sampling.get().is_none().then(messages::never_began);
        let per_cpu =
            self.sampling().layout.per_cpu_offsets.iter().map(|offset| format!("{offset:#x}"));
        self.collection.finish(true, None, |end| {
            end.value("threads", self.threads().len())
                .value("unmatched_unlocks", sum(|seen| seen.unmatched))
                .value("abandoned", sum(|seen| seen.abandoned))
                .value("open", sum(|seen| seen.open))
                .value("instructions", instructions)
                .list("per_cpu", per_cpu)
                .list("functions", self.symbols.counts())
                .list("notes", self.collection.notes.all().into_iter().chain(never))
        });
    }
}

/// Starts the collection. QEMU calls it with all translations dropped and all processors stopped.
extern "C" fn start(id: Id) {
    guarded::<Collector>(|| {
        if let Some(collector) = collector() {
            collector.advance(Phase::Beginning, Phase::Collecting);
        }
    });
    listen::<Collector>(id);
}

/// Ends the collection. QEMU calls it with all translations dropped and all processors stopped.
extern "C" fn stop(id: Id) {
    guarded::<Collector>(|| {
        if let Some(collector) = collector() {
            collector.finish();
        }
    });
    // Keep observing translations, although nothing is inserted. Without an observer, QEMU 10.0
    // crashes at the first translation after one that a page fault aborted. The aborted translation
    // leaves markers for memory callbacks behind, and only the translation of an observed block
    // clears the markers.
    listen::<Collector>(id);
}
