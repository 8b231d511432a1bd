//! What is going to happen, in order of simulated time; of two things at one time, the one that was announced first.
//!
//! What happens mostly announces one thing more: the thread that goes on says until when. So the place of what was taken
//! out last stays open, on top of the heap, for the next one to be announced.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// A thread on a processor goes on, unless its token is another by then.
    Resume { thread: u32, token: u32 },
    /// A blocked thread's time is up, unless its token is another by then.
    Timer { thread: u32, token: u32 },
    /// A context looks at its run queue.
    Tick { context: u32 },
    /// Run queues are evened out.
    Balance,
}

/// Time, and how many were announced before.
type When = u128;

fn when(time: u64, announced: u64) -> When {
    u128::from(time) << 64 | u128::from(announced)
}

fn time(when: When) -> u64 {
    (when >> 64) as u64
}

/// The greatest is the first to happen.
#[derive(Clone, Copy)]
struct Announced(When, Event);

impl PartialEq for Announced {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Announced {}

impl PartialOrd for Announced {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Announced {
    fn cmp(&self, other: &Self) -> Ordering {
        other.0.cmp(&self.0)
    }
}

/// The events to come.
#[derive(Default)]
pub(super) struct Events {
    heap: BinaryHeap<Announced>,
    announced: u64,
    /// Whether the top has happened already.
    has_gap: bool,
}

impl Events {
    pub(super) fn push(&mut self, time: u64, event: Event) {
        self.announced += 1;
        let new = Announced(when(time, self.announced), event);
        if core::mem::take(&mut self.has_gap)
            && let Some(mut top) = self.heap.peek_mut()
        {
            *top = new;
            return;
        }
        self.heap.push(new);
    }

    pub(super) fn pop(&mut self) -> Option<(u64, Event)> {
        if core::mem::take(&mut self.has_gap) {
            self.heap.pop();
        }
        let &Announced(when, event) = self.heap.peek()?;
        self.has_gap = true;
        Some((time(when), event))
    }

    /// When the next event happens.
    pub(super) fn next(&self) -> u64 {
        // A binary heap's second is one of the two below its first.
        let first = if self.has_gap { 1..3 } else { 0..1 };
        let those = self.heap.as_slice().iter().take(first.end).skip(first.start);
        those.map(|announced| time(announced.0)).min().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_as_announced() {
        let mut events = Events::default();
        let mut random = fastrand::Rng::with_seed(1);
        let mut waiting: Vec<(u64, u32)> = Vec::new();
        let mut number = 0;
        for _ in 0..10_000 {
            for _ in 0..random.usize(0..3) {
                let at = random.u64(0..50);
                events.push(at, Event::Tick { context: number });
                waiting.push((at, number));
                number += 1;
            }
            assert_eq!(events.next(), waiting.iter().map(|&(at, _)| at).min().unwrap_or(u64::MAX));
            let first = (0..waiting.len()).min_by_key(|&place| waiting[place]);
            let expected = first.map(|place| waiting.remove(place));
            let popped = events.pop().map(|(at, event)| match event {
                Event::Tick { context } => (at, context),
                other => panic!("{other:?} was never announced"),
            });
            assert_eq!(popped, expected);
            assert_eq!(events.next(), waiting.iter().map(|&(at, _)| at).min().unwrap_or(u64::MAX));
        }
    }
}
