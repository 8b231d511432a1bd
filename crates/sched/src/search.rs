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
//! | comparing | | the best and a neighbour that is nearly as good once more; hold the better one |
//!
//! Two and three are what the listing's state machine comes to, whose counter goes 1, 2, move upwards and 1, -1, -2, move
//! downwards; the text says "two consecutive times". After a change of direction it is three either way.
//!
//! # The refinement
//!
//! A doubling search ends at a bound b with T(b/2) < T(b) >= T(2b) (or at the machine's last core), so that a curve with
//! one peak has it between b/2 and 2b: at 10 when the search says 8 (section 4.6). [`Search::Refined`] goes on with a
//! golden-section search between these two, which takes some 1.44 log2(b) bounds more, each of which is measured twice. In
//! the end the best and the better one of its neighbours are measured four times more, if they are close: right at the
//! collapse p swings, and two values may say the opposite of what is so.
//!
//! A core more has to be worth it ([`WORTH`]): T is the throughput only as long as the work of an operation stays the same,
//! and sections take longer the more caches their lines go through.
//!
//! # Tasks that are found late
//!
//! A task that is lock-intensive and not yet found contends from outside of the set. What is measured then is about another
//! number of cores than the bound, and section 4.6 has it as the likely reason for bounds that are too small. The refined
//! search forgets what it has measured when there are more tasks than before, and climbs again from half of the bound. That
//! there are fewer for a while, because one has ended and the next has not been found, is no reason to search anew; what a
//! core does is.
//!
//! # What the listing leaves open
//!
//! The values of alpha and beta ([`Parameters::above`]). That what was recorded of the last step is forgotten when
//! the search begins anew: else the first bound, 1, would be compared with what the bound before the last had, and the
//! search would step back to that at once.

use crate::bracket::{Bracket, FINAL_VALUES, Record, VALUES};
use crate::parameters::{Parameters, Search};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// The counter of Algorithm 4 (`climbing`): positive upwards, negative downwards.
    Climbing(i32),
    Refining(Bracket),
    /// The rival, then the best once more.
    Comparing {
        bracket: Bracket,
        rival: Record,
    },
    /// `tasks`: the number of lock-intensive tasks, if there were too few of them for a larger set.
    Holding {
        tasks: Option<u32>,
    },
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
    /// The most lock-intensive tasks that there were while it searched.
    most_tasks: u32,
}

impl BoundSearch {
    /// Where every search begins: Algorithm 3, line 31.
    pub const FIRST: u32 = 1;

    /// A search at its beginning, at the bound [`FIRST`](Self::FIRST).
    pub fn new(parameters: Parameters) -> Self {
        let (last, before) = (Record::default(), Record::default());
        BoundSearch { parameters, phase: Phase::Climbing(1), last, before, most_tasks: 0 }
    }

    /// The bound that it begins at: [`FIRST`](Self::FIRST), unless it is [fixed](Search::Fixed).
    pub fn first(&self) -> u32 {
        match self.parameters.search {
            Search::Fixed(bound) => bound.get().min(self.parameters.cores),
            Search::Published | Search::Refined => Self::FIRST,
        }
    }

    /// Begins anew at the [first](Self::first) bound.
    pub fn restart(&mut self) {
        *self = Self::new(self.parameters);
    }

    /// Whether a bound has been found.
    pub fn is_settled(&self) -> bool {
        matches!(self.phase, Phase::Holding { .. }) || matches!(self.parameters.search, Search::Fixed(_))
    }

    /// Goes on with what was measured since the last step (`determine_new_bound`).
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

    /// Whether more tasks have been found than there were at any time of this search: until now they waited outside of the
    /// set, and whoever was in it waited for them. Those that are few among many make no difference. Once it has ended, the
    /// band decides.
    fn are_more(&mut self, tasks: u32) -> bool {
        let are_more = !self.is_settled() && tasks > self.most_tasks + self.most_tasks / 32;
        self.most_tasks = self.most_tasks.max(tasks);
        are_more
    }

    /// Forgets what was measured, and climbs again from half of the bound, from where what comes next is the next doubling.
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
            return Step::Stay; // climbing for ever: the band is not looked at, the timer is
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

    /// On to the next bound in the bracket; if none is left, to the best's rival, or else to the best.
    fn bracket(&mut self, bracket: Bracket, bound: u32) -> Step {
        let to = match (bracket.next(), bracket.rival()) {
            (Some(next), _) => {
                self.phase = Phase::Refining(bracket);
                next
            }
            (None, Some(rival)) => {
                self.phase = Phase::Comparing { bracket, rival: Record { throughput: 0.0, ..rival } };
                rival.cores
            }
            (None, None) => return self.settle(bracket, bound),
        };
        if to == bound { Step::Stay } else { Step::Move(to) }
    }

    fn settle(&mut self, bracket: Bracket, bound: u32) -> Step {
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

    /// First at the rival's bound, then at the best's.
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
        self.settle(bracket, measured.bound)
    }

    /// Algorithm 4, lines 44 to 46.
    fn hold(&mut self, tasks: Option<u32>, measured: Measured) -> Step {
        if tasks.is_some_and(|tasks| measured.tasks > tasks) {
            return self.climb_on(measured.bound, measured);
        }
        let (cores, found) = (measured.work_cores(), self.last);
        let is_as_found = match self.parameters.search {
            Search::Published => cores == found.cores && self.is_in_band(measured.throughput(), found.throughput),
            // That a core of the set has no task for a while is no reason to look for another number of them.
            _ => self.is_in_band(1.0 - measured.waiting, found.throughput / f64::from(found.cores.max(1))),
        };
        if is_as_found { Step::Stay } else { Step::Anew }
    }

    fn is_in_band(&self, now: f64, then: f64) -> bool {
        (self.parameters.below * then..=self.parameters.above * then).contains(&now)
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
