//! Children of `fork`, their locks and their load control.
//!
//! A child must not print, because another thread of the test may have held the lock of the
//! standard output at the fork.

#![cfg(not(loom))]

use std::fs;
use std::ptr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use lock_api::{GuardSend, RawMutex, RawMutexTimed, RawRwLock};
use unconvoy::contention::Contention;
use unconvoy::contention::elided::Elided;
use unconvoy::contention::futex::Futex;
use unconvoy::contention::loiter::Loiter;
use unconvoy::contention::mcs::Mcs;
use unconvoy::contention::requester::Requester;
use unconvoy::contention::tas::Tas;
use unconvoy::contention::ticket::Ticket;
use unconvoy::contention::ttas::Ttas;
use unconvoy::load::control::Control;
use unconvoy::primitive::Native;
use unconvoy::raw::{RawLock, RawSharedLock};
use unconvoy::runtime::{controller_report, without_controller};

/// Seconds after which a child that hangs is killed.
const HANG_SECONDS: u32 = 20;

/// Runs `work` in a child. Returns its result, or `None` if the child hung or crashed.
fn in_child(work: impl FnOnce() -> u8) -> Option<u8> {
    // SAFETY: the child returns from `work` or is killed. It uses libc's allocator, which works in
    // a child, and none of the test's own locks.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0, "fork");
        if child == 0 {
            libc::alarm(HANG_SECONDS);
            let result = work();
            libc::_exit(result.into());
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status) as u8)
    }
}

/// Ends the loops of other threads when dropped, also by a failed assertion.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Runs `work` beside two threads that contend for a new `M`, always in long sections.
fn beside_contention<M: Contended, R>(work: impl FnOnce() -> R) -> R {
    let (lock, is_over) = (M::NEW, AtomicBool::new(false));
    thread::scope(|scope| {
        let _stop = StopOnDrop(&is_over);
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    lock.visit(|| thread::sleep(Duration::from_millis(1)));
                }
            });
        }
        work()
    })
}

/// A lock that threads can contend for.
trait Contended: Sync {
    const NEW: Self;
    fn visit(&self, section: impl FnOnce());
}

impl<C: Contention> Contended for RawLock<C, Control> {
    const NEW: Self = RawMutex::INIT;
    fn visit(&self, section: impl FnOnce()) {
        let guard = RawMutex::lock(self);
        section();
        // SAFETY: locked above.
        unsafe { RawMutex::unlock(self, guard) };
    }
}

impl Contended for RawSharedLock<Control> {
    const NEW: Self = RawRwLock::INIT;
    fn visit(&self, section: impl FnOnce()) {
        let guard = RawRwLock::lock_exclusive(self);
        section();
        // SAFETY: locked above.
        unsafe { RawRwLock::unlock_exclusive(self, guard) };
    }
}

fn tasks() -> usize {
    fs::read_dir("/proc/self/task").expect("the tasks of this process").count()
}

/// Waits until `condition` holds; false if it does not within half the time of a hanging child.
fn comes_true(condition: impl Fn() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(u64::from(HANG_SECONDS) / 2);
    while !condition() {
        if Instant::now() > end {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}

/// A child forked while the parent's controller runs has load control of its own: its waiters start
/// a controller. The child calls nothing else of the library.
fn assert_child_starts_own_controller<M: Contended>() {
    beside_contention::<M, _>(|| {
        assert!(comes_true(|| controller_report().running), "controller in the parent");
        let result = in_child(|| {
            // The main thread, two that contend, and the controller.
            u8::from(beside_contention::<M, _>(|| comes_true(|| tasks() == 4)))
        });
        assert_eq!(result, Some(1), "whether the child starts a controller");
    });
}

macro_rules! starts_own_controller {
    ($($test:ident: $lock:ty;)*) => {
        $(
            #[test]
            fn $test() {
                assert_child_starts_own_controller::<$lock>();
            }
        )*
    };
}

// The locks of one or two words, some with a queue behind them.
starts_own_controller! {
    child_with_ttas_starts_own_controller: RawLock<Ttas<Native>, Control>;
    child_with_tas_starts_own_controller: RawLock<Tas<Native>, Control>;
    child_with_futex_starts_own_controller: RawLock<Futex<Native>, Control>;
    child_with_requester_starts_own_controller: RawLock<Requester<Native>, Control>;
    child_with_ticket_starts_own_controller: RawLock<Ticket<Native>, Control>;
    child_with_loiter_starts_own_controller: RawLock<Loiter<Native>, Control>;
    child_with_elided_starts_own_controller: RawLock<Elided<Native>, Control>;
    child_with_rwlock_starts_own_controller: RawSharedLock<Control>;
}

/// The test is in a child, because the other tests need a controller.
#[test]
fn controller_is_away_for_as_long_as_asked() {
    const THREADS: usize = 3; // the main thread, and two that contend
    let result = in_child(|| {
        let is_right = beside_contention::<RawLock<Ttas<Native>, Control>, _>(|| {
            comes_true(|| tasks() > THREADS)
                && without_controller(|| {
                    comes_true(|| tasks() == THREADS) && {
                        thread::sleep(Duration::from_millis(20)); // several waits
                        tasks() == THREADS && !controller_report().running
                    }
                })
                && comes_true(|| tasks() > THREADS)
        });
        u8::from(is_right)
    });
    assert_eq!(result, Some(1), "whether the controller leaves and comes back");
}

#[test]
fn controller_starts_after_a_panic_without_it() {
    let result = in_child(|| {
        let fail = || without_controller(|| std::panic::resume_unwind(Box::new("a test")));
        let starts = || comes_true(|| controller_report().running);
        let has_failed = std::panic::catch_unwind(fail).is_err();
        u8::from(has_failed && beside_contention::<RawLock<Ttas<Native>, Control>, _>(starts))
    });
    assert_eq!(result, Some(1), "whether the controller starts");
}

#[test]
fn controller_report_in_child_counts_no_controller_of_parent() {
    beside_contention::<RawLock<Ttas<Native>, Control>, _>(|| {
        assert!(comes_true(|| controller_report().thread != 0), "controller in the parent");
        let result = in_child(|| {
            let report = controller_report();
            u8::from(report.running || report.thread != 0)
        });
        assert_eq!(result, Some(0));
    });
}

/// New ticket locks, one of which a thread of the parent is using for the first time at the moment
/// of the fork. Some of the forks fall between the two steps of such a use.
#[test]
fn ticket_forked_during_first_use_works_in_child() {
    const FORKS: u32 = 300;
    const LOCKS: usize = 64;
    let locks: [Ticket<Native>; LOCKS] = std::array::from_fn(|_| Ticket::unlocked());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = StopOnDrop(&is_over);
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                for lock in &locks {
                    // SAFETY: this thread alone uses the locks, and all zeroes is an unused lock.
                    unsafe { ptr::from_ref(lock).cast_mut().write_bytes(0, 1) };
                    assert!(lock.try_lock());
                    // SAFETY: locked above.
                    assert!(unsafe { lock.unlock() });
                }
            }
        });
        for _ in 0..FORKS {
            let held = in_child(|| locks.iter().filter(|lock| !lock.try_lock()).count() as u8);
            assert!(matches!(held, Some(0 | 1)), "locks held in the child: {held:?}");
        }
    });
}

/// Forks right after a release. The next holder often waits for a processor then, and so the lock
/// still points to the node of the forking thread, which the child uses for another lock.
#[test]
fn waiter_for_parents_holder_stays_out_of_other_queues() {
    const FORKS: u32 = 20;
    type Lock = RawLock<Mcs<Native>, Control>;
    let (parents, is_over) = (Lock::INIT, AtomicBool::new(false));
    thread::scope(|scope| {
        let _stop = StopOnDrop(&is_over);
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    parents.visit(|| thread::sleep(Duration::from_micros(20)));
                }
            });
        }
        for _ in 0..FORKS {
            parents.visit(|| ());
            let result = in_child(|| {
                let childs = Lock::INIT;
                let guard = RawMutex::lock(&childs);
                thread::scope(|scope| {
                    scope.spawn(|| childs.visit(|| ()));
                    thread::sleep(Duration::from_millis(1)); // until it waits
                    scope.spawn(|| _ = parents.try_lock_for(Duration::from_millis(20)));
                    thread::sleep(Duration::from_millis(5)); // until it waits, too
                    // SAFETY: locked above.
                    unsafe { RawMutex::unlock(&childs, guard) };
                });
                1
            });
            assert_eq!(result, Some(1), "whether the child's threads end");
        }
    });
}

/// The writer that forks, as a fork handler does, is alone in the child. A reader that looked at
/// the lock just before the writer took it may still be counted there.
#[test]
fn try_of_a_reader_beside_the_forking_writer_leaves_no_count_in_the_child() {
    const FORKS: u32 = 100;
    type Lock = RawSharedLock<Control>;
    let (lock, is_over) = (Lock::INIT, AtomicBool::new(false));
    let stuck = thread::scope(|scope| {
        let _stop = StopOnDrop(&is_over);
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                if let Some(guard) = lock.try_lock_shared() {
                    // SAFETY: held.
                    unsafe { lock.unlock_shared(guard) };
                }
            }
        });
        let is_stuck = |_: &u32| {
            lock.lock_exclusive();
            // SAFETY: the thread that forks holds the lock in both processes.
            let unlock = || unsafe { lock.unlock_exclusive(GuardSend::new()) };
            let result = in_child(|| {
                unlock();
                u8::from(lock.try_lock_exclusive().is_some())
            });
            unlock();
            result != Some(1)
        };
        (0..FORKS).filter(is_stuck).count()
    });
    // 13 of 100 before tries looked first.
    assert!(stuck <= 2, "{stuck} of {FORKS} children cannot lock for writing");
}
