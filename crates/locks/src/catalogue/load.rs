//! The load managers, and the policies and sensors of load control, with the facts for the
//! documentation.

use super::entry::{Entry, Purpose, entries};

/// A load manager.
///
/// ```
/// use unconvoy::catalogue::LOAD_MANAGERS;
///
/// for load in LOAD_MANAGERS {
///     println!("{}: {}", load.entry.name, load.waiter);
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadManager {
    /// Name and summary.
    pub entry: Entry,
    /// What a waiter does, with thresholds.
    pub waiter: &'static str,
    /// When to use it.
    pub purpose: Purpose,
    /// Source of the algorithm; empty for `none`.
    pub source: &'static str,
}

/// The load managers, the default first.
///
/// ```
/// use unconvoy::catalogue::{LOAD_MANAGERS, Purpose};
///
/// // Choices for programs in the field, without those for comparisons.
/// let useful = LOAD_MANAGERS.iter().filter(|load| matches!(load.purpose, Purpose::For(_)));
/// assert_eq!(useful.map(|load| load.entry.name).next(), Some("control"));
/// ```
pub const LOAD_MANAGERS: &[LoadManager] = &[
    LoadManager {
        entry: Entry {
            name: "control",
            summary: "load control: waiters sleep only while runnable threads outnumber \
                      processors (the default)",
        },
        waiter: "sleeps while the process has more runnable threads than processors and another \
                 waiter contends for the lock; parks after 20 us without an acquisition of the \
                 lock, or after 1 ms of polling",
        purpose: Purpose::For("everything"),
        source: "Johnson et al. 2010, section 3",
    },
    LoadManager {
        entry: Entry {
            name: "published",
            summary: "load control as published: waiters claim sleep slots at once, and never park",
        },
        waiter: "sleeps while the process has more runnable threads than processors, until the \
                 controller wakes it or 100 ms pass; never parks",
        purpose: Purpose::Comparison("load control without our additions"),
        source: "Johnson et al. 2010, section 3",
    },
    LoadManager {
        entry: Entry {
            name: "backoff",
            summary: "load-triggered backoff: waiters sleep for random times, more likely under \
                      higher load",
        },
        waiter: "after 20 us of polling, once per wait, sleeps with the probability of overload \
                 for an exponentially distributed time (mean 100 ms, `--backoff`); nothing wakes \
                 it early, and it never parks; in a program with checkpoints, threads sleep there \
                 instead",
        purpose: Purpose::Comparison("one-sided control of the load"),
        source: "Johnson et al. 2009, section 3.4; Johnson et al. 2010, section 2.3",
    },
    LoadManager {
        entry: Entry {
            name: "adaptive",
            summary: "spin-then-park: a waiter spins about as long as earlier spins took, while \
                      the lock makes progress",
        },
        waiter: "spins up to twice as long as its earlier spins took on average, 1 to 20 us, \
                 while the lock is acquired at least every 5 us; then parks",
        purpose: Purpose::Comparison("the adaptive mutex of Solaris and glibc"),
        source: "McDougall and Mauro 2006; glibc",
    },
    LoadManager {
        entry: Entry {
            name: "gcr",
            summary: "concurrency restriction: one waiter per lock contends, the others are \
                      passive, first come, first served",
        },
        waiter: "contends if no other waiter does, else joins a passive set, first come, first \
                 served; the set's first thread contends after 16384 acquisitions or 10 ms. For \
                 mutexes only; all waiters for other locks contend",
        purpose: Purpose::Comparison("concurrency restriction"),
        source: "Dice and Kogan 2019",
    },
    LoadManager {
        entry: Entry {
            name: "malthus",
            summary: "concurrency restriction, last come, first served, except one wait in a \
                      thousand",
        },
        waiter: "as `gcr`, but last come, first served, except one wait in a thousand and threads \
                 that were passive for 100 ms",
        purpose: Purpose::Comparison("concurrency restriction, newest waiters first"),
        source: "Dice 2017",
    },
    LoadManager {
        entry: Entry {
            name: "park",
            summary: "spin-then-park: a waiter sleeps after a bounded spin, a release wakes one \
                      waiter",
        },
        waiter: "parks after 10 us of polling; a release wakes one waiter",
        purpose: Purpose::Comparison("libc's adaptive mutex"),
        source: "Ousterhout 1982",
    },
    LoadManager {
        entry: Entry { name: "yield", summary: "a waiter yields the processor between polls" },
        waiter: "yields the processor between polls after 1 us",
        purpose: Purpose::Comparison("yielding regardless of load"),
        source: "Johnson et al. 2009, section 3.1",
    },
    LoadManager {
        entry: Entry { name: "none", summary: "waiters spin until they have the lock" },
        waiter: "polls",
        purpose: Purpose::For("no overload, ever"),
        source: "",
    },
];

/// A control policy of load control.
///
/// ```
/// use unconvoy::catalogue::POLICIES;
///
/// for policy in POLICIES {
///     println!("{}: {}", policy.entry.name, policy.target);
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policy {
    /// Name and summary.
    pub entry: Entry,
    /// The sleep target.
    pub target: &'static str,
    /// Standard deviation of the target in threads, while 40 threads want to run and the readings
    /// have noise of standard deviation 2.
    pub noise: f64,
}

/// The control policies, the default first.
///
/// ```
/// use unconvoy::catalogue::POLICIES;
///
/// let calmest = POLICIES.iter().min_by(|a, b| a.noise.total_cmp(&b.noise)).unwrap();
/// assert_eq!(calmest.entry.name, "low-pass");
/// ```
pub const POLICIES: &[Policy] = &[
    Policy {
        entry: Entry {
            name: "direct",
            summary: "the excess of threads in the last reading (the default)",
        },
        target: "the excess of threads in the last reading",
        noise: 1.86,
    },
    Policy {
        entry: Entry {
            name: "low-pass",
            summary: "the excess of threads, smoothed over about 20 ms",
        },
        target: "the excess, smoothed over about 20 ms",
        noise: 0.88,
    },
    Policy {
        entry: Entry {
            name: "pid",
            summary: "a proportional-integral-derivative loop on the excess of threads",
        },
        target: "the output of a PID loop that drives the excess to 0",
        noise: 1.04,
    },
    Policy {
        entry: Entry {
            name: "kalman",
            summary: "a Kalman filter that predicts the number of threads that want to run",
        },
        target: "the excess that a Kalman filter predicts",
        noise: 0.95,
    },
];

/// A sensor of load control.
///
/// ```
/// use unconvoy::catalogue::SENSORS;
///
/// for sensor in SENSORS {
///     println!("{}: {}", sensor.entry.name, sensor.needs);
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sensor {
    /// Name and summary. `N` in the name stands for a number.
    pub entry: Entry,
    /// What it reads.
    pub reads: &'static str,
    /// What it shows of other processes.
    pub others: &'static str,
    /// Cost of a reading.
    pub cost: &'static str,
    /// Requirements.
    pub needs: &'static str,
}

/// The sensors, the default first.
///
/// ```
/// use unconvoy::catalogue::SENSORS;
///
/// assert!(SENSORS.iter().any(|sensor| sensor.entry.name == "psi"));
/// ```
pub const SENSORS: &[Sensor] = &[
    Sensor {
        entry: Entry {
            name: "schedstat",
            summary: "run and run-queue time of every thread of the process (the default)",
        },
        reads: "run and run-queue time of every thread of the process, averaged over the interval",
        others: "only that the program's threads wait longer for processors",
        cost: "grows with the number of threads",
        needs: "`/proc`",
    },
    Sensor {
        entry: Entry {
            name: "loadavg",
            summary: "number of runnable threads of the machine (/proc/loadavg); counts other \
                      processes as own load",
        },
        reads: "the current number of runnable threads in `/proc/loadavg`",
        others: "all their runnable threads, counted as own",
        cost: "one short file",
        needs: "`/proc`",
    },
    Sensor {
        entry: Entry {
            name: "psi",
            summary: "pressure stall information: share of time in which some thread waited for a \
                      processor",
        },
        reads: "the share of time in which some thread waited for a processor",
        others: "their waits; inside a version 2 control group, only the waits in the group",
        cost: "one short file",
        needs: "a kernel with pressure stall information, possibly booted with `psi=1`",
    },
    Sensor {
        entry: Entry {
            name: "bpf",
            summary: "exact number of runnable threads from a BPF program, visible to waiters at \
                      once; needs CAP_BPF and CAP_PERFMON",
        },
        reads: "the number of runnable threads, updated by the kernel at each change",
        others: "as `schedstat`",
        cost: "three loads from memory",
        needs: "`unconvoy run`; root, or `CAP_BPF` and `CAP_PERFMON`; Linux 5.19 or later with \
                type information (BTF)",
    },
    Sensor {
        entry: Entry {
            name: "fixed:N",
            summary: "as schedstat, but aims at N processors whatever the machine has; for \
                      experiments",
        },
        reads: "as `schedstat`, but aims at N processors whatever the machine has",
        others: "as `schedstat`",
        cost: "as `schedstat`",
        needs: "`/proc`",
    },
];

/// The load managers' entries, the default first.
///
/// ```
/// use unconvoy::catalogue::LOAD;
///
/// assert_eq!(LOAD[0].name, "control");
/// ```
pub const LOAD: &[Entry] = entries!(LOAD_MANAGERS);

/// The control policies' entries, the default first.
///
/// ```
/// use unconvoy::catalogue::POLICY;
///
/// assert_eq!(POLICY[0].name, "direct");
/// ```
pub const POLICY: &[Entry] = entries!(POLICIES);

/// The sensors' entries, the default first.
///
/// ```
/// use unconvoy::catalogue::SENSOR;
///
/// assert_eq!(SENSOR[0].name, "schedstat");
/// ```
pub const SENSOR: &[Entry] = entries!(SENSORS);
