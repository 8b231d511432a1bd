//! The contention managers, with the facts for the documentation.

use core::fmt;

use super::entry::{Entry, Purpose, entries};

/// A contention manager.
///
/// ```
/// use unconvoy::catalogue::CONTENTION_MANAGERS;
///
/// for lock in CONTENTION_MANAGERS {
///     println!("{}: {}; after {}", lock.entry.name, lock.order, lock.source);
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentionManager {
    /// Name and summary.
    pub entry: Entry,
    /// The order in which waiters get the lock.
    pub order: Order,
    /// Where a waiter polls.
    pub polls: &'static str,
    /// Whether it calls the operating system.
    pub class: Class,
    /// When to use it.
    pub purpose: Purpose,
    /// Source of the algorithm.
    pub source: &'static str,
}

/// The order in which threads that want a lock get it.
///
/// ```
/// use unconvoy::catalogue::Order;
///
/// assert_eq!(Order::Barging(100).to_string(), "barging, bounded by 100 us");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// No order: an arrival may pass every waiter.
    Any,
    /// An arrival may pass waiters, until the front of the queue has waited this many microseconds.
    Barging(u32),
    /// First come, first served: no arrival passes a waiter, by `lock` or by `try_lock`. The
    /// generic suite tests this for every such lock. A waiter that gives up loses its place.
    FirstCome(Exception),
}

/// The exception to a lock's first-come order.
///
/// ```
/// use unconvoy::catalogue::{Exception, Order};
///
/// let order = Order::FirstCome(Exception::Beyond(32));
/// assert_eq!(order.to_string(), "first come, first served, for up to 32 threads");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exception {
    /// Nothing.
    None,
    /// A waiter that is not running loses its place.
    Preempted,
    /// Only this many threads at once, the holder included, have a place.
    Beyond(u32),
}

impl fmt::Display for Order {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Order::Any => out.write_str("none"),
            Order::Barging(us) => write!(out, "barging, bounded by {us} us"),
            Order::FirstCome(exception) => {
                out.write_str("first come, first served")?;
                match exception {
                    Exception::None => Ok(()),
                    Exception::Preempted => out.write_str("; skips preempted waiters"),
                    Exception::Beyond(threads) => write!(out, ", for up to {threads} threads"),
                }
            }
        }
    }
}

/// Whether a contention manager calls the operating system. Calls of its machine on its behalf (to
/// read the clock, or to map memory for queue nodes) do not count.
///
/// ```
/// use unconvoy::catalogue::{CONTENTION_MANAGERS, Class};
///
/// let class = |name| {
///     let lock = CONTENTION_MANAGERS.iter().find(|lock| lock.entry.name == name);
///     lock.unwrap().class
/// };
/// assert_eq!(class("ttas"), Class::Spins);
/// assert!(matches!(class("futex"), Class::CallsSystem(_)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// No function of the lock calls the operating system.
    Spins,
    /// The lock calls `sched_yield`, and later sleeps for microseconds, in one case: another thread
    /// was preempted within a few instructions that the caller must wait for. The field names the
    /// thread.
    YieldsToPreempted(&'static str),
    /// The lock calls the operating system by design. The field names the call and the case.
    CallsSystem(&'static str),
}

/// The class of locks with an MCS queue.
const UNLINKED: Class =
    Class::YieldsToPreempted("in a release, to a waiter in the middle of joining the queue");

/// The class of locks with tickets.
const DISOWNING: Class = Class::YieldsToPreempted(
    "at a lock's first use in a process, to the thread that is resetting the lock",
);

/// The contention managers, the default first.
///
/// ```
/// use unconvoy::catalogue::{CONTENTION_MANAGERS, Order};
///
/// let in_order: Vec<_> = CONTENTION_MANAGERS
///     .iter()
///     .filter(|lock| matches!(lock.order, Order::FirstCome(_)))
///     .map(|lock| lock.entry.name)
///     .collect();
/// assert!(in_order.contains(&"ticket"));
/// ```
pub const CONTENTION_MANAGERS: &[ContentionManager] = &[
    ContentionManager {
        entry: Entry {
            name: "loiter",
            summary: "barging lock word with a time-published queue behind it (the default)",
        },
        order: Order::Barging(100),
        polls: "front: the word; others: own line",
        class: Class::YieldsToPreempted(
            "when the front leaves the queue, to a waiter in the middle of joining it; while the \
             lock is reserved, to the thread that it is reserved for",
        ),
        purpose: Purpose::For("everything"),
        source: "Dice 2017; He, Scherer and Scott 2005",
    },
    ContentionManager {
        entry: Entry {
            name: "tpmcs",
            summary: "time-published MCS queue: handed over in order, skipping preempted waiters",
        },
        order: Order::FirstCome(Exception::Preempted),
        polls: "own line",
        class: UNLINKED,
        purpose: Purpose::For("many processors, fairness; the paper's lock"),
        source: "He, Scherer and Scott 2005",
    },
    ContentionManager {
        entry: Entry {
            name: "tpmcs-yield",
            summary: "tpmcs whose waiters yield when the holder looks preempted",
        },
        order: Order::FirstCome(Exception::Preempted),
        polls: "own line",
        class: Class::CallsSystem("`sched_yield`, by waiters while the holder looks preempted"),
        purpose: Purpose::Comparison("the DaMoN paper's `yield`"),
        source: "He, Scherer and Scott 2005; Johnson et al. 2009, section 3.1",
    },
    ContentionManager {
        entry: Entry {
            name: "tpmcs-slice",
            summary: "tpmcs with a longer time slice for the holder (Linux 7.0; else plain tpmcs)",
        },
        order: Order::FirstCome(Exception::Preempted),
        polls: "own line",
        class: Class::CallsSystem(
            "`prctl` once per thread; `rseq_slice_yield` in a release after the kernel has \
             extended the slice",
        ),
        purpose: Purpose::Comparison("the DaMoN paper's `schedctl`"),
        source: "Johnson et al. 2009, section 3.1; Linux `rseq.rst`",
    },
    ContentionManager {
        entry: Entry {
            name: "mcs",
            summary: "MCS queue: handed over strictly in order, each waiter spins on its own line",
        },
        order: Order::FirstCome(Exception::None),
        polls: "own line",
        class: UNLINKED,
        purpose: Purpose::Comparison("a queue under preemption"),
        source: "Mellor-Crummey and Scott 1991; abandonment: Scott and Scherer 2001",
    },
    ContentionManager {
        entry: Entry {
            name: "clh",
            summary: "CLH queue: strictly in order, each waiter spins on its predecessor's line",
        },
        order: Order::FirstCome(Exception::None),
        polls: "the predecessor's line",
        class: Class::Spins,
        purpose: Purpose::Comparison("a queue without links to wait for"),
        source: "Craig 1993; Magnusson, Landin and Hagersten 1994; abandonment: Scott 2002",
    },
    ContentionManager {
        entry: Entry {
            name: "ticket",
            summary: "ticket lock: handed over in order, all waiters spin on one line",
        },
        order: Order::FirstCome(Exception::Beyond(32)),
        polls: "one line",
        class: DISOWNING,
        purpose: Purpose::Comparison("a queue in one word, polled by all waiters"),
        source: "Reed and Kanodia 1979",
    },
    ContentionManager {
        entry: Entry {
            name: "ticket-backoff",
            summary: "ticket lock whose waiters poll less often the farther back they are",
        },
        order: Order::FirstCome(Exception::Beyond(32)),
        polls: "one line, less often farther back",
        class: DISOWNING,
        purpose: Purpose::Comparison("a queue in one word, polled less often"),
        source: "Mellor-Crummey and Scott 1991, section 2.2",
    },
    ContentionManager {
        entry: Entry {
            name: "requester",
            summary: "ticket lock whose first waiter spins while the others save power",
        },
        order: Order::FirstCome(Exception::Beyond(32)),
        polls: "first: one line; others: `umwait` on it for up to 5 us, or pauses",
        class: DISOWNING,
        purpose: Purpose::Comparison("the requester-based lock of the TACO paper"),
        source: "Cui et al. 2013, section 4.9.1",
    },
    ContentionManager {
        entry: Entry {
            name: "ttas",
            summary: "test-and-test-and-set with bounded exponential backoff",
        },
        order: Order::Any,
        polls: "one line, with backoff",
        class: Class::Spins,
        purpose: Purpose::For("few processors, no overload"),
        source: "Agarwal and Cherian 1989",
    },
    ContentionManager {
        entry: Entry {
            name: "tas",
            summary: "test-and-set in a tight loop: every attempt writes to the lock's line",
        },
        order: Order::Any,
        polls: "one line, with writes",
        class: Class::Spins,
        purpose: Purpose::Comparison("the memory system under contention"),
        source: "Anderson 1990",
    },
    ContentionManager {
        entry: Entry {
            name: "elided",
            summary: "the default with lock elision: sections run as hardware transactions where \
                      these commit and are faster (Intel RTM)",
        },
        order: Order::Barging(100),
        polls: "as `loiter`; sections without conflicts run in parallel",
        class: Class::YieldsToPreempted(
            "when the front leaves the queue, to a waiter in the middle of joining it; while the \
             lock is reserved, to the thread that it is reserved for",
        ),
        purpose: Purpose::For("processors with transactions (Intel RTM)"),
        source: "Rajwar and Goodman 2001; glibc's elision",
    },
    ContentionManager {
        entry: Entry {
            name: "futex",
            summary: "futex mutex: spins briefly, then blocks in the kernel (blocking baseline)",
        },
        order: Order::Any,
        polls: "one line, 100 times",
        class: Class::CallsSystem(
            "`futex`, to sleep after the spin, and in a release while a waiter sleeps",
        ),
        purpose: Purpose::Comparison("the blocking baseline"),
        source: "Drepper 2011",
    },
];

/// The contention managers' entries, the default first.
///
/// ```
/// use unconvoy::catalogue::CONTENTION;
///
/// assert_eq!(CONTENTION[0].name, "loiter");
/// assert!(CONTENTION.iter().any(|entry| entry.name == "mcs"));
/// ```
pub const CONTENTION: &[Entry] = entries!(CONTENTION_MANAGERS);
