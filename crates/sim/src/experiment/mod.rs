//! Experiments: a point of a grid, two processes, a change of the load, and others.

mod bump;
mod interference;
mod longest_wait;
mod projection;
mod replay;

use serde::{Deserialize, Serialize};

use crate::outcome::{Outcome, Point, Scheduling, Stop, simulate, simulate_under};
use crate::workload::validation::THREADS;

pub use bump::{Bump, Reaction};
pub use interference::Shares;
pub use longest_wait::{WaitCheck, WaitReport, bound_ns};
pub use projection::{Predicted, Projection};
pub use replay::{Replay, Replayed, estimates, on_processors};

/// One experiment.
#[derive(Debug, Clone, PartialEq)]
pub enum Task {
    /// One program with a number of threads.
    Point(Point),
    /// A point under the lock-contention-aware scheduler.
    Scheduled(Point, Scheduling),
    /// A point beside another process of the same program, with this lock and number of threads.
    Beside(Point, String, u32),
    /// Changes of the sleep target.
    Bump(Bump),
    /// Number of running threads while the controllers aim at the given number of contexts, sampled
    /// at an interval in nanoseconds.
    Watched(Point, f64, u64),
    /// A validation program of Syncchar: the prediction and the run with transactions.
    Predicted(Predicted),
    /// Recorded critical sections.
    Replay(Replay),
}

/// The result of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measured {
    /// Result of [`Task::Point`] and [`Task::Scheduled`].
    Outcome(Box<Outcome>),
    /// Result of [`Task::Beside`].
    Shares(Shares),
    /// Result of [`Task::Bump`].
    Reactions(Vec<Reaction>),
    /// Result of [`Task::Watched`]: nanoseconds and numbers of threads.
    Counts(Vec<(u64, u32)>),
    /// Result of [`Task::Predicted`].
    Projection(Projection),
    /// Result of [`Task::Replay`].
    Replayed(Replayed),
}

impl Measured {
    /// The outcome, for a point.
    pub fn outcome(&self) -> Option<&Outcome> {
        if let Measured::Outcome(outcome) = self { Some(outcome) } else { None }
    }

    /// The projection, for a prediction.
    pub fn projection(&self) -> Option<&Projection> {
        if let Measured::Projection(projection) = self { Some(projection) } else { None }
    }

    /// The result of recorded sections.
    pub fn replayed(&self) -> Option<&Replayed> {
        if let Measured::Replayed(replayed) = self { Some(replayed) } else { None }
    }
}

impl Task {
    /// Simulates the experiment.
    ///
    /// # Errors
    ///
    /// See [`simulate`].
    pub fn run(&self, stop: &Stop) -> anyhow::Result<Measured> {
        match self {
            Task::Point(point) => Ok(Measured::Outcome(Box::new(simulate(point, stop)?))),
            Task::Scheduled(point, scheduling) => {
                Ok(Measured::Outcome(Box::new(simulate_under(point, Some(scheduling), stop)?)))
            }
            Task::Beside(point, lock, threads) => {
                Ok(Measured::Shares(interference::beside(point, lock, *threads, stop)?))
            }
            Task::Bump(bump) => Ok(Measured::Reactions(bump.run(stop)?)),
            Task::Watched(point, aim, every_ns) => {
                Ok(Measured::Counts(bump::watch(point, *aim, *every_ns, stop)?))
            }
            Task::Predicted(predicted) => Ok(Measured::Projection(predicted.run(stop)?)),
            Task::Replay(replay) => Ok(Measured::Replayed(replay.run(stop)?)),
        }
    }

    /// Number of simulated threads, without controllers.
    pub fn threads(&self) -> u32 {
        match self {
            Task::Point(point) | Task::Scheduled(point, _) | Task::Watched(point, ..) => {
                point.threads
            }
            Task::Beside(point, _, others) => point.threads + others,
            Task::Bump(bump) => bump.threads,
            Task::Predicted(_) => THREADS,
            Task::Replay(replay) => replay.machine.topology.contexts() as u32,
        }
    }

    /// Rough amount of work (threads times seconds), by which a grid starts the longest experiments
    /// first.
    pub fn size(&self) -> f64 {
        match self {
            Task::Point(point) | Task::Watched(point, ..) => {
                f64::from(point.threads) * point.seconds
            }
            Task::Scheduled(point, scheduling) => {
                f64::from(point.threads) * (point.seconds + scheduling.warm_up_s)
            }
            Task::Beside(point, _, others) => f64::from(point.threads + others) * point.seconds,
            Task::Bump(bump) => {
                f64::from(bump.threads) * bump.targets.len() as f64 * bump.hold_ns as f64 / 1e9
            }
            Task::Predicted(predicted) => f64::from(predicted.sections) / 1e4,
            Task::Replay(replay) => f64::from(replay.sections) / 1e4,
        }
    }
}

impl Task {
    /// Replaces the random seed.
    pub fn reseed(&mut self, seed: u64) {
        match self {
            Task::Point(point)
            | Task::Scheduled(point, _)
            | Task::Beside(point, ..)
            | Task::Watched(point, ..) => point.seed = seed,
            Task::Bump(bump) => bump.seed = seed,
            Task::Predicted(predicted) => predicted.seed = seed,
            Task::Replay(replay) => replay.seed = seed,
        }
    }
}
