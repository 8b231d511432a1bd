//! Locks: every pair of a contention manager and a load manager, as the interposer combines them in
//! a `pthread_mutex_t`.

use unconvoy::catalogue::{CONTENTION, LOAD};
use unconvoy::contention::Contention;
use unconvoy::contention::futex::Futex;
use unconvoy::contention::loiter::Loiter;
use unconvoy::contention::rw::Share;
use unconvoy::contention::tpmcs::TpMcs;
use unconvoy::contention::ttas::Ttas;
use unconvoy::load::control::ControlWith;
use unconvoy::load::none::NoManager;
use unconvoy::load::rules::{ABLATIONS, Set};
use unconvoy::load::{Holds, LoadManager};
use unconvoy::lock::Process as _;
use unconvoy::primitive::{Abort, Clock as _, Spin as _};

use crate::libc_rwlock::LibcRwLock;
use crate::machine::{self, Cause, Machine, Refusal};
use crate::messages;
use crate::mutex::{Mutex, make, make_bare};
use crate::pipelined::Pipelined;
use crate::platform::Simulated;
use crate::rwlock::{self, RwLock};
use crate::solaris::Solaris;

/// A contention manager and a load manager.
#[derive(Clone, Copy)]
pub struct Pair {
    /// Name of the contention manager in the catalogue.
    pub contention: &'static str,
    /// Name of the load manager; empty for [`solaris`](crate::solaris),
    /// [`pipelined`](crate::pipelined), [`LIBC`] and [`TRANSACTIONAL`], which are not pairs.
    pub load: &'static str,
    pub(crate) interval_ns: u64,
    discipline: Discipline,
    make: fn(&mut Machine) -> &'static dyn Mutex,
    make_bare: fn(&mut Machine) -> &'static dyn Mutex,
    make_shared: Option<fn(&mut Machine) -> &'static dyn RwLock>,
    /// What a thread does at the end of a transaction, in a program with checkpoints.
    pub(crate) checkpoint: fn(),
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.name())
    }
}

impl Pair {
    /// The name that a user writes.
    pub fn name(&self) -> String {
        match self.load {
            "" => self.contention.to_string(),
            load => format!("{}+{load}", self.contention),
        }
    }

    /// Whether it has a reader-writer lock.
    pub(crate) fn has_shared(&self) -> bool {
        self.make_shared.is_some()
    }

    /// Whether waiters spin and never leave the processor.
    fn spins(&self) -> bool {
        self.load == "none" && self.contention != "futex"
    }
}

/// How critical sections exclude each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Discipline {
    /// The lock.
    Lock,
    /// The lock, which may run sections as transactions instead.
    Elision,
    /// Transactions, with the lock as a fallback.
    Transactions,
}

/// One of the workload's locks: the mutex and its account on the machine.
#[derive(Clone, Copy)]
pub struct Lock {
    mutex: &'static dyn Mutex,
    discipline: Discipline,
    clock: usize,
    is_default: bool,
    /// Whether its waiters and its holder are exempt from preemption.
    is_kernel_lock: bool,
}

impl Lock {
    pub(crate) fn new(machine: &mut Machine, pair: &Pair) -> Self {
        let load = pair.load.split('@').next().unwrap_or_default(); // without its rules
        let is_default = is_default(pair.contention, load);
        let (mutex, clock) = ((pair.make)(machine), machine.add_lock());
        Lock { mutex, discipline: pair.discipline, clock, is_default, is_kernel_lock: false }
    }

    /// The lock's address, for data on the same cache line.
    pub(crate) fn address(&self) -> usize {
        core::ptr::from_ref(self.mutex).addr()
    }

    /// Cost of the calls that lock and unlock, apart from the simulated accesses: `call_ps`, plus
    /// `dispatch_ps` for a lock other than the default.
    pub(crate) fn call_ps(&self, call_ps: u64, dispatch_ps: u64) -> u64 {
        call_ps + if self.is_default { 0 } else { dispatch_ps }
    }

    /// Creates a lock of the operating system's kernel: without owner and statistics, and never
    /// elided. If it is a spin lock, its waiters and its holder are not preempted.
    pub(crate) fn in_kernel(machine: &mut Machine, pair: &Pair) -> Self {
        let (mutex, clock) = ((pair.make_bare)(machine), machine.add_lock());
        Lock {
            mutex,
            discipline: Discipline::Lock,
            clock,
            is_default: true,
            is_kernel_lock: pair.spins(),
        }
    }

    /// Runs `section` as a critical section. As a transaction it may run more than once; an abort
    /// undoes only changes of the machine's memory.
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

    /// Runs `section` as a transaction that reads the lock word, so that a thread that takes the
    /// lock aborts it.
    fn transacted<R>(&self, mut section: impl FnMut() -> R) -> R {
        loop {
            let result = machine::transaction(|| {
                if self.mutex.is_locked() {
                    machine::abort_transaction(Abort::Held);
                }
                machine::enter_section();
                section()
            });
            match result {
                Ok(result) => {
                    machine::leave_section();
                    return result;
                }
                Err(Refusal::Aborted(Cause::Explicit(_))) if self.mutex.is_locked() => {
                    machine::begin_wait(self.clock);
                    while self.mutex.is_locked() {
                        Simulated::pause();
                        Simulated::now();
                    }
                }
                Err(Refusal::Aborted(Cause::Explicit(_))) => {}
                Err(_) => return self.locked(section),
            }
        }
    }

    /// Acquires the lock for the calling simulated thread. Never elides the lock; only
    /// [`section`](Self::section) may.
    pub fn lock(&self) {
        machine::before_lock();
        if self.is_kernel_lock {
            machine::forbid_preemption();
        }
        machine::begin_wait(self.clock);
        self.mutex.lock();
        machine::end_wait(self.clock);
    }

    /// Releases the lock.
    pub fn unlock(&self) {
        if machine::in_transaction() {
            self.mutex.unlock();
            machine::leave_section();
        } else {
            machine::release(self.clock);
            self.mutex.unlock();
        }
        if self.is_kernel_lock {
            machine::allow_preemption();
        }
    }
}

/// One of the workload's reader-writer locks: the lock and its account on the machine. Its waiters'
/// time counts as spinning, whether or not its holders run.
#[derive(Clone, Copy)]
pub struct SharedLock {
    lock: &'static dyn RwLock,
    clock: usize,
}

impl SharedLock {
    /// # Panics
    ///
    /// Panics if there is no reader-writer lock of this name.
    pub(crate) fn new(machine: &mut Machine, pair: &Pair) -> Self {
        let make = pair.make_shared.expect("a reader-writer lock");
        SharedLock { lock: make(machine), clock: machine.add_lock() }
    }

    /// Runs `section` while the calling simulated thread holds the lock.
    pub fn section<R>(&self, share: Share, section: impl FnOnce() -> R) -> R {
        machine::begin_wait(self.clock);
        self.lock.lock(share);
        machine::enter_section();
        let result = section();
        machine::leave_section();
        self.lock.unlock();
        result
    }
}

/// Whether this is the interposer's default pair.
const fn is_default(contention: &str, load: &str) -> bool {
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

const fn discipline_of<C: Contention>() -> Discipline {
    if C::ELIDES { Discipline::Elision } else { Discipline::Lock }
}

/// The threads of simulated programs end a transaction without a lock.
fn checkpoint<L: LoadManager>() {
    L::checkpoint(Simulated::context(), || Holds::Nothing);
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
            discipline: discipline_of::<$contention>(),
            make: make::<$contention, $manager, { is_default($lock, $load) }>,
            make_bare: make_bare::<$contention, $manager>,
            make_shared: Some(rwlock::make::<$manager, { is_default($lock, $load) }>),
            checkpoint: checkpoint::<$manager>,
        }),*]
    };
}

unconvoy::with_managers!(pairs, Simulated);

macro_rules! ablated {
    ($($rules:literal)*) => {
        /// Load control with a set of rules, under the paper's lock (`tpmcs`) and under ours
        /// (`loiter`).
        static ABLATED: &[Pair] = &[$(
            ablated!(@pair "tpmcs", TpMcs<Simulated>, $rules),
            ablated!(@pair "loiter", Loiter<Simulated>, $rules),
        )*];
    };
    (@pair $lock:literal, $contention:ty, $rules:literal) => {
        Pair {
            contention: $lock,
            load: concat!("control@", $rules),
            interval_ns: <ControlWith<Set<{ rules_of($rules) }>> as LoadManager>::INTERVAL_NS,
            discipline: discipline_of::<$contention>(),
            make: make::<
                $contention,
                ControlWith<Set<{ rules_of($rules) }>>,
                { is_default($lock, LOAD[0].name) },
            >,
            make_bare: make_bare::<$contention, ControlWith<Set<{ rules_of($rules) }>>>,
            make_shared: None,
            checkpoint: checkpoint::<ControlWith<Set<{ rules_of($rules) }>>>,
        }
    };
}

ablated! {
    "no-rules"
    "without-grace" "without-turns" "without-contender" "without-parking" "without-pins"
    "without-notice" "without-delay" "without-margin" "without-yields"
    "only-grace" "only-turns" "only-contender" "only-parking" "only-pins"
    "only-notice" "only-delay" "only-margin" "only-yields"
}

const fn rules_of(name: &str) -> u32 {
    let mut index = 0;
    while index < ABLATIONS.len() {
        if is_same(ABLATIONS[index].0, name) {
            return ABLATIONS[index].1;
        }
        index += 1;
    }
    panic!("no set of rules has this name")
}

/// Critical sections as transactions of the machine, without a lock. A section that cannot commit
/// takes a `ttas` lock, which aborts all transactions.
const TRANSACTIONS: Pair = Pair {
    contention: TRANSACTIONAL,
    load: "",
    interval_ns: <NoManager as LoadManager>::INTERVAL_NS,
    discipline: Discipline::Transactions,
    make: make::<Ttas<Simulated>, NoManager, false>,
    make_bare: make_bare::<Ttas<Simulated>, NoManager>,
    make_shared: None,
    checkpoint: || {},
};

/// Stands for a lock's name where critical sections run as transactions, as in the validation of
/// Syncchar.
pub const TRANSACTIONAL: &str = "transactions";

/// The `pthread_mutex_t` of the papers.
const SOLARIS: Pair = Pair {
    contention: "solaris",
    // SAFETY: the pointer is into the machine's memory, which outlives the machine's threads.
    make: |machine| unsafe { &*machine.allocate(Solaris::unlocked()) },
    // SAFETY: see `make`.
    make_bare: |machine| unsafe { &*machine.allocate(Solaris::unlocked()) },
    make_shared: None,
    ..LIBCS
};

/// [`SOLARIS`] with pipelined wake-ups.
const PIPELINED: Pair = Pair {
    contention: "pipelined",
    // SAFETY: see `SOLARIS`.
    make: |machine| unsafe { &*machine.allocate(Pipelined::unlocked()) },
    // SAFETY: see `SOLARIS`.
    make_bare: |machine| unsafe { &*machine.allocate(Pipelined::unlocked()) },
    ..SOLARIS
};

/// libc's locks: a futex mutex, and glibc's reader-writer lock.
const LIBCS: Pair = Pair {
    contention: LIBC,
    load: "",
    interval_ns: 0,
    discipline: Discipline::Lock,
    make: make_bare::<Futex<Simulated>, NoManager>,
    make_bare: make_bare::<Futex<Simulated>, NoManager>,
    // SAFETY: see `SOLARIS`.
    make_shared: Some(|machine| unsafe { &*machine.allocate(LibcRwLock::unlocked()) }),
    checkpoint: || {},
};

/// Name of the locks to compare with that are like libc's.
pub const LIBC: &str = "libc";

/// All pairs.
pub fn all() -> impl Iterator<Item = &'static Pair> {
    PAIRS.iter().copied().flatten()
}

/// Looks up a lock: `CONTENTION+LOAD`, `LOCK+control@RULES` ([`ABLATIONS`], under `tpmcs` and
/// `loiter`), `CONTENTION` (with load control), `default`, `solaris` (the mutex of the papers),
/// `pipelined`, [`LIBC`], or [`TRANSACTIONAL`].
///
/// # Errors
///
/// The name is unknown.
pub fn named(name: &str) -> Result<&'static Pair, String> {
    static OTHERS: [Pair; 4] = [SOLARIS, PIPELINED, LIBCS, TRANSACTIONS];
    if let Some(other) = OTHERS.iter().find(|other| other.contention == name) {
        return Ok(other);
    }
    let (contention, load) = match name {
        "default" => (CONTENTION[0].name, LOAD[0].name),
        name => name.split_once('+').unwrap_or((name, LOAD[0].name)),
    };
    all()
        .chain(ABLATED)
        .find(|pair| (pair.contention, pair.load) == (contention, load))
        .ok_or_else(|| messages::unknown_lock(name))
}
