//! The mutex that the ASPLOS and DaMoN papers compare with: Solaris 10's `pthread_mutex_t`. unconvoy has none like it;
//! here it is so that their figures have their baseline.
//!
//! As DaMoN 2009 describes it (sections 2.3 and 4.1): a thread spins until it has the lock, sees that the holder is not on
//! a processor, or has lost patience; then it joins the lock's sleep queue. The lock goes to a thread that spins if there
//! is one. If there is none it is *handed* to the first sleeper, who has to be woken, and that takes part in every
//! hand-over from then on: who comes meanwhile sees a holder that does not run, and sleeps too.
//!
//! The queue is guarded by a word that every change of it writes; that it may have to be waited for is not modelled.

use core::cell::{Cell, RefCell};
use core::sync::atomic::Ordering::Relaxed;
use std::collections::VecDeque;
use std::rc::Rc;

use unconvoy::primitive::{Atomic as _, AtomicInt as _, Spin as _};

use crate::machine;
use crate::mutex::Mutex;
use crate::platform::{Simulated, SimulatedCell};

/// Turns of the spin: libc's `THREAD_ADAPTIVE_SPIN`.
const PATIENCE: u32 = 1_000;

/// A sleeper, and whether it was given the lock.
type Sleeper = (u32, Rc<Cell<bool>>);

#[repr(C)]
pub(crate) struct Solaris {
    held: SimulatedCell<u32>,
    /// The holder's number and 1.
    holder: SimulatedCell<u32>,
    spinners: SimulatedCell<u32>,
    queue_word: SimulatedCell<u32>,
    queue: RefCell<VecDeque<Sleeper>>,
}

impl Solaris {
    pub(crate) fn unlocked() -> Self {
        let zero = || SimulatedCell::new(0);
        Solaris { held: zero(), holder: zero(), spinners: zero(), queue_word: zero(), queue: RefCell::default() }
    }

    fn try_lock(&self) -> bool {
        let acquired = self.held.load(Relaxed) == 0 && self.held.compare_exchange(0, 1, Relaxed, Relaxed).is_ok();
        if acquired {
            self.holder.store(machine::current() + 1, Relaxed);
        }
        acquired
    }

    fn spin(&self) -> bool {
        self.spinners.fetch_add(1, Relaxed);
        let mut acquired = false;
        for _ in 0..PATIENCE {
            acquired = self.try_lock();
            let holder = self.holder.load(Relaxed);
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
        machine::leave_transaction(); // which would not take the queue back
        if self.try_lock() || self.spin() {
            return;
        }
        self.queue_word.fetch_add(1, Relaxed);
        // Who was about to take the lock from a releaser that saw a spinner must not sleep.
        if self.try_lock() {
            return;
        }
        let granted = Rc::new(Cell::new(false));
        self.queue.borrow_mut().push_back((machine::current(), granted.clone()));
        while !granted.get() {
            machine::park(Rc::as_ptr(&granted).addr(), || granted.get(), None);
        }
    }

    fn unlock(&self) {
        machine::leave_transaction();
        self.holder.store(0, Relaxed);
        let sleeps = self.queue_word.load(Relaxed) != 0 && !self.queue.borrow().is_empty();
        if !sleeps || self.spinners.load(Relaxed) > 0 {
            self.held.store(0, Relaxed);
            // One may have queued since, having seen the lock held.
            if sleeps || self.queue.borrow().is_empty() || !self.try_lock() {
                return;
            }
        }
        self.queue_word.fetch_add(1, Relaxed);
        let Some((thread, granted)) = self.queue.borrow_mut().pop_front() else {
            self.held.store(0, Relaxed);
            return;
        };
        self.holder.store(thread + 1, Relaxed);
        granted.set(true);
        machine::unpark(Rc::as_ptr(&granted).addr(), 1);
    }

    fn is_locked(&self) -> bool {
        self.held.load(Relaxed) != 0
    }
}
