//! A reader-writer lock on the simulated machine, laid out like the interposer's
//! `pthread_rwlock_t`.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::Relaxed;

use unconvoy::contention::bias::{BYTE_AND_MODE, Bias, Limits};
use unconvoy::contention::biased_rw::{Begun, BiasedRw, Drain};
use unconvoy::contention::rw::{RwWord, Share};
use unconvoy::load::LoadManager;
use unconvoy::lock;
use unconvoy::parking::eventcount::Eventcount;
use unconvoy::primitive::Atomic as _;

use crate::machine::{self, Machine};
use crate::platform::{Simulated, SimulatedCell};

pub(crate) trait RwLock {
    fn lock(&self, share: Share);
    /// Releases the caller's hold, for reading or for writing.
    fn unlock(&self);
}

/// A reader-writer lock with the fields of the interposer's, in the same order and on the same
/// line. Only the default pair's readers may set its bias.
#[repr(C)]
struct PairRwLock<L, const IS_DEFAULT: bool> {
    state: RwWord<Simulated>,
    /// The interposer's words for elision.
    _elision: [u32; 2],
    eventcount: Eventcount<Simulated>,
    /// The state of the bias.
    number: SimulatedCell<u32>,
    owner: SimulatedCell<u32>,
    /// Never set: the lock is private to its process.
    shared: SimulatedCell<u32>,
    limits: Limits<Simulated>,
    load: PhantomData<fn(L)>,
}

impl<L: LoadManager, const IS_DEFAULT: bool> PairRwLock<L, IS_DEFAULT> {
    fn unlocked() -> Self {
        let zero = || SimulatedCell::new(0);
        PairRwLock {
            state: RwWord::unlocked(),
            _elision: [0; 2],
            eventcount: Eventcount::new(),
            number: zero(),
            owner: zero(),
            shared: zero(),
            limits: Limits::new(),
            load: PhantomData,
        }
    }

    fn biased(&self) -> BiasedRw<'_, Simulated> {
        BiasedRw::new(&self.state, Bias::new(&self.number, &self.limits), &self.eventcount)
    }

    /// Whether the interposer's fast paths serve this lock: the default pair, without a bias.
    fn is_fast(&self) -> bool {
        IS_DEFAULT
            && self.shared.load(Relaxed) == 0
            && self.number.load(Relaxed) & BYTE_AND_MODE == 0
    }

    /// The fast path, and the part of it that the interposer does not inline.
    fn begin(&self, share: Share) -> bool {
        let lock = self.biased();
        match share {
            Share::Write => match lock.begin_write() {
                Begun::Held => true,
                Begun::Failed => false,
                Begun::Undecided(_) => {
                    lock.end_write();
                    false
                }
            },
            Share::Read | Share::ReadAfterWriters => match lock.begin_read() {
                Begun::Held => true,
                Begun::Failed => false,
                Begun::Undecided(before) => lock.end_read(before, || IS_DEFAULT),
            },
        }
    }

    /// The slow path: the lock of a biased reader, another try, and then a wait.
    fn lock_slowly(&self, share: Share) {
        let lock = self.biased();
        let is_held = match share {
            Share::Write => {
                lock.give_way(share);
                lock.try_write(&Drain::new())
            }
            Share::Read | Share::ReadAfterWriters => {
                lock.is_biased() && IS_DEFAULT && lock.read(|| IS_DEFAULT) || {
                    lock.give_way(share);
                    lock.try_read(|| IS_DEFAULT)
                }
            }
        };
        if !is_held {
            lock::acquire_shared::<Simulated, L>(lock, share, None);
        }
    }

    /// # Safety
    ///
    /// The caller holds the lock, which is not biased.
    unsafe fn release_at_once(&self) -> bool {
        self.forget_owner();
        // SAFETY: as promised.
        unsafe { self.state.release_at_once() }
    }

    fn forget_owner(&self) {
        if self.state.is_written() {
            self.owner.store(0, Relaxed);
        }
    }
}

impl<L: LoadManager, const IS_DEFAULT: bool> RwLock for PairRwLock<L, IS_DEFAULT> {
    fn lock(&self, share: Share) {
        if !(self.is_fast() && self.begin(share)) {
            self.lock_slowly(share);
        }
        if share == Share::Write {
            self.owner.store(machine::thread() + 1, Relaxed);
        }
    }

    fn unlock(&self) {
        let lock = self.biased();
        // SAFETY: the workload releases only locks that it holds. A biased lock is held for
        // reading.
        unsafe {
            if self.is_fast() && self.release_at_once()
                || lock.is_biased() && lock.release_published()
            {
                return;
            }
            self.forget_owner();
            lock::release_shared(lock);
        }
    }
}

pub(crate) fn make<L: LoadManager, const IS_DEFAULT: bool>(
    machine: &mut Machine,
) -> &'static dyn RwLock {
    // SAFETY: `allocate` returned a valid pointer into the machine's memory, which outlives all of
    // the machine's threads.
    unsafe { &*machine.allocate(PairRwLock::<L, IS_DEFAULT>::unlocked()) }
}
