//! The names under which a user asks for a lock: one table for the command line, the interposer,
//! the benchmarks, the generic suite and the documentation.

/// One nameable half of a lock, or a sensor of the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// What a user writes: `--lock NAME`, `--load NAME` or `--sensor NAME`.
    pub name: &'static str,
    /// One sentence for `--help` and the docs table.
    pub summary: &'static str,
}

/// The contention managers, the default first.
pub const CONTENTION: &[Entry] = &[
    Entry { name: "loiter", summary: "lock word open to barging, a time-published queue behind it (the default)" },
    Entry { name: "tpmcs", summary: "time-published MCS queue: hand-off in order, past waiters that are preempted" },
    Entry { name: "tpmcs-yield", summary: "tpmcs whose waiters yield when the holder looks preempted" },
    Entry {
        name: "tpmcs-slice",
        summary: "tpmcs whose holder asks the kernel for a longer time slice (Linux 7.0; without, it is tpmcs)",
    },
    Entry { name: "mcs", summary: "MCS queue: hand-off strictly in order, each waiter spins on its own line" },
    Entry { name: "clh", summary: "CLH queue: strictly in order, each waiter spins on the line of the one before it" },
    Entry { name: "ticket", summary: "ticket lock: hand-off in order, all waiters spin on one line" },
    Entry {
        name: "ticket-backoff",
        summary: "ticket lock whose waiters look the more rarely the more are ahead of them",
    },
    Entry { name: "requester", summary: "ticket lock whose first waiter spins and whose others save power" },
    Entry { name: "ttas", summary: "test-and-test-and-set with bounded exponential backoff" },
    Entry { name: "tas", summary: "test-and-set in a tight loop: every try writes to the lock's line" },
    Entry {
        name: "elided",
        summary: "ttas, elided: critical sections run as hardware transactions where those commit (Intel RTM)",
    },
    Entry {
        name: "futex",
        summary: "futex mutex that spins briefly and then blocks in the kernel: the blocking baseline",
    },
];

/// The load managers, the default first.
pub const LOAD: &[Entry] = &[
    Entry {
        name: "control",
        summary: "load control: waiters sleep only while the process has more runnable threads than processors (the default)",
    },
    Entry {
        name: "backoff",
        summary: "load-triggered backoff: a waiter sleeps for a random time with the probability that a thread waits for a processor",
    },
    Entry {
        name: "adaptive",
        summary: "spin-then-park: a waiter spins about as long as earlier spins took to succeed, and only while the lock goes round",
    },
    Entry {
        name: "gcr",
        summary: "concurrency restriction: one waiter per lock contends, the others wait their turn, first come, first served",
    },
    Entry { name: "malthus", summary: "concurrency restriction, last come, first served, but for one in a thousand" },
    Entry { name: "park", summary: "spin-then-park: a waiter blocks after a bounded spin, a release wakes one" },
    Entry { name: "yield", summary: "a waiter yields the processor between polls" },
    Entry { name: "none", summary: "waiters spin for as long as it takes" },
];

/// The control policies of load control, the default first.
pub const POLICY: &[Entry] = &[
    Entry { name: "direct", summary: "as many sleep as the last reading found too many (the default)" },
    Entry { name: "low-pass", summary: "the same, of a reading smoothed over some 20 ms" },
    Entry { name: "pid", summary: "a proportional-integral-derivative loop on the number of threads too many" },
    Entry { name: "kalman", summary: "a Kalman filter that predicts the number of threads that want to run" },
];

/// Whether this machine can do what an entry is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability {
    /// It can.
    Full,
    /// The lock works, but without what sets it apart: cause and remedy.
    Reduced(&'static str),
    /// Nothing would be left of it, and it is not to be used: cause and remedy.
    Refused(&'static str),
}

/// Whether this machine can do what the contention manager `name` is made for. Found out once, by a
/// few system calls at most.
#[cfg(not(loom))]
pub fn availability(name: &str) -> Availability {
    use crate::platform::native;

    let needs = match name {
        "tpmcs-slice" => native::slice::extension().map_err(Availability::Reduced),
        "elided" => native::transaction::available().map_err(Availability::Refused),
        _ => Ok(()),
    };
    needs.err().unwrap_or(Availability::Full)
}

/// The sensors of load control, the default first. `N` stands for a number.
pub const SENSOR: &[Entry] = &[
    Entry { name: "schedstat", summary: "run and run-queue time of every thread of the process (the default)" },
    Entry {
        name: "loadavg",
        summary: "the machine's number of runnable threads, of /proc/loadavg: other processes count as own load",
    },
    Entry { name: "psi", summary: "pressure stall information: the time in which some thread waited for a processor" },
    Entry {
        name: "bpf",
        summary: "the exact number of runnable threads, kept by a BPF program and seen by waiters at once; needs CAP_BPF and CAP_PERFMON",
    },
    Entry {
        name: "fixed:N",
        summary: "as schedstat, but N processors are aimed at, whatever there are: for experiments",
    },
];

/// Calls `$callback!` with the rows of both tables as `[("name", type), ...] [("name", type),
/// ...]`: contention managers on the native platform, or on the one that is named, and load managers. The one
/// list of what there is; the interposer, the generic suite, the benchmarks and the simulator are made from it.
#[macro_export]
macro_rules! with_managers {
    ($callback:path) => {
        $crate::with_managers!($callback, $crate::platform::Native);
    };
    ($callback:path, $platform:ty) => {
        $callback! {
            [
                ("loiter", $crate::contention::loiter::Loiter<$platform>),
                ("tpmcs", $crate::contention::tpmcs::TpMcs<$platform>),
                ("tpmcs-yield", $crate::contention::tpmcs::TpMcsYield<$platform>),
                ("tpmcs-slice", $crate::contention::tpmcs::TpMcsSlice<$platform>),
                ("mcs", $crate::contention::mcs::Mcs<$platform>),
                ("clh", $crate::contention::clh::Clh<$platform>),
                ("ticket", $crate::contention::ticket::Ticket<$platform>),
                ("ticket-backoff", $crate::contention::ticket::TicketBackoff<$platform>),
                ("requester", $crate::contention::requester::Requester<$platform>),
                ("ttas", $crate::contention::ttas::Ttas<$platform>),
                ("tas", $crate::contention::tas::Tas<$platform>),
                ("elided", $crate::contention::elided::Elided<$platform>),
                ("futex", $crate::contention::futex::Futex<$platform>)
            ]
            [
                ("control", $crate::load::control::Control),
                ("backoff", $crate::load::backoff::Backoff),
                ("adaptive", $crate::load::adaptive::Adaptive),
                ("gcr", $crate::load::restrict::Gcr),
                ("malthus", $crate::load::restrict::Malthus),
                ("park", $crate::load::park::Park),
                ("yield", $crate::load::yielding::Yield),
                ("none", $crate::load::none::NoManager)
            ]
        }
    };
}
