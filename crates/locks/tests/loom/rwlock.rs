//! The reader-writer lock.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;
use unconvoy::contention::biased_rw::BiasedRw;
use unconvoy::contention::rw::{RwWord, Share};
use unconvoy::load::park::Park;
use unconvoy::lock;
use unconvoy::parking::eventcount::Eventcount;
use unconvoy::primitive::Checked;

use crate::model::{explore, set_time, soon};

/// A reader-writer lock and the cell that it guards.
struct Shared {
    lock: RwWord<Checked>,
    eventcount: Eventcount<Checked>,
    cell: UnsafeCell<u32>,
}

// SAFETY: the cell is accessed under the lock under test.
unsafe impl Sync for Shared {}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Shared {
            lock: RwWord::unlocked(),
            eventcount: Eventcount::new(),
            cell: UnsafeCell::new(0),
        })
    }

    fn lock(&self) -> BiasedRw<'_, Checked> {
        BiasedRw::unbiased(&self.lock, &self.eventcount)
    }

    /// Reads or increments the cell under the held lock, then releases it.
    fn section(&self, share: Share) -> u32 {
        let seen = match share {
            // SAFETY: no reader and no other writer is inside.
            Share::Write => self.cell.with_mut(|cell| unsafe {
                *cell += 1;
                *cell
            }),
            // SAFETY: no writer is inside.
            _ => self.cell.with(|cell| unsafe { *cell }),
        };
        // SAFETY: held by the caller.
        unsafe { lock::release_shared(self.lock()) };
        seen
    }

    fn visit(&self, share: Share) -> u32 {
        let lock = self.lock();
        if !(share == Share::Write && lock.acquire_at_once(share)) {
            lock.give_way(share);
            assert!(lock::acquire_shared::<Checked, Park>(lock, share, None).held);
        }
        self.section(share)
    }

    fn try_visit(&self, share: Share) -> bool {
        let held = self.lock.try_acquire(share);
        if held {
            self.section(share);
        }
        held
    }
}

/// Readers count themselves while a writer acquires and releases: each either holds the lock or has
/// withdrawn, and the word ends at 0.
#[test]
fn reader_during_a_writer_holds_or_withdraws() {
    let _time = set_time(true);
    explore(3, || {
        let shared = Shared::new();
        let threads: Vec<_> = [Share::Read, Share::Write]
            .map(|share| {
                let shared = shared.clone();
                thread::spawn(move || shared.try_visit(share))
            })
            .into();
        let mine = shared.try_visit(Share::Write);
        let visits = threads.into_iter().map(|thread| thread.join().expect("no panics"));
        assert!(visits.fold(mine, |any, held| any | held), "one of the tries came first");
        assert!(!shared.lock.is_locked());
    });
}

fn assert_parked_readers_and_writers_are_woken(preemptions: usize) {
    let _time = set_time(true);
    explore(preemptions, || {
        let shared = Shared::new();
        let threads: Vec<_> = [Share::Read, Share::Write]
            .map(|share| {
                let shared = shared.clone();
                thread::spawn(move || shared.visit(share))
            })
            .into();
        shared.visit(Share::Write);
        threads.into_iter().for_each(|thread| assert!(thread.join().expect("no panics") <= 2));
        assert!(!shared.lock.is_locked());
    });
}

/// Ends within a second. With two forced switches the search takes more than ten minutes, and is
/// cut off when it has varied only the last choices.
#[test]
fn parked_readers_and_writers_are_woken_with_one_forced_switch() {
    assert_parked_readers_and_writers_are_woken(1);
}

#[test]
fn parked_readers_and_writers_are_woken() {
    assert_parked_readers_and_writers_are_woken(2);
}

/// A release wakes one of the parked writers; that one's own release wakes the next.
#[test]
fn writers_wake_each_other_in_turn() {
    let _time = set_time(true);
    explore(2, || {
        let shared = Shared::new();
        let threads = [(); 2].map(|()| {
            let shared = shared.clone();
            thread::spawn(move || shared.visit(Share::Write))
        });
        shared.visit(Share::Write);
        threads.into_iter().for_each(|thread| assert!(thread.join().expect("no panics") <= 3));
        assert!(!shared.lock.is_locked());
    });
}

/// The woken writer's time is up: it wakes the other one, or its release does.
#[test]
fn writer_that_gives_up_passes_its_wake_up_on() {
    let _time = set_time(true);
    explore(2, || {
        let shared = Shared::new();
        assert!(shared.lock.try_acquire(Share::Write));
        let hurried = thread::spawn({
            let shared = shared.clone();
            move || {
                let (lock, deadline) = (shared.lock(), Some(soon()));
                if lock::acquire_shared::<Checked, Park>(lock, Share::Write, deadline).held {
                    shared.section(Share::Write);
                }
            }
        });
        let patient = thread::spawn({
            let shared = shared.clone();
            move || shared.visit(Share::Write)
        });
        shared.section(Share::Write);
        hurried.join().expect("no panics");
        patient.join().expect("no panics");
        assert!(!shared.lock.is_locked());
    });
}

/// A writer asks readers to give way, and parks if they have not done so in time. A reader gives
/// way, drops the request, or keeps the lock to wake the parked writer.
#[test]
fn reader_gives_way_to_a_writer() {
    let _time = set_time(true);
    explore(3, || {
        let shared = Shared::new();
        let writer = thread::spawn({
            let shared = shared.clone();
            move || shared.visit(Share::Write)
        });
        for _ in 0..2 {
            let lock = shared.lock();
            if !lock.acquire_at_once(Share::Read) {
                assert!(lock::acquire_shared::<Checked, Park>(lock, Share::Read, None).held);
            }
            assert!(shared.section(Share::Read) <= 1);
        }
        assert_eq!(writer.join().expect("no panics"), 1);
        assert!(!shared.lock.is_locked());
    });
}

/// A writer gives up while a reader is parked behind it. The first reader releases only after the
/// second has entered, so a reader that stays asleep would be a deadlock.
fn assert_reader_enters_after_writers_give_up(writers: usize) {
    let _time = set_time(true);
    explore(2, move || {
        let shared = Shared::new();
        assert!(shared.lock.try_acquire(Share::Read));
        let writers: Vec<_> = (0..writers)
            .map(|_| {
                let shared = shared.clone();
                thread::spawn(move || {
                    let deadline = Some(soon());
                    lock::acquire_shared::<Checked, Park>(shared.lock(), Share::Write, deadline)
                        .held
                })
            })
            .collect();
        let reader = {
            let shared = shared.clone();
            thread::spawn(move || shared.visit(Share::ReadAfterWriters))
        };
        assert_eq!(reader.join().expect("no panics"), 0);
        writers.into_iter().for_each(|writer| {
            assert!(!writer.join().expect("no panics"), "a reader holds the lock")
        });
        // SAFETY: held since above.
        unsafe { lock::release_shared(shared.lock()) };
        assert!(!shared.lock.is_locked());
    });
}

#[test]
fn parked_reader_enters_after_the_writer_gives_up() {
    assert_reader_enters_after_writers_give_up(1);
}

/// A try to read during the writer's release succeeds, and holds the lock until a reader that
/// parked meanwhile has entered.
#[test]
fn try_read_during_a_release_admits_parked_readers() {
    let _time = set_time(true);
    explore(3, || {
        let shared = Shared::new();
        assert!(shared.lock.try_acquire(Share::Write));
        let reader = {
            let shared = shared.clone();
            thread::spawn(move || shared.visit(Share::Read))
        };
        let writer = {
            let shared = shared.clone();
            // SAFETY: held since above.
            thread::spawn(move || unsafe { lock::release_shared(shared.lock()) })
        };
        let held = shared.lock.try_acquire(Share::Read);
        writer.join().expect("no panics");
        reader.join().expect("no panics");
        if held {
            shared.section(Share::Read);
        }
        assert!(!shared.lock.is_locked());
    });
}
