//! Exporters of a comparison's record: table, JSON, CSV and figure.

mod csv;
mod plot;
pub mod table;

use std::path::{Path, PathBuf};

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
    let plots = plot.map(figures).into_iter().flatten().map(|path| match is_png(&path) {
        true => Destination::new(plot::Png, path),
        false => Destination::new(plot::Svg, path),
    });
    json.chain(csv).chain(plots).collect()
}

/// The files of a figure: the one that the name's end asks for, or both.
pub fn figures(name: &Path) -> Vec<PathBuf> {
    if ["svg", "png"].iter().any(|end| ends_with(name, end)) {
        return vec![name.to_path_buf()];
    }
    [".svg", ".png"].map(|end| with_suffix(name, end)).to_vec()
}

/// Whether a figure is a PNG, which needs a program of its own.
pub fn is_png(figure: &Path) -> bool {
    ends_with(figure, "png")
}

fn ends_with(path: &Path, end: &str) -> bool {
    path.extension().is_some_and(|it| it.eq_ignore_ascii_case(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_the_name_chooses_the_figure() {
        let files = |name: &str| {
            let files = figures(Path::new(name)).into_iter();
            files.map(|path| path.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(files("a/run-0.5"), ["a/run-0.5.svg", "a/run-0.5.png"]);
        assert_eq!(files("run.svg"), ["run.svg"]);
        assert_eq!(files("run.PNG"), ["run.PNG"]);
    }
}
