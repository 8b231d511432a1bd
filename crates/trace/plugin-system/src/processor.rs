//! One virtual processor: which locks it holds, which of these sections are sampled, and what they
//! touch.
//!
//! A spin lock's holder is not preempted, so that open sections are its processor's. A section is
//! drawn when its lock is acquired, and from then on the processor runs blocks with memory
//! callbacks ([`State::watch`]), until it holds no drawn lock any more. Accesses count as the
//! section's only from the stack on which it acquired the lock: an interrupt's handler has another,
//! and so has the thread that the scheduler goes on with.

use crate::api;
use crate::collector::{Collector, Sampling, collector};
use crate::guest::Guest;
use crate::layout;
use crate::objects::{Cache, View};
use crate::symbols::Function;
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

/// The most virtual processors.
pub const PROCESSORS: usize = 1024;

/// Made at a processor's first callback, and never freed.
// SAFETY: they are asked for by numbers that QEMU hands to a callback, on that processor's own
// thread; callbacks do not nest. All are asked for while all processors are stopped.
pub static BY_NUMBER: Vcpus<Processor, PROCESSORS> = unsafe { Vcpus::new() };

/// Locks whose counts a processor keeps, before it adds them to the lock's.
const CACHED: usize = 1024;

/// Acquisitions that a processor may be within at a time: it spins for one, and in an interrupt for
/// another. More are some that never returned.
const PENDING: usize = 16;

/// Locks that a processor may hold at a time. More are some whose release was not seen.
const HELD: usize = 64;

/// What the translated code counts by itself: instructions executed. Each processor adds to its own
/// at every block, so that they lie apart: two cache lines, which processors may fetch together.
#[repr(C)]
pub struct Instructions {
    pub kernel: u64,
    pub user: u64,
    _apart: [u64; 14],
}

/// See the [module](self).
pub struct Processor {
    number: usize,
    recorder: Recorder,
    instructions: *const Instructions,
    pending: Vec<Pending>,
    held: Vec<Held>,
    /// How many of the held locks are sampled.
    sampled: usize,
    view: View,
    threads: HashMap<u64, u32>,
    /// In instructions.
    waited: u64,
    unmatched: u64,
    abandoned: u64,
}

/// An acquiring function between its entry and its return.
struct Pending {
    lock: Region,
    /// It may fail.
    tries: bool,
    /// The stack pointer at its entry, where the return address lies.
    stack: u64,
    /// When it began to wait.
    waits: Option<u64>,
}

/// A section between the acquisition of its lock and the release.
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
    /// The lock lies in per-processor memory: what it protects may lie there, too, and another
    /// thread comes to it from another processor.
    of_processor: bool,
}

/// What a processor has seen, for the end record.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    pub kernel: u64,
    pub user: u64,
    pub waited: u64,
    /// Releases of locks that this processor did not hold: acquired before collecting began, or on
    /// another processor.
    pub unmatched: u64,
    /// Locks whose release was not seen for too long.
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
    /// The counts of instructions are what the translated code adds to, for as long as the process
    /// lives.
    pub fn new(collector: &Collector, number: usize, state: State, instructions: *const Instructions) -> Self {
        Processor {
            number,
            recorder: Recorder::new(&collector.collection, number as u32, state, CACHED),
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

    /// Instructions that this processor has executed in the kernel; within a block, the whole
    /// block's.
    fn now(&self) -> u64 {
        // SAFETY: by `new`; only this processor's own thread, which is here, adds to it.
        unsafe { (&raw const (*self.instructions).kernel).read_volatile() }
    }

    fn register(&self, which: usize) -> u64 {
        self.recorder.state.register(which)
    }

    /// A function is entered, with the first instruction of a block of so many.
    pub fn enter(&mut self, collector: &Collector, function: Function, block: u64) {
        let first = self.register(register::RDI);
        match function {
            Function::Acquire { size } => self.ask(Region::new(first, size.into()), false),
            Function::Try { size } => self.ask(Region::new(first, size.into()), true),
            Function::Release => self.release(collector, first, self.now().saturating_sub(block)),
            Function::Wait => self.wait(first, self.now().saturating_sub(block)),
            Function::Free => self.free(collector, first, None),
            Function::FreeOfCache => self.free(collector, self.register(register::RSI), Some(first)),
            Function::FreeMany => self.free_many(collector),
            Function::FreePages => free_pages(collector, first, self.register(register::RSI) as u32),
            Function::Name => {}
        }
    }

    fn ask(&mut self, lock: Region, tries: bool) {
        let stack = self.register(register::RSP);
        // One that goes on as another (a jump), or was left without a return.
        if self.pending.last().is_some_and(|last| last.stack == stack) {
            self.pending.pop();
        }
        if self.pending.len() == PENDING {
            self.pending.remove(0);
        }
        self.pending.push(Pending { lock, tries, stack, waits: None });
    }

    /// The slow path of a lock: `now` without the block that begins here.
    fn wait(&mut self, lock: u64, now: u64) {
        // A writer's slow path takes the spin lock within its lock.
        if let Some(pending) = self.pending.last_mut().filter(|pending| pending.lock.contains(lock)) {
            pending.waits.get_or_insert(now);
        }
    }

    /// A function that locks, or waits for one, is about to return.
    pub fn return_from_lock(&mut self, collector: &Collector) {
        let stack = self.register(register::RSP);
        let Some(at) = self.pending.iter().rposition(|pending| pending.stack == stack) else { return };
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
        let sample = (sampling.works && self.recorder.draw())
            .then(|| self.open_section(collector, sampling, lock, pending.stack));
        self.sampled += usize::from(sample.is_some());
        self.held.push(Held { lock, since: now, sample });
        self.switch();
    }

    fn open_section(&mut self, collector: &Collector, sampling: &Sampling, lock: &Lock, pointer: u64) -> Box<Sample> {
        let stack = sampling.layout.stack(self.number, pointer);
        let thread = *self.threads.entry(stack.address).or_insert_with(|| collector.thread(stack.address));
        let of_processor = sampling.layout.is_per_cpu(lock.region.address);
        Box::new(Sample { set: self.recorder.open(), flags: 0, thread, stack, of_processor })
    }

    /// A lock is released, at `now`; its section is written if it was sampled.
    fn release(&mut self, collector: &Collector, address: u64, now: u64) {
        let Some(at) = self.held.iter().rposition(|held| held.lock.region.address == address) else {
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

    /// Has the processor run blocks with memory callbacks or not: called where the block ends with
    /// a return, or belongs to a locking function.
    fn switch(&self) {
        let watch = self.sampled > 0;
        if self.recorder.state.is_watching() != watch {
            self.recorder.state.watch(watch);
        }
    }

    fn close_section(&mut self, collector: &Collector, lock: &Lock, sample: Sample) {
        let Sample { set, flags, thread, .. } = sample;
        self.view.next_section();
        let (caches, section) = (&collector.sampling().caches, Section { lock: lock.number, thread, order: 0, flags });
        self.recorder.close(&collector.collection, section, set, |access, out| {
            let object = caches.as_ref().and_then(|caches| self.view.take_new(&Guest, caches, access.address));
            if let Some(object) = object {
                append(out, &object.record());
            }
        });
    }

    /// The kernel accesses memory, in a block with memory callbacks.
    #[inline]
    fn record(&mut self, Sampling { layout, .. }: &Sampling, access: &Access, information: u32) {
        let pointer = self.register(register::RSP);
        let own = layout.is_own(self.number, access.address);
        let device = layout::may_be_device(access.address);
        for sample in self.held.iter_mut().filter_map(|held| held.sample.as_mut()) {
            if !sample.stack.contains(pointer) || sample.stack.contains(access.address) || own && !sample.of_processor {
                continue;
            }
            if device && is_device(information, access.address) {
                sample.flags |= flag::IO;
            } else {
                sample.set.add(access);
            }
        }
    }

    /// It talks to a device by an instruction of its own; or by a write to this register of the
    /// processor's.
    pub fn mark_io(&mut self, by_register: bool) {
        if by_register && !is_device_register(self.register(register::RCX) as u32) {
            return;
        }
        let pointer = self.register(register::RSP);
        for sample in self.held.iter_mut().filter_map(|held| held.sample.as_mut()) {
            if sample.stack.contains(pointer) {
                sample.flags |= flag::IO;
            }
        }
    }

    /// The lock, which is made known, with its counts.
    fn counted(&mut self, collector: &Collector, pending: &Pending) -> Option<(&'static Lock, &mut Totals)> {
        let (view, region) = (&mut self.view, pending.lock);
        self.recorder.counts.of(
            region.address,
            |lock| !lock.is_retired(),
            || {
                if let Some(lock) = locks().find(region.address).filter(|lock| !lock.is_retired()) {
                    return Some(lock);
                }
                let caller = Guest.word(pending.stack).unwrap_or(0);
                // Its object goes before it, so that a reader knows what it lies in, whatever is
                // there later; looked up anew, and written even if there is none.
                let mut out = Vec::new();
                if let Some(caches) = &collector.sampling().caches {
                    let none = unconvoy_trace_stream::Object { region: Region::new(region.address, 0), name: &[] };
                    let object = view.object_now(&Guest, caches, region.address);
                    append(&mut out, &object.map_or(Record::Object(none), |object| object.record()));
                }
                Some(locks().find_or_make(region, caller, |lock| {
                    append(&mut out, &lock.record());
                    collector.collection.log.append(&out);
                }))
            },
        )
    }

    /// The counts of a lock that it holds.
    fn known(&mut self, lock: &'static Lock) -> &mut Totals {
        let counts = &mut self.recorder.counts;
        counts.of(lock.region.address, |counted| std::ptr::eq(counted, lock), || Some(lock)).expect("it was given").1
    }

    /// An object is freed: whatever locks were in it are no more. `cache` is its slab cache, if the
    /// caller knows it.
    fn free(&mut self, collector: &Collector, address: u64, cache: Option<u64>) {
        if address < layout::KERNEL || !locks().may_be_within(address) {
            return;
        }
        let Some(caches) = &collector.sampling().caches else { return };
        let of_cache = |cache: &Cache| Region::new(address, cache.object_size);
        let known = cache.and_then(|cache| caches.get(cache)).map(of_cache);
        let object = known.or_else(|| Some(self.view.object(&Guest, caches, address)?.region()));
        if let Some(object) = object {
            locks().retire_within(object);
        }
    }

    fn free_many(&mut self, collector: &Collector) {
        /// More than the kernel frees at once: an array of a page has 512.
        const MOST: u64 = 4096;
        let (count, array) = (self.register(register::RSI), self.register(register::RDX));
        let mut pointers = vec![0; count.min(MOST) as usize * 8];
        if Guest.read(array, &mut pointers) {
            for pointer in pointers.chunks_exact(8) {
                self.free(collector, u64::from_le_bytes(pointer.try_into().expect("eight bytes")), None);
            }
        }
    }

    /// Collecting ends: its counts are published, with the time of what is still held. Sections
    /// that it is in are never written: they have no unlock.
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

/// The pages with the structure at `structure` are freed: a page of the page tables has its lock
/// there.
fn free_pages(collector: &Collector, structure: u64, order: u32) {
    /// Beyond the largest order.
    const ORDERS: u32 = 20;
    let Some(caches) = &collector.sampling().caches else { return };
    if structure < layout::KERNEL || order >= ORDERS {
        return;
    }
    caches.free_pages(structure, 1 << order);
    if locks().may_be_within(structure) {
        locks().retire_within(Region::new(structure, caches.sizeof_page() << order));
    }
}

/// Whether the access is a device's, which QEMU knows within its callback.
#[cold]
fn is_device(information: u32, address: u64) -> bool {
    // SAFETY: called within the access's callback, with what that was given; the result is valid as
    // long.
    unsafe {
        let hardware = api::qemu_plugin_get_hwaddr(information, address);
        !hardware.is_null() && api::qemu_plugin_hwaddr_is_io(hardware)
    }
}

/// Model-specific registers behind which there is a device: the interrupt controller's, and the
/// timer's deadline.
fn is_device_register(number: u32) -> bool {
    matches!(number, 0x800..=0x8ff | 0x6e0)
}
