//! A figure or table of a paper, and how it is made here.

use unconvoy_measure::chart::panel::Panel;
use unconvoy_measure::record::Record;
use unconvoy_sim::grid::{Cell, Result};

use crate::claim::Claim;
use crate::plan::Size;
use crate::view::Lines;

/// Where a figure is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paper {
    /// Johnson, Stoica, Ailamaki and Mowry, 2010: load control.
    Asplos,
    /// Johnson, Athanassoulis, Stoica and Ailamaki, 2009: spinning and blocking.
    Damon,
    /// Porter, Hofmann and Witchel, 2008: Syncchar.
    Syncchar,
    /// Cui, Wang, Chen and Shi, 2013: the lock-contention-aware scheduler.
    Taco,
    /// From no paper.
    Ours,
}

impl Paper {
    /// Where it was published.
    pub fn name(self) -> &'static str {
        match self {
            Paper::Asplos => "ASPLOS 2010",
            Paper::Damon => "DaMoN 2009",
            Paper::Syncchar => "Syncchar 2008",
            Paper::Taco => "TACO 2013",
            Paper::Ours => "ours",
        }
    }
}

/// A figure.
pub struct Figure {
    /// What a user writes, and its files are called.
    pub name: &'static str,
    /// Where it is from.
    pub paper: Paper,
    /// Its number there.
    pub number: Option<u32>,
    /// Above it.
    pub title: &'static str,
    /// What the paper's shows, where, on which machine; empty if there is no paper.
    pub remark: &'static str,
    /// How long it takes at full size on two processors, about.
    pub minutes: u32,
    /// How it is made.
    pub made: Made,
}

impl Figure {
    /// Of which paper it is, and which of its figures.
    pub fn origin(&self) -> String {
        let number = self.number.map(|number| format!(", Figure {number}"));
        format!("{}{}", self.paper.name(), number.unwrap_or_default())
    }
}

/// How a figure is made.
pub enum Made {
    /// On simulated machines.
    Simulated(Simulated),
    /// Measured on this machine.
    Native(Native),
}

impl Made {
    /// In a word.
    pub fn name(&self) -> &'static str {
        match self {
            Made::Simulated(_) => "simulated",
            Made::Native(_) => "native",
        }
    }
}

/// A figure on simulated machines.
pub struct Simulated {
    /// What is simulated.
    pub plan: fn(Size) -> Vec<Cell>,
    /// Whether the results have the shape. Claims for which results are missing do not hold.
    pub claims: fn(&[Result]) -> Vec<Claim>,
    /// The horizontal axis.
    pub across: &'static str,
    /// What is drawn.
    pub panels: fn(&[Result]) -> Vec<Lines>,
    /// The head and the rows of a table, for figures that are compared by one.
    pub table: Option<fn(&[Result]) -> Vec<Vec<String>>>,
}

impl Simulated {
    /// What is to be simulated, from this seed on.
    pub fn cells(&self, size: Size, seed: u64) -> Vec<Cell> {
        let mut cells = (self.plan)(size);
        cells.iter_mut().for_each(|cell| cell.task.reseed(seed));
        cells
    }
}

/// Makes a panel of a record; takes the names of the legend so far, and adds its own.
pub type Draw = fn(&Record, &mut Vec<String>) -> anyhow::Result<Panel>;

/// A figure measured on this machine.
pub struct Native {
    /// The benchmarks that measure it: the words after `unconvoy bench`, a record each.
    pub benchmarks: &'static [&'static [&'static str]],
    /// Benchmarks whose records it can be drawn from; any with a throughput over threads if there
    /// are none.
    pub records: &'static [&'static str],
    /// The command that makes such a record.
    pub measured_by: &'static str,
    /// Makes a panel of a record; without it the record's tables are all there is.
    pub draw: Option<Draw>,
    /// Whether one round is drawn, and not medians of all.
    pub is_first_round: bool,
}
