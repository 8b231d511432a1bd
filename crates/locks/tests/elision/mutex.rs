//! Mutexes.

use lock_api::{RawMutex, RawMutexTimed};
use unconvoy::contention::Contention;
use unconvoy::contention::elided::Elided;
use unconvoy::load::none::NoManager;
use unconvoy::primitive::turn::{Outcome, Verdict};
use unconvoy::primitive::{Abort, Native, Threads as _};
use unconvoy::raw::RawLock;

use crate::commits;
use crate::machine::{MACHINE, Machine, Scripted};

fn lock_on(machine: Machine) -> Elided<Scripted> {
    MACHINE.set(machine);
    Elided::unlocked()
}

#[test]
fn elided_section_leaves_the_lock_free() {
    let lock = lock_on(Machine::default());
    assert!(lock.elide());
    assert_eq!(MACHINE.get().depth, 1);
    // SAFETY: in a section of the lock.
    assert!(unsafe { lock.unlock() });
    let Machine { depth, ended, aborted, .. } = MACHINE.get();
    assert_eq!((depth, ended, aborted), (0, 1, 0));
    assert!(!lock.is_locked());
}

#[test]
fn elide_of_held_lock_begins_nothing() {
    let lock = lock_on(Machine::default());
    assert!(lock.try_lock());
    assert!(!lock.elide());
    assert_eq!(MACHINE.get().begun, 0);
    // SAFETY: held.
    assert!(unsafe { !lock.end_elided() && lock.unlock() });
    assert_eq!(MACHINE.get().ended, 0);
}

#[test]
fn lock_operations_inside_a_transaction_abort() {
    let uses: [fn(&Elided<Scripted>); 4] = [
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
fn mutex_with_guards_excludes_its_own_thread() {
    type Lock = lock_api::Mutex<RawLock<Elided<Scripted>, NoManager>, u32>;
    MACHINE.set(Machine::default());
    let (outer, inner) = (Lock::new(0), Lock::new(0));
    let _held = outer.lock();
    assert_eq!(MACHINE.get().aborted, 0);
    let _also_held = inner.lock();
    assert_eq!(MACHINE.get().aborted, 1, "the inner lock may be the outer one");
}

#[test]
fn unlock_of_lock_held_before_the_transaction_does_not_end_it() {
    let (outer, inner) = (lock_on(Machine::default()), Elided::<Scripted>::unlocked());
    assert!(outer.try_lock());
    assert!(inner.elide());
    // SAFETY: held.
    assert!(unsafe { outer.unlock() });
    assert_eq!(MACHINE.get().ended, 0);
    // SAFETY: in a section of the lock.
    assert!(unsafe { inner.unlock() });
    assert_eq!(MACHINE.get().ended, 1);
}

#[test]
fn conflicts_are_retried_before_the_lock_is_taken() {
    let lock = lock_on(Machine { abort_next: Some(Abort::Conflict), ..Machine::default() });
    assert!(!lock.elide());
    assert_eq!(MACHINE.get().begun, 4);
    MACHINE.set(Machine::default());
    assert!(lock.elide(), "four conflicts alone do not end elision");
    // SAFETY: in its section.
    assert!(unsafe { lock.unlock() });
}

#[test]
fn hopeless_abort_is_not_retried() {
    let lock = lock_on(Machine { abort_next: Some(Abort::Hopeless), ..Machine::default() });
    assert!(!lock.elide());
    assert_eq!(MACHINE.get().begun, 1);
}

/// The lemming effect: a thread that takes the lock must not make the others take it.
#[test]
fn held_lock_is_no_failure() {
    let lock = lock_on(Machine::default());
    for _ in 0..1000 {
        assert!(lock.try_lock());
        assert!(!lock.elide(), "held throughout");
        // SAFETY: held.
        assert!(unsafe { lock.unlock() });
        MACHINE.set(Machine::default());
        assert!(lock.elide(), "free again");
        // SAFETY: in its section.
        assert!(unsafe { lock.unlock() });
    }
}

#[test]
fn lock_that_only_fails_is_taken_without_a_try() {
    let lock = lock_on(Machine { abort_next: Some(Abort::Hopeless), ..Machine::default() });
    let mut sections = 0;
    while MACHINE.get().begun < 2000 && sections < 1_000_000 {
        if lock.elide() || lock.try_lock() {
            sections += 1;
            // SAFETY: in its section.
            assert!(unsafe { lock.unlock() });
        }
    }
    let begun = MACHINE.get().begun;
    assert!(sections > 20 * begun, "{sections} sections, {begun} transactions");
}

/// Without contention, a trial that was over was never decided.
#[test]
fn trial_is_decided_although_no_thread_contends() {
    let lock = lock_on(Machine { abort_next: Some(Abort::Hopeless), ..Machine::default() });
    let section = || {
        assert!(lock.elide_at_once() || lock.lock_at_once() || lock.elide() || lock.try_lock());
        let is_elided = MACHINE.get().depth > 0;
        // SAFETY: in its section.
        assert!(unsafe { lock.unlock() });
        is_elided
    };
    (0..100).for_each(|_| assert!(!section()));
    MACHINE.set(Machine::default());
    // The second trial comes after some milliseconds, however many sections fit into them.
    let elided = (0..2_000_000).filter(|_| section()).take(401).count();
    assert!(elided > 400, "{elided} elided, but two trials are 512 sections");
}

type Lock = RawLock<Elided<Native>, NoManager>;

/// Whether the lock's memory, read without locking, is that of a free lock.
fn looks_free(lock: &Lock) -> bool {
    let words = std::ptr::from_ref(lock).cast::<u32>();
    // The eventcount and the word; the adaptation behind them does not matter here.
    // SAFETY: atomics of this lock, which has at least two words.
    unsafe { words.read_volatile() == 0 && words.add(1).read_volatile() == 0 }
}

#[test]
fn uncontended_sections_commit_without_the_lock() {
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
    assert!(elided > 0, "none of 10000 sections was elided");
}

#[test]
fn operations_inside_a_section_find_the_lock_held() {
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
fn sections_with_conflicts_or_system_calls_are_exclusive() {
    if !commits() {
        return;
    }
    struct Shared(Lock, std::cell::UnsafeCell<[u64; 2]>);
    // SAFETY: the cell is accessed under the lock under test.
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
