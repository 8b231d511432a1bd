//! Future events in order of simulated time, and in the order of scheduling if their times are
//! equal.
//!
//! A hierarchical timing wheel (Varghese and Lauck, SOSP 1987). Nearly all events happen within a
//! microsecond or a millisecond of their scheduling. They stay in the wheels, where the cost of an
//! event does not depend on the number of threads.
//!
//! | place | events | slots |
//! | --- | --- | --- |
//! | near wheel | in the same 1024 ns as the last event | 1 ns |
//! | far wheel | later in the same 1024 * 1024 ns | 1024 ns; moved to the near wheel when they are due |
//! | heap | later | sorted; moved to the far wheel when that is empty |
//!
//! **Invariant.** Each slot lists its events in the order of scheduling. Events move from a coarser
//! place to a finer one before any event is scheduled directly in the finer place.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// A running thread resumes, unless its token has changed.
    Resume { thread: u32, token: u32 },
    /// A blocked thread times out, unless its token has changed.
    Timer { thread: u32, token: u32 },
    /// A context checks its run queue.
    Tick { context: u32 },
    /// Other work interrupts a context.
    Interruption { context: u32 },
    /// The scheduler balances the run queues.
    Balance,
}

/// Bits of a slot number.
const DIGITS: u32 = 10;
const SLOTS: usize = 1 << DIGITS;
const NONE: u32 = u32::MAX;

/// An event in the list of its slot, or a free node.
#[derive(Clone, Copy)]
struct Node {
    time: u64,
    event: Event,
    next: u32,
}

#[derive(Clone, Copy)]
struct Slot {
    first: u32,
    last: u32,
}

struct Wheel {
    slots: Box<[Slot; SLOTS]>,
    /// One bit per non-empty slot.
    filled: [u64; SLOTS / 64],
    /// One bit per nonzero word of `filled`.
    words: u64,
}

impl Wheel {
    fn new() -> Self {
        Wheel {
            slots: Box::new([Slot { first: NONE, last: NONE }; SLOTS]),
            filled: [0; SLOTS / 64],
            words: 0,
        }
    }

    /// The first non-empty slot. Slots of the past are empty, so this slot is next.
    #[inline(always)]
    fn first(&self) -> Option<usize> {
        (self.words != 0).then(|| {
            let word = self.words.trailing_zeros() as usize;
            word * 64 + self.filled[word].trailing_zeros() as usize
        })
    }

    #[inline(always)]
    fn append(&mut self, slot: usize, place: u32, nodes: &mut [Node]) {
        let list = &mut self.slots[slot];
        if list.first == NONE {
            list.first = place;
            self.filled[slot / 64] |= 1 << (slot % 64);
            self.words |= 1 << (slot / 64);
        } else {
            nodes[list.last as usize].next = place;
        }
        list.last = place;
    }

    fn empty(&mut self, slot: usize) {
        self.slots[slot] = Slot { first: NONE, last: NONE };
        self.filled[slot / 64] &= !(1 << (slot % 64));
        if self.filled[slot / 64] == 0 {
            self.words &= !(1 << (slot / 64));
        }
    }
}

/// Slot of `time` in a wheel with slots of `1 << shift` nanoseconds.
fn slot(time: u64, shift: u32) -> usize {
    (time >> shift) as usize % SLOTS
}

pub(crate) struct Events {
    near: Wheel,
    far: Wheel,
    /// Time of the earliest event in each slot of `far`.
    earliest: Box<[u64; SLOTS]>,
    /// Time, sequence number and node of each event.
    later: BinaryHeap<Reverse<(u64, u64, u32)>>,
    sequence: u64,
    nodes: Vec<Node>,
    /// Head of the list of free nodes.
    free: u32,
    now: u64,
}

impl Default for Events {
    fn default() -> Self {
        Events {
            near: Wheel::new(),
            far: Wheel::new(),
            earliest: Box::new([u64::MAX; SLOTS]),
            later: BinaryHeap::new(),
            sequence: 0,
            nodes: Vec::new(),
            free: NONE,
            now: 0,
        }
    }
}

impl Events {
    /// Schedules `event` at `time`, which is not before the last event.
    #[inline]
    pub(crate) fn push(&mut self, time: u64, event: Event) {
        debug_assert!(
            time >= self.now,
            "an event at {time} is scheduled after one at {} has happened",
            self.now
        );
        let node = Node { time, event, next: NONE };
        let place = self.free;
        let place = if place == NONE {
            self.nodes.push(node);
            self.nodes.len() as u32 - 1
        } else {
            self.free = core::mem::replace(&mut self.nodes[place as usize], node).next;
            place
        };
        if time >> DIGITS == self.now >> DIGITS {
            self.near.append(slot(time, 0), place, &mut self.nodes);
        } else {
            self.push_later(time, place);
        }
    }

    fn push_later(&mut self, time: u64, place: u32) {
        if time >> (2 * DIGITS) == self.now >> (2 * DIGITS) {
            let slot = slot(time, DIGITS);
            self.earliest[slot] = self.earliest[slot].min(time);
            self.far.append(slot, place, &mut self.nodes);
        } else {
            self.sequence += 1;
            self.later.push(Reverse((time, self.sequence, place)));
        }
    }

    /// Removes and returns the next event and its time.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(u64, Event)> {
        let slot = match self.near.first() {
            Some(slot) => slot,
            None => self.refill_near()?,
        };
        let place = self.near.slots[slot].first;
        let Node { time, event, next } = self.nodes[place as usize];
        if next == NONE {
            self.near.empty(slot);
        } else {
            self.near.slots[slot].first = next;
        }
        self.nodes[place as usize].next = self.free;
        self.free = place;
        self.now = time;
        Some((time, event))
    }

    /// Refills the empty near wheel and returns its first slot.
    fn refill_near(&mut self) -> Option<usize> {
        let from = match self.far.first() {
            Some(from) => from,
            None => {
                let &Reverse((first, ..)) = self.later.peek()?;
                self.now = first;
                while let Some(&Reverse((time, _, place))) = self.later.peek()
                    && time >> (2 * DIGITS) == first >> (2 * DIGITS)
                {
                    self.later.pop();
                    let slot = slot(time, DIGITS);
                    self.earliest[slot] = self.earliest[slot].min(time);
                    self.far.append(slot, place, &mut self.nodes);
                }
                self.far.first()?
            }
        };
        let mut place = self.far.slots[from].first;
        self.far.empty(from);
        self.earliest[from] = u64::MAX;
        while place != NONE {
            let Node { time, next, .. } = self.nodes[place as usize];
            self.nodes[place as usize].next = NONE;
            self.near.append(slot(time, 0), place, &mut self.nodes);
            place = next;
        }
        self.near.first()
    }

    /// Time of the next event; `u64::MAX` if there is none.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        if let Some(slot) = self.near.first() {
            return self.nodes[self.near.slots[slot].first as usize].time;
        }
        let far = self.far.first().map(|slot| self.earliest[slot]);
        far.or_else(|| self.later.peek().map(|&Reverse((time, ..))| time)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the wheels with a list that is searched for its first event. Each event lies ahead
    /// by at most a random element of `spans`.
    fn compare(seed: u64, spans: &[u64]) {
        let mut events = Events::default();
        let mut random = fastrand::Rng::with_seed(seed);
        let mut waiting: Vec<(u64, u32)> = Vec::new();
        let (mut number, mut now) = (0, 0);
        for _ in 0..10_000 {
            for _ in 0..random.usize(0..3) {
                let span = spans[random.usize(0..spans.len())];
                let at = now + random.u64(0..=span);
                events.push(at, Event::Tick { context: number });
                waiting.push((at, number));
                number += 1;
            }
            assert_eq!(events.next(), waiting.iter().map(|&(at, _)| at).min().unwrap_or(u64::MAX));
            let first = (0..waiting.len()).min_by_key(|&place| waiting[place]);
            let expected = first.map(|place| waiting.remove(place));
            let popped = events.pop().map(|(at, event)| match event {
                Event::Tick { context } => (at, context),
                other => panic!("{other:?} was never scheduled"),
            });
            assert_eq!(popped, expected);
            now = popped.map_or(now, |(at, _)| at);
            assert_eq!(events.next(), waiting.iter().map(|&(at, _)| at).min().unwrap_or(u64::MAX));
        }
    }

    #[test]
    fn events_pop_by_time_then_by_scheduling_order() {
        compare(1, &[0, 3, 50]);
        compare(2, &[1, 900, 1_100]);
        compare(3, &[10, 5_000, 2_000_000]);
        compare(4, &[0, 1 << 10, 1 << 20, 1 << 30, 1 << 40]);
    }
}
