//! What is simulated to answer one question: a point of a grid, two processes, a change of the load.

mod bump;
mod interference;
mod projection;

use serde::{Deserialize, Serialize};

use crate::outcome::{Outcome, Point, Scheduling, Stop, simulate, simulate_under};

pub use bump::{Bump, Reaction};
pub use interference::Shares;
pub use projection::{Predicted, Projection};

/// One experiment.
#[derive(Debug, Clone, PartialEq)]
pub enum Task {
    /// One program with a number of threads.
    Point(Point),
    /// The same under the lock-contention-aware scheduler.
    Scheduled(Point, Scheduling),
    /// The same beside another process of the same program: its lock and threads.
    Beside(Point, String, u32),
    /// Changes of the sleep target.
    Bump(Bump),
    /// One program whose controllers aim at so many contexts; how many of its threads run, at this interval in
    /// nanoseconds.
    Watched(Point, f64, u64),
    /// A program of Syncchar's validation: predicted, and run with transactions.
    Predicted(Predicted),
}

/// What it gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measured {
    /// Of [`Task::Point`] and [`Task::Scheduled`].
    Outcome(Outcome),
    /// Of [`Task::Beside`].
    Shares(Shares),
    /// Of [`Task::Bump`].
    Reactions(Vec<Reaction>),
    /// Of [`Task::Watched`]: times in nanoseconds and threads.
    Counts(Vec<(u64, u32)>),
    /// Of [`Task::Predicted`].
    Projection(Projection),
}

impl Measured {
    /// The outcome of a point.
    pub fn outcome(&self) -> Option<&Outcome> {
        if let Measured::Outcome(outcome) = self { Some(outcome) } else { None }
    }

    /// What was predicted.
    pub fn projection(&self) -> Option<&Projection> {
        if let Measured::Projection(projection) = self { Some(projection) } else { None }
    }
}

impl Task {
    /// Simulates it.
    ///
    /// # Errors
    ///
    /// As [`simulate`].
    pub fn run(&self, stop: &Stop) -> anyhow::Result<Measured> {
        match self {
            Task::Point(point) => Ok(Measured::Outcome(simulate(point, stop)?)),
            Task::Scheduled(point, scheduling) => Ok(Measured::Outcome(simulate_under(point, Some(scheduling), stop)?)),
            Task::Beside(point, lock, threads) => {
                Ok(Measured::Shares(interference::beside(point, lock, *threads, stop)?))
            }
            Task::Bump(bump) => Ok(Measured::Reactions(bump.run(stop)?)),
            Task::Watched(point, aim, every_ns) => Ok(Measured::Counts(bump::watch(point, *aim, *every_ns, stop)?)),
            Task::Predicted(predicted) => Ok(Measured::Projection(predicted.run(stop)?)),
        }
    }

    /// About how much work it is, to begin with the longest: threads and seconds.
    pub fn size(&self) -> f64 {
        match self {
            Task::Point(point) | Task::Watched(point, ..) => f64::from(point.threads) * point.seconds,
            Task::Scheduled(point, scheduling) => f64::from(point.threads) * (point.seconds + scheduling.settle_s),
            Task::Beside(point, _, others) => f64::from(point.threads + others) * point.seconds,
            Task::Bump(bump) => f64::from(bump.threads) * bump.targets.len() as f64 * bump.hold_ns as f64 / 1e9,
            Task::Predicted(predicted) => f64::from(predicted.sections) / 1e4,
        }
    }
}

impl Task {
    /// Has the experiment's chances come from `seed`.
    pub fn reseed(&mut self, seed: u64) {
        match self {
            Task::Point(point) | Task::Scheduled(point, _) | Task::Beside(point, ..) | Task::Watched(point, ..) => {
                point.seed = seed
            }
            Task::Bump(bump) => bump.seed = seed,
            Task::Predicted(predicted) => predicted.seed = seed,
        }
    }
}
