//! The search for the bound (section 3.3, Algorithm 4).
//!
//! The search maximizes T(n) = n (1 - p(n)): n cores, each of which is useful for the share of its
//! time that is not spent waiting for locks. Each call of [`BoundSearch::step`] gets one value of
//! T, measured at the present bound.
//!
//! | phase | value of T | action |
//! | --- | --- | --- |
//! | climbing | above the previous bound's, second time in a row | double the bound |
//! | climbing | not above it, third time in a row | step back once; hold |
//! | holding | outside the band, or another number of occupied cores | restart |
//! | refining | | move to the next bound inside the bracket |
//! | comparing | | measure the best bound and a close neighbour again; hold the better one |
//!
//! The counts two and three follow from the listing. Its counter takes the values 1 and 2 before
//! the bound moves up, and 1, -1 and -2 before the bound moves down. The paper's text says "two
//! consecutive times". After a change of direction, a move takes three values either way.
//!
//! # The refinement
//!
//! A doubling search ends at a bound b with T(b/2) < T(b) >= T(2b), or at the machine's last core.
//! If the curve has a single peak, the peak lies between b/2 and 2b. In section 4.6, for example,
//! the peak is at 10 and the search finds 8. [`Search::Refined`] continues with a golden-section
//! search in this interval. The refinement takes about 1.44 log2(b) further bounds and measures
//! each twice. If the best bound and its better neighbour are close in the end, the search measures
//! both four more times: right at the collapse, p fluctuates and two values can mislead.
//!
//! An extra core must pay for itself ([`WORTH`]). T equals the throughput only if the work per
//! operation stays constant, but critical sections take longer as more caches share their lines.
//!
//! # Tasks that are recognized late
//!
//! A lock-intensive task that is not yet recognized contends from outside the set. The measurements
//! then reflect more cores than the bound allows; section 4.6 names this as the likely reason for
//! bounds that are too small. When the number of tasks grows, the refined search discards its
//! measurements and climbs again from half of the bound. A temporary drop of the number of tasks,
//! between the end of one task and the recognition of the next, does not restart the search. A
//! change of the throughput per core restarts it.
//!
//! # Left open by the listing
//!
//! The listing gives no values for alpha and beta ([`Parameters::above`]). It also does not say
//! that a restart discards the records of the last steps. If a restart kept them, the search would
//! compare the first bound, 1, with the record of an old bound and step back to it at once.

use crate::bracket::{Bracket, FINAL_VALUES, Record, VALUES};
use crate::parameters::{Parameters, Search};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// The counter of Algorithm 4 (`climbing`): positive while climbing, negative while descending.
    Climbing(i32),
    Refining(Bracket),
    /// Measures the rival, then the best bound again.
    Comparing {
        bracket: Bracket,
        rival: Record,
    },
    /// `tasks`: the number of lock-intensive tasks, if it limited the bound.
    Holding {
        tasks: Option<u32>,
    },
}

/// Result of a step of the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Keep the bound and measure again.
    Stay,
    /// Change the bound to this number of cores.
    Move(u32),
    /// The found bound no longer holds: call [`BoundSearch::restart`].
    Restart,
}

/// A measurement at the present bound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// The bound.
    pub bound: u32,
    /// Number of lock-intensive tasks.
    pub tasks: u32,
    /// p: the share of their time that these tasks waited for locks.
    pub waiting: f64,
}

impl Measured {
    /// Number of cores in the set that have a task (Algorithm 4, line 3).
    fn work_cores(&self) -> u32 {
        self.bound.min(self.tasks)
    }

    /// T, the throughput (equation 2, and Algorithm 4, line 4).
    pub fn throughput(&self) -> f64 {
        f64::from(self.work_cores()) * (1.0 - self.waiting)
    }
}

/// State of the search for the bound.
#[derive(Debug, Clone, PartialEq)]
pub struct BoundSearch {
    parameters: Parameters,
    phase: Phase,
    /// Records of the last two steps up, the latest first.
    last: Record,
    before: Record,
    /// Largest number of lock-intensive tasks during this search.
    most_tasks: u32,
}

impl BoundSearch {
    /// First bound of every search (Algorithm 3, line 31).
    pub const FIRST: u32 = 1;

    /// A new search at the bound [`FIRST`](Self::FIRST).
    pub fn new(parameters: Parameters) -> Self {
        let (last, before) = (Record::default(), Record::default());
        BoundSearch { parameters, phase: Phase::Climbing(1), last, before, most_tasks: 0 }
    }

    /// The initial bound: [`FIRST`](Self::FIRST), unless the bound is [fixed](Search::Fixed).
    pub fn first(&self) -> u32 {
        match self.parameters.search {
            Search::Fixed(bound) => bound.get().min(self.parameters.cores),
            Search::Published | Search::Refined => Self::FIRST,
        }
    }

    /// Restarts at the [first](Self::first) bound.
    pub fn restart(&mut self) {
        *self = Self::new(self.parameters);
    }

    /// Whether the search has found a bound, or the bound is fixed.
    pub fn has_converged(&self) -> bool {
        matches!(self.phase, Phase::Holding { .. }) || self.is_fixed()
    }

    /// Whether the bound is [fixed](Search::Fixed): there is no search.
    pub fn is_fixed(&self) -> bool {
        matches!(self.parameters.search, Search::Fixed(_))
    }

    /// Takes one step with the measurement since the last step (`determine_new_bound`).
    pub fn step(&mut self, measured: Measured) -> Step {
        let search = self.parameters.search;
        match search {
            Search::Fixed(_) => return Step::Stay,
            Search::Refined if self.are_more(measured.tasks) => return self.climb_again(measured),
            Search::Published | Search::Refined => {}
        }
        match self.phase {
            _ if matches!(self.parameters.search, Search::Fixed(_)) => Step::Stay,
            Phase::Climbing(counter) => self.climb(counter, measured),
            Phase::Refining(bracket) => self.refine(bracket, measured),
            Phase::Comparing { bracket, rival } => self.compare(bracket, rival, measured),
            Phase::Holding { tasks } => self.hold(tasks, measured),
        }
    }

    /// Whether the number of recognized tasks has grown during this search. The new tasks waited
    /// outside the set until now, and tasks in the set waited for them. An increase of up to 1/32
    /// does not count. Once the search has found a bound, the band decides instead (see
    /// [`Parameters::above`]).
    fn are_more(&mut self, tasks: u32) -> bool {
        let are_more = !self.has_converged() && tasks > self.most_tasks + self.most_tasks / 32;
        self.most_tasks = self.most_tasks.max(tasks);
        are_more
    }

    /// Discards the measurements and climbs again from half of the bound; the next doubling leads
    /// back to the present bound.
    fn climb_again(&mut self, measured: Measured) -> Step {
        let half = (measured.bound / 2).max(Self::FIRST);
        (self.last, self.before) = (Record::default(), Record::default());
        self.phase = Phase::Climbing(1);
        if half == measured.bound { Step::Stay } else { Step::Move(half) }
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
            return Step::Stay; // climbs forever: only the timer restarts the search, not the band
        }
        let tasks = (work_cores < self.parameters.cores).then_some(measured.tasks);
        self.bracket(Bracket::about(here, self.last, Record::default(), tasks), measured.bound)
    }

    /// Algorithm 4, lines 33 to 37.
    fn step_back(&mut self, measured: Measured) -> Step {
        let back = self.last.cores.max(Self::FIRST);
        if self.parameters.search == Search::Published || self.last.cores == 0 {
            self.phase = Phase::Holding { tasks: None };
            return Step::Move(back);
        }
        let here = Record { cores: measured.bound, throughput: measured.throughput() };
        self.bracket(Bracket::about(self.last, self.before, here, None), measured.bound)
    }

    /// Moves to the next bound in the bracket; without one, to the rival of the best bound, or else
    /// to the best bound.
    fn bracket(&mut self, bracket: Bracket, bound: u32) -> Step {
        let to = match (bracket.next(), bracket.rival()) {
            (Some(next), _) => {
                self.phase = Phase::Refining(bracket);
                next
            }
            (None, Some(rival)) => {
                self.phase =
                    Phase::Comparing { bracket, rival: Record { throughput: 0.0, ..rival } };
                rival.cores
            }
            (None, None) => return self.converge(bracket, bound),
        };
        if to == bound { Step::Stay } else { Step::Move(to) }
    }

    fn converge(&mut self, bracket: Bracket, bound: u32) -> Step {
        let is_capped = bracket.tasks == Some(bracket.best.cores);
        self.phase = Phase::Holding { tasks: bracket.tasks.filter(|_| is_capped) };
        self.last = bracket.best;
        if bracket.best.cores == bound { Step::Stay } else { Step::Move(bracket.best.cores) }
    }

    fn refine(&mut self, mut bracket: Bracket, measured: Measured) -> Step {
        if bracket.tasks.is_some_and(|tasks| measured.tasks > tasks) {
            return self.climb_on(bracket.best.cores, measured);
        }
        bracket.values.add(measured.throughput());
        if bracket.values.count < VALUES {
            self.phase = Phase::Refining(bracket);
            return Step::Stay;
        }
        bracket.narrow(measured.bound, bracket.values.value());
        self.bracket(bracket, measured.bound)
    }

    /// Measures at the rival's bound first, then at the best bound.
    fn compare(&mut self, mut bracket: Bracket, mut rival: Record, measured: Measured) -> Step {
        bracket.values.add(measured.throughput());
        if bracket.values.count < FINAL_VALUES {
            self.phase = Phase::Comparing { bracket, rival };
            return Step::Stay;
        }
        let throughput = core::mem::take(&mut bracket.values).value();
        if measured.bound == rival.cores {
            rival.throughput = throughput;
            self.phase = Phase::Comparing { bracket, rival };
            return Step::Move(bracket.best.cores);
        }
        bracket.best.throughput = throughput;
        if rival.beats(bracket.best) {
            bracket.best = rival;
        }
        self.converge(bracket, measured.bound)
    }

    /// Algorithm 4, lines 44 to 46.
    fn hold(&mut self, tasks: Option<u32>, measured: Measured) -> Step {
        if tasks.is_some_and(|tasks| measured.tasks > tasks) {
            return self.climb_on(measured.bound, measured);
        }
        let (cores, found) = (measured.work_cores(), self.last);
        let is_as_found = match self.parameters.search {
            Search::Published => {
                cores == found.cores && self.is_in_band(measured.throughput(), found.throughput)
            }
            // A temporarily empty core is no reason to search for another bound.
            _ => self.is_in_band(
                1.0 - measured.waiting,
                found.throughput / f64::from(found.cores.max(1)),
            ),
        };
        if is_as_found { Step::Stay } else { Step::Restart }
    }

    fn is_in_band(&self, now: f64, then: f64) -> bool {
        (self.parameters.below * then..=self.parameters.above * then).contains(&now)
    }

    /// Climbs further: the number of tasks limited the search, and there are more tasks now.
    fn climb_on(&mut self, from: u32, measured: Measured) -> Step {
        self.phase = Phase::Climbing(1);
        self.last = self.before;
        if from == measured.bound { Step::Stay } else { Step::Move(from) }
    }
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
