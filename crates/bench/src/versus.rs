//! A program under libc's locks and under the default, side by side.

use serde::Serialize;

use crate::cells::{Samples, interleave};
use crate::cli::Common;
use crate::energy;
use crate::goals::{Goal, Judgement};
use crate::programs::Programs;
use crate::record::Record;
use crate::run::{Job, Values};
use crate::setup::Setup;
use crate::statistics::{Spread, short};
use crate::table::Table;

/// A program with options.
#[derive(Debug, Clone)]
pub struct Case {
    /// For the tables.
    pub name: String,
    /// The program.
    pub program: &'static str,
    /// Its options.
    pub options: Vec<String>,
}

/// What is compared.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// Name in the program's output.
    pub name: &'static str,
    /// Heading, with the unit.
    pub heading: &'static str,
}

/// What an operation takes: name among what is measured, heading, what turns it into the heading's unit.
const COSTS: [(&str, &str, f64); 2] = [
    ("cpu_ns_per_op", "processor time per operation, ns", 1.0),
    (energy::PER_OPERATION, "energy per operation, nJ", 1e9),
];

#[derive(Debug, Serialize)]
struct Cell {
    case: String,
    #[serde(skip)]
    index: usize,
    setup: Setup,
}

/// The measured cases.
pub struct Versus {
    names: Vec<String>,
    metric: Metric,
    samples: Samples<Values>,
}

/// Runs every case under both.
pub fn measure(
    record: &mut Record,
    cases: &[Case],
    metric: Metric,
    common: &Common,
    programs: &Programs,
) -> anyhow::Result<Versus> {
    let cell = |(index, case): (usize, &Case)| {
        [Setup::Libc, Setup::Default].map(|setup| Cell { case: case.name.clone(), index, setup })
    };
    record.notes.push(energy::note());
    let cells: Vec<Cell> = cases.iter().enumerate().flat_map(cell).collect();
    let samples = interleave(
        &cells,
        common.runs(),
        common.seed,
        |cell| format!("{} under {}", cell.case, cell.setup.name()),
        |cell| {
            let case = &cases[cell.index];
            Job { program: case.program, options: case.options.clone(), setup: cell.setup, seconds: common.seconds }
                .run(programs)
        },
    )?;
    record.take(&cells, &samples)?;
    Ok(Versus { names: cases.iter().map(|case| case.name.clone()).collect(), metric, samples })
}

impl Versus {
    /// The default's number divided by libc's, round by round.
    pub fn ratio(&self, case: &str) -> Option<Spread> {
        let index = self.names.iter().position(|name| name == case)?;
        self.samples.ratio(2 * index + 1, 2 * index, |values| values.get(self.metric.name))
    }

    /// Judges the worst of these cases.
    pub fn judge_worst(&self, goal: &Goal, cases: impl IntoIterator<Item = String>) -> Judgement {
        goal.judge_worst(cases.into_iter().filter_map(|case| Some((self.ratio(&case)?.median, case))))
    }

    fn is_measured(&self, name: &str) -> bool {
        self.samples.all.iter().any(|sample| sample.value.get(name).is_some())
    }

    /// One row per case.
    pub fn table(&self, title: &str) -> Table {
        let mut table = Table::new(
            title,
            [
                "case".to_string(),
                format!("libc, {}", self.metric.heading),
                format!("default, {}", self.metric.heading),
                "ratio default/libc".to_string(),
            ],
        );
        let costs: Vec<_> = COSTS.into_iter().filter(|(name, ..)| self.is_measured(name)).collect();
        for (_, heading, _) in &costs {
            table.header.extend(["libc", "default"].map(|row| format!("{row}, {heading}")));
        }
        let text = |spread: Option<Spread>| spread.map_or_else(|| "-".to_string(), |spread| spread.text(short));
        for (index, name) in self.names.iter().enumerate() {
            let spread = |cell| self.samples.spread(cell, |values| values.get(self.metric.name));
            let cost = |&(name, _, unit): &(&'static str, &str, f64)| {
                [2 * index, 2 * index + 1]
                    .map(|cell| text(self.samples.spread(cell, |values| Some(values.get(name)? * unit))))
            };
            let first = [name.clone(), text(spread(2 * index)), text(spread(2 * index + 1)), text(self.ratio(name))];
            table.row(first.into_iter().chain(costs.iter().flat_map(cost)));
        }
        table
    }
}
