//! The mutex that DaMoN 2009, section 4.1, describes but does not build: a
//! [blocking one](crate::solaris) with *pipelined wake-ups*. The simulator has it for the paper's
//! Figure 5.
//!
//! A waiter polls as under [`solaris`](crate::solaris), then sleeps in a queue. A release hands the
//! lock to the first waiter that polls on a processor, or else to the first one. It then wakes the
//! sleepers among the first waiters of the queue, the *window*, so that they poll when they receive
//! the lock, and their context switches delay no hand-over.
//!
//! The paper leaves the length of the window open ("carefully (and adaptively)"). Here it is the
//! time from a wake-up until the woken thread runs, divided by the time between two hand-overs;
//! both are running averages.
//!
//! Every change of the queue writes one word, which stands for the lock of the queue. Contention on
//! that lock is not modelled.

use core::cell::{Cell, RefCell};
use core::sync::atomic::Ordering::Relaxed;
use std::collections::VecDeque;
use std::rc::Rc;

use unconvoy::primitive::{Atomic as _, AtomicInt as _, Spin as _};

use crate::machine;
use crate::mutex::Mutex;
use crate::platform::{Simulated, SimulatedCell};
use crate::solaris::Ownership;

/// Most polls before a waiter sleeps, after its arrival and after each wake-up: as under
/// [`solaris`](crate::solaris).
const POLLS: u32 = 1_000;

/// Most wake-ups of a release: one keeps the window full, and a second one lets it grow.
const WAKE_UPS: usize = 2;

/// Longest time that enters an average. A thread that waits in a run queue, or a holder without a
/// processor, says nothing about a context switch or a critical section.
const LONGEST_NS: u64 = 100_000;

/// Time from a wake-up until the thread runs, before any is measured ("10-20 usec", section 4.1).
const WAKE_UP_NS: f64 = 15_000.0;

/// Weight of a new value in an average.
const WEIGHT: f64 = 0.125;

#[derive(Clone, Copy, PartialEq)]
enum State {
    /// Awake, since the time when it was woken or began to wait.
    Awake(u64),
    Asleep,
    /// Has received the lock, at this time.
    Granted(u64),
}

struct Waiter {
    thread: u32,
    state: Cell<State>,
}

#[repr(C)]
pub(crate) struct Pipelined {
    owner: Ownership,
    queue_word: SimulatedCell<u32>,
    queue: RefCell<VecDeque<Rc<Waiter>>>,
    wake_up_ns: Cell<f64>,
    between_grants_ns: Cell<f64>,
    last_grant: Cell<u64>,
}

impl Pipelined {
    pub(crate) fn unlocked() -> Self {
        Pipelined {
            owner: Ownership::none(),
            queue_word: SimulatedCell::new(0),
            queue: RefCell::default(),
            wake_up_ns: Cell::new(WAKE_UP_NS),
            between_grants_ns: Cell::new(WAKE_UP_NS),
            last_grant: Cell::new(0),
        }
    }

    /// Number of waiters that should be awake.
    fn window(&self) -> usize {
        (self.wake_up_ns.get() / self.between_grants_ns.get().max(1.0)).ceil() as usize
    }

    /// Polls until the calling thread holds the lock, and returns true; false once it should sleep.
    fn poll(&self) -> bool {
        let me = machine::current() + 1;
        for _ in 0..POLLS {
            let holder = self.owner.holder.load(Relaxed);
            if holder == me {
                return true;
            }
            if holder != 0 && !machine::is_on_processor(holder - 1) {
                return false;
            }
            Simulated::pause_counted();
        }
        false
    }

    /// Takes the waiter that receives the lock out of the queue.
    fn next(&self) -> Option<Rc<Waiter>> {
        let mut queue = self.queue.borrow_mut();
        let polls = |waiter: &Rc<Waiter>| {
            matches!(waiter.state.get(), State::Awake(_)) && machine::is_on_processor(waiter.thread)
        };
        let place = queue.iter().position(polls).unwrap_or(0);
        queue.remove(place)
    }

    /// Wakes sleepers in the window.
    fn fill_window(&self) {
        let asleep = |waiter: &&Rc<Waiter>| waiter.state.get() == State::Asleep;
        let woken: Vec<Rc<Waiter>> = self
            .queue
            .borrow()
            .iter()
            .take(self.window())
            .filter(asleep)
            .take(WAKE_UPS)
            .cloned()
            .collect();
        for waiter in woken {
            let now = machine::now();
            // The next holder may have released the lock to this waiter meanwhile.
            if waiter.state.get() == State::Asleep {
                waiter.state.set(State::Awake(now));
                machine::unpark(Rc::as_ptr(&waiter).addr(), None, 1);
            }
        }
    }
}

/// Adds `ns` to the running average `mean`.
fn add(mean: &Cell<f64>, ns: u64) {
    mean.set(mean.get() + WEIGHT * (ns.min(LONGEST_NS) as f64 - mean.get()));
}

impl Mutex for Pipelined {
    fn lock(&self) {
        // A transaction could not undo changes of the queue.
        machine::leave_transaction();
        if self.queue.borrow().is_empty() && self.owner.try_lock() {
            return;
        }
        self.queue_word.fetch_add(1, Relaxed);
        let begin = State::Awake(machine::now());
        // Try once more: a releaser may have seen an empty queue.
        if self.queue.borrow().is_empty() && self.owner.try_lock() {
            return;
        }
        let waiter = Rc::new(Waiter { thread: machine::current(), state: Cell::new(begin) });
        self.queue.borrow_mut().push_back(waiter.clone());
        let is_granted = || matches!(waiter.state.get(), State::Granted(_));
        while !(self.poll() || is_granted()) {
            waiter.state.set(State::Asleep);
            let is_woken = || waiter.state.get() != State::Asleep;
            machine::park(Rc::as_ptr(&waiter).addr(), None, is_woken, None);
            if let State::Awake(at) | State::Granted(at) = waiter.state.get() {
                add(&self.wake_up_ns, machine::now().saturating_sub(at));
            }
        }
    }

    fn unlock(&self) {
        machine::leave_transaction();
        if self.queue_word.load(Relaxed) == 0 || self.queue.borrow().is_empty() {
            self.owner.holder.store(0, Relaxed);
            self.owner.held.store(0, Relaxed);
            // A thread that saw the lock held may have joined the queue since.
            if self.queue.borrow().is_empty() || !self.owner.try_lock() {
                return;
            }
        }
        self.queue_word.fetch_add(1, Relaxed);
        let Some(next) = self.next() else {
            self.owner.holder.store(0, Relaxed);
            return self.owner.held.store(0, Relaxed);
        };
        let now = machine::now();
        add(&self.between_grants_ns, now.saturating_sub(self.last_grant.replace(now)));
        self.owner.holder.store(next.thread + 1, Relaxed);
        if next.state.replace(State::Granted(now)) == State::Asleep {
            machine::unpark(Rc::as_ptr(&next).addr(), None, 1);
        }
        self.fill_window();
    }

    fn is_locked(&self) -> bool {
        self.owner.held.load(Relaxed) != 0
    }
}
