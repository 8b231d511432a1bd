//! A figure or table, and how to make it.

use std::fmt;
use std::sync::OnceLock;

use unconvoy_measure::chart::panel::Panel;
use unconvoy_measure::record::Record;
use unconvoy_sim::grid::{Cell, Result};

use crate::claim::Claim;
use crate::plan::Size;
use crate::view::Lines;

/// The source of a figure, with its number there.
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
    /// No paper: a figure of ours.
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
    /// Name on the command line and of the files.
    pub name: &'static str,
    /// The figure in the paper that it reproduces.
    pub paper: Paper,
    /// Title of the drawing.
    pub title: &'static str,
    /// The paper's result, with its section and machine, or what a figure of ours shows. May be
    /// empty.
    pub remark: &'static str,
    /// Approximate time at full size on two processors, minutes.
    pub minutes: u32,
    /// How to make it.
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
    /// `simulated` or `native`.
    pub fn name(&self) -> &'static str {
        match self {
            Made::Simulated(_) => "simulated",
            Made::Native(_) => "native",
        }
    }
}

/// Makes a table of the results: header first, then rows.
pub type Tabulate = fn(&[Result]) -> Vec<Vec<String>>;

/// A parameter that differs from the paper's.
#[derive(Debug, Clone, Copy)]
pub struct Change {
    /// The paper's value.
    pub paper: &'static str,
    /// The value here.
    pub here: &'static str,
    /// The reason.
    pub why: &'static str,
}

impl fmt::Display for Change {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} instead of {}: {}", self.here, self.paper, self.why)
    }
}

/// A figure on simulated machines.
pub struct Simulated {
    /// The cells to simulate.
    pub plan: fn(Size) -> Vec<Cell>,
    /// Checks the paper's claims against the results of one seed. A claim without results fails.
    pub claims: fn(&[Result]) -> Vec<Claim>,
    /// Title of the horizontal axis.
    pub across: &'static str,
    /// The lines of each panel, from the results of one seed.
    pub panels: fn(&[Result]) -> Vec<Lines>,
    /// An additional table, if the figure has one.
    pub table: Option<Tabulate>,
    /// Parameters that differ from the paper's. If there are any, the figure NAME-published has the
    /// paper's.
    pub changes: &'static [Change],
    /// Whether the drawing shows the course of the first seed, because a median of courses would
    /// have none of their swings.
    pub is_first_seed: bool,
}

impl Simulated {
    /// The default: a drawing of medians, with the paper's parameters.
    pub const MEDIANS: Simulated = Simulated {
        plan: |_| Vec::new(),
        claims: |_| Vec::new(),
        across: "",
        panels: |_| Vec::new(),
        table: None,
        changes: &[],
        is_first_seed: false,
    };

    /// The cells to simulate, seeded from `seed`.
    pub fn cells(&self, size: Size, seed: u64) -> Vec<Cell> {
        let mut cells = (self.plan)(size);
        cells.iter_mut().for_each(|cell| cell.task.reseed(seed));
        cells
    }

    /// A number that changes with any parameter of any cell, but not with the seed. Results of a
    /// plan with another fingerprint are those of another experiment.
    pub fn fingerprint(&self, size: Size) -> String {
        fingerprint(format!("{:?}", self.cells(size, 0)).as_bytes())
    }
}

/// FNV-1a, which is the same in every build: records keep fingerprints.
fn fingerprint(bytes: &[u8]) -> String {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    format!("{:016x}", bytes.iter().fold(0xcbf2_9ce4_8422_2325, step))
}

/// A number that changes with the code of this program, and so with its locks and its simulator.
///
/// # Errors
///
/// The program's file cannot be read.
pub fn build() -> anyhow::Result<String> {
    static BUILD: OnceLock<String> = OnceLock::new();
    if BUILD.get().is_none() {
        let _ = BUILD.set(fingerprint(&std::fs::read("/proc/self/exe")?));
    }
    Ok(BUILD.get().cloned().unwrap_or_default())
}

/// Draws a panel from a record. Takes the legend's names so far, and adds new ones.
pub type Draw = fn(&Record, &mut Vec<String>) -> anyhow::Result<Panel>;

/// A figure measured on this machine.
pub struct Native {
    /// Command lines after `unconvoy bench`; each makes one record.
    pub benchmarks: &'static [&'static [&'static str]],
    /// Records that the figure can be drawn from.
    pub records: Records,
    /// Draws a panel; `None` if the figure consists of the record's tables.
    pub draw: Option<Draw>,
    /// Whether the drawing shows the first round instead of medians.
    pub is_first_round: bool,
}

/// The records that a native figure can be drawn from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Records {
    /// Records of the figure's own benchmarks.
    Own,
    /// Records of the figure's own benchmarks and of these.
    And(&'static [&'static str]),
    /// Every record with throughput over threads.
    Grids,
}

impl Native {
    /// The default: tables of medians from the figure's own benchmarks.
    pub const MEDIANS: Native =
        Native { benchmarks: &[], records: Records::Own, draw: None, is_first_round: false };

    /// Whether the figure can be drawn from a record of `benchmark`.
    pub fn takes(&self, benchmark: &str) -> bool {
        let also: &[&str] = if let Records::And(names) = self.records { names } else { &[] };
        self.records == Records::Grids || also.contains(&benchmark) || self.measures(benchmark)
    }

    fn measures(&self, benchmark: &str) -> bool {
        self.benchmarks.iter().any(|words| words[0] == benchmark)
    }

    /// The figure's benchmarks, for messages.
    pub fn measured_by(&self) -> String {
        let names = self.benchmarks.iter().map(|words| words[0]).collect::<Vec<_>>().join(", ");
        format!(
            "{names}{}",
            if self.records == Records::Grids { " (or any other grid)" } else { "" }
        )
    }
}
