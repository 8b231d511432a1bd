//! Solaris 10's `pthread_mutex_t`, the baseline of the ASPLOS and DaMoN papers. unconvoy has no
//! such lock; the simulator has it for the papers' figures.
//!
//! The algorithm follows DaMoN 2009, sections 2.3 and 4.1. A thread spins until it acquires the
//! lock, until the holder loses its processor, or until its turns are used up. It then joins the
//! lock's sleep queue. A release leaves the lock to a spinning thread if there is one. Otherwise it
//! *hands* the lock to the first sleeper, which must first be woken. From then on every hand-over
//! pays for a wake-up: arriving threads find a holder without a processor, and sleep too.
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

/// Most turns of the spin: libc's `THREAD_ADAPTIVE_SPIN`.
const SPIN_TURNS: u32 = 1_000;

/// A sleeper, and whether it has received the lock.
type Sleeper = (u32, Rc<Cell<bool>>);

/// Whether the lock is held, and by which thread.
#[repr(C)]
pub(crate) struct Ownership {
    pub(crate) held: SimulatedCell<u32>,
    /// Number of the holder plus 1.
    pub(crate) holder: SimulatedCell<u32>,
}

impl Ownership {
    pub(crate) fn none() -> Self {
        Ownership { held: SimulatedCell::new(0), holder: SimulatedCell::new(0) }
    }

    pub(crate) fn try_lock(&self) -> bool {
        let acquired = self.held.load(Relaxed) == 0
            && self.held.compare_exchange(0, 1, Relaxed, Relaxed).is_ok();
        if acquired {
            self.holder.store(machine::current() + 1, Relaxed);
        }
        acquired
    }
}

#[repr(C)]
pub(crate) struct Solaris {
    owner: Ownership,
    spinners: SimulatedCell<u32>,
    queue_word: SimulatedCell<u32>,
    queue: RefCell<VecDeque<Sleeper>>,
}

impl Solaris {
    pub(crate) fn unlocked() -> Self {
        let zero = || SimulatedCell::new(0);
        Solaris {
            owner: Ownership::none(),
            spinners: zero(),
            queue_word: zero(),
            queue: RefCell::default(),
        }
    }

    fn spin(&self) -> bool {
        self.spinners.fetch_add(1, Relaxed);
        let mut acquired = false;
        for _ in 0..SPIN_TURNS {
            acquired = self.owner.try_lock();
            let holder = self.owner.holder.load(Relaxed);
            if acquired || holder != 0 && !machine::is_on_processor(holder - 1) {
                break;
            }
            Simulated::pause_counted();
        }
        self.spinners.fetch_sub(1, Relaxed);
        acquired
    }
}

impl Mutex for Solaris {
    fn lock(&self) {
        // A transaction could not undo changes of the queue.
        machine::leave_transaction();
        if self.owner.try_lock() || self.spin() {
            return;
        }
        self.queue_word.fetch_add(1, Relaxed);
        // Try once more: a releaser may have seen this thread spinning and left the lock to it.
        if self.owner.try_lock() {
            return;
        }
        let granted = Rc::new(Cell::new(false));
        self.queue.borrow_mut().push_back((machine::current(), granted.clone()));
        while !granted.get() {
            machine::park(Rc::as_ptr(&granted).addr(), None, || granted.get(), None);
        }
    }

    fn unlock(&self) {
        machine::leave_transaction();
        self.owner.holder.store(0, Relaxed);
        let sleeps = self.queue_word.load(Relaxed) != 0 && !self.queue.borrow().is_empty();
        if !sleeps || self.spinners.load(Relaxed) > 0 {
            self.owner.held.store(0, Relaxed);
            // A thread that saw the lock held may have joined the queue since.
            if sleeps || self.queue.borrow().is_empty() || !self.owner.try_lock() {
                return;
            }
        }
        self.queue_word.fetch_add(1, Relaxed);
        let Some((thread, granted)) = self.queue.borrow_mut().pop_front() else {
            self.owner.held.store(0, Relaxed);
            return;
        };
        self.owner.holder.store(thread + 1, Relaxed);
        granted.set(true);
        machine::unpark(Rc::as_ptr(&granted).addr(), None, 1);
    }

    fn is_locked(&self) -> bool {
        self.owner.held.load(Relaxed) != 0
    }
}
