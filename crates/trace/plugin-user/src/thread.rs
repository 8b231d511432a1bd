//! One thread of the program: which of its sections are sampled, and what they touch.
//!
//! A section is drawn when its lock is asked for, and from then on the thread runs blocks with memory callbacks (`translate`), until it holds no drawn lock
//! any more. What the locking functions touch themselves is not the section's: between such a function's entry and its return nothing is recorded. The return is seen
//! because the blocks with callbacks, where a call may return to, ask ([`Thread::returned`]); outside of drawn sections nobody needs to know it, since acquisitions are counted by
//! their releases, which nothing can fail.

use crate::api;
use crate::collector::{Collector, heap, locks};
use crate::guest::{self, Forgetting, State, register};
use crate::heap::{Frames, View};
use crate::locks::{CONDITION, Kind};
use crate::modules::{Function, Lockable, Size};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::Ordering;
use unconvoy_trace_collector::draw::Draws;
use unconvoy_trace_collector::locks::Lock;
use unconvoy_trace_collector::set::{Access, Set};
use unconvoy_trace_stream::{Record, Section, append, flag};

/// glibc's `pthread_mutex_t` for x86-64: a word that is 0 when free, a count of a recursive one, the owner's thread number, users, and the kind.
mod mutex {
    pub const COUNT: u64 = 4;
    pub const OWNER: u64 = 8;
    pub const KIND: u64 = 16;
    pub const KIND_MASK: u32 = 3;
    pub const RECURSIVE: u32 = 1;
    pub const ERROR_CHECKING: u32 = 2;
}

/// glibc's `pthread_rwlock_t`: the writer's thread number.
const WRITER: u64 = 24;

/// Locks whose counts a thread keeps, before it adds them to the lock's: by address, one each.
const CACHED: usize = 512;

/// Bytes of allocations that are told together with a section; with the largest section, less than the log takes.
const AT_ONCE: usize = 1 << 15;

/// How much lies above a thread's first frame: its own control block and thread-local variables. glibc puts them on the stack's end.
const ABOVE_FRAMES: u64 = 1 << 16;

/// See the [module](self).
pub struct Thread {
    state: State,
    forgetting: Forgetting,
    number: u32,
    /// As the kernel has it, and glibc in a mutex's owner.
    id: u32,
    draws: Draws,
    /// Sampled sections that it is in, the outermost first.
    open: Vec<Open>,
    /// The locking function that it is in, if that matters.
    inside: Option<Inside>,
    /// Accesses are recorded.
    recording: bool,
    stack: Range<u64>,
    spare: Vec<Set>,
    counted: Box<[Counted; CACHED]>,
    /// Places in `counted` with something that the lock's totals lack.
    untold: Vec<u16>,
    /// [`Collector::asked`], when it last told its counts.
    asked: u32,
    out: Vec<u8>,
    allocating: Option<Allocating>,
    sites: HashMap<Frames, u32>,
    view: View,
    /// By a hash of what QEMU tells of an access: that, one more than the logarithm of its bytes (0: nothing here), and whether it stores.
    shapes: [(u32, u32, bool); 32],
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
    draws: Option<&'static Lock>,
}

#[derive(Clone, Copy)]
struct Counted {
    address: u64,
    lock: Option<&'static Lock>,
    acquisitions: u64,
    sampled: u64,
    contended: u64,
    /// Its place is among the untold.
    untold: bool,
}

const NOTHING_COUNTED: Counted =
    Counted { address: 0, lock: None, acquisitions: 0, sampled: 0, contended: 0, untold: false };

/// An allocator between its entry and its return.
struct Allocating {
    stack: u64,
    returns_to: u64,
    size: u64,
    /// Where the address is stored, if it is not returned.
    stored_at: Option<u64>,
    site: u32,
}

impl Thread {
    pub fn new(collector: &Collector, state: State) -> Self {
        let number = collector.threads.fetch_add(1, Ordering::Relaxed);
        Thread {
            state,
            forgetting: Forgetting::of_this_thread(),
            number,
            // SAFETY: no preconditions. QEMU's threads are the program's.
            id: unsafe { libc::gettid() } as u32,
            draws: Draws::new(collector.options.seed, number),
            open: Vec::new(),
            inside: None,
            recording: false,
            stack: 0..0,
            spare: Vec::new(),
            counted: Box::new([NOTHING_COUNTED; CACHED]),
            untold: Vec::with_capacity(CACHED),
            asked: 0,
            out: Vec::new(),
            allocating: None,
            sites: HashMap::new(),
            view: View::default(),
            shapes: [(0, 0, false); 32],
        }
    }

    /// A function is entered.
    pub fn enters(&mut self, collector: &Collector, function: Function) {
        let stack = self.state.register(register::RSP);
        let first = self.state.register(register::RDI);
        // SAFETY: the call that comes here has just pushed it.
        let returns_to = unsafe { guest::read::<u64>(stack) };
        match function {
            Function::Free => return self.frees(first),
            Function::Reallocate => {
                self.frees(first);
                return self.allocates(collector, stack, returns_to, self.state.register(register::RSI), None);
            }
            Function::Allocate(size) => {
                let second = self.state.register(register::RSI);
                let (size, stored_at) = match size {
                    Size::First => (first, None),
                    Size::Second => (second, None),
                    Size::Product => (first.saturating_mul(second), None),
                    Size::ThirdStored => (self.state.register(register::RDX), Some(first)),
                };
                return self.allocates(collector, stack, returns_to, size, stored_at);
            }
            _ => {}
        }
        if collector.asked() != self.asked {
            self.asked = collector.asked();
            self.tells_counts();
        }
        // What the dynamic linker does with its own lock is not recorded, so that lock would seem to protect nothing.
        if collector.is_linker(returns_to) {
            return;
        }
        if let Some(inside) = &self.inside {
            // A locking function that another calls, or goes on as, is that one's own business. Else the other was left without a return (a jump, a cancellation).
            let goes_on = stack == inside.stack && returns_to == inside.returns_to && function != inside.function;
            if stack < inside.stack || goes_on {
                return;
            }
        }
        let draws = match function {
            Function::Lock(kind) | Function::TryLock(kind) => {
                self.asks(collector, kind, first, returns_to, matches!(function, Function::Lock(_)))
            }
            Function::Unlock(kind) => {
                self.unlocks(collector, kind, first);
                None
            }
            Function::Remake(kind) => {
                self.open.retain(|open| open.lock.address != first);
                locks().retire(first, kind.of().size());
                None
            }
            Function::Condition => {
                self.knows_condition(first);
                None
            }
            Function::Wait => {
                self.knows_condition(first);
                self.waits(collector, self.state.register(register::RSI), returns_to)
            }
            Function::Allocate(_) | Function::Reallocate | Function::Free => None,
        };
        let watch = draws.is_some() || !self.open.is_empty();
        self.inside = watch.then_some(Inside { function, stack, returns_to, draws });
        self.recording = false;
        // Here and nowhere else: a block that changes it may be chained to one of either kind, and this one belongs to a locking function.
        if self.state.watching() {
            self.forgetting.forget();
        }
        if self.state.watching() != watch {
            self.state.watch(watch);
        }
    }

    /// In a block with memory callbacks, at `pc`, where a call may return to.
    pub fn returned(&mut self, collector: &Collector, pc: u64) {
        let Some(inside) = &self.inside else { return };
        if inside.returns_to != pc || self.state.register(register::RSP) != inside.stack + 8 {
            return;
        }
        let result = self.state.register(register::RAX) as i32;
        // A robust mutex of a dead owner is acquired, too; a wait that times out has its mutex back.
        let acquired = match inside.function {
            Function::Wait => matches!(result, 0 | libc::ETIMEDOUT | libc::EOWNERDEAD),
            _ => matches!(result, 0 | libc::EOWNERDEAD),
        };
        if let Some(lock) = inside.draws.filter(|_| acquired) {
            self.opens(collector, lock);
        }
        self.inside = None;
        self.recording = !self.open.is_empty();
    }

    /// Of an access: the logarithm of its bytes, and whether it is a store. QEMU is asked once for each value, of which there are few.
    #[inline]
    pub fn shape(&mut self, information: u32) -> (u32, bool) {
        let shape = &mut self.shapes[(information.wrapping_mul(0x9e37_79b9) >> 27) as usize];
        if shape.0 != information || shape.1 == 0 {
            // SAFETY: what QEMU has just handed over.
            let (shift, store) =
                unsafe { (api::qemu_plugin_mem_size_shift(information), api::qemu_plugin_mem_is_store(information)) };
            *shape = (information, 1 + shift.min(6), store);
        }
        (shape.1 - 1, shape.2)
    }

    /// The program accesses memory, in a block with memory callbacks.
    pub fn accesses(&mut self, access: Access) {
        if self.recording && !self.stack.contains(&access.address) {
            for open in &mut self.open {
                open.set.add(access);
            }
        }
    }

    /// An allocator's caller goes on, at `pc`.
    pub fn allocated(&mut self, pc: u64) {
        let Some(allocating) = &self.allocating else { return };
        if allocating.returns_to != pc || self.state.register(register::RSP) != allocating.stack + 8 {
            return;
        }
        let result = self.state.register(register::RAX);
        let address = match allocating.stored_at {
            None => result,
            // SAFETY: the allocator has succeeded, and just stored it there.
            Some(at) if result == 0 => unsafe { guest::read::<u64>(at) },
            Some(_) => 0,
        };
        if address != 0 {
            heap().add(address, allocating.size, self.number, allocating.site);
        }
        self.allocating = None;
    }

    /// It does I/O, or may wait for what another section does.
    pub fn does_io(&mut self) {
        if self.inside.is_none() {
            self.open.iter_mut().for_each(|open| open.flags |= flag::IO);
        }
    }

    /// Before its state is copied to a thread that knows nothing of sampling, and after.
    pub fn is_copied(&mut self, before: bool) {
        if before {
            self.state.watch(false);
        } else if !self.open.is_empty() || self.inside.is_some() {
            self.state.watch(true);
        }
    }

    /// Nothing is collected any more.
    pub fn gives_up(state: State) {
        if state.watching() {
            state.watch(false);
        }
    }

    /// It ends, or the program does: its counts are told. Sections that it is in are never told: they have no unlock.
    pub fn ends(&mut self) {
        self.tells_counts();
    }

    /// What it has counted goes into the locks' totals: before it may sleep for long, and when all are asked.
    pub fn tells_counts(&mut self) {
        for slot in self.untold.drain(..) {
            self.counted[usize::from(slot)].tell();
        }
    }

    /// A lock is asked for; the lock if its section is drawn.
    fn asks(
        &mut self,
        collector: &Collector,
        kind: Lockable,
        address: u64,
        pc: u64,
        waits: bool,
    ) -> Option<&'static Lock> {
        let layout = collector.layout_known();
        let id = self.id;
        let counted = self.counted(collector, kind.of(), address, pc)?;
        let lock = counted.lock?;
        // SAFETY: it is known as a lock, so its memory was there; a program that asks for a lock whose memory is gone dies of it here instead of in the function.
        let word = |offset: u64| unsafe { guest::read::<u32>(address + offset) };
        if layout {
            let busy = match kind {
                Lockable::Mutex => word(0) != 0,
                Lockable::Read => word(WRITER) != 0,
                Lockable::Write | Lockable::ReadWrite => word(0) != 0 || word(WRITER) != 0,
                Lockable::Spin => word(0) as i32 <= 0,
            };
            if busy {
                if kind == Lockable::Mutex && word(mutex::OWNER) == id && word(mutex::KIND) & mutex::KIND_MASK != 0 {
                    // Once more by its owner: the section goes on.
                    return None;
                }
                if waits {
                    counted.contended += 1;
                }
            }
        }
        if self.open.iter().any(|open| open.lock.address == address) {
            return None;
        }
        self.draws.draw(collector.options.rate).then_some(lock)
    }

    /// A lock is released; by whom it is not held is not known here, and no program does that.
    fn unlocks(&mut self, collector: &Collector, kind: Lockable, address: u64) {
        let (layout, id) = (collector.layout_known(), self.id);
        let Some(counted) = self.known(address) else {
            collector.unmatched.fetch_add(1, Ordering::Relaxed);
            return;
        };
        if layout && kind == Lockable::Mutex {
            // SAFETY: it is known as a lock, and held.
            let word = |offset: u64| unsafe { guest::read::<u32>(address + offset) };
            let is_owner = word(mutex::OWNER) == id;
            collector.sees_owner(is_owner);
            let stays = match word(mutex::KIND) & mutex::KIND_MASK {
                mutex::RECURSIVE => word(mutex::COUNT) > 1,
                mutex::ERROR_CHECKING => !is_owner,
                _ => false,
            };
            if stays {
                return;
            }
        }
        counted.acquisitions += 1;
        self.closes(collector, address, 0);
    }

    /// It waits for a condition: the mutex's section ends, and another begins when it has it back. What it still holds is held by one that waits, as for I/O.
    fn waits(&mut self, collector: &Collector, address: u64, pc: u64) -> Option<&'static Lock> {
        let counted = self.counted(collector, Kind::Mutex, address, pc)?;
        counted.acquisitions += 1;
        let lock = counted.lock?;
        self.closes(collector, address, flag::WAITED);
        self.open.iter_mut().for_each(|open| open.flags |= flag::IO);
        self.draws.draw(collector.options.rate).then_some(lock)
    }

    fn knows_condition(&self, address: u64) {
        if locks().bytes_of_word(address) == 0 {
            locks().mark(address, CONDITION);
        }
    }

    /// A sampled section begins.
    fn opens(&mut self, collector: &Collector, lock: &'static Lock) {
        let stack = self.state.register(register::RSP);
        if !self.stack.contains(&stack) {
            self.stack = stack_around(collector, stack, self.number == 0);
        }
        let set = self.spare.pop().unwrap_or_else(|| Set::new(collector.options.words));
        self.open.push(Open { lock, set, flags: 0 });
    }

    /// A section ends; it is told if it was sampled, while its lock is still held, so that a lock's sections are told in their order.
    fn closes(&mut self, collector: &Collector, address: u64, flags: u32) {
        let Some(at) = self.open.iter().position(|open| open.lock.address == address) else { return };
        self.tells(collector, at, flags);
    }

    /// The section at this place of the open ones ends.
    #[inline(never)]
    fn tells(&mut self, collector: &Collector, at: usize, flags: u32) {
        let Open { lock, mut set, flags: before } = self.open.remove(at);
        let (entries, cut_short) = set.ends(locks());
        self.out.clear();
        if collector.options.heap {
            for entry in entries.iter() {
                let touched = entry.address + u64::from((entry.read | entry.written).trailing_zeros());
                if let Some(piece) = heap().tell(touched, &mut self.view) {
                    append(&mut self.out, &Record::Allocation(piece.allocation()));
                    // A section and its pieces may be more than the log takes at once.
                    if self.out.len() > AT_ONCE {
                        collector.log.append(&self.out, |_, _| {});
                        self.out.clear();
                    }
                }
            }
        }
        let section = Section { lock: lock.number, thread: self.number, order: 0, flags: before | flags | cut_short };
        collector.log.tell_section(&mut self.out, &section, entries);
        collector.log.write_if_due();
        collector.sections.fetch_add(1, Ordering::Relaxed);
        set.clear();
        self.spare.push(set);
        if let Some(counted) = self.known(lock.address) {
            counted.sampled += 1;
        }
    }

    /// Its counts of the lock at `address`, which is made known. Nothing if there is no memory.
    #[inline]
    fn counted(&mut self, collector: &Collector, kind: Kind, address: u64, pc: u64) -> Option<&mut Counted> {
        let slot = slot(address);
        let counted = &self.counted[slot];
        if counted.address != address || counted.lock.is_none_or(Lock::retired) {
            guest::try_read::<4>(address)?;
            let mut made = false;
            let lock = locks().of(address, kind.size(), pc, |lock| {
                collector.log.tell(&lock.record());
                made = true;
            });
            self.count_now(slot, lock);
            if made && collector.options.heap {
                self.tells_piece_of(collector, address);
            }
        }
        Some(self.counted_at(slot))
    }

    /// Its counts of the lock at `address`, if that was ever acquired.
    #[inline]
    fn known(&mut self, address: u64) -> Option<&mut Counted> {
        let slot = slot(address);
        let counted = &self.counted[slot];
        if counted.address != address || counted.lock.is_none() {
            self.count_now(slot, locks().find(address)?);
        }
        Some(self.counted_at(slot))
    }

    /// Its counts in this place, for counting.
    #[inline]
    fn counted_at(&mut self, slot: usize) -> &mut Counted {
        let counted = &mut self.counted[slot];
        if !counted.untold {
            counted.untold = true;
            self.untold.push(slot as u16);
        }
        counted
    }

    /// A lock in a piece of the heap is known by that, also if no sampled section touches anything else in it.
    #[cold]
    fn tells_piece_of(&mut self, collector: &Collector, address: u64) {
        if let Some(piece) = heap().tell(address, &mut self.view) {
            self.out.clear();
            append(&mut self.out, &Record::Allocation(piece.allocation()));
            collector.log.append(&self.out, |_, _| {});
        }
    }

    /// Counts another lock in this place.
    #[cold]
    fn count_now(&mut self, slot: usize, lock: &'static Lock) {
        let counted = &mut self.counted[slot];
        let untold = counted.untold;
        counted.tell();
        *counted = Counted { address: lock.address, lock: Some(lock), untold, ..NOTHING_COUNTED };
    }

    fn allocates(&mut self, collector: &Collector, stack: u64, returns_to: u64, size: u64, stored_at: Option<u64>) {
        // What an allocator allocates by another (`operator new` by `malloc`) is the outer's.
        if self.allocating.as_ref().is_some_and(|outer| stack < outer.stack) {
            return;
        }
        let frames = [returns_to, 0, 0, 0];
        let site = self.sites.get(&frames).copied().or_else(|| {
            let mut returns = collector.allocator_returns.write().unwrap_or_else(|poisoned| poisoned.into_inner());
            returns.insert(returns_to);
            let site = heap().site(frames)?;
            self.sites.insert(frames, site);
            Some(site)
        });
        self.allocating = site.map(|site| Allocating { stack, returns_to, size, stored_at, site });
    }

    fn frees(&mut self, address: u64) {
        if let Some(size) = heap().remove(address) {
            locks().retire_within(address, size);
        }
    }
}

impl Counted {
    /// Adds them to the lock's; its place is no longer among the untold.
    fn tell(&mut self) {
        if let Some(lock) = self.lock {
            lock.acquisitions.fetch_add(self.acquisitions, Ordering::Relaxed);
            if self.sampled > 0 {
                lock.sampled.fetch_add(self.sampled, Ordering::Relaxed);
            }
            if self.contended > 0 {
                lock.contended.fetch_add(self.contended, Ordering::Relaxed);
            }
        }
        (self.acquisitions, self.sampled, self.contended, self.untold) = (0, 0, 0, false);
    }
}

impl Lockable {
    fn of(self) -> Kind {
        match self {
            Lockable::Mutex => Kind::Mutex,
            Lockable::Read | Lockable::Write | Lockable::ReadWrite => Kind::ReadWrite,
            Lockable::Spin => Kind::Spin,
        }
    }
}

fn slot(address: u64) -> usize {
    ((address >> 2).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % CACHED
}

/// The stack that the pointer is into: its mapping, up to where the program's first frame was, or a little above the thread's.
fn stack_around(collector: &Collector, pointer: u64, first_thread: bool) -> Range<u64> {
    let host = guest::host(pointer);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mapping = maps.lines().find_map(|line| {
        let (base, end) = line.split(' ').next()?.split_once('-')?;
        let mapping = u64::from_str_radix(base, 16).ok()?..u64::from_str_radix(end, 16).ok()?;
        mapping.contains(&host).then_some(mapping)
    });
    let Some(mapping) = mapping else { return pointer & !0xfff..(pointer | 0xfff) + 1 };
    let (base, end) = (guest::address(mapping.start), guest::address(mapping.end));
    let initial = collector.calibration.initial_stack();
    let end = match first_thread && initial >= pointer && initial < end {
        true => initial,
        false => end.min((pointer | 0xfff) + 1 + ABOVE_FRAMES),
    };
    base..end
}
