//! The papers' figures on simulated machines: what is simulated for each, what the paper says of it, whether it came out,
//! and its drawing.

mod bounds;
mod claims;
mod comparison;
mod drawing;
mod plans;
mod syncchar;
mod taco;

use serde::{Deserialize, Serialize};

use crate::grid::{Cell, Result};

pub use drawing::draw;

/// A figure.
pub struct Figure {
    /// What a user writes.
    pub name: &'static str,
    /// Above it.
    pub title: &'static str,
    /// What the paper's shows, where, on which machine.
    pub remark: &'static str,
    plan: fn(Size) -> Vec<Cell>,
    claims: fn(&[Result]) -> Vec<Claim>,
    /// Of the drawing: what the horizontal axis is, and whether it is logarithmic.
    across: &'static str,
    shown: Shown,
}

/// What of an outcome is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    Throughput,
    /// Throughput, and context switches in a second panel.
    Switches,
    /// Throughput, and the part of the processor time that is waited for locks.
    Collapse,
    /// That part alone.
    Waiting,
    /// Cores of the special set, and lock-intensive tasks.
    Set,
    /// Contexts by what they do.
    Contexts,
    Shares,
    Reactions,
    Counts,
    /// Execution times, predicted and with transactions.
    Times,
    /// Of the predicted speed-up, its two parts.
    SpeedUps,
    /// Throughput, over the cores of the special set where there is one.
    Bounds,
    /// Processor time per operation.
    Cost,
}

/// How much is simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// For the documentation.
    Full,
    /// For tests: fewer places, less time.
    Reduced,
}

/// A shape that the paper claims.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// What is claimed, and with which tolerance it is looked for.
    pub claim: String,
    /// What came out.
    pub found: String,
    /// Whether that is it.
    pub holds: bool,
}

impl Figure {
    /// What is to be simulated, from this seed on.
    pub fn cells(&self, size: Size, seed: u64) -> Vec<Cell> {
        let mut cells = (self.plan)(size);
        cells.iter_mut().for_each(|cell| cell.task.reseed(seed));
        cells
    }

    /// The head and the rows of a table, for figures that are compared by one.
    pub fn table(&self, results: &[Result]) -> Option<Vec<Vec<String>>> {
        (self.shown == Shown::Cost).then(|| comparison::table(results))
    }

    /// Whether the results have the shape. Claims for which results are missing do not hold.
    pub fn judge(&self, results: &[Result]) -> Vec<Claim> {
        (self.claims)(results)
    }
}

/// The figure of this name.
///
/// # Errors
///
/// There is none.
pub fn named(name: &str) -> std::result::Result<&'static Figure, String> {
    let names = || plans::FIGURES.iter().map(|figure| figure.name).collect::<Vec<_>>().join(", ");
    plans::FIGURES
        .iter()
        .find(|figure| figure.name == name)
        .ok_or_else(|| format!("there is no simulated figure {name}; there are {}", names()))
}

/// All of them.
pub fn all() -> &'static [Figure] {
    plans::FIGURES
}
