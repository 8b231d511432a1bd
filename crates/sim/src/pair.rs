//! Locks: every pair of contention manager and load manager on the simulated machine, as the interposer makes them of
//! a `pthread_mutex_t`.

use unconvoy::contention::Contention;
use unconvoy::contention::ttas::Ttas;
use unconvoy::load::LoadManager;
use unconvoy::load::none::NoManager;
use unconvoy::primitive::{Clock as _, Spin as _};

use crate::machine::{self, Cause, Machine, Refusal};
use crate::mutex::{Mutex, make, make_bare};
use crate::platform::Simulated;
use crate::solaris::Solaris;

/// A pair of managers.
#[derive(Clone, Copy)]
pub struct Pair {
    /// The contention manager's name in the catalogue.
    pub contention: &'static str,
    /// The load manager's; empty for [`solaris`](crate::solaris) and [`TRANSACTIONAL`], which are no pairs.
    pub load: &'static str,
    pub(crate) interval_ns: u64,
    discipline: Discipline,
    make: fn(&mut Machine) -> &'static dyn Mutex,
    make_bare: fn(&mut Machine) -> &'static dyn Mutex,
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.name())
    }
}

impl Pair {
    /// As a user writes it.
    pub fn name(&self) -> String {
        match self.load {
            "" => self.contention.to_string(),
            load => format!("{}+{load}", self.contention),
        }
    }

    /// Whether who waits for such a lock never leaves the processor for it.
    fn spins(&self) -> bool {
        self.load == "none" && self.contention != "futex"
    }
}

/// How critical sections exclude each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Discipline {
    /// By the lock.
    Lock,
    /// By the lock, which may run them as transactions instead.
    Elision,
    /// As transactions, and by the lock where one cannot hold them.
    Transactions,
}

/// One of the workload's locks: the mutex, and what the machine keeps of its time.
#[derive(Clone, Copy)]
pub struct Lock {
    mutex: &'static dyn Mutex,
    discipline: Discipline,
    clock: usize,
    is_default: bool,
    /// Who waits for it or holds it is not preempted.
    is_kernel_s: bool,
}

impl Lock {
    pub(crate) fn new(machine: &mut Machine, pair: &Pair) -> Self {
        let is_default = is_default(pair.contention, pair.load);
        let (mutex, clock) = ((pair.make)(machine), machine.add_lock());
        Lock { mutex, discipline: pair.discipline, clock, is_default, is_kernel_s: false }
    }

    /// Where it is: what shares its cache line.
    pub(crate) fn address(&self) -> usize {
        core::ptr::from_ref(self.mutex).addr()
    }

    /// What the calls that lock and unlock it take beyond what is simulated, if another than the default takes
    /// `dispatch_ps` more.
    pub(crate) fn call_ps(&self, call_ps: u64, dispatch_ps: u64) -> u64 {
        call_ps + if self.is_default { 0 } else { dispatch_ps }
    }

    /// A lock of the operating system's kernel: a bare one, without owner and statistics, and never elided. If it is a
    /// spin lock, who waits for it or holds it is not preempted.
    pub(crate) fn in_kernel(machine: &mut Machine, pair: &Pair) -> Self {
        let (mutex, clock) = ((pair.make_bare)(machine), machine.add_lock());
        Lock { mutex, discipline: Discipline::Lock, clock, is_default: true, is_kernel_s: pair.spins() }
    }

    /// Runs `section` as a critical section of the lock. Where that is a transaction, it may run more than once: what is
    /// undone in between is the machine's memory, and nothing else.
    pub fn section<R>(&self, mut section: impl FnMut() -> R) -> R {
        match self.discipline {
            _ if machine::in_transaction() || !machine::has_transactions() => self.locked(section),
            Discipline::Lock => self.locked(section),
            Discipline::Elision => machine::restartable(
                || self.lock(),
                || {
                    let result = section();
                    self.unlock();
                    result
                },
            ),
            Discipline::Transactions => self.transacted(section),
        }
    }

    fn locked<R>(&self, mut section: impl FnMut() -> R) -> R {
        self.lock();
        let result = section();
        self.unlock();
        result
    }

    /// Each transaction reads the lock's word, and so is undone by whoever takes the lock.
    fn transacted<R>(&self, mut section: impl FnMut() -> R) -> R {
        loop {
            let result = machine::transaction(|| {
                if self.mutex.is_locked() {
                    machine::abort_transaction();
                }
                machine::enter_section();
                section()
            });
            match result {
                Ok(result) => {
                    machine::leave_section();
                    return result;
                }
                Err(Refusal::Aborted(Cause::Explicit)) if self.mutex.is_locked() => {
                    machine::begin_wait(self.clock);
                    while self.mutex.is_locked() {
                        Simulated::pause();
                        Simulated::now();
                    }
                }
                Err(Refusal::Aborted(Cause::Explicit)) => {}
                Err(_) => return self.locked(section),
            }
        }
    }

    /// Acquires it, for the calling simulated thread. Nothing is elided, which takes a [`section`](Self::section).
    pub fn lock(&self) {
        machine::before_lock();
        if self.is_kernel_s {
            machine::forbid_preemption();
        }
        machine::begin_wait(self.clock);
        self.mutex.lock();
        machine::end_wait(self.clock);
    }

    /// Releases it.
    pub fn unlock(&self) {
        if machine::in_transaction() {
            self.mutex.unlock();
            machine::leave_section();
        } else {
            machine::release(self.clock);
            self.mutex.unlock();
        }
        if self.is_kernel_s {
            machine::allow_preemption();
        }
    }
}

/// Whether this is the pair that the interposer serves a mutex with if nobody has chosen another.
const fn is_default(contention: &str, load: &str) -> bool {
    use unconvoy::catalogue::{CONTENTION, LOAD};
    is_same(contention, CONTENTION[0].name) && is_same(load, LOAD[0].name)
}

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut place = 0;
    while place < one.len() && place < other.len() && one[place] == other[place] {
        place += 1;
    }
    place == one.len() && place == other.len()
}

macro_rules! pairs {
    ([$(($lock:literal, $contention:ty)),*] $loads:tt) => {
        static PAIRS: &[&[Pair]] = &[$(pairs!(@row $lock, $contention, $loads)),*];
    };
    (@row $lock:literal, $contention:ty, [$(($load:literal, $manager:ty)),*]) => {
        &[$(Pair {
            contention: $lock,
            load: $load,
            interval_ns: <$manager as LoadManager>::INTERVAL_NS,
            discipline: if <$contention as Contention>::ELIDES { Discipline::Elision } else { Discipline::Lock },
            make: make::<$contention, $manager, { is_default($lock, $load) }>,
            make_bare: make_bare::<$contention, $manager>,
        }),*]
    };
}

unconvoy::with_managers!(pairs, crate::platform::Simulated);

/// No lock: critical sections as transactions of the machine. What they cannot hold takes a `ttas` lock, which undoes
/// all of them.
static TRANSACTIONS: Pair = Pair {
    contention: TRANSACTIONAL,
    load: "",
    interval_ns: <NoManager as LoadManager>::INTERVAL_NS,
    discipline: Discipline::Transactions,
    make: make::<Ttas<Simulated>, NoManager, false>,
    make_bare: make_bare::<Ttas<Simulated>, NoManager>,
};

/// What stands for a lock's name where critical sections are transactions, as in the validation of Syncchar.
pub const TRANSACTIONAL: &str = "transactions";

/// The papers' `pthread_mutex_t`.
static SOLARIS: Pair = Pair {
    contention: "solaris",
    load: "",
    interval_ns: 0,
    discipline: Discipline::Lock,
    // SAFETY: the machine's memory, where it stays as long as any of its threads.
    make: |machine| unsafe { &*machine.place(Solaris::unlocked()) },
    // SAFETY: as above.
    make_bare: |machine| unsafe { &*machine.place(Solaris::unlocked()) },
};

/// Every pair.
pub fn all() -> impl Iterator<Item = &'static Pair> {
    PAIRS.iter().copied().flatten()
}

/// The pair that a user means: `CONTENTION+LOAD`, `CONTENTION` (under load control), or `default`; or `solaris`, the
/// mutex that the papers compare with; or [`TRANSACTIONAL`].
///
/// # Errors
///
/// There is none of this name.
pub fn named(name: &str) -> Result<&'static Pair, String> {
    use unconvoy::catalogue::{CONTENTION, LOAD};
    if let Some(other) = [&SOLARIS, &TRANSACTIONS].into_iter().find(|other| other.contention == name) {
        return Ok(other);
    }
    let (contention, load) = match name {
        "default" => (CONTENTION[0].name, LOAD[0].name),
        name => name.split_once('+').unwrap_or((name, LOAD[0].name)),
    };
    all().find(|pair| (pair.contention, pair.load) == (contention, load)).ok_or_else(|| {
        format!("there is no lock {name}: write CONTENTION+LOAD with names of `unconvoy locks`, as in tpmcs+control")
    })
}
