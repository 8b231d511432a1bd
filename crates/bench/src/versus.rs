//! Comparison of a program under libc's locks and under the default.

use serde::Serialize;
use serde_json::{Value, json};
use unconvoy_measure::cells::Samples;
use unconvoy_measure::goal::{Goal, Judgement};
use unconvoy_measure::record::Record;
use unconvoy_measure::statistics::{Spread, short, shown};
use unconvoy_measure::table::Table;

use crate::energy;
use crate::options::{Common, Places};
use crate::run::{Job, Values};
use crate::setup::Setup;

/// A named selection of a program's options.
#[derive(Debug, Clone)]
pub struct Case {
    /// Name in the tables.
    pub name: String,
    /// Options without the length of the window.
    pub options: Vec<String>,
}

/// The compared value.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// Name in the program's output.
    pub name: &'static str,
    /// Heading, with the unit.
    pub heading: &'static str,
}

/// Costs of an operation: name of the value, heading, and factor to the heading's unit.
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

/// Measured cases.
pub struct Versus {
    names: Vec<String>,
    metric: Metric,
    samples: Samples<Values>,
}

/// A workload program whose cases run under libc and the default.
pub struct Benchmark {
    /// Name of the program and the subcommand.
    pub program: &'static str,
    /// The compared value.
    pub metric: Metric,
    /// Title of the table.
    pub title: &'static str,
}

impl Benchmark {
    /// Measures, prints and writes the record.
    ///
    /// # Errors
    ///
    /// The program is missing, or the results cannot be written.
    pub fn run(
        self,
        cases: &[Case],
        mut parameters: Value,
        common: &Common,
        places: &Places,
        judge: impl Fn(&Versus) -> Vec<Judgement>,
    ) -> anyhow::Result<Record> {
        parameters["seconds"] = json!(common.seconds);
        parameters["runs"] = json!(common.runs());
        let mut record = common.begin(self.program, parameters)?;
        let programs = places.find(&[self.program], &[])?;
        record.notes.push(energy::note());
        let cell = |(index, case): (usize, &Case)| {
            [Setup::Libc, Setup::Default].map(|setup| Cell {
                case: case.name.clone(),
                index,
                setup,
            })
        };
        let cells: Vec<Cell> = cases.iter().enumerate().flat_map(cell).collect();
        let name = |cell: &Cell| format!("{} under {}", cell.case, cell.setup.name());
        let samples = common.interleave(&mut record, &cells, name, |cell| {
            let options = cases[cell.index].options.clone();
            Job::window(self.program, options, cell.setup, common.seconds).run(&programs)
        })?;
        let names = cases.iter().map(|case| case.name.clone()).collect();
        let versus = Versus { names, metric: self.metric, samples };
        record.judgements = judge(&versus);
        record.tables = vec![versus.table(self.title)];
        record.finish(common.out.as_deref())
    }
}

impl Versus {
    /// Returns the default's value divided by libc's, round by round.
    pub fn ratio(&self, case: &str) -> Option<Spread> {
        let index = self.names.iter().position(|name| name == case)?;
        self.samples.ratio(2 * index + 1, 2 * index, |values| values.get(self.metric.name))
    }

    /// Judges the worst of these cases.
    pub fn judge_worst(&self, goal: &Goal, cases: impl IntoIterator<Item = String>) -> Judgement {
        goal.judge_worst(
            cases.into_iter().filter_map(|case| Some((self.ratio(&case)?.median, case))),
        )
    }

    fn is_measured(&self, name: &str) -> bool {
        self.samples.all.iter().any(|sample| sample.value.get(name).is_some())
    }

    /// Creates a table with one row per case.
    fn table(&self, title: &str) -> Table {
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
        let text = |spread| shown(spread, short);
        for (index, name) in self.names.iter().enumerate() {
            let spread = |cell| self.samples.spread(cell, |values| values.get(self.metric.name));
            let cost = |&(name, _, unit): &(&'static str, &str, f64)| {
                [2 * index, 2 * index + 1].map(|cell| {
                    text(self.samples.spread(cell, |values| Some(values.get(name)? * unit)))
                })
            };
            let first = [
                name.clone(),
                text(spread(2 * index)),
                text(spread(2 * index + 1)),
                text(self.ratio(name)),
            ];
            table.row(first.into_iter().chain(costs.iter().flat_map(cost)));
        }
        table
    }
}
