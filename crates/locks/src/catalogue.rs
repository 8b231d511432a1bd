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
    Entry { name: "mcs", summary: "MCS queue: hand-off strictly in order, each waiter spins on its own line" },
    Entry { name: "ticket", summary: "ticket lock: hand-off in order, all waiters spin on one line" },
    Entry { name: "ttas", summary: "test-and-test-and-set with bounded exponential backoff" },
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
    Entry { name: "park", summary: "spin-then-park: a waiter blocks after a bounded spin, a release wakes one" },
    Entry { name: "yield", summary: "a waiter yields the processor between polls" },
    Entry { name: "none", summary: "waiters spin for as long as it takes" },
];

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
/// ...]`: contention managers on the native platform, and load managers. The one list of what there
/// is; the interposer, the generic suite and the benchmarks are made from it.
#[macro_export]
macro_rules! with_managers {
    ($callback:path) => {
        $callback! {
            [
                ("loiter", $crate::contention::loiter::Loiter<$crate::platform::Native>),
                ("tpmcs", $crate::contention::tpmcs::TpMcs<$crate::platform::Native>),
                ("mcs", $crate::contention::mcs::Mcs<$crate::platform::Native>),
                ("ticket", $crate::contention::ticket::Ticket<$crate::platform::Native>),
                ("ttas", $crate::contention::ttas::Ttas<$crate::platform::Native>),
                ("futex", $crate::contention::futex::Futex<$crate::platform::Native>)
            ]
            [
                ("control", $crate::load::control::Control),
                ("park", $crate::load::park::Park),
                ("yield", $crate::load::yielding::Yield),
                ("none", $crate::load::none::NoManager)
            ]
        }
    };
}
