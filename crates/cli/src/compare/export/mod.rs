//! Exporters of a comparison's record: table, JSON, CSV and figure.

mod csv;
mod plot;
pub mod table;

use std::path::Path;

use unconvoy_measure::export::{Destination, Json};
use unconvoy_measure::output::with_suffix;

use super::record::Record;

/// Returns the files that the options ask for.
pub fn destinations(
    json: Option<&Path>,
    csv: Option<&Path>,
    plot: Option<&Path>,
) -> Vec<Destination<Record>> {
    let json = json.map(|path| Destination::new(Json, path)).into_iter();
    let csv = csv.map(|path| Destination::new(csv::Csv, path));
    let plots = plot.into_iter().flat_map(|basename| {
        [
            Destination::new(plot::Svg, with_suffix(basename, ".svg")),
            Destination::new(plot::Png, with_suffix(basename, ".png")),
        ]
    });
    json.chain(csv).chain(plots).collect()
}
