//! The load managers, with the policies and sensors of load control, and the facts that the
//! documentation states of each.

use super::entry::{Entry, Purpose, entries};

/// A load manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadManager {
    /// Its name and what it is.
    pub entry: Entry,
    /// What a waiter does under it, with the thresholds.
    pub waiter: &'static str,
    /// When to take it.
    pub purpose: Purpose,
    /// Where the algorithm comes from; empty for `none`.
    pub source: &'static str,
}

/// The load managers, the default first.
pub const LOAD_MANAGERS: [LoadManager; 8] = [
    LoadManager {
        entry: Entry {
            name: "control",
            summary: "load control: waiters sleep only while the process has more runnable threads than processors (the default)",
        },
        waiter: "sleeps while the process has more runnable threads than processors and another waiter \
                 stays for the lock; parks at a lock that nobody has acquired for 20 us, or after 1 ms \
                 of polling",
        purpose: Purpose::For("everything"),
        source: "Johnson et al. 2010, section 3",
    },
    LoadManager {
        entry: Entry {
            name: "backoff",
            summary: "load-triggered backoff: a waiter sleeps for a random time with the probability that a thread waits for a processor",
        },
        waiter: "once per wait, after 20 us of polling, sleeps with the probability of overload for an \
                 exponentially distributed time (mean 100 ms, `--backoff`); nothing wakes it early, and \
                 it never parks",
        purpose: Purpose::Comparison("control of the load with one side only"),
        source: "Johnson et al. 2009, section 3.4; Johnson et al. 2010, section 2.3",
    },
    LoadManager {
        entry: Entry {
            name: "adaptive",
            summary: "spin-then-park: a waiter spins about as long as earlier spins took to succeed, and only while the lock goes round",
        },
        waiter: "spins up to twice as long as its earlier spins took on average, 1 to 20 us, and only \
                 while the lock is acquired at least every 5 us; then parks",
        purpose: Purpose::Comparison("the adaptive mutex of Solaris and glibc"),
        source: "McDougall and Mauro 2006; glibc",
    },
    LoadManager {
        entry: Entry {
            name: "gcr",
            summary: "concurrency restriction: one waiter per lock contends, the others wait their turn, first come, first served",
        },
        waiter: "contends if nobody else waits; others sit in a passive set, first come, first served, of \
                 which one watches the lock and is let in after 16384 acquisitions or 10 ms. Mutexes only: \
                 waiters for other locks all contend",
        purpose: Purpose::Comparison("concurrency restriction"),
        source: "Dice and Kogan 2019",
    },
    LoadManager {
        entry: Entry {
            name: "malthus",
            summary: "concurrency restriction, last come, first served, but for one in a thousand",
        },
        waiter: "as `gcr`, last come, first served, but for one in a thousand and for a thread that has sat for 100 ms",
        purpose: Purpose::Comparison("concurrency restriction, the latest waiters first"),
        source: "Dice 2017",
    },
    LoadManager {
        entry: Entry {
            name: "park",
            summary: "spin-then-park: a waiter blocks after a bounded spin, a release wakes one",
        },
        waiter: "parks after 10 us of polling, and a release wakes one",
        purpose: Purpose::Comparison("what libc's adaptive mutex does"),
        source: "Ousterhout 1982",
    },
    LoadManager {
        entry: Entry { name: "yield", summary: "a waiter yields the processor between polls" },
        waiter: "yields the processor between polls, after 1 us",
        purpose: Purpose::Comparison("yielding without regard to load"),
        source: "Johnson et al. 2009, section 3.1",
    },
    LoadManager {
        entry: Entry { name: "none", summary: "waiters spin for as long as it takes" },
        waiter: "polls",
        purpose: Purpose::For("no overload, ever"),
        source: "",
    },
];

/// A control policy of load control.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policy {
    /// Its name and what it is.
    pub entry: Entry,
    /// How it sets the sleep target.
    pub target: &'static str,
    /// Standard deviation of the target while 40 threads want to run and the readings have noise of
    /// standard deviation 2, threads.
    pub noise: f64,
}

/// The control policies, the default first.
pub const POLICIES: [Policy; 4] = [
    Policy {
        entry: Entry { name: "direct", summary: "as many sleep as the last reading found too many (the default)" },
        target: "the excess of threads in the last reading",
        noise: 1.86,
    },
    Policy {
        entry: Entry { name: "low-pass", summary: "the same, of a reading smoothed over some 20 ms" },
        target: "the excess, smoothed over some 20 ms",
        noise: 0.88,
    },
    Policy {
        entry: Entry {
            name: "pid",
            summary: "a proportional-integral-derivative loop on the number of threads too many",
        },
        target: "driven to the excess by a PID loop",
        noise: 1.04,
    },
    Policy {
        entry: Entry {
            name: "kalman",
            summary: "a Kalman filter that predicts the number of threads that want to run",
        },
        target: "the excess that a Kalman filter predicts; a reading far from the prediction counts as a \
                 change at once",
        noise: 0.95,
    },
];

/// A sensor of load control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sensor {
    /// Its name and what it is. `N` in the name stands for a number.
    pub entry: Entry,
    /// What it reads.
    pub reads: &'static str,
    /// What it sees of other processes.
    pub others: &'static str,
    /// What a reading costs.
    pub cost: &'static str,
    /// What it needs.
    pub needs: &'static str,
}

/// The sensors, the default first.
pub const SENSORS: [Sensor; 5] = [
    Sensor {
        entry: Entry {
            name: "schedstat",
            summary: "run and run-queue time of every thread of the process (the default)",
        },
        reads: "run and run-queue time of every thread of the process, averaged over the interval",
        others: "nothing directly: where they take processor time, its own threads wait longer",
        cost: "grows with the threads",
        needs: "`/proc`",
    },
    Sensor {
        entry: Entry {
            name: "loadavg",
            summary: "the machine's number of runnable threads, of /proc/loadavg: other processes count as own load",
        },
        reads: "the number of runnable threads, of this moment, in `/proc/loadavg`",
        others: "all their runnable threads, as if they were its own",
        cost: "one short file",
        needs: "`/proc`",
    },
    Sensor {
        entry: Entry {
            name: "psi",
            summary: "pressure stall information: the time in which some thread waited for a processor",
        },
        reads: "the part of the time in which some thread waited for a processor",
        others: "their waiting; in a version 2 control group of its own, only the group's",
        cost: "one short file",
        needs: "a kernel with pressure stall information, perhaps booted with `psi=1`",
    },
    Sensor {
        entry: Entry {
            name: "bpf",
            summary: "the exact number of runnable threads, kept by a BPF program and seen by waiters at once; needs CAP_BPF and CAP_PERFMON",
        },
        reads: "the number of runnable threads, kept by the kernel at each change",
        others: "as `schedstat`",
        cost: "three loads from memory",
        needs: "`unconvoy run`; root, or `CAP_BPF` and `CAP_PERFMON`; Linux 5.19 or later with type \
                information (BTF)",
    },
    Sensor {
        entry: Entry {
            name: "fixed:N",
            summary: "as schedstat, but N processors are aimed at, whatever there are: for experiments",
        },
        reads: "as `schedstat`, but N processors are aimed at, whatever there are",
        others: "as `schedstat`",
        cost: "as `schedstat`",
        needs: "`/proc`",
    },
];

/// The load managers' entries, the default first.
pub const LOAD: &[Entry] = entries!(LOAD_MANAGERS);

/// The control policies' entries, the default first.
pub const POLICY: &[Entry] = entries!(POLICIES);

/// The sensors' entries, the default first.
pub const SENSOR: &[Entry] = entries!(SENSORS);
