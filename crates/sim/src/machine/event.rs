//! What is going to happen, in order of simulated time; of two things at one time, the one that was announced first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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

/// The events to come.
#[derive(Default)]
pub(super) struct Events {
    heap: BinaryHeap<Reverse<(u64, u64, Event)>>,
    announced: u64,
}

impl Events {
    pub(super) fn push(&mut self, time: u64, event: Event) {
        self.announced += 1;
        self.heap.push(Reverse((time, self.announced, event)));
    }

    pub(super) fn pop(&mut self) -> Option<(u64, Event)> {
        self.heap.pop().map(|Reverse((time, _, event))| (time, event))
    }

    /// When the next event happens.
    pub(super) fn next(&self) -> u64 {
        self.heap.peek().map_or(u64::MAX, |Reverse((time, ..))| *time)
    }
}
