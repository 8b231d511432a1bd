//! Futexes and timers: which threads sleep on which address, and until when. The
//! [scheduler](super::scheduler) runs the woken threads.

use std::collections::{HashMap, VecDeque};

use unconvoy::primitive::Kind;

use crate::parameters::Scheduler;

/// The sleep of a thread, if any.
#[derive(Debug, Clone, Copy, Default)]
struct Sleep {
    /// The address that it is parked on.
    address: Option<usize>,
    /// Whether a timer ends the sleep.
    is_timed: bool,
}

pub(crate) struct Futexes {
    timer_tick_ns: u64,
    timer_slack_ns: u64,
    /// Sleepers by address, in order of arrival.
    parked: HashMap<usize, VecDeque<(u32, Option<Kind>)>>,
    /// Indexed by thread.
    sleeps: Vec<Sleep>,
}

impl Futexes {
    pub(crate) fn new(parameters: &Scheduler) -> Self {
        let &Scheduler { timer_tick_ns, timer_slack_ns, .. } = parameters;
        Futexes { timer_tick_ns, timer_slack_ns, parked: HashMap::new(), sleeps: Vec::new() }
    }

    pub(crate) fn add_thread(&mut self) {
        self.sleeps.push(Sleep::default());
    }

    pub(crate) fn park(&mut self, thread: u32, address: usize, kind: Option<Kind>) {
        self.sleeps[thread as usize].address = Some(address);
        self.parked.entry(address).or_default().push_back((thread, kind));
    }

    /// Records that a timer ends the sleep of `thread`.
    pub(crate) fn set_timed(&mut self, thread: u32) {
        self.sleeps[thread as usize].is_timed = true;
    }

    /// Removes the longest parked thread from the queue of `address`: of one kind, or of any.
    pub(crate) fn unpark(&mut self, address: usize, kind: Option<Kind>) -> Option<u32> {
        let queue = self.parked.get_mut(&address)?;
        let is_meant = |&(_, parked): &(u32, Option<Kind>)| kind.is_none() || parked == kind;
        let (thread, _) = queue.remove(queue.iter().position(is_meant)?)?;
        if queue.is_empty() {
            self.parked.remove(&address);
        }
        self.sleeps[thread as usize] = Sleep::default();
        Some(thread)
    }

    /// Ends the sleep of `thread` because its time is up.
    pub(crate) fn time_out(&mut self, thread: u32) {
        let Sleep { address, .. } = core::mem::take(&mut self.sleeps[thread as usize]);
        if let Some(queue) = address.and_then(|address| self.parked.get_mut(&address)) {
            queue.retain(|&(parked, _)| parked != thread);
        }
    }

    /// When a timer for `deadline` fires. If the machine's timers have ticks, only `exact`
    /// timers fire between two ticks.
    pub(crate) fn fires_at(&self, deadline: u64, exact: bool, now: u64) -> u64 {
        let late = (deadline + self.timer_slack_ns).max(now + 1);
        if exact || self.timer_tick_ns == 0 {
            late
        } else {
            late.next_multiple_of(self.timer_tick_ns)
        }
    }

    /// The address that `thread` is parked on.
    pub(crate) fn parked_at(&self, thread: u32) -> Option<usize> {
        self.sleeps[thread as usize].address
    }

    pub(crate) fn is_timed(&self, thread: u32) -> bool {
        self.sleeps[thread as usize].is_timed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets;

    fn futexes(tick_ns: u64, slack_ns: u64) -> Futexes {
        let mut parameters = presets::named("server").expect("a preset").scheduler;
        (parameters.timer_tick_ns, parameters.timer_slack_ns) = (tick_ns, slack_ns);
        let mut futexes = Futexes::new(&parameters);
        (0..4).for_each(|_| futexes.add_thread());
        futexes
    }

    #[test]
    fn sleepers_on_one_address_wake_in_order() {
        let mut futexes = futexes(0, 0);
        for (thread, address) in [(2, 64), (0, 64), (1, 128), (3, 64)] {
            futexes.park(thread, address, None);
        }
        assert_eq!(futexes.parked_at(0), Some(64));
        assert_eq!(
            [64, 64, 64, 64, 128, 192].map(|address| futexes.unpark(address, None)),
            [Some(2), Some(0), Some(3), None, Some(1), None]
        );
        assert_eq!(futexes.parked_at(0), None);
    }

    #[test]
    fn wake_up_of_one_kind_passes_the_other_by() {
        let mut futexes = futexes(0, 0);
        let kinds = [Kind::Shared, Kind::Exclusive, Kind::Shared, Kind::Exclusive];
        (0..).zip(kinds).for_each(|(thread, kind)| futexes.park(thread, 64, Some(kind)));
        let wakes = [Some(Kind::Exclusive), None, Some(Kind::Shared), Some(Kind::Shared), None];
        assert_eq!(
            wakes.map(|kind| futexes.unpark(64, kind)),
            [Some(1), Some(0), Some(2), None, Some(3)]
        );
    }

    #[test]
    fn timed_out_sleeper_is_not_woken_again() {
        let mut futexes = futexes(0, 0);
        (0..2).for_each(|thread| futexes.park(thread, 64, None));
        futexes.set_timed(0);
        assert!(futexes.is_timed(0) && !futexes.is_timed(1));
        futexes.time_out(0);
        assert_eq!((futexes.is_timed(0), futexes.parked_at(0)), (false, None));
        assert_eq!((futexes.unpark(64, None), futexes.unpark(64, None)), (Some(1), None));
    }

    #[test]
    fn timers_fire_late_and_coarse_ones_at_ticks() {
        assert_eq!(futexes(0, 50).fires_at(1_000, false, 0), 1_050);
        assert_eq!(futexes(400, 50).fires_at(1_000, false, 0), 1_200);
        assert_eq!(futexes(400, 50).fires_at(1_000, true, 0), 1_050);
        assert_eq!(futexes(0, 0).fires_at(1_000, false, 5_000), 5_001, "not in the past");
    }
}
