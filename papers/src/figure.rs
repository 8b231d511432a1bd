//! A figure or table of a paper, and how it is made here.

use std::fmt;

use unconvoy_measure::chart::panel::Panel;
use unconvoy_measure::record::Record;
use unconvoy_sim::grid::{Cell, Result};

use crate::claim::Claim;
use crate::plan::Size;
use crate::view::Lines;

/// Where a figure is from, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paper {
    /// Johnson, Stoica, Ailamaki and Mowry, ASPLOS 2010: load control.
    Asplos(u32),
    /// Johnson, Athanassoulis, Stoica and Ailamaki, DaMoN 2009: spinning and blocking.
    Damon(u32),
    /// Porter, Hofmann and Witchel, 2008: Syncchar.
    Syncchar(u32),
    /// Cui, Wang, Chen and Shi, TACO 2013: the lock-contention-aware scheduler.
    Taco(u32),
    /// From no paper.
    Ours,
}

impl fmt::Display for Paper {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, number) = match self {
            Paper::Asplos(number) => ("ASPLOS 2010", number),
            Paper::Damon(number) => ("DaMoN 2009", number),
            Paper::Syncchar(number) => ("Syncchar 2008", number),
            Paper::Taco(number) => ("TACO 2013", number),
            Paper::Ours => return out.write_str("ours"),
        };
        write!(out, "{name}, Figure {number}")
    }
}

/// A figure.
pub struct Figure {
    /// What a user writes, and its files are called.
    pub name: &'static str,
    /// Where it is from.
    pub paper: Paper,
    /// Above it.
    pub title: &'static str,
    /// What the paper's shows, where, on which machine; empty if there is no paper.
    pub remark: &'static str,
    /// How long it takes at full size on two processors, about.
    pub minutes: u32,
    /// How it is made.
    pub made: Made,
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
    /// Benchmarks whose records it can be drawn from, if not just those that measure it.
    pub records: Records,
    /// Makes a panel of a record; without it the record's tables are all there is.
    pub draw: Option<Draw>,
    /// Whether one round is drawn, and not medians of all.
    pub is_first_round: bool,
}

/// What a native figure can be drawn from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Records {
    /// Records of the benchmarks that measure it.
    Own,
    /// Those, and records of these.
    And(&'static [&'static str]),
    /// All that have throughput over threads.
    Grids,
}

impl Native {
    /// Medians of the benchmarks' own records, in tables.
    pub const MEDIANS: Native = Native { benchmarks: &[], records: Records::Own, draw: None, is_first_round: false };

    /// Whether it can be drawn from a record of this benchmark.
    pub fn takes(&self, benchmark: &str) -> bool {
        let also: &[&str] = if let Records::And(names) = self.records { names } else { &[] };
        self.records == Records::Grids || also.contains(&benchmark) || self.measures(benchmark)
    }

    fn measures(&self, benchmark: &str) -> bool {
        self.benchmarks.iter().any(|words| words[0] == benchmark)
    }

    /// The benchmarks that measure it, for messages.
    pub fn measured_by(&self) -> String {
        let names = self.benchmarks.iter().map(|words| words[0]).collect::<Vec<_>>().join(", ");
        format!("{names}{}", if self.records == Records::Grids { " (or any other grid)" } else { "" })
    }
}
