//! The order in which contention managers serve threads, compared with what the catalogue promises.

use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::mpsc;
use std::thread;

use unconvoy::catalogue::{CONTENTION_MANAGERS, Order};
use unconvoy::contention::Contention;
use unconvoy::primitive::turn::{Outcome, Verdict};
use unconvoy::primitive::{
    Atomics, Clock, Generation, Monitor, Native, Parking, SliceExtension, Spin, Threads,
    Transactions,
};
use unconvoy::queue::{Node, NodeMemory};

/// The native machine, with a clock that stands still: no time stamp is ever stale, so a waiter
/// that the test stops does not look preempted.
struct Timeless;

// SAFETY: the processor's, and the native machine's.
unsafe impl Atomics for Timeless {
    type U32 = AtomicU32;
    type U64 = AtomicU64;
    type Ptr<T> = AtomicPtr<T>;

    fn fence(order: Ordering) {
        fence(order);
    }
}

impl Clock for Timeless {
    fn now() -> u64 {
        1
    }
}

impl Spin for Timeless {
    fn pause() {
        thread::yield_now();
    }

    fn delay(_: u64) {
        thread::yield_now();
    }
}

impl Monitor for Timeless {}

impl Parking for Timeless {
    fn park(word: &AtomicU32, expected: u32, _: Option<u64>) {
        Native::park(word, expected, None);
    }

    fn unpark(word: *const AtomicU32, count: u32) {
        Native::unpark(word, count);
    }
}

impl Threads for Timeless {
    fn thread_id() -> u32 {
        Native::thread_id()
    }

    fn yield_now() {
        thread::yield_now();
    }
}

impl Generation for Timeless {}
impl Transactions for Timeless {}
impl SliceExtension for Timeless {}

impl NodeMemory for Timeless {
    fn take_node() -> *mut Node<Self> {
        Box::leak(Box::new(Node::detached(0, 0)))
    }

    unsafe fn give_node(_: *mut Node<Self>) {} // type-stable: never freed
}

/// Stops three waiters in their first turn, frees the lock, and lets the last waiter run first.
/// Returns what passed a waiter.
fn passed_waiters<C: Contention>() -> Vec<String> {
    let lock = C::unlocked();
    let served = Mutex::new(Vec::new());
    let mut passed = Vec::new();
    assert!(lock.try_lock());
    thread::scope(|scope| {
        let mut waiters = Vec::new();
        for number in 0..3 {
            let ((arrived, has_arrived), (go, may_go)) = (mpsc::channel(), mpsc::channel());
            let (lock, served) = (&lock, &served);
            scope.spawn(move || {
                let mut is_first = true;
                let outcome = lock.attempt(&mut |_| {
                    if core::mem::take(&mut is_first) {
                        arrived.send(()).expect("the test waits");
                        may_go.recv().expect("the test sends");
                    }
                    thread::yield_now();
                    Verdict::Spin
                });
                assert_eq!(outcome, Outcome::Acquired);
                served.lock().expect("no panic").push(number);
                // SAFETY: acquired above.
                assert!(unsafe { lock.unlock() }, "no thread parks");
            });
            has_arrived.recv().expect("a waiter arrives");
            waiters.push(go);
        }
        // SAFETY: this thread holds the lock, here and after each arrival that acquires it.
        let unlock = || assert!(unsafe { lock.unlock() }, "no thread parks");
        unlock();
        let mut arrive = |name: &str, acquires: fn(&C) -> bool| {
            if acquires(&lock) {
                passed.push(name.to_string());
                unlock();
            }
        };
        arrive("a try_lock", C::try_lock);
        arrive("the first try of a lock", C::try_lock_without_barging);
        arrive("an attempt", |lock| lock.attempt(&mut |_| Verdict::Leave) == Outcome::Acquired);
        waiters.iter().rev().for_each(|go| go.send(()).expect("the waiter waits"));
    });
    let served = served.into_inner().expect("no panic");
    if served != [0, 1, 2] {
        passed.push(format!("a waiter; served: {served:?}"));
    }
    assert!(lock.try_lock(), "the lock is free, and no thread is left in a queue");
    passed
}

macro_rules! passed {
    ([$(($lock:literal, $contention:ty)),*] $loads:tt) => {
        const PASSED: &[(&str, fn() -> Vec<String>)] =
            &[$(($lock, passed_waiters::<$contention>)),*];
    };
}

unconvoy::with_managers!(passed, Timeless);

/// Both ways: a lock that promises first-come order keeps it, and the check finds every lock that
/// does not promise it.
#[test]
fn waiters_are_passed_only_in_locks_that_promise_no_first_come_order() {
    for (manager, (name, passed_waiters)) in CONTENTION_MANAGERS.iter().zip(PASSED) {
        assert_eq!(manager.entry.name, *name);
        let passed = passed_waiters();
        let promised = matches!(manager.order, Order::FirstCome(_));
        assert_eq!(passed.is_empty(), promised, "{name}: {}; passed by {passed:?}", manager.order);
    }
}
