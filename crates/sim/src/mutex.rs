//! Mutexes on the simulated machine: one laid out like the interposer's `pthread_mutex_t`, one
//! bare.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::Relaxed;

use unconvoy::contention::Contention;
use unconvoy::load::LoadManager;
use unconvoy::lock::{self, Account};
use unconvoy::parking::eventcount::Eventcount;
use unconvoy::primitive::{Atomic as _, Transactions as _};

use crate::machine::{self, Machine};
use crate::platform::{Simulated, SimulatedCell};

pub(crate) trait Mutex {
    fn lock(&self);
    fn unlock(&self);
    fn is_locked(&self) -> bool;
}

/// A mutex with the fields of the interposer's, in the same order and on the same line.
#[repr(C)]
struct PairMutex<C, L, const IS_DEFAULT: bool> {
    state: C,
    eventcount: Eventcount<Simulated>,
    acquisitions: SimulatedCell<u32>,
    holder: SimulatedCell<u32>,
    load: PhantomData<fn(L)>,
}

impl<C: Contention, L: LoadManager, const IS_DEFAULT: bool> Mutex for PairMutex<C, L, IS_DEFAULT> {
    fn lock(&self) {
        // As in the interposer (`mutex.rs`), only the default lock's first attempt fails if a
        // waiter is entitled to the lock.
        let state = &self.state;
        let acquired = if IS_DEFAULT {
            state.try_lock_without_barging()
        } else {
            C::ELIDES && state.elide() || state.try_lock()
        };
        if !acquired {
            let account = Account::Full { acquisitions: &self.acquisitions, holder: &self.holder };
            lock::acquire::<Simulated, C, L>(&self.state, &self.eventcount, Some(account), None);
        }
        if C::ELIDES && Simulated::in_transaction() {
            return; // A transaction must not write the lock.
        }
        self.acquisitions.store(self.acquisitions.load(Relaxed).wrapping_add(1), Relaxed);
        self.holder.store(machine::thread() + 1, Relaxed);
    }

    fn unlock(&self) {
        if !C::ELIDES || !Simulated::in_transaction() {
            self.holder.store(0, Relaxed);
        }
        // SAFETY: the workload unlocks only locks that it holds.
        unsafe { lock::release::<Simulated, C>(&self.state, &self.eventcount) };
    }

    fn is_locked(&self) -> bool {
        self.state.is_locked()
    }
}

/// A lock without the interposer's accounting.
#[repr(C)]
struct BareMutex<C, L> {
    state: C,
    eventcount: Eventcount<Simulated>,
    load: PhantomData<fn(L)>,
}

impl<C: Contention, L: LoadManager> Mutex for BareMutex<C, L> {
    fn lock(&self) {
        if !self.state.try_lock_without_barging() {
            lock::acquire::<Simulated, C, L>(&self.state, &self.eventcount, None, None);
        }
    }

    fn unlock(&self) {
        // SAFETY: the workload unlocks only locks that it holds.
        unsafe { lock::release::<Simulated, C>(&self.state, &self.eventcount) };
    }

    fn is_locked(&self) -> bool {
        self.state.is_locked()
    }
}

pub(crate) fn make_bare<C: Contention + 'static, L: LoadManager>(
    machine: &mut Machine,
) -> &'static dyn Mutex {
    let mutex = BareMutex::<C, L> {
        state: C::unlocked(),
        eventcount: Eventcount::new(),
        load: PhantomData,
    };
    // SAFETY: see `make`.
    unsafe { &*machine.allocate(mutex) }
}

pub(crate) fn make<C: Contention + 'static, L: LoadManager, const IS_DEFAULT: bool>(
    machine: &mut Machine,
) -> &'static dyn Mutex {
    let mutex = PairMutex::<C, L, IS_DEFAULT> {
        state: C::unlocked(),
        eventcount: Eventcount::new(),
        acquisitions: SimulatedCell::new(0),
        holder: SimulatedCell::new(0),
        load: PhantomData,
    };
    // SAFETY: `allocate` returned a valid pointer into the machine's memory, which outlives all of
    // the machine's threads.
    unsafe { &*machine.allocate(mutex) }
}
