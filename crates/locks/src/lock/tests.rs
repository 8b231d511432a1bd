use super::*;
use crate::contention::loiter::Loiter;
use crate::contention::ttas::Ttas;
use crate::load::none::NoManager;
use crate::load::one_thread::{Busy, OneThread};
use crate::primitive::Native;
use core::sync::atomic::AtomicU32;

#[test]
fn waited_mutex_has_the_progress_and_holder_of_its_account() {
    let state = Ttas::<Native>::unlocked();
    let [acquisitions, holder] = [3, 0].map(AtomicU32::new);
    let account = Some(Account::Full { acquisitions: &acquisitions, holder: &holder });
    let lock = WaitedMutex::<Native, _> { state: &state, account };
    assert_eq!((lock.acquisitions(), lock.holder()), (Some(3), None));
    holder.store(7, Relaxed);
    assert_eq!(lock.holder(), Some(7));
    let account = Some(Account::Watched { acquisitions: &acquisitions });
    let lock = WaitedMutex::<Native, _> { state: &state, account };
    assert_eq!((lock.acquisitions(), lock.watched_acquisitions()), (None, Some(3)));
    let lock = WaitedMutex::<Native, _> { state: &state, account: None };
    assert_eq!((lock.watched_acquisitions(), lock.holder()), (None, None));
    assert!(lock.is_exclusive());
}

#[test]
fn query_ends_at_its_deadline_or_earlier_sample() {
    let (eventcount, lock) = (Eventcount::new(), Busy::default());
    let mut wait = OneThread::new().wait(&eventcount, &lock);
    wait.deadline = Some(1000);
    let mut spent = Spent::begin(wait.process, 0);
    let mut at = |sample, now| {
        let (mut sample, wait) = (Sample(sample), &wait);
        let mut query = Query::<_, NoManager> {
            waiter: &mut (),
            wait,
            spent: &mut spent,
            sample: &mut sample,
            late: false,
        };
        let deadline = query.deadline();
        (deadline, query.turn(now))
    };
    assert_eq!(at(u64::MAX, 999), (Some(1000), Verdict::Spin));
    assert_eq!(at(u64::MAX, 1000), (Some(1000), Verdict::Leave));
    assert_eq!(at(500, 499).0, Some(500));
}

/// A reserved lock that only a thread with a claim to the reservation acquires.
struct Reserved(Loiter<Native>);

// SAFETY: all methods but `attempt`, which acquires nothing, are those of the lock inside.
unsafe impl Contention for Reserved {
    fn unlocked() -> Self {
        let lock = Loiter::unlocked();
        assert!(lock.try_lock());
        lock.reserve();
        // SAFETY: locked above.
        assert!(unsafe { lock.unlock() });
        Reserved(lock)
    }

    fn try_lock(&self) -> bool {
        self.0.try_lock()
    }

    fn attempt(&self, _: &mut impl Turn) -> Outcome {
        panic!("the lock is reserved for the thread");
    }

    unsafe fn unlock(&self) -> bool {
        // SAFETY: by this function's contract.
        unsafe { self.0.unlock() }
    }

    unsafe fn clear_parked_bit(&self) {
        // SAFETY: by this function's contract.
        unsafe { self.0.clear_parked_bit() };
    }

    fn set_parked_bit(&self) -> bool {
        self.0.set_parked_bit()
    }

    fn take_reserved(&self) -> bool {
        self.0.take_reserved()
    }

    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

#[test]
fn requeued_waiter_takes_a_reserved_lock_at_once() {
    let (lock, eventcount) = (Reserved::unlocked(), Eventcount::new());
    let process = Native::context();
    let requeued_at = core::ptr::from_ref(&eventcount).addr();
    process.set_thread_state(ThreadState { requeued_at, ..process.thread_state() });
    assert!(acquire::<Native, Reserved, NoManager>(&lock, &eventcount, None, None).held);
    assert!(lock.is_locked());
    process.set_thread_state(ThreadState::default());
}

#[test]
fn bare_lock_is_held_only_if_its_attempt_says_so() {
    assert!(!Bare(&|| false).try_lock() && Bare(&|| true).try_lock());
    assert!(Bare(&|| false).has_contender(), "a sleeper need not stay");
    assert_eq!(Bare(&|| false).acquisitions(), None, "nobody counts them");
}
