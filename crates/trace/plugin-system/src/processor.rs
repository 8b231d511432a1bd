//! One virtual processor: the locks it holds, which of their sections are sampled, and what they
//! touch.
//!
//! A spin lock's holder is not preempted, so open sections belong to the processor. A section is
//! drawn when its lock is acquired. From then on the processor runs blocks with memory callbacks
//! ([`State::watch`]), until it holds no drawn lock. Only accesses from the stack on which the lock
//! was acquired belong to the section: an interrupt handler runs on another stack, and so does the
//! thread that the scheduler switches to.

use crate::collector::{Collector, Sampling, collector};
use crate::guest::Guest;
use crate::objects::View;
use crate::symbols::Function;
use crate::{devices, frees, layout};
use std::collections::HashMap;
use unconvoy_trace_collector::collection::locks;
use unconvoy_trace_collector::front::{Vcpu, guarded};
use unconvoy_trace_collector::locks::{Lock, Totals};
use unconvoy_trace_collector::memory::Memory as _;
use unconvoy_trace_collector::recorder::Recorder;
use unconvoy_trace_collector::set::Set;
use unconvoy_trace_collector::state::{State, register};
use unconvoy_trace_collector::vcpus::Vcpus;
use unconvoy_trace_stream::{Access, Record, Region, Section, append, flag};

pub const PROCESSORS: usize = 1024;

/// Each entry is made at a processor's first callback and never freed.
// SAFETY: QEMU passes the number to callbacks on that processor's own thread, and callbacks do not
// nest. `all` is used only while all processors are stopped.
pub static BY_NUMBER: Vcpus<Processor, PROCESSORS> = unsafe { Vcpus::new() };

/// Locks in a processor's cache of counts.
const CACHED: usize = 1024;

/// The most acquisitions in progress on one processor, which may spin for one lock, be interrupted,
/// and spin for another. Surplus entries belong to functions that never returned.
const PENDING: usize = 16;

/// Locks that a processor may hold at a time. Surplus entries belong to locks whose release was not
/// seen.
const HELD: usize = 64;

/// Instructions executed, counted by the translated code. Each processor updates its counts at
/// every block, so they fill two cache lines, which processors may prefetch as a pair.
#[repr(C)]
pub struct Instructions {
    pub kernel: u64,
    pub user: u64,
    _apart: [u64; 14],
}

pub struct Processor {
    number: usize,
    recorder: Recorder,
    instructions: *const Instructions,
    pending: Vec<Pending>,
    held: Vec<Held>,
    /// The number of held locks that are sampled.
    sampled: usize,
    view: View,
    threads: HashMap<u64, u32>,
    /// Instructions executed while waiting for locks.
    waited: u64,
    unmatched: u64,
    abandoned: u64,
}

/// An acquiring function between its entry and its return.
struct Pending {
    lock: Region,
    /// Whether it may fail.
    tries: bool,
    /// The stack pointer at the entry; the return address lies there.
    stack: u64,
    /// The instruction count when the wait began.
    waits: Option<u64>,
}

/// A section between the acquisition and the release of its lock.
struct Held {
    lock: &'static Lock,
    since: u64,
    sample: Option<Box<Sample>>,
}

struct Sample {
    set: Set,
    flags: u32,
    thread: u32,
    stack: Region,
    /// Whether the lock lies in per-processor memory. The data that it protects may lie there, too,
    /// and threads on other processors may access the data.
    of_processor: bool,
}

/// A processor's totals for the end record.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    pub kernel: u64,
    pub user: u64,
    pub waited: u64,
    /// Releases of locks that this processor did not hold: acquired before the collection, or on
    /// another processor.
    pub unmatched: u64,
    /// Locks dropped because their release was not seen.
    pub abandoned: u64,
    /// Locks held at the end.
    pub open: u64,
}

impl Vcpu for Processor {
    #[inline]
    fn recorder(&mut self) -> &mut Recorder {
        &mut self.recorder
    }

    #[inline]
    fn is_recorded(&self, address: u64) -> bool {
        self.sampled > 0 && address >= layout::KERNEL
    }

    #[inline]
    fn record_access(&mut self, access: &Access, information: u32) {
        guarded::<Collector>(|| {
            if let Some(collector) = collector() {
                self.record(collector.sampling(), access, information);
            }
        });
    }
}

impl Processor {
    /// `instructions` are the counts that the translated code updates as long as the process lives.
    pub fn new(
        collector: &Collector,
        number: usize,
        state: State,
        instructions: *const Instructions,
    ) -> Self {
        Processor {
            number,
            recorder: Recorder::new(&collector.collection, state, CACHED),
            instructions,
            pending: Vec::new(),
            held: Vec::new(),
            sampled: 0,
            view: View::new(),
            threads: HashMap::new(),
            waited: 0,
            unmatched: 0,
            abandoned: 0,
        }
    }

    /// Kernel instructions executed by this processor. The count includes all of the current block.
    fn now(&self) -> u64 {
        // SAFETY: by `new`; only this thread updates the counts.
        unsafe { (&raw const (*self.instructions).kernel).read_volatile() }
    }

    fn register(&self, which: usize) -> u64 {
        self.recorder.state.register(which)
    }

    /// The processor enters a function, in a block of `block` instructions.
    pub fn enter(&mut self, collector: &Collector, function: Function, block: u64) {
        let first = self.register(register::RDI);
        match function {
            Function::Acquire { size } => self.request(Region::new(first, size.into()), false),
            Function::Try { size } => self.request(Region::new(first, size.into()), true),
            Function::Release => self.release(collector, first, self.now().saturating_sub(block)),
            Function::Wait => self.wait(first, self.now().saturating_sub(block)),
            Function::Free => frees::free_object(&mut self.view, collector, first, None),
            Function::FreeOfCache => {
                let object = self.register(register::RSI);
                frees::free_object(&mut self.view, collector, object, Some(first));
            }
            Function::FreeMany => {
                let (count, array) = (self.register(register::RSI), self.register(register::RDX));
                frees::free_objects(&mut self.view, collector, count, array);
            }
            Function::FreePages => {
                frees::free_pages(collector, first, self.register(register::RSI) as u32);
            }
            Function::SetHostname => {}
        }
    }

    fn request(&mut self, lock: Region, tries: bool) {
        let stack = self.register(register::RSP);
        // The previous function made a tail call to this one, or was left without a return.
        if self.pending.last().is_some_and(|last| last.stack == stack) {
            self.pending.pop();
        }
        if self.pending.len() == PENDING {
            self.pending.remove(0);
        }
        self.pending.push(Pending { lock, tries, stack, waits: None });
    }

    /// Records that the slow path of a lock starts. `now` excludes the current block.
    fn wait(&mut self, lock: u64, now: u64) {
        // The slow path of a reader-writer lock's writer takes the spin lock inside that lock.
        if let Some(pending) = self.pending.last_mut().filter(|pending| pending.lock.contains(lock))
        {
            pending.waits.get_or_insert(now);
        }
    }

    /// A function that locks or waits is about to return.
    pub fn return_from_lock(&mut self, collector: &Collector) {
        let stack = self.register(register::RSP);
        let Some(at) = self.pending.iter().rposition(|pending| pending.stack == stack) else {
            return;
        };
        self.pending.truncate(at + 1);
        let Some(pending) = self.pending.pop() else { return };
        if !pending.tries || self.register(register::RAX) as u8 != 0 {
            self.acquire(collector, &pending, self.now());
        }
    }

    fn acquire(&mut self, collector: &Collector, pending: &Pending, now: u64) {
        let waited = pending.waits.map(|since| now.saturating_sub(since));
        let Some((lock, totals)) = self.counted(collector, pending) else { return };
        totals.acquisitions += 1;
        if let Some(waited) = waited {
            totals.contended += 1;
            totals.waited += waited;
            self.waited += waited;
        }
        if self.held.len() == HELD {
            self.abandoned += 1;
            let abandoned = self.held.remove(0);
            self.sampled -= usize::from(abandoned.sample.is_some());
        }
        let sampling = collector.sampling();
        let sample = (sampling.works && self.recorder.draw(lock))
            .then(|| self.open_section(collector, sampling, lock, pending.stack));
        self.sampled += usize::from(sample.is_some());
        self.held.push(Held { lock, since: now, sample });
        self.switch();
    }

    fn open_section(
        &mut self,
        collector: &Collector,
        sampling: &Sampling,
        lock: &Lock,
        pointer: u64,
    ) -> Box<Sample> {
        let stack = sampling.layout.stack(self.number, pointer);
        let thread =
            *self.threads.entry(stack.address).or_insert_with(|| collector.thread(stack.address));
        let of_processor = sampling.layout.is_per_cpu(lock.region.address);
        Box::new(Sample { set: self.recorder.open(), flags: 0, thread, stack, of_processor })
    }

    /// Releases a lock at `now` and writes its section if it was sampled.
    fn release(&mut self, collector: &Collector, address: u64, now: u64) {
        let Some(at) = self.held.iter().rposition(|held| held.lock.region.address == address)
        else {
            self.unmatched += 1;
            return;
        };
        let Held { lock, since, sample } = self.held.remove(at);
        let totals = self.known(lock);
        totals.held += now.saturating_sub(since);
        if let Some(sample) = sample {
            totals.sampled += 1;
            self.sampled -= 1;
            self.switch();
            self.close_section(collector, lock, *sample);
        }
    }

    /// Switches memory callbacks on or off. Called only in a block that ends with a return or
    /// belongs to a locking function.
    fn switch(&self) {
        let watch = self.sampled > 0;
        if self.recorder.state.is_watching() != watch {
            self.recorder.state.watch(watch);
        }
    }

    fn close_section(&mut self, collector: &Collector, lock: &Lock, sample: Sample) {
        let Sample { set, flags, thread, .. } = sample;
        self.view.next_section();
        let (caches, section) =
            (&collector.sampling().caches, Section { lock: lock.number, thread, order: 0, flags });
        self.recorder.close(&collector.collection, section, set, |access, out| {
            let object = caches
                .as_ref()
                .and_then(|caches| self.view.take_new(&Guest, caches, access.address));
            if let Some(object) = object {
                append(out, &object.record());
            }
        });
    }

    /// Records an access of the kernel, from a block with memory callbacks.
    #[inline]
    fn record(&mut self, Sampling { layout, .. }: &Sampling, access: &Access, information: u32) {
        let pointer = self.register(register::RSP);
        let own = layout.is_own(self.number, access.address);
        let device = layout::may_be_device(access.address);
        for sample in self.held.iter_mut().filter_map(|held| held.sample.as_mut()) {
            if !sample.stack.contains(pointer)
                || sample.stack.contains(access.address)
                || own && !sample.of_processor
            {
                continue;
            }
            if device && devices::is_device(information, access.address) {
                sample.flags |= flag::IO;
            } else {
                sample.set.add(access);
            }
        }
    }

    /// Flags the open sections: the processor drives a device by an I/O instruction, or by a write
    /// to a model-specific register (`by_register`).
    pub fn mark_io(&mut self, by_register: bool) {
        if by_register && !devices::is_device_register(self.register(register::RCX) as u32) {
            return;
        }
        let pointer = self.register(register::RSP);
        for sample in self.held.iter_mut().filter_map(|held| held.sample.as_mut()) {
            if sample.stack.contains(pointer) {
                sample.flags |= flag::IO;
            }
        }
    }

    /// Returns the requested lock with this processor's counts of it. A new lock is first written
    /// to the stream.
    fn counted(
        &mut self,
        collector: &Collector,
        pending: &Pending,
    ) -> Option<(&'static Lock, &mut Totals)> {
        let (view, region) = (&mut self.view, pending.lock);
        self.recorder.counts.of(
            region.address,
            |lock| !lock.is_retired(),
            || {
                if let Some(lock) = locks().find(region.address).filter(|lock| !lock.is_retired()) {
                    return Some(lock);
                }
                let caller = Guest.word(pending.stack).unwrap_or(0);
                // The record of the object that contains the lock precedes the lock's record. A
                // reader then knows the object even if its memory is reused. The object is read
                // from guest memory. If there is none, an empty record is written.
                let mut out = Vec::new();
                if let Some(caches) = &collector.sampling().caches {
                    let none = unconvoy_trace_stream::Object {
                        region: Region::new(region.address, 0),
                        name: &[],
                    };
                    let object = view.object_now(&Guest, caches, region.address);
                    append(
                        &mut out,
                        &object.map_or(Record::Object(none), |object| object.record()),
                    );
                }
                Some(locks().find_or_make(region, caller, |lock| {
                    append(&mut out, &lock.record());
                    collector.collection.log.append(&out);
                }))
            },
        )
    }

    /// The counts of a held lock.
    fn known(&mut self, lock: &'static Lock) -> &mut Totals {
        let counts = &mut self.recorder.counts;
        counts
            .of(lock.region.address, |counted| std::ptr::eq(counted, lock), || Some(lock))
            .expect("`find` returns a lock")
            .1
    }

    /// Ends the collection: publishes the counts, with the hold times of locks still held. Open
    /// sections are never written, because they have no unlock.
    pub fn finish(&mut self) -> Seen {
        let now = self.now();
        let open = std::mem::take(&mut self.held);
        for held in &open {
            self.known(held.lock).held += now.saturating_sub(held.since);
        }
        self.sampled = 0;
        self.switch();
        self.recorder.counts.publish();
        // SAFETY: as in `now`.
        let user = unsafe { (&raw const (*self.instructions).user).read_volatile() };
        let Processor { waited, unmatched, abandoned, .. } = *self;
        Seen { kernel: now, user, waited, unmatched, abandoned, open: open.len() as u64 }
    }
}
