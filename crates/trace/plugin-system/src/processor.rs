//! One virtual processor: which locks it holds, which of these sections are sampled, and what they touch.
//!
//! A spin lock's holder is not preempted, so that open sections are its processor's. A section is drawn when its lock is acquired, and from then on the processor runs
//! blocks with memory callbacks (`translate`), until it holds no drawn lock any more. Accesses count as the section's only from the stack on which it
//! acquired the lock: an interrupt's handler has another, and so has the thread that the scheduler goes on with.

use crate::api;
use crate::collector::{Collector, Sampling, locks};
use crate::guest::Guest;
use crate::layout;
use crate::memory::Memory;
use crate::objects::{Cache, Object, View};
use crate::state::{State, register};
use crate::symbols::Function;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::Ordering;
use unconvoy_trace_collector::draw::Draws;
use unconvoy_trace_collector::locks::Lock;
use unconvoy_trace_collector::set::{Access, Set};
use unconvoy_trace_stream::{Record, Section, append, flag};

/// Locks whose counts a processor keeps, before it adds them to the lock's: by address, one each.
const CACHED: usize = 1024;

/// Acquisitions that a processor may be within at a time: it spins for one, and in an interrupt for another. More are some that never returned.
const PENDING: usize = 16;

/// Locks that a processor may hold at a time. More are some whose release was not seen.
const HELD: usize = 64;

/// Bytes of objects that are told together with a section; with the largest section, less than the log takes.
const AT_ONCE: usize = 1 << 15;

/// What the translated code counts by itself: instructions executed. Each processor adds to its own at every block, so that they lie apart: two cache lines, which processors may fetch together.
#[repr(C)]
pub struct Instructions {
    pub kernel: u64,
    pub user: u64,
    _apart: [u64; 14],
}

/// See the [module](self).
pub struct Processor {
    number: usize,
    state: State,
    instructions: *const Instructions,
    draws: Draws,
    pending: Vec<Pending>,
    held: Vec<Held>,
    /// How many of the held locks are sampled.
    sampled: usize,
    spare: Vec<Set>,
    counted: Box<[Counted; CACHED]>,
    out: Vec<u8>,
    view: View,
    threads: HashMap<u64, u32>,
    /// In instructions.
    waited: u64,
    unmatched: u64,
    abandoned: u64,
}

/// An acquiring function between its entry and its return.
struct Pending {
    lock: u64,
    size: u32,
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
    stack: Range<u64>,
    /// The lock lies in per-processor memory: what it protects may lie there, too, and another thread comes to it from another processor.
    of_processor: bool,
}

#[derive(Clone, Copy)]
struct Counted {
    address: u64,
    lock: Option<&'static Lock>,
    acquisitions: u64,
    sampled: u64,
    contended: u64,
    held: u64,
    waited: u64,
}

const NOTHING_COUNTED: Counted =
    Counted { address: 0, lock: None, acquisitions: 0, sampled: 0, contended: 0, held: 0, waited: 0 };

/// What a processor has seen, for the end record.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    pub kernel: u64,
    pub user: u64,
    pub waited: u64,
    /// Releases of locks that this processor did not hold: acquired before collecting began, or on another processor.
    pub unmatched: u64,
    /// Locks whose release was not seen for too long.
    pub abandoned: u64,
    /// Locks held at the end.
    pub open: u64,
}

impl Processor {
    /// The counts of instructions are what the translated code adds to, for as long as the process lives.
    pub fn new(collector: &Collector, number: usize, state: State, instructions: *const Instructions) -> Self {
        Processor {
            number,
            state,
            instructions,
            draws: Draws::new(collector.options.seed, number as u32),
            pending: Vec::new(),
            held: Vec::new(),
            sampled: 0,
            spare: Vec::new(),
            counted: Box::new([NOTHING_COUNTED; CACHED]),
            out: Vec::new(),
            view: View::new(),
            threads: HashMap::new(),
            waited: 0,
            unmatched: 0,
            abandoned: 0,
        }
    }

    /// Instructions that this processor has executed in the kernel; within a block, the whole block's.
    fn now(&self) -> u64 {
        // SAFETY: by `new`; only this processor's own thread, which is here, adds to it.
        unsafe { (&raw const (*self.instructions).kernel).read_volatile() }
    }

    /// A function is entered, with the first instruction of a block of so many.
    pub fn enters(&mut self, collector: &Collector, function: Function, block: u64) {
        let first = self.state.register(register::RDI);
        match function {
            Function::Acquire { size } => self.asks(first, size, false),
            Function::Try { size } => self.asks(first, size, true),
            Function::Release => self.releases(collector, first, self.now().saturating_sub(block)),
            Function::Wait => self.waits(first, self.now().saturating_sub(block)),
            Function::Free => self.frees(collector, first, None),
            Function::FreeOfCache => self.frees(collector, self.state.register(register::RSI), Some(first)),
            Function::FreeMany => self.frees_many(collector),
            Function::FreePages => self.frees_pages(collector, first, self.state.register(register::RSI) as u32),
            Function::Name => {}
        }
    }

    fn asks(&mut self, lock: u64, size: u32, tries: bool) {
        let stack = self.state.register(register::RSP);
        // One that goes on as another (a jump), or was left without a return.
        if self.pending.last().is_some_and(|last| last.stack == stack) {
            self.pending.pop();
        }
        if self.pending.len() == PENDING {
            self.pending.remove(0);
        }
        self.pending.push(Pending { lock, size, tries, stack, waits: None });
    }

    /// The slow path of a lock: `now` without the block that begins here.
    fn waits(&mut self, lock: u64, now: u64) {
        // A writer's slow path takes the spin lock within its lock.
        if let Some(pending) = self.pending.last_mut()
            && (pending.lock..pending.lock + u64::from(pending.size)).contains(&lock)
        {
            pending.waits.get_or_insert(now);
        }
    }

    /// A function that locks, or waits for one, is about to return.
    pub fn returns(&mut self, collector: &Collector) {
        let stack = self.state.register(register::RSP);
        let Some(at) = self.pending.iter().rposition(|pending| pending.stack == stack) else { return };
        self.pending.truncate(at + 1);
        let Some(pending) = self.pending.pop() else { return };
        let now = self.now();
        if !pending.tries || self.state.register(register::RAX) as u8 != 0 {
            self.acquires(collector, &pending, now);
        }
    }

    fn acquires(&mut self, collector: &Collector, pending: &Pending, now: u64) {
        let waited = pending.waits.map(|since| now.saturating_sub(since));
        let Some(counted) = self.counted(collector, pending) else { return };
        let Some(lock) = counted.lock else { return };
        counted.acquisitions += 1;
        if let Some(waited) = waited {
            counted.contended += 1;
            counted.waited += waited;
            self.waited += waited;
        }
        if self.held.len() == HELD {
            self.abandoned += 1;
            let abandoned = self.held.remove(0);
            self.sampled -= usize::from(abandoned.sample.is_some());
        }
        let sampling = collector.sampling();
        let sample = (sampling.works && self.draws.draw(collector.options.rate))
            .then(|| self.sample(collector, sampling, lock, pending.stack));
        self.sampled += usize::from(sample.is_some());
        self.held.push(Held { lock, since: now, sample });
        self.watch();
    }

    fn sample(&mut self, collector: &Collector, sampling: &Sampling, lock: &Lock, pointer: u64) -> Box<Sample> {
        let set = self.spare.pop().unwrap_or_else(|| Set::new(collector.options.words));
        let stack = sampling.layout.stack(self.number, pointer);
        let thread = *self.threads.entry(stack.start).or_insert_with(|| collector.thread(stack.start));
        let of_processor = sampling.layout.is_per_cpu(lock.address);
        Box::new(Sample { set, flags: 0, thread, stack, of_processor })
    }

    /// A lock is released, at `now`; its section is told if it was sampled, while the lock is still held, so that a lock's sections are told in their order.
    fn releases(&mut self, collector: &Collector, address: u64, now: u64) {
        let Some(at) = self.held.iter().rposition(|held| held.lock.address == address) else {
            self.unmatched += 1;
            return;
        };
        let Held { lock, since, sample } = self.held.remove(at);
        let counted = self.known(lock);
        counted.held += now.saturating_sub(since);
        if let Some(sample) = sample {
            counted.sampled += 1;
            self.sampled -= 1;
            self.watch();
            self.tells(collector, lock, *sample);
        }
    }

    /// Has the processor run blocks with memory callbacks or not: called where the block ends with a return, or belongs to a locking function.
    fn watch(&self) {
        let watch = self.sampled > 0;
        if self.state.watching() != watch {
            self.state.watch(watch);
        }
    }

    #[inline(never)]
    fn tells(&mut self, collector: &Collector, lock: &Lock, sample: Sample) {
        let Sample { mut set, flags, thread, .. } = sample;
        let (entries, cut_short) = set.ends(locks());
        self.view.next_section();
        if let Some(caches) = &collector.sampling().caches {
            for entry in entries.iter() {
                if let Some(object) = self.view.untold(&Guest, caches, entry.address) {
                    append(&mut self.out, &Record::Object(told_object(object.address, object.cache)));
                    if self.out.len() > AT_ONCE {
                        collector.log.append(&self.out, |_, _| {});
                        self.out.clear();
                    }
                }
            }
        }
        let section = Section { lock: lock.number, thread, order: 0, flags: flags | cut_short };
        collector.log.tell_section(&mut self.out, &section, entries);
        collector.log.write_if_due();
        collector.sections.fetch_add(1, Ordering::Relaxed);
        set.clear();
        self.spare.push(set);
    }

    /// The kernel accesses memory, in a block with memory callbacks.
    #[inline]
    pub fn accesses(&mut self, collector: &Collector, information: u32, access: Access) {
        if self.sampled == 0 || access.address < layout::KERNEL {
            return;
        }
        let pointer = self.state.register(register::RSP);
        let layout = &collector.sampling().layout;
        let own = layout.is_own(self.number, access.address);
        let device = layout::may_be_device(access.address);
        for sample in self.held.iter_mut().filter_map(|held| held.sample.as_mut()) {
            if !sample.stack.contains(&pointer) || sample.stack.contains(&access.address) || own && !sample.of_processor
            {
                continue;
            }
            if device && is_device(information, access.address) {
                sample.flags |= flag::IO;
            } else {
                sample.set.add(access);
            }
        }
    }

    /// It talks to a device by an instruction of its own; or by a write to this register of the processor's.
    pub fn does_io(&mut self, by_register: bool) {
        if by_register && !is_device_register(self.state.register(register::RCX) as u32) {
            return;
        }
        let pointer = self.state.register(register::RSP);
        for sample in self.held.iter_mut().filter_map(|held| held.sample.as_mut()) {
            if sample.stack.contains(&pointer) {
                sample.flags |= flag::IO;
            }
        }
    }

    /// Its counts of the lock, which is made known.
    fn counted(&mut self, collector: &Collector, pending: &Pending) -> Option<&mut Counted> {
        let slot = slot(pending.lock);
        let counted = &self.counted[slot];
        if counted.address != pending.lock || counted.lock.is_none_or(Lock::retired) {
            let lock = self.lock(collector, pending)?;
            self.count_now(slot, lock);
        }
        Some(&mut self.counted[slot])
    }

    #[cold]
    fn lock(&mut self, collector: &Collector, pending: &Pending) -> Option<&'static Lock> {
        if let Some(lock) = locks().find(pending.lock).filter(|lock| !lock.retired()) {
            return Some(lock);
        }
        let caller = Guest.word(pending.stack).unwrap_or(0);
        // Its object goes before it, so that a reader knows what it lies in, whatever is there later; looked up anew, and told even if there is none.
        let mut told = Vec::new();
        if let Some(caches) = &collector.sampling().caches {
            let object = match self.view.object_now(&Guest, caches, pending.lock) {
                Some(Object { address, cache }) => Record::Object(told_object(address, cache)),
                None => Record::Object(unconvoy_trace_stream::Object { address: pending.lock, size: 0, name: &[] }),
            };
            append(&mut told, &object);
        }
        let lock = locks().of(pending.lock, pending.size, caller, |lock| {
            append(&mut told, &lock.record());
            collector.log.append(&told, |_, _| {});
        });
        Some(lock)
    }

    /// Its counts of a lock that it holds.
    fn known(&mut self, lock: &'static Lock) -> &mut Counted {
        let slot = slot(lock.address);
        if !self.counted[slot].lock.is_some_and(|counted| std::ptr::eq(counted, lock)) {
            self.count_now(slot, lock);
        }
        &mut self.counted[slot]
    }

    /// Counts another lock in this place.
    #[cold]
    fn count_now(&mut self, slot: usize, lock: &'static Lock) {
        self.counted[slot].tell();
        self.counted[slot] = Counted { address: lock.address, lock: Some(lock), ..NOTHING_COUNTED };
    }

    /// An object is freed: whatever locks were in it are no more. `cache` is its slab cache, if the caller knows it.
    fn frees(&mut self, collector: &Collector, address: u64, cache: Option<u64>) {
        if address < layout::KERNEL || !locks().may_be_within(address) {
            return;
        }
        let Some(caches) = &collector.sampling().caches else { return };
        let known = cache.and_then(|cache| caches.get(cache)).map(|cache| (address, cache.object_size));
        let object = known.or_else(|| {
            let object = self.view.object(&Guest, caches, address)?;
            Some((object.address, object.cache.object_size))
        });
        if let Some((start, size)) = object {
            locks().retire_within(start, size);
        }
    }

    /// The pages with the structure at `structure` are freed: a page of the page tables has its lock there.
    fn frees_pages(&mut self, collector: &Collector, structure: u64, order: u32) {
        /// Beyond the largest order.
        const ORDERS: u32 = 20;
        let Some(caches) = &collector.sampling().caches else { return };
        if structure < layout::KERNEL || order >= ORDERS {
            return;
        }
        caches.frees(structure, 1 << order);
        if locks().may_be_within(structure) {
            locks().retire_within(structure, caches.sizeof_page() << order);
        }
    }

    fn frees_many(&mut self, collector: &Collector) {
        /// More than the kernel frees at once: an array of a page has 512.
        const MOST: u64 = 4096;
        let (count, array) = (self.state.register(register::RSI), self.state.register(register::RDX));
        let mut pointers = vec![0; count.min(MOST) as usize * 8];
        if Guest.read(array, &mut pointers) {
            for pointer in pointers.chunks_exact(8) {
                self.frees(collector, u64::from_le_bytes(pointer.try_into().expect("eight bytes")), None);
            }
        }
    }

    /// Collecting ends: its counts are told, with the time of what is still held. Sections that it is in are never told: they have no unlock.
    pub fn ends(&mut self) -> Totals {
        let now = self.now();
        let open = std::mem::take(&mut self.held);
        for held in &open {
            self.known(held.lock).held += now.saturating_sub(held.since);
        }
        self.sampled = 0;
        self.watch();
        self.counted.iter_mut().for_each(Counted::tell);
        // SAFETY: as in `now`.
        let user = unsafe { (&raw const (*self.instructions).user).read_volatile() };
        let Processor { waited, unmatched, abandoned, .. } = *self;
        Totals { kernel: now, user, waited, unmatched, abandoned, open: open.len() as u64 }
    }
}

impl Counted {
    /// Adds them to the lock's.
    fn tell(&mut self) {
        if let Some(lock) = self.lock {
            lock.acquisitions.fetch_add(self.acquisitions, Ordering::Relaxed);
            lock.sampled.fetch_add(self.sampled, Ordering::Relaxed);
            lock.contended.fetch_add(self.contended, Ordering::Relaxed);
            lock.held.fetch_add(self.held, Ordering::Relaxed);
            lock.waited.fetch_add(self.waited, Ordering::Relaxed);
        }
        *self = Counted { address: self.address, lock: self.lock, ..NOTHING_COUNTED };
    }
}

fn slot(address: u64) -> usize {
    ((address >> 2).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % CACHED
}

/// An object's record.
fn told_object(address: u64, cache: &Cache) -> unconvoy_trace_stream::Object<'_> {
    unconvoy_trace_stream::Object { address, size: cache.object_size, name: &cache.name }
}

/// Whether the access is a device's, which QEMU knows within its callback.
#[cold]
fn is_device(information: u32, address: u64) -> bool {
    // SAFETY: called within the access's callback, with what that was given; the result is valid as long.
    unsafe {
        let hardware = api::qemu_plugin_get_hwaddr(information, address);
        !hardware.is_null() && api::qemu_plugin_hwaddr_is_io(hardware)
    }
}

/// Model-specific registers behind which there is a device: the interrupt controller's, and the timer's deadline.
fn is_device_register(number: u32) -> bool {
    matches!(number, 0x800..=0x8ff | 0x6e0)
}
