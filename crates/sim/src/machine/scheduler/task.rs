//! A thread, as the scheduler sees it.

use unconvoy_sched::{State as Standing, Task as Special};

/// Where a thread is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// In a run queue.
    Ready,
    /// On a context.
    Running,
    Blocked,
    Done,
}

/// What a thread does until its next event, which says what is left of it when it is preempted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flight {
    /// So many nanoseconds of work were left when it was taken from its context.
    Work(u64),
    /// It waits for the clock to show this.
    Until(u64),
    /// It polls lines that do not change.
    Poll,
    /// It does, and yields with each turn.
    YieldingPoll,
}

/// A thread, as the scheduler sees it.
pub(crate) struct Task {
    pub(super) state: State,
    pub(super) flight: Flight,
    /// The context that it runs on, or ran on last.
    pub(super) context: usize,
    pub(super) vruntime: u64,
    pub(super) ran_since: u64,
    /// Nanoseconds of its time slice that it has run.
    pub(super) slice_used: u64,
    pub(super) wants_extension: bool,
    pub(super) extended: bool,
    /// Kernel sections that it is in; while there is one it is not preempted.
    pub(super) unpreemptible: u32,
    /// It is to be preempted when it has left them.
    pub(super) preempt_due: bool,
    /// What it is to the policy of the special set.
    pub(super) standing: Special,
    /// What has begun the task that it runs, and begins the next one.
    pub(super) shell: Special,
}

impl Task {
    pub(super) fn new(context: usize, slice_used: u64) -> Self {
        Task {
            state: State::Blocked,
            flight: Flight::Work(0),
            context,
            vruntime: 0,
            ran_since: 0,
            slice_used,
            wants_extension: false,
            extended: false,
            unpreemptible: 0,
            preempt_due: false,
            standing: Special::default(),
            shell: Special::default(),
        }
    }

    #[inline]
    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// The context that it runs on, or ran on last.
    pub(crate) fn context(&self) -> usize {
        self.context
    }

    /// What it is to the special set.
    pub(crate) fn standing(&self) -> Standing {
        self.standing.state()
    }

    pub(crate) fn flight(&self) -> Flight {
        self.flight
    }

    #[inline]
    pub(crate) fn set_flight(&mut self, flight: Flight) {
        self.flight = flight;
    }

    /// Whether it has a processor, and polls lines that do not change.
    #[inline]
    pub(crate) fn is_polling(&self) -> bool {
        self.state == State::Running && matches!(self.flight, Flight::Poll | Flight::YieldingPoll)
    }

    /// It asks not to be preempted, or does so no more. Whether it was not, for that.
    pub(crate) fn ask_for_extension(&mut self, asks: bool) -> bool {
        self.wants_extension = asks;
        !asks && core::mem::take(&mut self.extended)
    }

    /// It is not preempted until it [allows](Self::allow_preemption) that as often as it forbade
    /// it.
    pub(crate) fn forbid_preemption(&mut self) {
        self.unpreemptible += 1;
    }

    /// Whether it may be preempted again, and was to be meanwhile: it has to
    /// give way.
    pub(crate) fn allow_preemption(&mut self) -> bool {
        self.unpreemptible -= 1;
        self.unpreemptible == 0 && core::mem::take(&mut self.preempt_due)
    }

    /// Whether it may be preempted now. If not, it is as soon as it may.
    pub(super) fn begin_preemption(&mut self) -> bool {
        self.preempt_due |= self.unpreemptible != 0;
        self.unpreemptible == 0
    }

    /// Lets it run on once after the end of its slice, if it asked for that.
    pub(super) fn extend(&mut self) -> bool {
        self.wants_extension && !core::mem::replace(&mut self.extended, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preemption_waits_for_the_last_section_that_forbids_it() {
        let mut task = Task::new(0, 0);
        (0..2).for_each(|_| task.forbid_preemption());
        assert!(!task.begin_preemption());
        assert!(!task.allow_preemption() && task.allow_preemption());
        assert!(task.begin_preemption());
        task.forbid_preemption();
        assert!(!task.allow_preemption(), "it was not to be preempted this time");
    }

    #[test]
    fn slice_is_extended_once_and_only_on_demand() {
        let mut task = Task::new(0, 0);
        assert!(!task.extend());
        assert!(!task.ask_for_extension(true));
        assert!(task.extend() && !task.extend());
        assert!(task.ask_for_extension(false) && !task.ask_for_extension(false));
    }
}
