//! Reader-writer locks.

use std::cell::UnsafeCell;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use unconvoy::contention::Contention as _;
use unconvoy::contention::biased_rw::BiasedRw;
use unconvoy::contention::elided::Elided;
use unconvoy::contention::elided_rw::ElidedRw;
use unconvoy::contention::rw::{MAX_READERS, Share};
use unconvoy::load::none::NoManager;
use unconvoy::lock::{acquire_shared, release_shared};
use unconvoy::parking::eventcount::Eventcount;
use unconvoy::primitive::{Abort, Native, Primitive, Threads as _, Transactions as _};

use crate::commits;
use crate::machine::{MACHINE, Machine, Scripted};

const SIDES: [Share; 3] = [Share::Read, Share::ReadAfterWriters, Share::Write];

fn lock_on(machine: Machine) -> ElidedRw<Scripted> {
    MACHINE.set(machine);
    ElidedRw::unlocked()
}

/// Unlocks as a user does; returns whether the section was elided.
fn unlock<P: Primitive>(lock: &ElidedRw<P>) -> bool {
    // SAFETY: the tests unlock what they have locked.
    unsafe {
        lock.end_elided() || {
            assert!(lock.lock().release());
            false
        }
    }
}

#[test]
fn elided_section_of_each_side_leaves_the_lock_free() {
    for side in SIDES {
        let lock = lock_on(Machine::default());
        assert!(lock.elide(side));
        assert!(!lock.lock().is_locked());
        assert_eq!(MACHINE.get().depth, 1);
        assert!(unlock(&lock));
        let Machine { depth, ended, aborted, elided_lock, .. } = MACHINE.get();
        assert_eq!((depth, ended, aborted, elided_lock), (0, 1, 0, 0));
    }
}

#[test]
fn written_lock_is_elided_by_neither_side() {
    for side in SIDES {
        let lock = lock_on(Machine::default());
        assert!(lock.lock().try_acquire(Share::Write));
        assert!(!lock.elide_at_once(side) && !lock.elide(side));
        assert_eq!(MACHINE.get().begun, 0);
        assert!(!unlock(&lock));
    }
}

#[test]
fn reader_is_elided_beside_readers_and_writer_is_not() {
    let lock = lock_on(Machine::default());
    assert!(lock.lock().try_acquire(Share::Read));
    assert!(!lock.elide(Share::Write));
    for reader in [Share::Read, Share::ReadAfterWriters] {
        assert!(lock.elide(reader));
        assert!(unlock(&lock), "the elided section ends first");
        assert_eq!(MACHINE.get().depth, 0);
    }
    assert!(!unlock(&lock), "then the reader releases the lock");
    assert!(!lock.lock().is_locked());
}

#[test]
fn reader_is_elided_although_a_writer_is_parked_behind_readers() {
    let lock = lock_on(Machine::default());
    assert!(lock.lock().try_acquire(Share::Read));
    assert!(lock.lock().set_parked_bit());
    assert!(lock.elide(Share::Read));
    assert!(unlock(&lock));
}

#[test]
fn waiting_writer_keeps_out_only_readers_that_respect_it() {
    let lock = lock_on(Machine::default());
    lock.lock().begin_wait(Share::Write);
    assert!(!lock.elide(Share::ReadAfterWriters));
    assert!(lock.elide(Share::Read));
    assert!(unlock(&lock));
    assert!(lock.lock().end_wait(Share::Write));
    assert!(lock.elide(Share::ReadAfterWriters));
    assert!(unlock(&lock));
}

#[test]
fn lock_with_the_most_readers_admits_no_elided_reader() {
    let lock = lock_on(Machine::default());
    // SAFETY: the first word of the lock is an atomic, and counts the readers.
    let word = unsafe { &*std::ptr::from_ref(&lock).cast::<AtomicU32>() };
    word.store(MAX_READERS, Relaxed);
    assert!(lock.lock().is_full());
    assert!(!lock.elide_at_once(Share::Read));
    word.store(MAX_READERS - 1, Relaxed);
    assert!(lock.elide_at_once(Share::Read));
}

#[test]
fn second_lock_of_an_elided_section_aborts_it() {
    for (first, second) in SIDES.iter().flat_map(|&first| SIDES.map(|second| (first, second))) {
        for is_same in [true, false] {
            let (lock, other) = (lock_on(Machine::default()), ElidedRw::<Scripted>::unlocked());
            assert!(lock.elide(first));
            (if is_same { &lock } else { &other }).elide_at_once(second);
            assert_eq!(MACHINE.get().aborted, 1, "{first:?} {second:?}");
            assert_eq!(MACHINE.get().abort_next, Some(Abort::Hopeless));
        }
    }
}

#[test]
fn taking_or_testing_the_lock_inside_a_transaction_aborts() {
    let lock = lock_on(Machine::default());
    lock.refuse_in_transaction();
    assert_eq!(MACHINE.get().aborted, 0);
    let mutex = Elided::<Scripted>::unlocked();
    assert!(mutex.elide());
    assert!(!lock.lock_at_once(Share::Read));
    lock.refuse_in_transaction();
    assert_eq!(MACHINE.get().aborted, 1);
}

#[test]
fn section_within_an_elided_section_of_a_mutex_is_elided() {
    let (lock, mutex) = (lock_on(Machine::default()), Elided::<Scripted>::unlocked());
    for side in SIDES {
        assert!(mutex.elide() && lock.elide(side));
        assert_eq!(MACHINE.get().depth, 2);
        assert!(unlock(&lock));
        // SAFETY: in its section.
        assert!(unsafe { mutex.unlock() });
    }
    assert_eq!((MACHINE.get().depth, MACHINE.get().aborted), (0, 0));
}

#[test]
fn unlock_of_lock_taken_before_the_transaction_releases_it() {
    for (side, other_side) in [(Share::Read, Share::Write), (Share::Write, Share::Read)] {
        let (lock, other) = (lock_on(Machine::default()), ElidedRw::<Scripted>::unlocked());
        assert!(lock.lock().try_acquire(side));
        assert!(other.elide(other_side));
        assert!(!unlock(&lock), "released within the other's section");
        assert_eq!(MACHINE.get().depth, 1);
        assert!(!lock.lock().is_locked());
        assert!(unlock(&other));
    }
}

/// The lemming effect: a thread that takes the lock must not make the others take it.
#[test]
fn held_lock_is_no_failure_of_either_side() {
    let lock = lock_on(Machine::default());
    for round in 0..1000 {
        let side = SIDES[round % SIDES.len()];
        assert!(lock.lock().try_acquire(Share::Write));
        assert!(!lock.elide(side), "held throughout");
        assert!(!unlock(&lock));
        MACHINE.set(Machine::default());
        assert!(lock.elide(side), "free again");
        assert!(unlock(&lock));
    }
}

#[test]
fn lock_whose_sections_only_fail_is_taken_without_a_try() {
    let lock = lock_on(Machine { abort_next: Some(Abort::Hopeless), ..Machine::default() });
    let mut sections = 0;
    while MACHINE.get().begun < 1000 && sections < 500_000 {
        let side = SIDES[sections % SIDES.len()];
        if !lock.elide(side) && !lock.lock_at_once(side) {
            assert!(lock.lock().try_acquire(side));
            lock.record_locked();
        }
        sections += 1;
        assert!(!unlock(&lock));
    }
    let begun = MACHINE.get().begun as usize;
    assert!(sections > 20 * begun, "{sections} sections, {begun} transactions");
}

/// A section in the order of a user's calls; returns whether it was elided.
fn section(lock: &ElidedRw<Scripted>, side: Share) -> bool {
    if !lock.elide_at_once(side) && !lock.lock_at_once(side) && !lock.elide(side) {
        assert!(lock.lock().try_acquire(side));
        lock.record_locked();
    }
    unlock(lock)
}

/// Conflicts cause no skips, so only what the lock has learnt keeps sections from a try.
#[test]
fn lock_whose_sections_only_conflict_is_taken_without_a_try() {
    let lock = lock_on(Machine { abort_next: Some(Abort::Conflict), ..Machine::default() });
    let sections = (0..1000).inspect(|_| _ = section(&lock, Share::Read));
    let begun = sections.map(|_| MACHINE.get().begun);
    assert!(!begun.is_sorted_by(|before, after| before < after), "each section began a try");
}

/// Readers never contend: a lock that decided only when contended never elided again.
#[test]
fn trial_is_decided_although_no_thread_contends() {
    let lock = lock_on(Machine { abort_next: Some(Abort::Hopeless), ..Machine::default() });
    (0..100).for_each(|_| assert!(!section(&lock, Share::Read)));
    MACHINE.set(Machine::default());
    // The second trial comes after some milliseconds, however many sections fit into them.
    let sections = (0..2_000_000).filter(|_| section(&lock, Share::Read));
    let elided = sections.take(401).count();
    assert!(elided > 400, "{elided} elided, but two trials are 512 sections");
}

#[test]
fn side_with_hopeless_aborts_takes_the_lock_and_the_other_side_elides() {
    let lock = lock_on(Machine::default());
    let mut tried = Vec::new();
    for section in 0..100 {
        MACHINE.set(Machine { abort_next: Some(Abort::Hopeless), ..Machine::default() });
        assert!(!lock.elide_at_once(Share::Write));
        let is_skipped = lock.lock_at_once(Share::Write);
        if !is_skipped {
            assert!(!lock.elide(Share::Write));
            assert!(lock.lock().try_acquire(Share::Write));
            tried.push(section);
        }
        assert!(!unlock(&lock));
        MACHINE.set(Machine::default());
        if tried.len() < 4 {
            assert!(lock.elide_at_once(Share::Read), "after {section}");
            assert!(unlock(&lock));
        }
    }
    assert_eq!(tried[..4], [0, 2, 5, 10], "skips of 1, 2 and 4 sections");
}

#[test]
fn success_after_a_hopeless_abort_ends_the_skips() {
    let lock = lock_on(Machine { abort_next: Some(Abort::Hopeless), ..Machine::default() });
    assert!(!lock.elide(Share::Read));
    MACHINE.set(Machine::default());
    assert!(!lock.elide(Share::Read), "skipped");
    assert!(!lock.elide_at_once(Share::Read), "and the next try is a slow one");
    assert!(lock.elide(Share::Read));
    assert!(unlock(&lock));
    assert!(lock.elide_at_once(Share::Read));
    assert!(unlock(&lock));
}

/// A lock on this machine, and data that its writers change and its readers compare.
struct Shared {
    lock: ElidedRw<Native>,
    eventcount: Eventcount<Native>,
    pair: UnsafeCell<[u64; 2]>,
}

// SAFETY: the cell is accessed under the lock under test.
unsafe impl Sync for Shared {}

impl Shared {
    fn new() -> Self {
        Shared { lock: ElidedRw::unlocked(), eventcount: Eventcount::new(), pair: [0, 0].into() }
    }

    fn taken(&self) -> BiasedRw<'_, Native> {
        BiasedRw::unbiased(self.lock.lock(), &self.eventcount)
    }

    fn lock(&self, side: Share) {
        if self.lock.elide(side) {
            return;
        }
        self.lock.refuse_in_transaction();
        if !self.lock.lock().try_acquire(side) {
            let acquired = acquire_shared::<Native, NoManager>(self.taken(), side, None);
            assert!(acquired.held);
        }
        self.lock.record_locked();
    }

    fn try_lock(&self, side: Share) -> bool {
        self.lock.refuse_in_transaction();
        self.lock.lock().try_acquire(side)
    }

    fn unlock(&self) {
        // SAFETY: the tests unlock what they have locked.
        unsafe {
            if !self.lock.end_elided() {
                release_shared(self.taken());
            }
        }
    }

    fn write(&self, between: impl FnOnce()) {
        self.lock(Share::Write);
        // SAFETY: under the lock, as a writer.
        let pair = unsafe { &mut *self.pair.get() };
        pair[0] += 1;
        between();
        pair[1] += 1;
        self.unlock();
    }

    fn read(&self, side: Share, between: impl FnOnce()) -> [u64; 2] {
        self.lock(side);
        // SAFETY: under the lock, as a reader.
        let pair = unsafe { self.pair.get().read_volatile() };
        between();
        self.unlock();
        pair
    }
}

#[test]
fn uncontended_sections_of_each_side_commit_without_the_lock() {
    if !commits() {
        return;
    }
    for side in SIDES {
        let shared = Shared::new();
        let elided = (0..10_000).filter(|_| {
            shared.lock(side);
            let is_elided = Native::in_transaction();
            shared.unlock();
            is_elided
        });
        assert!(elided.count() > 0, "none of 10000 sections of {side:?} was elided");
        assert!(!shared.lock.lock().is_locked());
    }
}

/// Sections that conflict, make system calls, or find real readers and writers.
#[test]
fn readers_and_writers_exclude_each_other_elided_or_not() {
    if !commits() {
        return;
    }
    const ROUNDS: u64 = 20_000;
    let shared = Shared::new();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let shared = &shared;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let call = || {
                        if (round + thread) % 50 == 0 {
                            Native::thread_id();
                        }
                    };
                    match (round + thread) % 4 {
                        0 => shared.write(call),
                        1 => {
                            let [first, second] = shared.read(Share::ReadAfterWriters, call);
                            assert_eq!(first, second);
                        }
                        _ => {
                            let [first, second] = shared.read(Share::Read, call);
                            assert_eq!(first, second);
                        }
                    }
                }
            });
        }
    });
    assert!(!shared.lock.lock().is_locked());
    assert_eq!(shared.pair.into_inner(), [ROUNDS; 2]);
}

#[test]
fn writers_of_different_data_are_elided_beside_each_other() {
    if !commits() {
        return;
    }
    #[repr(align(128))]
    struct Line(UnsafeCell<u64>);
    struct Lines([Line; 2]);
    // SAFETY: each line belongs to one thread.
    unsafe impl Sync for Lines {}
    let lines = Lines([Line(0.into()), Line(0.into())]);
    let shared = Shared::new();
    let start = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        for Line(cell) in &lines.0 {
            let (shared, start, cell) = (&shared, &start, cell.get().expose_provenance());
            scope.spawn(move || {
                start.wait();
                let mut elided = 0;
                for _ in 0..20_000 {
                    shared.lock(Share::Write);
                    // SAFETY: this thread's line, which outlives the scope.
                    unsafe { *std::ptr::with_exposed_provenance_mut::<u64>(cell) += 1 };
                    elided += u32::from(Native::in_transaction());
                    shared.unlock();
                }
                assert!(elided > 0, "none of 20000 sections was elided");
            });
        }
    });
    for Line(cell) in lines.0 {
        assert_eq!(cell.into_inner(), 20_000);
    }
}

#[test]
fn elided_section_that_locks_again_finds_the_first_lock() {
    if !commits() {
        return;
    }
    for _ in 0..1000 {
        let shared = Shared::new();
        shared.lock(Share::Write);
        assert!(!shared.try_lock(Share::Read));
        assert!(!shared.try_lock(Share::Write));
        shared.unlock();
        shared.lock(Share::Read);
        assert!(shared.try_lock(Share::Read));
        assert!(!shared.try_lock(Share::Write));
        shared.lock(Share::Read);
        (0..3).for_each(|_| shared.unlock());
        assert!(!shared.lock.lock().is_locked());
    }
}

#[test]
fn elided_readers_beside_a_reader_keep_it_in_place() {
    if !commits() {
        return;
    }
    let shared = Shared::new();
    assert!(shared.try_lock(Share::Read));
    let mut elided = 0;
    for _ in 0..10_000 {
        shared.lock(Share::Read);
        elided += u32::from(Native::in_transaction());
        shared.unlock();
    }
    assert!(elided > 0, "none of 10000 sections was elided");
    assert!(!shared.try_lock(Share::Write), "the first reader is still inside");
    shared.unlock();
    assert!(!shared.lock.lock().is_locked());
}
