//! Keeps what the BPF programs record.
//!
//! While the process runs, stacks are only unwound and counted. Names, which need the files' debug
//! information, wait for the end ([`super::fill`]).

use std::collections::{BTreeMap, HashMap, VecDeque};

use unconvoy_profile::layout::LONGEST;
use unconvoy_profile::weight;

use super::event::{Event, Header, WAIT, WAKE};
use super::target::Target;
use super::unwind::{Registers, Unwinder};

/// Number of wake-ups kept for each address. A wait that began before all of them has no holder.
const WAKES: usize = 256;

/// The samples of a recording.
pub struct Recorder {
    pub unwinder: Unwinder,
    pub stacks: Stacks,
    /// The first recorded wait at each futex: its operation and its stack.
    pub firsts: HashMap<u64, (u32, u32)>,
    /// Sampled waits by futex, waiter's stack and holder's stack.
    pub sums: BTreeMap<(u64, u32, u32), Sum>,
    /// The longest sampled waits with the waiters' stacks, longest first.
    pub longest: Vec<(Ended, u32)>,
    /// Waits that lasted until the end of the recording, with the waiters' stacks.
    pub unfinished: Vec<(Ended, u32)>,
    wakes: HashMap<u64, VecDeque<Wake>>,
    pub period_ns: u64,
}

/// What samples stand for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sum {
    /// Time waited, estimated.
    pub ns: u64,
    /// Number of waits, in units of 1 / `COUNT_UNIT`.
    pub count: u64,
    pub samples: u64,
}

/// A thread woke waiters.
#[derive(Debug, Clone, Copy)]
struct Wake {
    at: u64,
    thread: u32,
    stack: u32,
}

/// A wait that has ended, or lasted until the end of the recording.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    pub address: u64,
    pub thread: u32,
    pub begin: u64,
    pub due: u64,
    pub end: u64,
    /// The futex operation.
    pub command: u32,
    /// Whether this is the first wait at its address.
    pub is_first: bool,
}

/// Different stacks, numbered from 1. Number 0 is an unknown stack.
#[derive(Default)]
pub struct Stacks {
    numbers: HashMap<Vec<u64>, u32>,
    frames: Vec<Vec<u64>>,
}

impl Stacks {
    fn number(&mut self, frames: &[u64]) -> u32 {
        if frames.is_empty() {
            return 0;
        }
        if let Some(&number) = self.numbers.get(frames) {
            return number;
        }
        self.frames.push(frames.to_vec());
        let number = self.frames.len() as u32;
        self.numbers.insert(frames.to_vec(), number);
        number
    }

    /// The return addresses of a stack, innermost first; empty if it is unknown.
    pub fn frames(&self, number: u32) -> &[u64] {
        let index = (number as usize).checked_sub(1);
        index.and_then(|index| self.frames.get(index)).map_or(&[], Vec::as_slice)
    }
}

impl Recorder {
    pub fn new(target: &Target, period_ns: u64) -> Self {
        Recorder {
            unwinder: Unwinder::new(target),
            stacks: Stacks::default(),
            firsts: HashMap::new(),
            sums: BTreeMap::new(),
            longest: Vec::new(),
            unfinished: Vec::new(),
            wakes: HashMap::new(),
            period_ns,
        }
    }

    /// Records an event.
    pub fn record(&mut self, target: &Target, event: Event<'_>) {
        let header = event.header;
        let registers = Registers { ip: header.ip, sp: header.sp, bp: header.bp };
        let frames = self.unwinder.unwind(target, registers, event.stack);
        match header.kind {
            WAIT => self.record_ended(header, &frames),
            WAKE => {
                let stack = self.stacks.number(&frames);
                let wakes = self.wakes.entry(header.address).or_default();
                wakes.truncate(WAKES - 1);
                wakes.push_front(Wake { at: header.end, thread: header.thread, stack });
            }
            _ => {}
        }
    }

    fn record_ended(&mut self, header: Header, frames: &[u64]) {
        let wait = Ended {
            address: header.address,
            thread: header.thread,
            begin: header.begin,
            due: header.due,
            end: header.end,
            command: header.command,
            is_first: header.is_first != 0,
        };
        let holder = self.first_wake(&wait);
        let stack = self.stacks.number(frames);
        self.record_wait(&wait, stack, holder);
    }

    /// The stack of the first thread that woke waiters after the sample.
    fn first_wake(&self, wait: &Ended) -> u32 {
        let wakes = self.wakes.get(&wait.address).into_iter().flatten();
        let later = wakes.take_while(|wake| wake.at >= wait.due);
        let by_others = later.filter(|wake| wake.at <= wait.end && wake.thread != wait.thread);
        by_others.last().map_or(0, |wake| wake.stack)
    }

    /// Records a sampled wait, or the first at its address.
    fn record_wait(&mut self, wait: &Ended, stack: u32, holder: u32) {
        let first = (wait.command, stack);
        if wait.is_first {
            self.firsts.insert(wait.address, first);
        } else {
            self.firsts.entry(wait.address).or_insert(first);
        }
        if wait.end < wait.due {
            return;
        }
        let ns = wait.end - wait.begin;
        let (ns_for, count) = weight(ns, self.period_ns);
        let sum = self.sums.entry((wait.address, stack, holder)).or_default();
        sum.ns += ns_for;
        sum.count += count;
        sum.samples += 1;
        let place = self.longest.partition_point(|(other, _)| other.end - other.begin >= ns);
        if place < LONGEST {
            self.longest.truncate(LONGEST - 1);
            self.longest.insert(place, (*wait, stack));
        }
    }

    /// Unwinds the stack of a thread that waits.
    pub fn unwind(&mut self, target: &Target, registers: Registers, stack: &[u8]) -> u32 {
        let frames = self.unwinder.unwind(target, registers, stack);
        self.stacks.number(&frames)
    }

    /// Records a wait that lasts at the end of the recording.
    pub fn record_unfinished(&mut self, wait: Ended, stack: u32, holder: u32) {
        self.record_wait(&wait, stack, holder);
        self.unfinished.push((wait, stack));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(begin: u64, due: u64, end: u64) -> Ended {
        Ended { address: 8, thread: 1, begin, due, end, command: 0, is_first: false }
    }

    fn recorder() -> Recorder {
        Recorder::new(&Target::open(std::process::id()).unwrap(), 1000)
    }

    #[test]
    fn holder_is_first_other_thread_that_wakes_after_the_sample() {
        let mut recorder = recorder();
        let wakes = [(90, 2, 1), (110, 1, 2), (120, 3, 3), (130, 2, 4)];
        let wakes = wakes.map(|(at, thread, stack)| Wake { at, thread, stack });
        recorder.wakes.insert(8, wakes.into_iter().rev().collect());
        assert_eq!(recorder.first_wake(&wait(50, 100, 200)), 3);
        assert_eq!(recorder.first_wake(&wait(50, 80, 200)), 1);
        assert_eq!(recorder.first_wake(&wait(50, 125, 127)), 0);
        assert_eq!(recorder.first_wake(&Ended { address: 16, ..wait(50, 80, 200) }), 0);
    }

    #[test]
    fn wait_that_ends_before_its_sample_only_gives_the_name() {
        let mut recorder = recorder();
        let stack = recorder.stacks.number(&[1, 2]);
        recorder.record_wait(&Ended { is_first: true, ..wait(0, 500, 400) }, stack, 0);
        assert_eq!(recorder.firsts[&8], (0, stack));
        assert!(recorder.sums.is_empty() && recorder.longest.is_empty());
        recorder.record_wait(&wait(0, 400, 500), stack, 0);
        let sum = recorder.sums[&(8, stack, 0)];
        assert_eq!((sum.ns, sum.samples, recorder.longest.len()), (1000, 1, 1));
        assert_eq!(recorder.stacks.frames(stack), [1, 2]);
    }
}
