//! Lock elision: what it decides, on a machine whose transactions do as they are told; and on this
//! one, where transactions commit here.
#![cfg(not(loom))]

use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use lock_api::{RawMutex, RawMutexTimed};
use unconvoy::catalogue::{Availability, availability};
use unconvoy::contention::Contention;
use unconvoy::contention::elided::Elided;
use unconvoy::load::none::NoManager;
use unconvoy::primitive::turn::{Outcome, Verdict};
use unconvoy::primitive::{
    Abort, Atomics, Begun, Clock, Generation, Native, Parking, SliceExtension, Spin, Threads, Transactions,
};
use unconvoy::raw::RawLock;

/// A machine of which one thread's transactions can be looked into. They keep what they wrote when
/// they abort, so that a test says what it expects before and after.
struct Told;

/// What it has done, and what it is to do.
#[derive(Clone, Copy, Default)]
struct Machine {
    depth: u32,
    begun: u32,
    aborted: u32,
    ended: u32,
    /// What the next beginnings come to, once; else they start.
    abort_next: Option<Abort>,
}

thread_local! {
    static MACHINE: Cell<Machine> = const { Cell::new(Machine { depth: 0, begun: 0, aborted: 0, ended: 0, abort_next: None }) };
}

fn change(change: impl FnOnce(&mut Machine)) {
    let mut machine = MACHINE.get();
    change(&mut machine);
    MACHINE.set(machine);
}

impl Atomics for Told {
    type U32 = AtomicU32;
    type U64 = AtomicU64;
    type Ptr<T> = AtomicPtr<T>;

    fn fence(order: Ordering) {
        Native::fence(order);
    }
}

impl Clock for Told {
    fn now() -> u64 {
        Native::now()
    }
}

impl Spin for Told {
    fn pause() {}
}

impl Parking for Told {
    fn park(_: &AtomicU32, _: u32, _: Option<u64>) {
        unreachable!("nobody parks here");
    }
    fn unpark(_: *const AtomicU32, _: u32) {}
}

impl Threads for Told {
    fn thread_id() -> u32 {
        1
    }
    fn yield_now() {}
}

impl Generation for Told {}
impl SliceExtension for Told {}

impl Transactions for Told {
    fn begin_transaction() -> Begun {
        let mut begun = Begun::Started;
        change(|machine| {
            machine.begun += 1;
            match machine.abort_next {
                Some(abort) => begun = Begun::Aborted(abort),
                None => machine.depth += 1,
            }
        });
        begun
    }

    fn in_transaction() -> bool {
        MACHINE.get().depth > 0
    }

    fn end_transaction() {
        change(|machine| {
            machine.depth -= 1;
            machine.ended += 1;
        });
    }

    /// Returns, as no processor does, and makes the next beginning the place where it came back to.
    fn abort_transaction() {
        change(|machine| {
            machine.depth = 0;
            machine.aborted += 1;
            machine.abort_next = Some(Abort { may_succeed_on_retry: false });
        });
    }
}

fn lock_on(machine: Machine) -> Elided<Told> {
    MACHINE.set(machine);
    Elided::unlocked()
}

#[test]
fn an_elided_section_does_not_take_the_lock() {
    let lock = lock_on(Machine::default());
    assert!(lock.elide());
    assert_eq!(MACHINE.get().depth, 1);
    // SAFETY: in its section.
    assert!(unsafe { lock.unlock() });
    let Machine { depth, ended, aborted, .. } = MACHINE.get();
    assert_eq!((depth, ended, aborted), (0, 1, 0));
    assert!(!lock.is_locked());
}

#[test]
fn a_lock_that_is_held_is_not_elided() {
    let lock = lock_on(Machine::default());
    assert!(lock.try_lock());
    assert!(!lock.elide());
    assert_eq!(MACHINE.get().aborted, 1);
    // SAFETY: held.
    assert!(unsafe { !lock.end_elided() && lock.unlock() });
    assert_eq!(MACHINE.get().ended, 0);
}

#[test]
fn inside_a_transaction_nothing_is_tried_taken_asked_or_parked_at() {
    let uses: [fn(&Elided<Told>); 4] = [
        |lock| assert!(lock.try_lock()),
        |lock| assert_eq!(lock.attempt(&mut |_now| Verdict::Spin), Outcome::Acquired),
        |lock| assert!(!lock.set_parked_bit()),
        |lock| assert!(!lock.is_locked()),
    ];
    for within in uses {
        let lock = lock_on(Machine::default());
        assert!(lock.elide());
        within(&lock);
        assert_eq!(MACHINE.get().aborted, 1);
        let outside = lock_on(Machine::default());
        within(&outside);
        assert_eq!(MACHINE.get().aborted, 0);
    }
}

#[test]
fn a_lock_taken_before_the_transaction_is_released_inside_it() {
    let (outer, inner) = (lock_on(Machine::default()), Elided::<Told>::unlocked());
    assert!(outer.try_lock());
    assert!(inner.elide());
    // SAFETY: held.
    assert!(unsafe { outer.unlock() });
    assert_eq!(MACHINE.get().ended, 0);
    // SAFETY: in its section.
    assert!(unsafe { inner.unlock() });
    assert_eq!(MACHINE.get().ended, 1);
}

#[test]
fn conflicts_are_tried_again_and_then_skipped_until_one_commits() {
    let conflict = Machine { abort_next: Some(Abort { may_succeed_on_retry: true }), ..Machine::default() };
    let lock = lock_on(conflict);
    assert!(!lock.elide());
    assert_eq!(MACHINE.get().begun, 3);
    let skipped = || {
        MACHINE.set(Machine::default());
        let skipped = (0..).take_while(|_| !lock.elide()).count();
        assert_eq!(MACHINE.get().begun, 1, "skipping begins nothing");
        // SAFETY: in its section.
        assert!(unsafe { lock.unlock() });
        skipped
    };
    assert_eq!(skipped(), 3);
    assert_eq!(skipped(), 0);
    // Twice in a row costs more.
    MACHINE.set(conflict);
    assert!(!lock.elide());
    (0..3).for_each(|_| assert!(!lock.elide()));
    assert!(!lock.elide());
    assert_eq!(skipped(), 6);
}

type Lock = RawLock<Elided<Native>, NoManager>;

/// Whether transactions commit here.
fn commits() -> bool {
    match availability("elided") {
        Availability::Refused(reason) => println!("skipped: {reason}"),
        other => {
            assert_eq!(other, Availability::Full);
            return true;
        }
    }
    false
}

/// Whether the lock's memory, which is only read, is that of a free lock.
fn looks_free(lock: &Lock) -> bool {
    let words = std::ptr::from_ref(lock).cast::<u32>();
    // The gate, the word, and what elision has learnt, which this is not about.
    // SAFETY: atomics of this lock, which has at least two words.
    unsafe { words.read_volatile() == 0 && words.add(1).read_volatile() == 0 }
}

#[test]
fn sections_commit_without_the_lock() {
    if !commits() {
        return;
    }
    let lock = Lock::INIT;
    let mut elided = 0;
    for _ in 0..10_000 {
        let guard = lock.lock();
        let free = looks_free(&lock);
        // SAFETY: locked above.
        unsafe { lock.unlock(guard) };
        elided += u32::from(free);
    }
    assert!(elided > 0, "of 10000 sections none was elided");
}

#[test]
fn a_section_that_looks_at_its_lock_finds_it_held() {
    if !commits() {
        return;
    }
    for _ in 0..1000 {
        let lock = Lock::INIT;
        let guard = lock.lock();
        assert!(lock.is_locked());
        assert!(lock.try_lock().is_none());
        assert!(lock.try_lock_for(std::time::Duration::from_micros(1)).is_none());
        // SAFETY: locked above.
        unsafe { lock.unlock(guard) };
        assert!(!lock.is_locked());
    }
}

#[test]
fn sections_that_conflict_or_call_the_kernel_are_exclusive() {
    if !commits() {
        return;
    }
    struct Shared(Lock, std::cell::UnsafeCell<[u64; 2]>);
    // SAFETY: the cell is accessed under the lock, which is what is tested.
    unsafe impl Sync for Shared {}
    let shared = Shared(Lock::INIT, [0, 0].into());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let shared = &shared;
            scope.spawn(move || {
                for round in 0..20_000 {
                    let guard = shared.0.lock();
                    // SAFETY: under the lock.
                    let sums = unsafe { &mut *shared.1.get() };
                    sums[0] += 1;
                    if (round + thread) % 100 == 0 {
                        Native::thread_id();
                    }
                    sums[1] += 1;
                    assert_eq!(sums[0], sums[1]);
                    // SAFETY: locked above.
                    unsafe { shared.0.unlock(guard) };
                }
            });
        }
    });
    assert_eq!(shared.1.into_inner(), [80_000; 2]);
}
