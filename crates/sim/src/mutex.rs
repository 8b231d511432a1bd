//! A mutex on the simulated machine, with the words of the interposer's `pthread_mutex_t`, or bare.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::Relaxed;

use unconvoy::contention::Contention;
use unconvoy::load::LoadManager;
use unconvoy::lock::{self, Account};
use unconvoy::parking::eventcount::Eventcount;
use unconvoy::primitive::{Atomic as _, Transactions as _};

use crate::machine::{self, Machine};
use crate::platform::{Simulated, SimulatedCell};

/// A mutex on a simulated machine.
pub(crate) trait Mutex {
    fn lock(&self);
    fn unlock(&self);
    fn is_locked(&self) -> bool;
}

/// In the order and the line of the interposer's.
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
        // As in the interposer (`mutex.rs`), where only the default lock lets a thread that is due
        // go first.
        let state = &self.state;
        let acquired =
            if IS_DEFAULT { state.try_lock_politely() } else { C::ELIDES && state.elide() || state.try_lock() };
        if !acquired {
            let account = Account { acquisitions: &self.acquisitions, holder: &self.holder };
            lock::acquire::<Simulated, C, L>(&self.state, &self.eventcount, Some(account), None);
        }
        if C::ELIDES && Simulated::in_transaction() {
            return; // it leaves no trace
        }
        self.acquisitions.store(self.acquisitions.load(Relaxed).wrapping_add(1), Relaxed);
        self.holder.store(machine::thread() + 1, Relaxed);
    }

    fn unlock(&self) {
        if !C::ELIDES || !Simulated::in_transaction() {
            self.holder.store(0, Relaxed);
        }
        // SAFETY: the workload unlocks what it has locked.
        unsafe { lock::release::<Simulated, C>(&self.state, &self.eventcount) };
    }

    fn is_locked(&self) -> bool {
        self.state.is_locked()
    }
}

/// What a lock is without that.
#[repr(C)]
struct BareMutex<C, L> {
    state: C,
    eventcount: Eventcount<Simulated>,
    load: PhantomData<fn(L)>,
}

impl<C: Contention, L: LoadManager> Mutex for BareMutex<C, L> {
    fn lock(&self) {
        if !self.state.try_lock_politely() {
            lock::acquire::<Simulated, C, L>(&self.state, &self.eventcount, None, None);
        }
    }

    fn unlock(&self) {
        // SAFETY: the workload unlocks what it has locked.
        unsafe { lock::release::<Simulated, C>(&self.state, &self.eventcount) };
    }

    fn is_locked(&self) -> bool {
        self.state.is_locked()
    }
}

pub(crate) fn make_bare<C: Contention + 'static, L: LoadManager>(machine: &mut Machine) -> &'static dyn Mutex {
    let mutex = BareMutex::<C, L> { state: C::unlocked(), eventcount: Eventcount::new(), load: PhantomData };
    // SAFETY: as for `make`.
    unsafe { &*machine.place(mutex) }
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
    // SAFETY: the machine's memory, where it stays as long as any of its threads.
    unsafe { &*machine.place(mutex) }
}
