//! The search for the bound (section 3.3, Algorithm 4).
//!
//! What is to be largest is T(n) = n (1 - p(n)): n cores, each of which does something useful for the part of its time
//! that it does not wait for locks. Each call of [`BoundSearch::step`] has one value of it, measured at the present
//! bound.
//!
//! | phase | a value says | then |
//! | --- | --- | --- |
//! | climbing | more than at the bound before, for the second time in a row | double |
//! | climbing | not more, for the third time in a row | one step back; hold |
//! | holding | outside of the band about what the bound had, or another number of cores at work | begin anew |
//! | refining | | go to the next bound between those that are known to be worse |
//!
//! Two and three are what the listing's state machine comes to, whose counter goes 1, 2, move upwards and 1, -1, -2, move
//! downwards; the text says "two consecutive times". After a change of direction it is three either way.
//!
//! # The refinement
//!
//! A doubling search ends at a bound b with T(b/2) < T(b) >= T(2b) (or at the machine's last core), so that a curve with
//! one peak has it between b/2 and 2b: at 10 when the search says 8 (section 4.6). [`Search::Refined`] goes on with a
//! golden-section search between these two, which takes some 1.44 log2(b) bounds more, each of which is measured twice.
//!
//! # What the listing leaves open
//!
//! The values of alpha and beta ([`Parameters::above`]). That what was recorded of the last step is forgotten when
//! the search begins anew: else the first bound, 1, would be compared with what the bound before the last had, and the
//! search would step back to that at once.

use crate::parameters::{Parameters, Search};

/// What was measured at a bound.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Record {
    /// Cores of the set that had a task.
    cores: u32,
    /// T.
    throughput: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// The counter of Algorithm 4 (`climbing`): positive upwards, negative downwards.
    Climbing(i32),
    Refining(Bracket),
    /// `tasks`: the number of lock-intensive tasks, if there were too few of them for a larger set.
    Holding {
        tasks: Option<u32>,
    },
}

/// The largest T so far, at `best`, and the nearest bounds on both sides where it is less.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Bracket {
    low: u32,
    best: Record,
    high: u32,
    /// The first of two values at the present bound.
    first: Option<f64>,
    tasks: Option<u32>,
}

impl Bracket {
    /// Tasks that have ended in the meantime may have left the bounds in no order.
    fn about(best: Record, low: u32, high: u32, tasks: Option<u32>) -> Self {
        Bracket { low: low.min(best.cores.saturating_sub(1)), best, high: high.max(best.cores + 1), first: None, tasks }
    }

    /// The bound to look at next, if one is left: in the wider half, where the golden section of it is.
    fn next(&self) -> Option<u32> {
        const SECTION: f64 = 0.381_966;
        let (below, above) = (self.best.cores - self.low, self.high - self.best.cores);
        let section = |width: u32| ((f64::from(width) * SECTION).round() as u32).clamp(1, width - 1);
        match (below, above) {
            (..=1, ..=1) => None,
            (below, above) if above >= below => Some(self.best.cores + section(above)),
            (below, _) => Some(self.best.cores - section(below)),
        }
    }

    /// Takes in what a bound has; a tie is no improvement.
    fn narrow(&mut self, bound: u32, throughput: f64) {
        let is_above = bound > self.best.cores;
        if throughput > self.best.throughput {
            *(if is_above { &mut self.low } else { &mut self.high }) = self.best.cores;
            self.best = Record { cores: bound, throughput };
        } else {
            *(if is_above { &mut self.high } else { &mut self.low }) = bound;
        }
        self.first = None;
    }
}

/// What the policy is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing yet: measure again.
    Stay,
    /// The set has so many cores from now on.
    Move(u32),
    /// What was found does not hold any more: [`BoundSearch::restart`].
    Anew,
}

/// What is known of the present state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// The bound.
    pub bound: u32,
    /// Lock-intensive tasks.
    pub tasks: u32,
    /// p: the part of their time that these tasks waited for locks.
    pub waiting: f64,
}

impl Measured {
    /// Cores of the set that have a task (Algorithm 4, line 3).
    fn work_cores(&self) -> u32 {
        self.bound.min(self.tasks)
    }

    /// T (equation 2, and Algorithm 4, line 4).
    pub fn throughput(&self) -> f64 {
        f64::from(self.work_cores()) * (1.0 - self.waiting)
    }
}

/// The search.
#[derive(Debug, Clone, PartialEq)]
pub struct BoundSearch {
    parameters: Parameters,
    phase: Phase,
    /// The last step upwards, and the one before.
    last: Record,
    before: Record,
}

impl BoundSearch {
    /// Where every search begins: Algorithm 3, line 31.
    pub const FIRST: u32 = 1;

    /// A search at its beginning, at the bound [`FIRST`](Self::FIRST).
    pub fn new(parameters: Parameters) -> Self {
        BoundSearch { parameters, phase: Phase::Climbing(1), last: Record::default(), before: Record::default() }
    }

    /// Begins anew at the bound [`FIRST`](Self::FIRST).
    pub fn restart(&mut self) {
        *self = Self::new(self.parameters);
    }

    /// Whether a bound has been found.
    pub fn is_settled(&self) -> bool {
        matches!(self.phase, Phase::Holding { .. })
    }

    /// Goes on with what was measured since the last step (`determine_new_bound`).
    pub fn step(&mut self, measured: Measured) -> Step {
        match self.phase {
            Phase::Climbing(counter) => self.climb(counter, measured),
            Phase::Refining(bracket) => self.refine(bracket, measured),
            Phase::Holding { tasks } => self.hold(tasks, measured),
        }
    }

    fn climb(&mut self, counter: i32, measured: Measured) -> Step {
        if measured.throughput() > self.last.throughput {
            match counter {
                ..0 => self.phase = Phase::Climbing(1),
                2 => return self.double(measured),
                _ => self.phase = Phase::Climbing(counter + 1),
            }
        } else {
            match counter {
                0.. => self.phase = Phase::Climbing(-1),
                -2 => return self.step_back(measured),
                _ => self.phase = Phase::Climbing(counter - 1),
            }
        }
        Step::Stay
    }

    /// Algorithm 4, lines 12 to 25.
    fn double(&mut self, measured: Measured) -> Step {
        let work_cores = measured.work_cores();
        let doubled = (2 * work_cores).min(self.parameters.cores).min(measured.tasks);
        let here = Record { cores: work_cores, throughput: measured.throughput() };
        self.phase = Phase::Climbing(1);
        if doubled > work_cores {
            (self.before, self.last) = (self.last, here);
            return Step::Move(doubled);
        }
        if self.parameters.search == Search::Published {
            return Step::Stay; // climbing for ever: the band is not looked at, the timer is
        }
        let tasks = (work_cores < self.parameters.cores).then_some(measured.tasks);
        self.bracket(Bracket::about(here, self.last.cores, work_cores + 1, tasks), measured.bound)
    }

    /// Algorithm 4, lines 33 to 37.
    fn step_back(&mut self, measured: Measured) -> Step {
        let back = self.last.cores.max(Self::FIRST);
        if self.parameters.search == Search::Published || self.last.cores == 0 {
            self.phase = Phase::Holding { tasks: None };
            return Step::Move(back);
        }
        self.bracket(Bracket::about(self.last, self.before.cores, measured.bound, None), measured.bound)
    }

    /// On to the next bound in the bracket, or to the best if none is left.
    fn bracket(&mut self, bracket: Bracket, bound: u32) -> Step {
        let next = bracket.next();
        if next.is_some() {
            self.phase = Phase::Refining(bracket);
        } else {
            let is_capped = bracket.tasks == Some(bracket.best.cores);
            self.phase = Phase::Holding { tasks: bracket.tasks.filter(|_| is_capped) };
            self.last = bracket.best;
        }
        let next = next.unwrap_or(bracket.best.cores);
        if next == bound { Step::Stay } else { Step::Move(next) }
    }

    fn refine(&mut self, mut bracket: Bracket, measured: Measured) -> Step {
        if bracket.tasks.is_some_and(|tasks| measured.tasks > tasks) {
            return self.climb_on(bracket.best.cores, measured);
        }
        let throughput = measured.throughput();
        match bracket.first {
            None => {
                bracket.first = Some(throughput);
                self.phase = Phase::Refining(bracket);
                Step::Stay
            }
            Some(first) => {
                bracket.narrow(measured.bound, (first + throughput) / 2.0);
                self.bracket(bracket, measured.bound)
            }
        }
    }

    /// Algorithm 4, lines 44 to 46.
    fn hold(&mut self, tasks: Option<u32>, measured: Measured) -> Step {
        if tasks.is_some_and(|tasks| measured.tasks > tasks) {
            return self.climb_on(measured.bound, measured);
        }
        let throughput = measured.throughput();
        let band = self.parameters.below * self.last.throughput..=self.parameters.above * self.last.throughput;
        if measured.work_cores() != self.last.cores || !band.contains(&throughput) { Step::Anew } else { Step::Stay }
    }

    /// There are more tasks than when the search ended for want of them.
    fn climb_on(&mut self, from: u32, measured: Measured) -> Step {
        self.phase = Phase::Climbing(1);
        self.last = self.before;
        if from == measured.bound { Step::Stay } else { Step::Move(from) }
    }
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
