//! The biased reader-writer lock.

use std::sync::Arc;
use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU32;
use loom::thread;
use unconvoy::contention::bias::{Bias, Limits};
use unconvoy::contention::biased_rw::{BiasedRw, Drain};
use unconvoy::contention::rw::{RwWord, Share};
use unconvoy::load::park::Park;
use unconvoy::lock;
use unconvoy::parking::eventcount::Eventcount;
use unconvoy::primitive::Checked;

use crate::model::{explore_for, set_time, soon};

/// Bound of the models with too many interleavings for a complete search.
const PART: Option<Duration> = Some(Duration::from_secs(10));
/// The other models are searched completely.
const WHOLE: Option<Duration> = None;

/// A biased lock and the cell that it guards. The lowest byte of the state is the user's.
struct Shared {
    word: RwWord<Checked>,
    state: AtomicU32,
    limits: Limits<Checked>,
    eventcount: Eventcount<Checked>,
    cell: UnsafeCell<u32>,
}

// SAFETY: the cell is accessed under the lock under test.
unsafe impl Sync for Shared {}

impl Shared {
    /// A free lock, without a bias.
    fn new() -> Arc<Self> {
        Arc::new(Shared {
            word: RwWord::unlocked(),
            state: AtomicU32::new(7),
            limits: Limits::new(),
            eventcount: Eventcount::new(),
            cell: UnsafeCell::new(0),
        })
    }

    /// A free lock with a bias, which overlapping readers have set.
    fn biased() -> Arc<Self> {
        let shared = Shared::new();
        assert!(shared.try_read() && shared.try_read());
        assert!(shared.lock().is_biased());
        shared.release();
        shared.release();
        assert!(!shared.word.is_locked());
        shared
    }

    fn lock(&self) -> BiasedRw<'_, Checked> {
        BiasedRw::new(&self.word, Bias::new(&self.state, &self.limits), &self.eventcount)
    }

    fn try_read(&self) -> bool {
        self.lock().try_read(|| true)
    }

    fn release(&self) {
        // SAFETY: held by the caller.
        unsafe { lock::release_shared(self.lock()) };
    }

    fn acquire(&self, share: Share) {
        if share == Share::Read && self.try_read() {
            return;
        }
        assert!(lock::acquire_shared::<Checked, Park>(self.lock(), share, None).held);
    }

    /// Reads the cell, under the held lock.
    fn look(&self) -> u32 {
        // SAFETY: no writer is inside.
        self.cell.with(|cell| unsafe { *cell })
    }

    /// Increments the cell, under the held lock.
    fn change(&self) {
        // SAFETY: no reader and no other writer is inside.
        self.cell.with_mut(|cell| unsafe { *cell += 1 });
    }

    fn read(&self) {
        self.acquire(Share::Read);
        self.look();
        self.release();
    }

    fn write(&self) {
        self.acquire(Share::Write);
        self.change();
        self.release();
    }

    fn try_write(&self) -> bool {
        let is_held = self.lock().try_write(&Drain::new());
        if is_held {
            self.change();
            self.release();
        }
        is_held
    }

    /// Asserts that no hold is left, in the word or published.
    fn assert_free(&self) {
        assert!(self.try_write());
        assert!(!self.word.is_locked());
    }
}

/// Explores `body` with a lock that `new` makes, which is free afterwards.
fn check(
    length: Option<Duration>,
    preemptions: usize,
    new: fn() -> Arc<Shared>,
    body: fn(&Arc<Shared>),
) {
    let _time = set_time(true);
    explore_for(length, preemptions, move || {
        let shared = new();
        body(&shared);
        shared.assert_free();
    });
}

/// Runs `body` on a thread of its own.
fn spawn(
    shared: &Arc<Shared>,
    body: impl FnOnce(&Shared) + Send + 'static,
) -> thread::JoinHandle<()> {
    let shared = shared.clone();
    thread::spawn(move || body(&shared))
}

fn join<T>(thread: thread::JoinHandle<T>) -> T {
    thread.join().expect("no panics")
}

/// One of the readers shares the writer's row.
#[test]
fn rw_biased_readers_exclude_a_writer() {
    check(PART, 2, Shared::biased, |shared| {
        let readers = [spawn(shared, Shared::read), spawn(shared, Shared::read)];
        shared.write();
        readers.into_iter().for_each(join);
    });
}

#[test]
fn rw_biased_reader_excludes_two_draining_writers() {
    check(PART, 2, Shared::biased, |shared| {
        let threads = [spawn(shared, Shared::write), spawn(shared, Shared::write)];
        shared.read();
        threads.into_iter().for_each(join);
        assert_eq!(shared.look(), 2);
    });
}

/// Readers that overlap set the bias while a writer takes the word.
#[test]
fn rw_bias_that_readers_set_excludes_a_writer() {
    check(PART, 3, Shared::new, |shared| {
        let reader = spawn(shared, |shared| {
            if shared.try_read() {
                shared.read();
                shared.look();
                shared.release();
            }
            shared.read();
        });
        shared.write();
        join(reader);
    });
}

/// A reader takes the lock again while a writer waits, which must not keep it out.
#[test]
fn rw_biased_reader_reads_again_while_a_writer_waits() {
    check(PART, 3, Shared::biased, |shared| {
        shared.acquire(Share::Read);
        let writer = spawn(shared, Shared::write);
        shared.read();
        shared.look();
        shared.release();
        join(writer);
    });
}

/// The writer sleeps until the published hold is withdrawn: a lost wake-up is a deadlock.
#[test]
fn rw_writer_asleep_on_a_published_hold_is_woken() {
    check(WHOLE, 3, Shared::biased, |shared| {
        shared.acquire(Share::Read);
        assert!(!shared.word.is_locked(), "the hold is published");
        let writer = spawn(shared, Shared::write);
        shared.look();
        shared.release();
        join(writer);
    });
}

/// As above, with two writers on one slot.
#[test]
fn rw_writers_asleep_on_one_published_hold_are_woken() {
    check(PART, 2, Shared::biased, |shared| {
        shared.acquire(Share::Read);
        let writers = [spawn(shared, Shared::write), spawn(shared, Shared::write)];
        shared.look();
        shared.release();
        writers.into_iter().for_each(join);
    });
}

/// The main thread and the second spawned thread share a row: one's release may withdraw what the
/// other one is publishing.
#[test]
fn rw_readers_of_one_row_release_each_others_holds() {
    check(PART, 3, Shared::biased, |shared| {
        let writer = spawn(shared, Shared::write);
        let reader = spawn(shared, Shared::read);
        shared.read();
        join(reader);
        join(writer);
    });
}

/// A reader holds the lock by the word while another one of its row publishes, and a writer tries.
#[test]
fn rw_hold_in_the_word_and_a_late_publication_of_one_row() {
    check(PART, 3, Shared::biased, |shared| {
        shared.acquire(Share::Read); // published
        shared.acquire(Share::Read); // in the word
        let writer = spawn(shared, |shared| _ = shared.try_write());
        let reader = spawn(shared, Shared::read);
        shared.release();
        shared.look();
        shared.release();
        join(reader);
        join(writer);
    });
}

/// A try fails beside a published hold, leaves the lock usable, and succeeds after the release.
#[test]
fn rw_try_write_fails_beside_a_published_hold() {
    check(WHOLE, 3, Shared::biased, |shared| {
        shared.acquire(Share::Read);
        let writer = {
            let shared = shared.clone();
            thread::spawn(move || shared.try_write())
        };
        assert_eq!(shared.look(), 0);
        assert!(!shared.try_write());
        shared.release();
        shared.read();
        join(writer);
    });
}

/// A writer with a deadline gives up, and readers and writers go on.
#[test]
fn rw_timed_writer_gives_up_beside_a_published_hold() {
    check(PART, 2, Shared::biased, |shared| {
        shared.acquire(Share::Read);
        let writer = spawn(shared, |shared| {
            let deadline = Some(soon());
            assert!(
                !lock::acquire_shared::<Checked, Park>(shared.lock(), Share::Write, deadline).held
            );
        });
        shared.read();
        join(writer);
        shared.release();
    });
}

/// A writer drains while another reader sets the bias again.
#[test]
fn rw_drain_and_a_new_bias() {
    check(PART, 2, Shared::biased, |shared| {
        let writer = spawn(shared, |shared| {
            shared.try_write();
            shared.write();
        });
        for _ in 0..2 {
            shared.acquire(Share::Read);
            shared.read();
            shared.look();
            shared.release();
        }
        join(writer);
    });
}

/// A reader sets the bias while a writer is asleep on the word.
#[test]
fn rw_writer_asleep_on_the_word_is_woken_after_a_bias() {
    check(PART, 3, Shared::new, |shared| {
        shared.acquire(Share::Read);
        assert!(shared.word.is_locked(), "the hold is in the word");
        let writer = spawn(shared, Shared::write);
        shared.read();
        shared.read();
        shared.look();
        shared.release();
        join(writer);
    });
}

/// POSIX leaves this undefined; glibc allows it.
#[test]
fn rw_published_hold_is_released_by_another_thread() {
    check(WHOLE, 3, Shared::biased, |shared| {
        shared.acquire(Share::Read);
        let writer = spawn(shared, Shared::write);
        let other = spawn(shared, |shared| {
            shared.look();
            shared.release();
        });
        join(other);
        join(writer);
    });
}
