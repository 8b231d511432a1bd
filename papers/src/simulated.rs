//! Makes a figure on simulated machines: simulates, looks for the shapes, draws.

use std::path::{Path, PathBuf};

use comfy_table::{Table, presets as styles};
use serde::Serialize;
use unconvoy_measure::chart::axis::Axis;
use unconvoy_measure::chart::panel::{Panel, Point, Series};
use unconvoy_measure::chart::quantity::Unit;
use unconvoy_measure::chart::{self, colour, index_of};
use unconvoy_measure::output::{print, with_suffix};
use unconvoy_sim::grid::{Ended, Result};
use unconvoy_sim::points::{finish, simulate, write_json};

use crate::claim::Claim;
use crate::figure::{Figure, Simulated};
use crate::plan::Size;
use crate::view::Line;

/// How a figure is simulated, and where it goes.
pub struct How<'a> {
    /// How much is simulated.
    pub size: Size,
    /// Of all that is left to chance.
    pub seed: u64,
    /// Points that are simulated at a time; as many as there are processors if it is not said.
    pub jobs: Option<u32>,
    /// Of the drawings, without their endings.
    pub base: &'a Path,
    /// Where the record goes, if not beside the drawings.
    pub json: Option<PathBuf>,
}

/// What is left behind.
#[derive(Serialize)]
struct Record<'a> {
    /// That nothing here was measured on a real machine.
    simulated: bool,
    unconvoy: &'static str,
    seed: u64,
    /// Each point has its own.
    seconds: Option<f64>,
    figure: &'a str,
    complete: bool,
    failures: &'a [String],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    claims: Vec<Claim>,
    results: &'a [Result],
}

/// Simulates the figure, prints its shapes and writes record and drawings. The record is written
/// again after each point.
///
/// # Errors
///
/// A point failed, a file cannot be written, or a signal came.
pub fn make(figure: &Figure, simulated: &Simulated, how: &How) -> anyhow::Result<()> {
    let json = how.json.clone().unwrap_or_else(|| with_suffix(how.base, ".json"));
    let keep = |ended: &Ended| {
        let record = Record {
            simulated: true,
            unconvoy: env!("CARGO_PKG_VERSION"),
            seed: how.seed,
            seconds: None,
            figure: figure.name.trim_start_matches("sim-"),
            complete: ended.complete,
            failures: &ended.failures,
            claims: (simulated.claims)(&ended.results),
            results: &ended.results,
        };
        write_json(&json, &record)
    };
    let ended = simulate(how.jobs, &simulated.cells(how.size, how.seed), &keep)?;
    let claims = (simulated.claims)(&ended.results);
    let what = if ended.complete { "" } else { "INCOMPLETE. " };
    let caption = format!("{what}Simulated, not measured: unconvoy {}, seed {}", env!("CARGO_PKG_VERSION"), how.seed);
    let files = draw(figure, simulated, &ended.results, &claims, caption).write(how.base)?;
    let mut text = format!("{}\n\n{}\n\n", figure.title, figure.remark);
    for claim in &claims {
        let verdict = if claim.holds { "holds        " } else { "DOES NOT HOLD" };
        text.push_str(&format!("{verdict}  {} (found {})\n", claim.claim, claim.found));
    }
    if let Some(rows) = simulated.table.map(|table| table(&ended.results)) {
        let mut table = Table::new();
        table.load_style(styles::ASCII_MARKDOWN);
        let mut rows = rows.into_iter();
        table.set_header(rows.next().unwrap_or_default());
        table.add_rows(rows);
        text.push_str(&format!("\nAt 32 tasks:\n\n{table}\n"));
    }
    text.push_str(&format!("\n{}, {} and {}\n", files[0].display(), files[1].display(), json.display()));
    print(&text)?;
    finish(&ended)
}

/// The figure of `results`; `caption` says what was simulated.
fn draw(
    figure: &Figure,
    simulated: &Simulated,
    results: &[Result],
    claims: &[Claim],
    caption: String,
) -> chart::Figure {
    let mut names: Vec<String> = Vec::new();
    let panels = (simulated.panels)(results);
    let panels = panels.into_iter().map(|(title, lines)| panel(title, simulated.across, lines, &mut names)).collect();
    let shape = claims.iter().map(|claim| {
        let what = if claim.holds { "holds" } else { "DOES NOT HOLD" };
        format!("{} ({}; found {})", claim.claim, what, claim.found)
    });
    let remark = [figure.remark.to_string(), "Looked for here:".to_string()].into_iter().chain(shape);
    let remark = Some(remark.collect::<Vec<_>>().join(" * "));
    chart::Figure { title: figure.title.to_string(), names, panels, caption, remark }
}

fn panel(title: String, across_title: &str, lines: Vec<Line>, names: &mut Vec<String>) -> Panel {
    let values = |of: fn(&(f64, f64)) -> f64| lines.iter().flat_map(move |(_, line)| line.iter().map(of));
    let across = Axis::up_to(values(|place| place.0).fold(0.0, f64::max), Unit::Plain);
    let up = Axis::values(&values(|place| place.1).collect::<Vec<_>>(), Unit::Plain);
    let mut series = Vec::new();
    for (name, line) in lines {
        let index = index_of(&name, names);
        let point = |&(at, value): &(f64, f64)| Point::single(at, up.position(value));
        let has_markers = line.len() < 40;
        series.push(Series { colour: colour(index), points: line.iter().map(point).collect(), has_markers });
    }
    Panel { title, across, across_title: across_title.to_string(), up, series, mark: None }
}
