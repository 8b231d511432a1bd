//! One thread of the program: which of its sections are sampled, and what they touch.
//!
//! A section is drawn when the thread requests its lock. From then on the thread runs blocks with
//! memory callbacks ([`State::watch`](unconvoy_trace_collector::state::State::watch)), until it
//! holds no drawn lock. The accesses of a locking function itself do not belong to the section, so
//! nothing is recorded between the function's entry and its return. The return is visible because
//! blocks with callbacks check for it wherever a call may return to ([`Thread::return_to`]).
//! Outside drawn sections no return needs to be seen: acquisitions are counted at the release,
//! which cannot fail.

use crate::allocations::Allocations;
use crate::collector::{Collector, heap};
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

/// The most concurrent threads. QEMU reuses the numbers of ended threads.
pub const THREADS: usize = 1 << 15;

/// Each entry is made at a thread's first callback and removed when the thread ends.
// SAFETY: QEMU passes the number to callbacks on that number's own thread, and callbacks do not
// nest. `all` is used only when QEMU exits or the process calls exec: no thread runs translated
// code then.
pub static BY_NUMBER: Vcpus<Thread, THREADS> = unsafe { Vcpus::new() };

/// Locks in a thread's cache of counts.
const CACHED: usize = 512;

/// Room above a thread's first frame for its control block and thread-local variables, which glibc
/// puts at the end of the stack.
const ABOVE_FRAMES: u64 = 1 << 16;

pub struct Thread {
    recorder: Recorder,
    allocations: Allocations,
    forgetting: Forgetting,
    number: u32,
    /// The kernel's thread number, which glibc stores as a mutex's owner.
    id: u32,
    /// Sampled sections in progress, the outermost first.
    open: Vec<Open>,
    /// The locking function in progress, if a section is sampled or drawn.
    inside: Option<Inside>,
    is_recording: bool,
    stack: Region,
    /// [`Collector::requests`] at the last publication of counts.
    requests: u32,
}

struct Open {
    lock: &'static Lock,
    /// How often the thread has acquired the reader-writer lock again.
    again: u32,
    set: Set,
    flags: u32,
}

/// A locking function between its entry and its return.
struct Inside {
    function: Function,
    /// The stack pointer at the entry; the return address lies there.
    stack: u64,
    returns_to: u64,
    /// The lock to sample once it is acquired.
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
            recorder: Recorder::new(&collector.collection, state, CACHED),
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

    pub fn enter(&mut self, collector: &Collector, function: Function) {
        let state = self.recorder.state;
        let [stack, first] = [register::RSP, register::RDI].map(|which| state.register(which));
        // SAFETY: the call instruction has just pushed the return address.
        let returns_to = unsafe { guest::read::<u64>(stack) };
        let second = || state.register(register::RSI);
        // The requested size, and the address that receives the result if it is not returned.
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
    fn enter_locking(
        &mut self,
        collector: &Collector,
        function: Function,
        first: u64,
        stack: u64,
        returns_to: u64,
    ) {
        if collector.requests() != self.requests {
            self.requests = collector.requests();
            self.publish_counts();
        }
        // Ignore the dynamic linker's lock. The linker's accesses are not recorded, so its lock
        // would seem to protect nothing.
        if collector.is_linker(returns_to) {
            return;
        }
        if let Some(inside) = &self.inside {
            // A nested call or a tail call of another locking function belongs to the function in
            // progress. Otherwise the function in progress was left without a return (a jump, a
            // cancellation).
            let goes_on = stack == inside.stack
                && returns_to == inside.returns_to
                && function != inside.function;
            if stack < inside.stack || goes_on {
                return;
            }
        }
        let mut drawn = None;
        match function {
            Function::Lock(kind) => drawn = self.request(collector, kind, first, returns_to, true),
            Function::TryLock(kind) => {
                drawn = self.request(collector, kind, first, returns_to, false)
            }
            Function::Unlock(kind) => self.release(collector, kind, first),
            Function::Remake(kind) => {
                self.open.retain(|open| open.lock.region.address != first);
                locks().retire(kind.region(first));
            }
            Function::Condition => mark_condition(first),
            Function::Forget => locks().retire(condition(first)),
            Function::Wait => {
                mark_condition(first);
                drawn =
                    self.wait(collector, self.recorder.state.register(register::RSI), returns_to);
            }
            Function::Allocate(_) | Function::Reallocate | Function::Free => {}
        }
        let watch = drawn.is_some() || !self.open.is_empty();
        self.inside = watch.then_some(Inside { function, stack, returns_to, drawn });
        self.is_recording = false;
        // Change the flag only here, in a block of a locking function: QEMU may chain a block that
        // changes the flag to blocks with or without memory callbacks.
        let state = self.recorder.state;
        if state.is_watching() {
            self.forgetting.forget();
        }
        if state.is_watching() != watch {
            state.watch(watch);
        }
    }

    /// Checks, in a block with memory callbacks, whether the locking function returned to `pc`.
    pub fn return_to(&mut self, collector: &Collector, pc: u64) {
        let Some(inside) = &self.inside else { return };
        let state = self.recorder.state;
        if inside.returns_to != pc || state.register(register::RSP) != inside.stack + 8 {
            return;
        }
        let result = state.register(register::RAX) as i32;
        // A function that returns EOWNERDEAD has acquired a robust mutex. A wait that times out has
        // acquired the mutex again.
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

    /// Checks whether the allocator returned to `pc`.
    pub fn return_from_allocator(&mut self, pc: u64) {
        self.allocations.return_to(pc, self.recorder.state, self.number);
    }

    /// Flags the open sections: the thread does I/O, or may wait for another section.
    pub fn mark_io(&mut self) {
        if self.inside.is_none() {
            self.open.iter_mut().for_each(|open| open.flags |= flag::IO);
        }
    }

    /// Switches memory callbacks off, before the state is copied to a thread or process that starts
    /// without sampling.
    pub fn pause_watching(&self) {
        self.recorder.state.watch(false);
    }

    /// Switches memory callbacks on again after the copy, if a section is sampled or drawn.
    pub fn resume_watching(&self) {
        if !self.open.is_empty() || self.inside.is_some() {
            self.recorder.state.watch(true);
        }
    }

    /// Adds the thread's counts to the locks' totals. Called before the thread may sleep for long,
    /// on request, and when the thread ends. Sections open at the end of the thread are never
    /// written, because they have no unlock.
    pub fn publish_counts(&mut self) {
        self.recorder.counts.publish();
    }

    /// The thread requests a lock. Returns the lock if its section is drawn.
    fn request(
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
            // SAFETY: the address is known as a lock.
            let words = unsafe { Words::known(address) };
            if words.is_busy(kind) {
                if kind == Lockable::Mutex && words.is_reacquired_by(id) {
                    // A recursive acquisition: the section continues.
                    return None;
                }
                if waits {
                    totals.contended += 1;
                }
            }
        }
        if self.open.iter().any(|open| open.lock.region.address == address) {
            return (kind == Lockable::Read).then_some(lock);
        }
        self.recorder.draw(lock).then_some(lock)
    }

    /// The thread releases a lock. A release by a thread that does not hold the lock is not
    /// detected; correct programs never do that.
    fn release(&mut self, collector: &Collector, kind: Lockable, address: u64) {
        let id = self.id;
        let Some((lock, totals)) = self.known(address) else {
            // glibc initialises a spin lock by the function that unlocks it.
            let is_unmatched = kind != Lockable::Spin;
            collector.unmatched.fetch_add(is_unmatched.into(), Ordering::Relaxed);
            return;
        };
        if kind == Lockable::Spin && lock.is_retired() {
            return;
        }
        if collector.layout_known() && kind == Lockable::Mutex {
            // SAFETY: the address is known as a lock, which is held.
            let words = unsafe { Words::known(address) };
            collector.check_owner(words.is_owned_by(id));
            if words.outlasts_unlock(id) {
                return;
            }
        }
        totals.acquisitions += 1;
        self.close_section(collector, address, 0);
    }

    /// The thread waits for a condition: the mutex's section ends, and another begins after the
    /// wait. Outer sections contain the wait and are flagged as I/O.
    fn wait(&mut self, collector: &Collector, address: u64, pc: u64) -> Option<&'static Lock> {
        let (lock, totals) = self.counted(collector, Lockable::Mutex, address, pc)?;
        totals.acquisitions += 1;
        self.close_section(collector, address, flag::WAITED);
        self.open.iter_mut().for_each(|open| open.flags |= flag::IO);
        self.recorder.draw(lock).then_some(lock)
    }

    /// Begins a section, or continues the one that the thread's first acquisition of a
    /// reader-writer lock began.
    fn open_section(&mut self, collector: &Collector, lock: &'static Lock) {
        let address = lock.region.address;
        if let Some(open) = self.open.iter_mut().find(|open| open.lock.region.address == address) {
            open.again += 1;
            return;
        }
        let stack = self.recorder.state.register(register::RSP);
        if !self.stack.contains(stack) {
            self.stack = stack_around(collector, stack, self.number == 0);
        }
        self.open.push(Open { lock, again: 0, set: self.recorder.open(), flags: 0 });
    }

    /// Ends a section and writes it if it was sampled.
    fn close_section(&mut self, collector: &Collector, address: u64, flags: u32) {
        let Some(at) = self.open.iter().position(|open| open.lock.region.address == address) else {
            return;
        };
        if self.open[at].again > 0 {
            self.open[at].again -= 1;
            return;
        }
        let Open { lock, again: _, set, flags: before } = self.open.remove(at);
        let section =
            Section { lock: lock.number, thread: self.number, order: 0, flags: before | flags };
        self.recorder.close(&collector.collection, section, set, |access, out| {
            if collector.has_heap {
                self.allocations.describe(access, out);
            }
        });
        if let Some((_, totals)) = self.known(address) {
            totals.sampled += 1;
        }
    }

    /// Returns the lock at `address` with this thread's counts of it. A new lock is first written
    /// to the stream. `None` if the memory is not mapped.
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

    /// Returns the lock at `address` with this thread's counts of it, if the lock was ever
    /// acquired.
    #[inline]
    fn known(&mut self, address: u64) -> Option<(&'static Lock, &mut Totals)> {
        self.recorder.counts.of(address, |_| true, || locks().find(address))
    }
}

/// Records a lock at its first acquisition in this incarnation, with the heap allocation that
/// contains it: the allocation identifies the lock even if no sampled section touches it.
#[cold]
fn make_known(
    collector: &Collector,
    allocations: &mut Allocations,
    region: Region,
    pc: u64,
) -> Option<&'static Lock> {
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

/// The stack that contains `pointer`: its mapping or allocation, up to the program's first frame or
/// a little above the frames of a later thread.
fn stack_around(collector: &Collector, pointer: u64, first_thread: bool) -> Region {
    if let Some(allocated) = heap().large_around(pointer) {
        return allocated;
    }
    let host = guest::host(pointer);
    // Paths in the list need not be UTF-8.
    let maps = std::fs::read("/proc/self/maps").unwrap_or_default();
    let mapping = maps.split(|&byte| byte == b'\n').find_map(|line| {
        let addresses = line.split(|&byte| byte == b' ').next()?;
        let line = str::from_utf8(addresses).ok()?;
        let (base, end) = line.split_once('-')?;
        let mapping = Region::between(
            u64::from_str_radix(base, 16).ok()?,
            u64::from_str_radix(end, 16).ok()?,
        );
        mapping.contains(host).then_some(mapping)
    });
    let Some(mapping) = mapping else {
        return Region::between(pointer & !0xfff, (pointer | 0xfff) + 1);
    };
    let (base, end) = (guest::address(mapping.address), guest::address(mapping.end()));
    let initial = collector.calibration.initial_stack();
    let end = match first_thread && initial >= pointer && initial < end {
        true => initial,
        false => end.min((pointer | 0xfff) + 1 + ABOVE_FRAMES),
    };
    Region::between(base, end)
}
