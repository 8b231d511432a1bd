//! The programs of both figures, what was predicted of them, and their panels.

use unconvoy_sim::experiment::{Predicted, Projection, Task};
use unconvoy_sim::grid::{Cell, Result};
use unconvoy_sim::workload::validation::Program;

use crate::plan::{Size, cell, machine};
use crate::view::{self, Lines};

/// A lock of the kernel, as the paper's programs had. Its kernel, 2.6.16, had test-and-set; ticket locks came with 2.6.25.
const LOCK: &str = "ticket+none";

const PROCESSORS: [u32; 3] = [8, 16, 32];

/// The three programs.
pub const PROGRAMS: [(&str, Program); 3] = [("Prob", Program::Prob), ("RW", Program::Rw), ("RB-Tree", Program::RbTree)];

/// What is simulated for both figures.
pub fn plan(size: Size) -> Vec<Cell> {
    let at = |(panel, program): (&str, Program), processors: u32| {
        let machine = machine(&format!("metatm-{processors}"));
        let predicted = Predicted { machine, program, lock: LOCK.to_string(), sections: size.of(1_000, 100), seed: 0 };
        cell(panel, "projected", f64::from(processors), Task::Predicted(predicted))
    };
    PROGRAMS.into_iter().flat_map(|program| PROCESSORS.map(|processors| at(program, processors))).collect()
}

/// What was predicted of a program, by number of processors.
pub fn of<'a>(results: &'a [Result], program: &str) -> Vec<(f64, &'a Projection)> {
    let those = results.iter().filter(|result| result.panel == program);
    those.filter_map(|result| Some((result.x, result.measured.projection()?))).collect()
}

/// The same with a number of processors.
pub fn at<'a>(results: &'a [Result], program: &str, processors: f64) -> Option<&'a Projection> {
    of(results, program).into_iter().find(|place| place.0 == processors).map(|place| place.1)
}

/// A line of a prediction: its name and values.
pub type PredictedLine = (&'static str, fn(&Projection) -> f64);

/// A panel for each program.
pub fn projected(results: &[Result], what: &str, lines: &[PredictedLine]) -> Vec<Lines> {
    view::each(results, |panel, values| {
        let line = |&(name, of): &PredictedLine| {
            let mut of_projection = values(&|measured| measured.projection().map(of));
            (name.to_string(), of_projection.pop().map_or_else(Vec::new, |line| line.1))
        };
        vec![(format!("{panel}: {what}"), lines.iter().map(line).collect())]
    })
}
