//! A thread's time, split by what the thread did.

use serde::Serialize;

/// Thread time by activity and scheduling state, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Split {
    /// On a processor, inside and outside critical sections.
    pub working_ns: u64,
    /// The part of `working_ns` outside critical sections.
    pub outside_ns: u64,
    /// On a processor, waiting for a lock that a running thread held.
    pub spinning_ns: u64,
    /// On a processor, waiting for a lock that no running thread held: its holder, or the thread it
    /// was handed to, was preempted or asleep.
    pub inverted_ns: u64,
    /// On a processor, in `mwait`, which includes the time to leave it.
    pub mwait_ns: u64,
    /// Off the processor voluntarily: parked, or asleep because of load.
    pub blocked_ns: u64,
    /// Off the processor for input or output, or between two requests.
    pub away_ns: u64,
    /// In a run queue.
    pub ready_ns: u64,
    /// In a run queue while holding a lock.
    pub holder_preempted_ns: u64,
}

impl Split {
    /// Adds the time of another thread.
    pub fn add(&mut self, other: &Split) {
        self.working_ns += other.working_ns;
        self.outside_ns += other.outside_ns;
        self.spinning_ns += other.spinning_ns;
        self.inverted_ns += other.inverted_ns;
        self.mwait_ns += other.mwait_ns;
        self.blocked_ns += other.blocked_ns;
        self.away_ns += other.away_ns;
        self.ready_ns += other.ready_ns;
        self.holder_preempted_ns += other.holder_preempted_ns;
    }

    /// The time spent since `before`.
    pub fn since(&self, before: &Split) -> Split {
        Split {
            working_ns: self.working_ns - before.working_ns,
            outside_ns: self.outside_ns - before.outside_ns,
            spinning_ns: self.spinning_ns - before.spinning_ns,
            inverted_ns: self.inverted_ns - before.inverted_ns,
            mwait_ns: self.mwait_ns - before.mwait_ns,
            blocked_ns: self.blocked_ns - before.blocked_ns,
            away_ns: self.away_ns - before.away_ns,
            ready_ns: self.ready_ns - before.ready_ns,
            holder_preempted_ns: self.holder_preempted_ns - before.holder_preempted_ns,
        }
    }

    /// Total time on a processor.
    pub fn on_processor_ns(&self) -> u64 {
        self.working_ns + self.spinning_ns + self.inverted_ns + self.mwait_ns
    }
}
