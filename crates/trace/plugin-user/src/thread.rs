//! One thread of the program: which of its sections are sampled, and what they touch.
//!
//! A section is drawn when its lock is asked for, and from then on the thread runs blocks with
//! memory callbacks ([`State::watch`](unconvoy_trace_collector::state::State::watch)), until it
//! holds no drawn lock any more. What the locking functions touch themselves is not the section's:
//! between such a function's entry and its return nothing is recorded. The return is seen because
//! the blocks with callbacks, where a call may return to, ask ([`Thread::return_to`]); outside of
//! drawn sections nobody needs to know it, since acquisitions are counted by their releases, which
//! nothing can fail.

use crate::allocations::Allocations;
use crate::collector::Collector;
use crate::guest::{self, Forgetting, Program};
use crate::locks::{Lockable, Words, condition};
use crate::modules::{Function, Size};
use std::sync::atomic::Ordering;
use unconvoy_trace_collector::collection::locks;
use unconvoy_trace_collector::front::Vcpu;
use unconvoy_trace_collector::locks::{Lock, Totals};
use unconvoy_trace_collector::memory::Memory as _;
use unconvoy_trace_collector::recorder::Recorder;
use unconvoy_trace_collector::set::Set;
use unconvoy_trace_collector::state::{State, register};
use unconvoy_trace_collector::vcpus::Vcpus;
use unconvoy_trace_stream::{Access, Region, Section, flag};

/// The most threads at a time that are listened to; QEMU numbers them anew when they end.
pub const THREADS: usize = 1 << 15;

/// Made at a thread's first callback, and taken away when it ends.
// SAFETY: they are asked for by numbers that QEMU hands to a callback, on that number's own thread;
// callbacks do not nest. All are asked for when QEMU ends or the process becomes another, and no
// thread runs translated code any more.
pub static BY_NUMBER: Vcpus<Thread, THREADS> = unsafe { Vcpus::new() };

/// Locks whose counts a thread keeps, before it adds them to the lock's.
const CACHED: usize = 512;

/// How much lies above a thread's first frame: its own control block and thread-local variables.
/// glibc puts them on the stack's end.
const ABOVE_FRAMES: u64 = 1 << 16;

/// See the [module](self).
pub struct Thread {
    recorder: Recorder,
    allocations: Allocations,
    forgetting: Forgetting,
    number: u32,
    /// As the kernel has it, and glibc in a mutex's owner.
    id: u32,
    /// Sampled sections that it is in, the outermost first.
    open: Vec<Open>,
    /// The locking function that it is in, if that matters.
    inside: Option<Inside>,
    /// Accesses are recorded.
    is_recording: bool,
    stack: Region,
    /// [`Collector::requests`], when it last published its counts.
    requests: u32,
}

struct Open {
    lock: &'static Lock,
    set: Set,
    flags: u32,
}

/// A locking function between its entry and its return.
struct Inside {
    function: Function,
    /// The stack pointer at its entry, where the return address lies.
    stack: u64,
    returns_to: u64,
    /// The lock whose section was drawn, if it is acquired.
    drawn: Option<&'static Lock>,
}

impl Vcpu for Thread {
    #[inline]
    fn recorder(&mut self) -> &mut Recorder {
        &mut self.recorder
    }

    #[inline]
    fn is_recorded(&self, address: u64) -> bool {
        self.is_recording && !self.stack.contains(address)
    }

    #[inline]
    fn record_access(&mut self, access: &Access, _: u32) {
        self.open.iter_mut().for_each(|open| open.set.add(access));
    }
}

impl Thread {
    pub fn new(collector: &Collector, state: State) -> Self {
        let number = collector.threads.fetch_add(1, Ordering::Relaxed);
        Thread {
            recorder: Recorder::new(&collector.collection, number, state, CACHED),
            allocations: Allocations::default(),
            forgetting: Forgetting::of_this_thread(),
            number,
            // SAFETY: no preconditions. QEMU's threads are the program's.
            id: unsafe { libc::gettid() } as u32,
            open: Vec::new(),
            inside: None,
            is_recording: false,
            stack: Region::default(),
            requests: 0,
        }
    }

    /// A function is entered.
    pub fn enter(&mut self, collector: &Collector, function: Function) {
        let state = self.recorder.state;
        let [stack, first] = [register::RSP, register::RDI].map(|which| state.register(which));
        // SAFETY: the call that comes here has just pushed it.
        let returns_to = unsafe { guest::read::<u64>(stack) };
        let second = || state.register(register::RSI);
        // The size that is asked for, and where the address is stored if it is not returned.
        let request = match function {
            Function::Free => return Allocations::free(first),
            Function::Reallocate => {
                Allocations::free(first);
                (second(), None)
            }
            Function::Allocate(Size::First) => (first, None),
            Function::Allocate(Size::Second) => (second(), None),
            Function::Allocate(Size::Product) => (first.saturating_mul(second()), None),
            Function::Allocate(Size::ThirdStored) => (state.register(register::RDX), Some(first)),
            _ => return self.enter_locking(collector, function, first, stack, returns_to),
        };
        self.allocations.enter(collector, stack, returns_to, request);
    }

    #[inline]
    fn enter_locking(&mut self, collector: &Collector, function: Function, first: u64, stack: u64, returns_to: u64) {
        if collector.requests() != self.requests {
            self.requests = collector.requests();
            self.publish_counts();
        }
        // What the dynamic linker does with its own lock is not recorded, so that lock would seem
        // to protect nothing.
        if collector.is_linker(returns_to) {
            return;
        }
        if let Some(inside) = &self.inside {
            // A locking function that another calls, or goes on as, is that one's own business.
            // Else the other was left without a return (a jump, a cancellation).
            let goes_on = stack == inside.stack && returns_to == inside.returns_to && function != inside.function;
            if stack < inside.stack || goes_on {
                return;
            }
        }
        let mut drawn = None;
        match function {
            Function::Lock(kind) => drawn = self.ask(collector, kind, first, returns_to, true),
            Function::TryLock(kind) => drawn = self.ask(collector, kind, first, returns_to, false),
            Function::Unlock(kind) => self.release(collector, kind, first),
            Function::Remake(kind) => {
                self.open.retain(|open| open.lock.region.address != first);
                locks().retire(kind.region(first));
            }
            Function::Condition => mark_condition(first),
            Function::Wait => {
                mark_condition(first);
                drawn = self.wait(collector, self.recorder.state.register(register::RSI), returns_to);
            }
            Function::Allocate(_) | Function::Reallocate | Function::Free => {}
        }
        let watch = drawn.is_some() || !self.open.is_empty();
        self.inside = watch.then_some(Inside { function, stack, returns_to, drawn });
        self.is_recording = false;
        // Here and nowhere else: a block that changes it may be chained to one of either kind, and
        // this one belongs to a locking function.
        let state = self.recorder.state;
        if state.is_watching() {
            self.forgetting.forget();
        }
        if state.is_watching() != watch {
            state.watch(watch);
        }
    }

    /// In a block with memory callbacks, at `pc`, where a call may return to.
    pub fn return_to(&mut self, collector: &Collector, pc: u64) {
        let Some(inside) = &self.inside else { return };
        let state = self.recorder.state;
        if inside.returns_to != pc || state.register(register::RSP) != inside.stack + 8 {
            return;
        }
        let result = state.register(register::RAX) as i32;
        // A robust mutex of a dead owner is acquired, too; a wait that times out has its mutex
        // back.
        let acquired = match inside.function {
            Function::Wait => matches!(result, 0 | libc::ETIMEDOUT | libc::EOWNERDEAD),
            _ => matches!(result, 0 | libc::EOWNERDEAD),
        };
        if let Some(lock) = inside.drawn.filter(|_| acquired) {
            self.open_section(collector, lock);
        }
        self.inside = None;
        self.is_recording = !self.open.is_empty();
    }

    /// An allocator's caller goes on, at `pc`.
    pub fn return_from_allocator(&mut self, pc: u64) {
        self.allocations.return_to(pc, self.recorder.state, self.number);
    }

    /// It does I/O, or may wait for what another section does.
    pub fn mark_io(&mut self) {
        if self.inside.is_none() {
            self.open.iter_mut().for_each(|open| open.flags |= flag::IO);
        }
    }

    /// Before its state is copied to a thread that knows nothing of sampling.
    pub fn pause_watching(&self) {
        self.recorder.state.watch(false);
    }

    /// After that.
    pub fn resume_watching(&self) {
        if !self.open.is_empty() || self.inside.is_some() {
            self.recorder.state.watch(true);
        }
    }

    /// What it has counted goes into the locks' totals: before it may sleep for long, when all are
    /// asked, and at its end. Sections that it is in then are never written: they have no unlock.
    pub fn publish_counts(&mut self) {
        self.recorder.counts.publish();
    }

    /// A lock is asked for; the lock if its section is drawn.
    fn ask(
        &mut self,
        collector: &Collector,
        kind: Lockable,
        address: u64,
        pc: u64,
        waits: bool,
    ) -> Option<&'static Lock> {
        let id = self.id;
        let (lock, totals) = self.counted(collector, kind, address, pc)?;
        if collector.layout_known() {
            // SAFETY: it is known as a lock.
            let words = unsafe { Words::known(address) };
            if words.is_busy(kind) {
                if kind == Lockable::Mutex && words.is_repeated_by(id) {
                    // The section goes on.
                    return None;
                }
                if waits {
                    totals.contended += 1;
                }
            }
        }
        if self.open.iter().any(|open| open.lock.region.address == address) {
            return None;
        }
        self.recorder.draw().then_some(lock)
    }

    /// A lock is released; by whom it is not held is not known here, and no program does that.
    fn release(&mut self, collector: &Collector, kind: Lockable, address: u64) {
        let id = self.id;
        let Some((_, totals)) = self.known(address) else {
            collector.unmatched.fetch_add(1, Ordering::Relaxed);
            return;
        };
        if collector.layout_known() && kind == Lockable::Mutex {
            // SAFETY: it is known as a lock, and held.
            let words = unsafe { Words::known(address) };
            collector.check_owner(words.is_owned_by(id));
            if words.outlasts_unlock(id) {
                return;
            }
        }
        totals.acquisitions += 1;
        self.close_section(collector, address, 0);
    }

    /// It waits for a condition: the mutex's section ends, and another begins when it has it back.
    /// What it still holds is held by one that waits, as for I/O.
    fn wait(&mut self, collector: &Collector, address: u64, pc: u64) -> Option<&'static Lock> {
        let (lock, totals) = self.counted(collector, Lockable::Mutex, address, pc)?;
        totals.acquisitions += 1;
        self.close_section(collector, address, flag::WAITED);
        self.open.iter_mut().for_each(|open| open.flags |= flag::IO);
        self.recorder.draw().then_some(lock)
    }

    /// A sampled section begins.
    fn open_section(&mut self, collector: &Collector, lock: &'static Lock) {
        let stack = self.recorder.state.register(register::RSP);
        if !self.stack.contains(stack) {
            self.stack = stack_around(collector, stack, self.number == 0);
        }
        self.open.push(Open { lock, set: self.recorder.open(), flags: 0 });
    }

    /// A section ends; it is written if it was sampled.
    fn close_section(&mut self, collector: &Collector, address: u64, flags: u32) {
        let Some(at) = self.open.iter().position(|open| open.lock.region.address == address) else { return };
        let Open { lock, set, flags: before } = self.open.remove(at);
        let section = Section { lock: lock.number, thread: self.number, order: 0, flags: before | flags };
        self.recorder.close(&collector.collection, section, set, |access, out| {
            if collector.has_heap {
                self.allocations.describe(access, out);
            }
        });
        if let Some((_, totals)) = self.known(address) {
            totals.sampled += 1;
        }
    }

    /// The lock at `address`, which is made known, with its counts. Nothing if there is no memory.
    #[inline]
    fn counted(
        &mut self,
        collector: &Collector,
        kind: Lockable,
        address: u64,
        pc: u64,
    ) -> Option<(&'static Lock, &mut Totals)> {
        let make = || make_known(collector, &mut self.allocations, kind.region(address), pc);
        self.recorder.counts.of(address, |lock| !lock.is_retired(), make)
    }

    /// The lock at `address` with its counts, if it was ever acquired.
    #[inline]
    fn known(&mut self, address: u64) -> Option<(&'static Lock, &mut Totals)> {
        self.recorder.counts.of(address, |_| true, || locks().find(address))
    }
}

/// A lock is seen for the first time in this life of it: it is made known, with the piece of the heap
/// that it lies in, by which it is known also if no sampled section touches anything else there.
#[cold]
fn make_known(collector: &Collector, allocations: &mut Allocations, region: Region, pc: u64) -> Option<&'static Lock> {
    Program.half_word(region.address)?;
    let log = &collector.collection.log;
    let mut is_new = false;
    let lock = locks().find_or_make(region, pc, |lock| {
        log.append_record(&lock.record());
        is_new = true;
    });
    if is_new && collector.has_heap {
        let mut out = Vec::new();
        allocations.describe_at(region.address, &mut out);
        log.append(&out);
    }
    Some(lock)
}

fn mark_condition(address: u64) {
    if locks().bytes_of_word(address) == 0 {
        locks().mark(condition(address));
    }
}

/// The stack that the pointer is into: its mapping, up to where the program's first frame was, or a
/// little above the thread's.
fn stack_around(collector: &Collector, pointer: u64, first_thread: bool) -> Region {
    let host = guest::host(pointer);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mapping = maps.lines().find_map(|line| {
        let (base, end) = line.split(' ').next()?.split_once('-')?;
        let mapping = Region::between(u64::from_str_radix(base, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
        mapping.contains(host).then_some(mapping)
    });
    let Some(mapping) = mapping else { return Region::between(pointer & !0xfff, (pointer | 0xfff) + 1) };
    let (base, end) = (guest::address(mapping.address), guest::address(mapping.end()));
    let initial = collector.calibration.initial_stack();
    let end = match first_thread && initial >= pointer && initial < end {
        true => initial,
        false => end.min((pointer | 0xfff) + 1 + ABOVE_FRAMES),
    };
    Region::between(base, end)
}
