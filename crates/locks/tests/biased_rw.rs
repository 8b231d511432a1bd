//! The biased reader-writer lock on the real machine.

#![cfg(not(loom))]

use std::cell::UnsafeCell;
use std::sync::LazyLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::thread;
use std::time::Duration;

use unconvoy::contention::bias::{BYTE_AND_MODE, Bias, Limits};
use unconvoy::contention::biased_rw::{Begun, BiasedRw, Drain};
use unconvoy::contention::rw::{RwWord, Share};
use unconvoy::contention::visible::VisibleReaders as _;
use unconvoy::load::control::Control;
use unconvoy::load::park::Park;
use unconvoy::load::{Context, LoadManager, Wait, WaitSummary};
use unconvoy::lock::{acquire_shared, release_shared};
use unconvoy::parking::eventcount::Eventcount;
use unconvoy::primitive::turn::Verdict;
use unconvoy::primitive::{Clock as _, Native};
use unconvoy::runtime::forget_other_readers;

/// Readings that overlap another one until the bias is set, with a margin.
const OVERLAPS: usize = 100;

/// A lock and two words that are equal whenever no writer is inside.
struct Shared {
    word: RwWord<Native>,
    state: AtomicU32,
    limits: Limits<Native>,
    eventcount: Eventcount<Native>,
    pair: UnsafeCell<[u64; 2]>,
}

// SAFETY: the words are accessed under the lock.
unsafe impl Sync for Shared {}

impl Shared {
    fn new() -> Self {
        Shared {
            word: RwWord::unlocked(),
            state: AtomicU32::new(7),
            limits: Limits::new(),
            eventcount: Eventcount::new(),
            pair: UnsafeCell::new([0; 2]),
        }
    }

    fn lock(&self) -> BiasedRw<'_, Native> {
        BiasedRw::new(&self.word, Bias::new(&self.state, &self.limits), &self.eventcount)
    }

    /// A free lock with a bias.
    fn biased() -> Self {
        let shared = Shared::new();
        shared.overlap();
        assert!(shared.lock().is_biased());
        assert!(!shared.word.is_locked());
        shared
    }

    /// Reads many times beside a reader.
    fn overlap(&self) {
        self.acquire(Share::Read);
        for _ in 0..OVERLAPS {
            self.acquire(Share::Read);
            self.release();
        }
        self.release();
    }

    fn try_read(&self) -> bool {
        self.lock().try_read(|| true)
    }

    fn try_write(&self) -> bool {
        self.lock().try_write(&Drain::new())
    }

    fn acquire(&self, share: Share) {
        self.acquire_until(share, None);
    }

    fn acquire_until(&self, share: Share, deadline: Option<u64>) -> bool {
        share == Share::Read && self.try_read()
            || acquire_shared::<Native, Control>(self.lock(), share, deadline).held
    }

    fn release(&self) {
        // SAFETY: held by the caller.
        unsafe { release_shared(self.lock()) };
    }

    fn read(&self) -> bool {
        self.acquire(Share::Read);
        // SAFETY: under the lock, as a reader.
        let [left, right] = unsafe { *self.pair.get() };
        self.release();
        left == right
    }

    fn write(&self) {
        self.acquire(Share::Write);
        // SAFETY: under the lock, as a writer.
        let pair = unsafe { &mut *self.pair.get() };
        pair[0] += 1;
        pair[1] += 1;
        self.release();
    }
}

/// Defines tests of biases, which a process with one processor does not set.
macro_rules! parallel_tests {
    ($($(#[$doc:meta])* fn $name:ident() $body:block)*) => {
        $(
            $(#[$doc])*
            #[test]
            fn $name() {
                if !Native::runs_in_parallel() {
                    println!("skipped: there is one processor");
                    return;
                }
                $body
            }
        )*
    };
}

#[test]
fn limits_fit_into_16_bytes() {
    assert_eq!(size_of::<Limits<Native>>(), 16);
}

#[test]
fn lone_reader_sets_no_bias() {
    let shared = Shared::new();
    for _ in 0..10 * OVERLAPS {
        assert!(shared.read());
    }
    assert!(!shared.lock().is_biased());
}

#[test]
fn reader_that_must_not_bias_sets_no_bias() {
    let shared = Shared::new();
    assert!(shared.lock().try_read(|| false));
    for _ in 0..OVERLAPS {
        assert!(shared.lock().try_read(|| false));
        shared.release();
    }
    assert!(!shared.lock().is_biased());
    shared.release();
}

/// Held by a writer until a reader is about to park, and then by a reader.
static HANDED_OVER: LazyLock<Shared> = LazyLock::new(Shared::new);

/// Parks at [`HANDED_OVER`].
struct ParkAfterHandOver;

// SAFETY: `block` returns what `park` did.
unsafe impl LoadManager for ParkAfterHandOver {
    type Waiter = ();

    fn begin_wait<X: Context>(_: &Wait<'_, X>, _: u64) {}

    fn turn<X: Context>((): &mut (), _: &Wait<'_, X>, _: u64) -> Verdict {
        Verdict::Leave
    }

    fn block<X: Context>((): &mut (), wait: &Wait<'_, X>) -> bool {
        HANDED_OVER.release();
        assert!(HANDED_OVER.try_read());
        let acquired = wait.park();
        assert!(acquired, "a reader may share the lock");
        acquired
    }

    fn end_wait<X: Context>((): (), _: &Wait<'_, X>) -> WaitSummary {
        WaitSummary { sleeps: 1, parked: true }
    }
}

fn park_until(shared: &Shared, share: Share, deadline: Option<u64>) -> bool {
    acquire_shared::<Native, Park>(shared.lock(), share, deadline).held
}

/// The release of a writer wakes one parked writer. If that one gives up behind readers, another
/// must ask them to give way: readers that overlap would never let it in.
#[test]
fn writer_that_gives_up_behind_readers_wakes_another() {
    let shared = Shared::new();
    shared.acquire(Share::Write);
    let deadline = Some(Native::now() + 300_000_000);
    thread::scope(|scope| {
        let hurried = scope.spawn(|| park_until(&shared, Share::Write, deadline));
        thread::sleep(Duration::from_millis(50));
        let patient = scope.spawn(|| {
            assert!(park_until(&shared, Share::Write, None));
            shared.release();
        });
        thread::sleep(Duration::from_millis(50));
        let Begun::Undecided(before) = shared.lock().begin_read() else { panic!("written") };
        shared.release();
        assert!(
            shared.lock().end_read(before, || false),
            "the release leaves the lock to a reader"
        );
        assert!(!hurried.join().expect("no panics"));
        let end = Native::now() + 10_000_000_000;
        let reads_again = || shared.lock().read(|| false);
        while Native::now() < end && reads_again() {
            shared.release();
        }
        let is_asked = Native::now() < end;
        shared.release();
        patient.join().expect("no panics");
        assert!(is_asked, "no writer asks for the lock");
    });
}

#[test]
fn reader_that_a_waiting_writer_keeps_out_leaves_its_processor() {
    let thread_time = || {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes to `time`.
        assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let shared = Shared::new();
    shared.word.begin_wait(Share::Write);
    let begin = thread_time();
    let deadline = Some(Native::now() + 200_000_000);
    assert!(!park_until(&shared, Share::ReadAfterWriters, deadline));
    let spent = thread_time() - begin;
    assert!(spent < Duration::from_millis(100), "{spent:?}");
    assert!(shared.word.end_wait(Share::Write));
}

#[test]
fn reader_about_to_park_beside_a_reader_acquires_the_lock() {
    HANDED_OVER.acquire(Share::Write);
    let deadline = Some(Native::now() + 60_000_000_000);
    let lock = HANDED_OVER.lock();
    let acquired = acquire_shared::<Native, ParkAfterHandOver>(lock, Share::Read, deadline);
    assert!(acquired.held);
    (0..2).for_each(|_| HANDED_OVER.release());
    assert!(HANDED_OVER.try_write());
}

parallel_tests! {
    fn published_hold_is_not_in_the_word_and_excludes_writers() {
        let shared = Shared::biased();
        shared.acquire(Share::Read);
        assert!(!shared.word.is_locked());
        assert!(!shared.try_write());
        shared.release();
        assert!(shared.try_write());
        assert!(!shared.lock().is_biased());
        assert_eq!(shared.state.load(Relaxed) & BYTE_AND_MODE, 7, "what a fast path compares");
        shared.release();
    }

    /// The second hold of a thread is in the word, and a third after a failed try, too.
    fn reader_reads_again_beside_its_published_hold() {
        let shared = Shared::biased();
        shared.acquire(Share::Read);
        shared.acquire(Share::Read);
        assert!(shared.word.is_locked());
        assert!(!shared.try_write());
        assert!(shared.try_read());
        for _ in 0..2 {
            shared.release();
            assert!(!shared.try_write());
        }
        shared.release();
        assert!(shared.try_write());
        shared.release();
    }

    fn holds_of_two_locks_are_apart() {
        let locks: Vec<_> = (0..20).map(|_| Shared::biased()).collect();
        locks.iter().for_each(|lock| lock.acquire(Share::Read));
        locks.iter().for_each(|lock| assert!(!lock.try_write()));
        locks[7].release();
        for (index, lock) in locks.iter().enumerate() {
            assert_eq!(lock.try_write(), index == 7, "{index}");
            lock.release();
        }
        assert!(locks.iter().all(Shared::try_write));
    }

    /// A disturbance may lengthen the revocation itself, and so the pause after it.
    fn wait_for_readers_does_not_inhibit_the_bias() {
        let is_biased_soon = || {
            let shared = Shared::biased();
            shared.acquire(Share::Read);
            thread::scope(|scope| {
                scope.spawn(|| shared.write());
                thread::sleep(Duration::from_millis(50));
                shared.release();
            });
            thread::sleep(Duration::from_millis(100));
            shared.overlap();
            shared.lock().is_biased()
        };
        assert!((0..10).any(|_| is_biased_soon()));
    }

    fn waiting_writer_keeps_readers_from_the_bias_unless_it_may_lack_a_processor() {
        let is_set_beside_a_writer = || {
            let shared = Shared::new();
            shared.acquire(Share::Read);
            shared.word.begin_wait(Share::Write);
            shared.overlap();
            let is_set = shared.lock().is_biased();
            assert!(shared.word.end_wait(Share::Write));
            shared.overlap();
            assert!(shared.lock().is_biased(), "without a writer");
            shared.release();
            is_set
        };
        // Tests beside this one start threads, too.
        let is_set = is_set_beside_a_writer();
        assert!(!is_set || Native::is_crowded());
        let has_row = || assert!(Native::own_row().is_some());
        let threads = thread::available_parallelism().map_or(1, usize::from) + 1;
        thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(has_row))));
        assert_eq!(is_set_beside_a_writer(), Native::is_crowded());
    }

    fn timed_writer_gives_up_beside_a_published_hold() {
        let shared = Shared::biased();
        shared.acquire(Share::Read);
        let deadline = Native::now() + 20_000_000;
        assert!(!shared.acquire_until(Share::Write, Some(deadline)));
        assert!(Native::now() >= deadline);
        assert!(shared.try_read());
        shared.release();
        shared.release();
        assert!(shared.try_write());
    }

    fn hold_published_by_another_thread_is_released() {
        let shared = Shared::biased();
        thread::scope(|scope| _ = scope.spawn(|| shared.acquire(Share::Read)).join());
        assert!(!shared.word.is_locked() && !shared.try_write());
        shared.release();
        assert!(shared.try_write());
    }

    fn initialised_lock_has_no_published_holds() {
        let mut shared = Shared::biased();
        shared.acquire(Share::Read);
        shared.state = AtomicU32::new(7);
        shared.lock().forget_published();
        shared.overlap();
        assert!(shared.try_write());
    }

    /// Readers and writers come and go, and the writers find every kind of bias.
    fn readers_and_writers_exclude_each_other() {
        let shared = Shared::new();
        let is_over = AtomicBool::new(false);
        let writes: u64 = thread::scope(|scope| {
            let use_lock = |every: u64| {
                let mut writes = 0;
                for turn in 0.. {
                    if is_over.load(Relaxed) {
                        break;
                    }
                    if turn % every == 0 {
                        shared.write();
                        writes += 1;
                    } else {
                        assert!(shared.read());
                    }
                }
                writes
            };
            let users: Vec<_> =
                [7, 50, 1000, 100_000].map(|every| scope.spawn(move || use_lock(every))).into();
            thread::sleep(Duration::from_secs(1));
            is_over.store(true, Relaxed);
            users.into_iter().map(|user| user.join().expect("no failed assertion")).sum()
        });
        assert!(shared.try_write());
        // SAFETY: under the lock.
        assert_eq!(unsafe { *shared.pair.get() }, [writes; 2]);
        assert_eq!(shared.state.load(Relaxed) & 0xff, 7, "the user's byte");
    }

    /// The child keeps the forking thread's holds, and forgets those of other threads.
    fn child_has_only_the_published_holds_of_its_thread() {
        let [own, other] = [Shared::biased(), Shared::biased()];
        own.acquire(Share::Read);
        let [is_published, is_over] = [false, false].map(AtomicBool::new);
        thread::scope(|scope| {
            scope.spawn(|| {
                other.acquire(Share::Read);
                assert!(!other.word.is_locked());
                is_published.store(true, Relaxed);
                while !is_over.load(Relaxed) {
                    thread::sleep(Duration::from_millis(1));
                }
                other.release();
            });
            while !is_published.load(Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
            // SAFETY: the child calls nothing that may wait for a thread of the parent.
            unsafe {
                let child = libc::fork();
                assert!(child >= 0, "fork");
                if child == 0 {
                    libc::alarm(20);
                    forget_other_readers();
                    let is_kept = !own.try_write();
                    own.release();
                    libc::_exit((!(is_kept && own.try_write() && other.try_write())).into());
                }
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                is_over.store(true, Relaxed);
                assert_eq!(status, 0);
            }
        });
        own.release();
    }
}
