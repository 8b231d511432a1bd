//! When contention managers call the operating system. The calls of each contention manager,
//! counted on a machine of the test's own, must be those of its class in the catalogue.
//!
//! The machine consists of the native machine's parts. It counts in each thread what an algorithm
//! asks of the system. It also reproduces two rare events: a *preempted* thread sleeps after each
//! of its writes, and a new *generation* stands for the child of a fork.
#![cfg(not(loom))]

use std::cell::Cell;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{self, AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use unconvoy::catalogue::{CONTENTION_MANAGERS, Class};
use unconvoy::contention::Contention;
use unconvoy::primitive::turn::{Outcome, Turn, Verdict};
use unconvoy::primitive::{
    Atomic, AtomicInt, Atomics, Clock, Generation, Monitor, Native, Parking, SliceExtension, Spin,
    Threads, Transactions,
};
use unconvoy::queue::{Node, NodeMemory};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Calls {
    yields: u32,
    parks: u32,
    unparks: u32,
    slices: u32,
}

impl Calls {
    fn and(self, other: Calls) -> Calls {
        Calls {
            yields: self.yields + other.yields,
            parks: self.parks + other.parks,
            unparks: self.unparks + other.unparks,
            slices: self.slices + other.slices,
        }
    }
}

thread_local! {
    static CALLS: Cell<Calls> =
        const { Cell::new(Calls { yields: 0, parks: 0, unparks: 0, slices: 0 }) };
    static IS_PREEMPTED: Cell<bool> = const { Cell::new(false) };
}

static GENERATION: AtomicU32 = AtomicU32::new(1);

fn count(call: impl Fn(&mut Calls)) {
    let mut calls = CALLS.get();
    call(&mut calls);
    CALLS.set(calls);
}

/// Callers call this after each write.
fn sleep_if_preempted() {
    if IS_PREEMPTED.get() {
        thread::sleep(Duration::from_millis(2));
    }
}

#[derive(Debug, Clone, Copy)]
struct Counting;

/// An atomic cell that suspends a preempted thread after each of its writes.
#[repr(transparent)]
struct Slow<A>(A);

macro_rules! slow {
    ($cell:ty, $value:ty $(, $generic:ident)?) => {
        impl$(<$generic>)? Atomic<$value> for Slow<$cell> {
            fn new(value: $value) -> Self {
                Slow(<$cell>::new(value))
            }
            fn load(&self, order: Ordering) -> $value {
                self.0.load(order)
            }
            fn store(&self, value: $value, order: Ordering) {
                self.0.store(value, order);
                sleep_if_preempted();
            }
            fn swap(&self, value: $value, order: Ordering) -> $value {
                let before = self.0.swap(value, order);
                sleep_if_preempted();
                before
            }
            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                let result = self.0.compare_exchange(current, new, success, failure);
                if result.is_ok() {
                    sleep_if_preempted();
                }
                result
            }
        }
    };
}

macro_rules! slow_int {
    ($cell:ty, $value:ty, $($operation:ident)*) => {
        slow!($cell, $value);
        impl AtomicInt<$value> for Slow<$cell> {
            $(fn $operation(&self, value: $value, order: Ordering) -> $value {
                let before = self.0.$operation(value, order);
                sleep_if_preempted();
                before
            })*
        }
    };
}

slow_int!(AtomicU32, u32, fetch_add fetch_sub fetch_or fetch_and);
slow_int!(AtomicU64, u64, fetch_add fetch_sub fetch_or fetch_and);
slow!(AtomicPtr<T>, *mut T, T);

// SAFETY: the processor's, and the native machine's.
unsafe impl Atomics for Counting {
    type U32 = Slow<AtomicU32>;
    type U64 = Slow<AtomicU64>;
    type Ptr<T> = Slow<AtomicPtr<T>>;

    fn fence(order: Ordering) {
        atomic::fence(order);
    }
}

impl Clock for Counting {
    fn now() -> u64 {
        Native::now()
    }
}

impl Spin for Counting {
    fn pause() {
        std::hint::spin_loop();
    }
}

/// On the native machine this is an instruction, or the default series of pauses.
impl Monitor for Counting {}

impl Parking for Counting {
    fn park(word: &Slow<AtomicU32>, expected: u32, deadline: Option<u64>) {
        count(|calls| calls.parks += 1);
        Native::park(&word.0, expected, deadline);
    }
    fn unpark(word: *const Slow<AtomicU32>, how_many: u32) {
        count(|calls| calls.unparks += 1);
        // `Slow` is transparent, so a pointer to it is also a pointer to its word.
        Native::unpark(word.cast(), how_many);
    }
}

impl Threads for Counting {
    fn thread_id() -> u32 {
        Native::thread_id()
    }
    fn yield_now() {
        count(|calls| calls.yields += 1);
        thread::yield_now();
    }
}

impl Generation for Counting {
    fn generation() -> u32 {
        GENERATION.load(SeqCst)
    }
}

impl Transactions for Counting {}

impl SliceExtension for Counting {
    fn begin_slice_extension() {
        count(|calls| calls.slices += 1);
    }
    fn end_slice_extension() {
        count(|calls| calls.slices += 1);
    }
}

impl NodeMemory for Counting {
    /// Never freed, because nodes are type-stable.
    fn take_node() -> *mut Node<Counting> {
        Box::into_raw(Box::new(Node::detached(0, 0)))
    }
    unsafe fn give_node(_node: *mut Node<Counting>) {}
}

trait Lock: Sync {
    fn try_lock(&self) -> bool;
    /// Waits for the lock until `end`. Returns whether the caller holds it.
    fn wait(&self, end: Instant) -> bool;
    fn unlock(&self);
}

impl<C: Contention> Lock for C {
    fn try_lock(&self) -> bool {
        Contention::try_lock(self)
    }
    fn wait(&self, end: Instant) -> bool {
        self.attempt(&mut Until(end)) == Outcome::Acquired
    }
    fn unlock(&self) {
        // SAFETY: the tests release only what they hold.
        assert!(unsafe { Contention::unlock(self) }, "no parked bit");
    }
}

/// Spins until the given time, then leaves.
struct Until(Instant);

impl Turn for Until {
    fn turn(&mut self, _now: u64) -> Verdict {
        if Instant::now() < self.0 { Verdict::Spin } else { Verdict::Leave }
    }
    fn deadline(&self) -> Option<u64> {
        let left = self.0.saturating_duration_since(Instant::now());
        Some(Counting::now() + left.as_nanos() as u64)
    }
}

fn far_future() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// Calls of `work` in a new thread.
fn calls_of(is_preempted: bool, work: impl FnOnce() + Send) -> Calls {
    let counted = || {
        IS_PREEMPTED.set(is_preempted);
        work();
        CALLS.get()
    };
    thread::scope(|scope| scope.spawn(counted).join().expect("no panic"))
}

/// Calls of a thread that takes and releases an uncontended lock.
fn calls_uncontended(lock: &dyn Lock) -> Calls {
    calls_of(false, || {
        for _ in 0..100 {
            assert!(lock.try_lock());
            lock.unlock();
            assert!(lock.wait(far_future()));
            lock.unlock();
        }
    })
}

/// Calls of a thread that waits for a lock in vain.
fn calls_until_timeout(lock: &dyn Lock) -> Calls {
    assert!(lock.try_lock());
    let calls = calls_of(false, || assert!(!lock.wait(Instant::now() + Duration::from_millis(5))));
    lock.unlock();
    calls
}

/// Calls of threads that contend for a lock, one of them preempted.
fn calls_beside_preempted_thread(lock: &dyn Lock) -> Calls {
    let done = AtomicBool::new(false);
    let sections = |is_preempted, rest| {
        let done = &done;
        move || {
            calls_of(is_preempted, || {
                while !done.load(SeqCst) {
                    assert!(lock.wait(far_future()));
                    thread::sleep(rest);
                    lock.unlock();
                    // On a single processor, others rarely run while the lock is free otherwise.
                    thread::yield_now();
                }
            })
        }
    };
    thread::scope(|scope| {
        let threads = [(true, 0), (false, 100), (false, 100)].map(|(is_preempted, rest)| {
            scope.spawn(sections(is_preempted, Duration::from_micros(rest)))
        });
        thread::sleep(Duration::from_millis(100));
        done.store(true, SeqCst);
        threads
            .map(|thread| thread.join().expect("no panic"))
            .into_iter()
            .fold(Calls::default(), Calls::and)
    })
}

/// Calls of two threads, one of them preempted, that first use a lock after a fork.
fn calls_after_fork(lock: &dyn Lock) -> Calls {
    let section = |is_preempted| {
        move || {
            calls_of(is_preempted, || {
                assert!(lock.wait(far_future()));
                lock.unlock();
            })
        }
    };
    GENERATION.fetch_add(1, SeqCst);
    thread::scope(|scope| {
        let preempted = scope.spawn(section(true));
        thread::sleep(Duration::from_millis(1));
        section(false)().and(preempted.join().expect("no panic"))
    })
}

macro_rules! locks {
    ([$(($lock:literal, $contention:ty)),*] $loads:tt) => {
        const LOCKS: &[(&str, fn() -> Box<dyn Lock>)] =
            &[$(($lock, || Box::new(<$contention as Contention>::unlocked()))),*];
    };
}

unconvoy::with_managers!(locks, Counting);

/// The catalogue's names of `calls`.
fn names(calls: Calls) -> Vec<&'static str> {
    let kinds = [
        (calls.yields, "`sched_yield`"),
        (calls.parks, "`futex`"),
        (calls.unparks, "`futex`"),
        (calls.slices, "`rseq_slice_yield`"),
    ];
    kinds.into_iter().filter(|kind| kind.0 > 0).map(|kind| kind.1).collect()
}

/// How long to repeat a case that needs two threads to meet at the right moment. On a busy machine
/// hundreds of attempts may fail.
const RETRY_TIME: Duration = Duration::from_secs(120);

/// A single test, because the generation belongs to the process.
#[test]
fn calls_of_each_contention_manager_match_its_class() {
    for (lock, (name, unlocked)) in CONTENTION_MANAGERS.iter().zip(LOCKS) {
        assert_eq!(lock.entry.name, *name, "both tables have the same order");
        let undisturbed = calls_uncontended(&*unlocked()).and(calls_until_timeout(&*unlocked()));
        // A thread that has yielded often sleeps.
        let yields = |calls: Calls| {
            Calls { yields: 0, parks: 0, ..calls } == Calls::default() && calls.yields > 0
        };
        match lock.class {
            Class::Spins | Class::YieldsToPreempted(_) => {
                assert_eq!(undisturbed, Calls::default(), "{name}, no thread preempted");
                let disturbed = || {
                    calls_beside_preempted_thread(&*unlocked()).and(calls_after_fork(&*unlocked()))
                };
                if lock.class == Class::Spins {
                    assert_eq!(disturbed(), Calls::default(), "{name}, a thread preempted");
                } else {
                    let end = Instant::now() + RETRY_TIME;
                    let mut attempts =
                        std::iter::repeat_with(disturbed).take_while(|_| Instant::now() < end);
                    let seen = attempts.find(|calls| *calls != Calls::default());
                    assert!(seen.is_some_and(yields), "{name}, a thread preempted: {seen:?}");
                }
            }
            Class::CallsSystem(what) => {
                let named = names(undisturbed);
                assert!(!named.is_empty(), "{name} makes no call");
                assert!(
                    named.iter().all(|name| what.contains(name)),
                    "{name}: {named:?} are not all in {what:?}"
                );
            }
        }
    }
}
