//! A thread from the scheduler's point of view.

use unconvoy_sched::{State as SpecialState, Task as Special};

use super::class::Class;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// In a run queue.
    Ready,
    /// On a context.
    Running,
    Blocked,
    Done,
}

/// A thread's activity until its next event. It determines what remains after a preemption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flight {
    /// Works; this many nanoseconds remained when the thread lost its context.
    Work(u64),
    /// Waits until this time.
    Until(u64),
    /// Polls unchanged lines.
    Poll,
    /// Polls unchanged lines, and yields in each turn.
    YieldingPoll,
    /// Waits in `mwait` for a write to this line; needs `exit_ns` to run on.
    Mwait { line: usize, exit_ns: u64 },
}

/// A thread from the scheduler's point of view.
pub(crate) struct Task {
    pub(super) state: State,
    pub(super) flight: Flight,
    /// The context that it runs on or ran on last.
    pub(super) context: usize,
    /// Wakes next on its context, even if another is idle.
    pub(super) stays: bool,
    pub(super) vruntime: u64,
    pub(super) ran_since: u64,
    /// When the last tick on its context has returned to it.
    pub(super) back_at: u64,
    /// How much of its time slice it has used, in nanoseconds.
    pub(super) slice_used: u64,
    /// When it last lost its context.
    pub(super) left_at: u64,
    /// Its priority, if the machine's order is `time-sharing`.
    pub(super) class: Class,
    pub(super) wants_extension: bool,
    pub(super) extended: bool,
    /// Number of nested kernel sections; the thread is preemptible at 0.
    pub(super) unpreemptible: u32,
    /// A preemption is due at the end of the last kernel section.
    pub(super) preempt_due: bool,
    /// Its state in the policy of the special set.
    pub(super) policy_task: Special,
    /// Policy state of the parent, which starts one task after another in this thread.
    pub(super) shell: Special,
}

impl Task {
    pub(super) fn new(context: usize, slice_used: u64) -> Self {
        Task {
            state: State::Blocked,
            flight: Flight::Work(0),
            context,
            stays: false,
            vruntime: 0,
            ran_since: 0,
            back_at: 0,
            slice_used,
            left_at: 0,
            class: Class::default(),
            wants_extension: false,
            extended: false,
            unpreemptible: 0,
            preempt_due: false,
            policy_task: Special::default(),
            shell: Special::default(),
        }
    }

    #[inline]
    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// When its slice of `slice` nanoseconds ends, in virtual run time.
    pub(super) fn deadline(&self, slice: u64) -> u64 {
        self.vruntime + slice - self.slice_used % slice
    }

    /// Its priority, if the machine's order is `time-sharing`.
    pub(super) fn priority(&self) -> u8 {
        self.class.priority()
    }

    pub(crate) fn context(&self) -> usize {
        self.context
    }

    pub(crate) fn special_state(&self) -> SpecialState {
        self.policy_task.state()
    }

    pub(crate) fn flight(&self) -> Flight {
        self.flight
    }

    #[inline]
    pub(crate) fn set_flight(&mut self, flight: Flight) {
        self.flight = flight;
    }

    /// Whether it polls unchanged lines on a processor.
    #[inline]
    pub(crate) fn is_polling(&self) -> bool {
        self.state == State::Running && matches!(self.flight, Flight::Poll | Flight::YieldingPoll)
    }

    /// How long it needs to leave `mwait`, if it waits on a processor for a write to `line`.
    #[inline]
    pub(crate) fn waits_for_write(&self, line: usize) -> Option<u64> {
        match self.flight {
            Flight::Mwait { line: watched, exit_ns } if watched == line => Some(exit_ns),
            _ => None,
        }
    }

    /// Requests a slice extension or ends the request. Returns true if the request ends and the
    /// slice was extended.
    pub(crate) fn ask_for_extension(&mut self, asks: bool) -> bool {
        self.wants_extension = asks;
        !asks && core::mem::take(&mut self.extended)
    }

    pub(crate) fn forbid_preemption(&mut self) {
        self.unpreemptible += 1;
    }

    /// Undoes one [`forbid_preemption`](Self::forbid_preemption). Returns whether the thread has to
    /// give way because a preemption was due meanwhile.
    pub(crate) fn allow_preemption(&mut self) -> bool {
        self.unpreemptible -= 1;
        self.unpreemptible == 0 && core::mem::take(&mut self.preempt_due)
    }

    /// Whether it is in a section of the kernel, where it is not preempted.
    pub(crate) fn is_in_kernel(&self) -> bool {
        self.unpreemptible != 0
    }

    /// Whether it may be preempted now. If not, it gives way as soon as it may.
    pub(super) fn begin_preemption(&mut self) -> bool {
        self.preempt_due |= self.unpreemptible != 0;
        self.unpreemptible == 0
    }

    /// Extends the thread's slice once, if the thread requested it.
    pub(super) fn extend(&mut self) -> bool {
        self.wants_extension && !core::mem::replace(&mut self.extended, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preemption_waits_for_outermost_kernel_section() {
        let mut task = Task::new(0, 0);
        (0..2).for_each(|_| task.forbid_preemption());
        assert!(!task.begin_preemption());
        assert!(!task.allow_preemption() && task.allow_preemption());
        assert!(task.begin_preemption());
        task.forbid_preemption();
        assert!(!task.allow_preemption(), "no preemption was due");
    }

    #[test]
    fn slice_is_extended_once_on_request() {
        let mut task = Task::new(0, 0);
        assert!(!task.extend());
        assert!(!task.ask_for_extension(true));
        assert!(task.extend() && !task.extend());
        assert!(task.ask_for_extension(false) && !task.ask_for_extension(false));
    }
}
