//! The contention managers, with the facts that the documentation states of each.

use super::entry::{Entry, Purpose, entries};

/// A contention manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentionManager {
    /// Its name and what it is.
    pub entry: Entry,
    /// The order in which waiters get the lock.
    pub order: &'static str,
    /// What a waiter polls.
    pub polls: &'static str,
    /// Whether it calls the operating system.
    pub class: Class,
    /// When to take it.
    pub purpose: Purpose,
    /// Where the algorithm comes from.
    pub source: &'static str,
}

/// Whether a contention manager calls the operating system. What it causes its machine to do (read
/// the clock, map memory for queue nodes) is not its own call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// No function of the lock calls the operating system.
    Spins,
    /// The lock calls `sched_yield` in one case: another thread was preempted within the few
    /// instructions that the caller cannot do without. The field says which thread.
    YieldsToPreempted(&'static str),
    /// The lock calls the operating system by design. The field says what it calls, and when.
    CallsSystem(&'static str),
}

/// Of every lock with the queue of MCS.
const UNLINKED: Class =
    Class::YieldsToPreempted("in a release, to a waiter that has joined the queue and not linked its node yet");

/// Of every lock with tickets.
const DISOWNING: Class = Class::YieldsToPreempted(
    "at a lock's first use in a process, to a thread that is clearing the tickets of another process",
);

/// The contention managers, the default first.
pub const CONTENTION_MANAGERS: [ContentionManager; 13] = [
    ContentionManager {
        entry: Entry {
            name: "loiter",
            summary: "lock word open to barging, a time-published queue behind it (the default)",
        },
        order: "barging, bounded by 100 us",
        polls: "front: the word; others: own line",
        class: Class::YieldsToPreempted(
            "when the front leaves the queue, to a waiter that has joined it and not linked its node yet",
        ),
        purpose: Purpose::For("everything"),
        source: "Dice 2017; He, Scherer and Scott 2005",
    },
    ContentionManager {
        entry: Entry {
            name: "tpmcs",
            summary: "time-published MCS queue: hand-off in order, past waiters that are preempted",
        },
        order: "first come, skipping those that do not run",
        polls: "own line",
        class: UNLINKED,
        purpose: Purpose::For("many processors, fairness; the paper's lock"),
        source: "He, Scherer and Scott 2005",
    },
    ContentionManager {
        entry: Entry { name: "tpmcs-yield", summary: "tpmcs whose waiters yield when the holder looks preempted" },
        order: "as `tpmcs`",
        polls: "own line",
        class: Class::CallsSystem("`sched_yield`, by waiters while the holder looks preempted"),
        purpose: Purpose::Comparison("the DaMoN paper's `yield`"),
        source: "He, Scherer and Scott 2005; Johnson et al. 2009, section 3.1",
    },
    ContentionManager {
        entry: Entry {
            name: "tpmcs-slice",
            summary: "tpmcs whose holder asks the kernel for a longer time slice (Linux 7.0; without, it is tpmcs)",
        },
        order: "as `tpmcs`",
        polls: "own line",
        class: Class::CallsSystem(
            "`prctl`, once per thread, and `rseq_slice_yield`, in a release after the kernel has extended the slice",
        ),
        purpose: Purpose::Comparison("the DaMoN paper's `schedctl`"),
        source: "Johnson et al. 2009, section 3.1; Linux `rseq.rst`",
    },
    ContentionManager {
        entry: Entry {
            name: "mcs",
            summary: "MCS queue: hand-off strictly in order, each waiter spins on its own line",
        },
        order: "strictly first come, waiters may leave",
        polls: "own line",
        class: UNLINKED,
        purpose: Purpose::Comparison("what a queue does under preemption"),
        source: "Mellor-Crummey and Scott 1991; leaving: Scott and Scherer 2001",
    },
    ContentionManager {
        entry: Entry {
            name: "clh",
            summary: "CLH queue: strictly in order, each waiter spins on the line of the one before it",
        },
        order: "first come, waiters may leave",
        polls: "the line of the one before",
        class: Class::Spins,
        purpose: Purpose::Comparison("a queue without links to wait for"),
        source: "Craig 1993; Magnusson, Landin and Hagersten 1994; leaving: Scott 2002",
    },
    ContentionManager {
        entry: Entry { name: "ticket", summary: "ticket lock: hand-off in order, all waiters spin on one line" },
        order: "strictly first come, 32 in line",
        polls: "one line",
        class: DISOWNING,
        purpose: Purpose::Comparison("a queue in one word, polled by all"),
        source: "Reed and Kanodia 1979",
    },
    ContentionManager {
        entry: Entry {
            name: "ticket-backoff",
            summary: "ticket lock whose waiters look the more rarely the more are ahead of them",
        },
        order: "strictly first come, 32 in line",
        polls: "one line, the more rarely the more are ahead",
        class: DISOWNING,
        purpose: Purpose::Comparison("a queue in one word, polled less often"),
        source: "Mellor-Crummey and Scott 1991, section 2.2",
    },
    ContentionManager {
        entry: Entry { name: "requester", summary: "ticket lock whose first waiter spins and whose others save power" },
        order: "strictly first come, 32 in line",
        polls: "first: one line; others: `umwait` on it for up to 5 us, or pauses",
        class: DISOWNING,
        purpose: Purpose::Comparison("the requester-based lock of the TACO paper"),
        source: "Cui et al. 2013, section 4.9.1",
    },
    ContentionManager {
        entry: Entry { name: "ttas", summary: "test-and-test-and-set with bounded exponential backoff" },
        order: "none",
        polls: "one line, with backoff",
        class: Class::Spins,
        purpose: Purpose::For("few processors, no overload"),
        source: "Agarwal and Cherian 1989",
    },
    ContentionManager {
        entry: Entry { name: "tas", summary: "test-and-set in a tight loop: every try writes to the lock's line" },
        order: "none",
        polls: "one line, writing to it",
        class: Class::Spins,
        purpose: Purpose::Comparison("the memory system under contention"),
        source: "Anderson 1990",
    },
    ContentionManager {
        entry: Entry {
            name: "elided",
            summary: "ttas, elided: critical sections run as hardware transactions where those commit (Intel RTM)",
        },
        order: "none",
        polls: "as `ttas`; sections that do not conflict run side by side",
        class: Class::Spins,
        purpose: Purpose::For("processors with transactions (Intel RTM)"),
        source: "Rajwar and Goodman 2001; glibc's elision",
    },
    ContentionManager {
        entry: Entry {
            name: "futex",
            summary: "futex mutex that spins briefly and then blocks in the kernel: the blocking baseline",
        },
        order: "none",
        polls: "one line, 100 times, then none",
        class: Class::CallsSystem("`futex`, to sleep after the spin, and in a release while somebody sleeps"),
        purpose: Purpose::Comparison("the blocking baseline"),
        source: "Drepper 2011",
    },
];

/// The contention managers' entries, the default first.
pub const CONTENTION: &[Entry] = entries!(CONTENTION_MANAGERS);
