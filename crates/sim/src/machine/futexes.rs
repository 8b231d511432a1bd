//! Futexes and timers: who sleeps where, and until when. To wake is the
//! [scheduler](super::scheduler)'s part.

use std::collections::{HashMap, VecDeque};

use crate::parameters::Scheduler;

/// How a thread sleeps, if it does.
#[derive(Debug, Clone, Copy, Default)]
struct Sleep {
    /// The place that it is parked on.
    place: Option<usize>,
    /// Whether a timer will end it.
    is_timed: bool,
}

/// A machine's futexes.
pub(crate) struct Futexes {
    timer_tick_ns: u64,
    timer_slack_ns: u64,
    /// By place, in the order in which they came.
    parked: HashMap<usize, VecDeque<u32>>,
    /// By thread.
    sleeps: Vec<Sleep>,
}

impl Futexes {
    pub(crate) fn new(parameters: &Scheduler) -> Self {
        let &Scheduler { timer_tick_ns, timer_slack_ns, .. } = parameters;
        Futexes { timer_tick_ns, timer_slack_ns, parked: HashMap::new(), sleeps: Vec::new() }
    }

    /// A thread more.
    pub(crate) fn add_thread(&mut self) {
        self.sleeps.push(Sleep::default());
    }

    /// `thread` parks on `place`.
    pub(crate) fn park(&mut self, thread: u32, place: usize) {
        self.sleeps[thread as usize].place = Some(place);
        self.parked.entry(place).or_default().push_back(thread);
    }

    /// A timer will end the sleep of `thread`.
    pub(crate) fn set_timed(&mut self, thread: u32) {
        self.sleeps[thread as usize].is_timed = true;
    }

    /// The thread that has been parked on `place` the longest, which is not parked any more.
    pub(crate) fn unpark(&mut self, place: usize) -> Option<u32> {
        let queue = self.parked.get_mut(&place)?;
        let thread = queue.pop_front();
        if queue.is_empty() {
            self.parked.remove(&place);
        }
        self.sleeps[thread? as usize] = Sleep::default();
        thread
    }

    /// The sleep of `thread` is over: its time is up.
    pub(crate) fn time_out(&mut self, thread: u32) {
        let Sleep { place, .. } = core::mem::take(&mut self.sleeps[thread as usize]);
        if let Some(queue) = place.and_then(|place| self.parked.get_mut(&place)) {
            queue.retain(|&parked| parked != thread);
        }
    }

    /// When a timer for the time `deadline` rings. Only `exact` ones do between two ticks, if
    /// timers have ticks.
    pub(crate) fn rings_at(&self, deadline: u64, exact: bool, now: u64) -> u64 {
        let late = (deadline + self.timer_slack_ns).max(now + 1);
        if exact || self.timer_tick_ns == 0 { late } else { late.next_multiple_of(self.timer_tick_ns) }
    }

    /// Where `thread` is parked.
    pub(crate) fn place_of(&self, thread: u32) -> Option<usize> {
        self.sleeps[thread as usize].place
    }

    /// Whether a timer will end the sleep of `thread`.
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
    fn sleepers_of_a_place_wake_in_the_order_in_which_they_came() {
        let mut futexes = futexes(0, 0);
        for (thread, place) in [(2, 64), (0, 64), (1, 128), (3, 64)] {
            futexes.park(thread, place);
        }
        assert_eq!(futexes.place_of(0), Some(64));
        assert_eq!(
            [64, 64, 64, 64, 128, 192].map(|place| futexes.unpark(place)),
            [Some(2), Some(0), Some(3), None, Some(1), None]
        );
        assert_eq!(futexes.place_of(0), None);
    }

    #[test]
    fn sleeper_whose_time_is_up_is_not_woken_again() {
        let mut futexes = futexes(0, 0);
        (0..2).for_each(|thread| futexes.park(thread, 64));
        futexes.set_timed(0);
        assert!(futexes.is_timed(0) && !futexes.is_timed(1));
        futexes.time_out(0);
        assert_eq!((futexes.is_timed(0), futexes.place_of(0)), (false, None));
        assert_eq!((futexes.unpark(64), futexes.unpark(64)), (Some(1), None));
    }

    #[test]
    fn timers_ring_late_and_coarse_ones_at_ticks() {
        assert_eq!(futexes(0, 50).rings_at(1_000, false, 0), 1_050);
        assert_eq!(futexes(400, 50).rings_at(1_000, false, 0), 1_200);
        assert_eq!(futexes(400, 50).rings_at(1_000, true, 0), 1_050);
        assert_eq!(futexes(0, 0).rings_at(1_000, false, 5_000), 5_001, "not in the past");
    }
}
