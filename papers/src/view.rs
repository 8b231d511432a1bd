//! Selects lines from simulated results for drawing.

use unconvoy_sim::experiment::Measured;
use unconvoy_sim::grid::Result;
use unconvoy_sim::outcome::Outcome;

/// A line: its name and points.
pub type Line = (String, Vec<(f64, f64)>);

/// A panel: its title and lines.
pub type Lines = (String, Vec<Line>);

/// Adds a point to the line `name`, which is created if missing.
pub fn add(lines: &mut Vec<Line>, name: &str, place: (f64, f64)) {
    match lines.iter_mut().find(|line| line.0 == name) {
        Some(line) => line.1.push(place),
        None => lines.push((name.to_string(), vec![place])),
    }
}

/// Distinct names, in order of first appearance.
fn distinct<'a>(names: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
    let mut distinct: Vec<&str> = Vec::new();
    for name in names {
        if !distinct.contains(&name.as_str()) {
            distinct.push(name);
        }
    }
    distinct
}

/// Extracts one quantity as a panel's lines, in the order of the figure's series.
pub type Values<'a> = dyn Fn(&dyn Fn(&Measured) -> Option<f64>) -> Vec<Line> + 'a;

/// Applies `of` to each panel's name and [`Values`].
pub fn each(results: &[Result], of: impl Fn(&str, &Values) -> Vec<Lines>) -> Vec<Lines> {
    let series = distinct(results.iter().map(|result| &result.series));
    let panels = distinct(results.iter().map(|result| &result.panel));
    let panel = |panel: &&str| {
        of(panel, &|value| {
            let mut lines: Vec<Line> =
                series.iter().map(|name| (name.to_string(), Vec::new())).collect();
            for result in results.iter().filter(|result| result.panel == *panel) {
                if let Some(value) = value(&result.measured) {
                    add(&mut lines, &result.series, (result.x, value));
                }
            }
            lines.retain(|line| !line.1.is_empty());
            lines
        })
    };
    panels.iter().flat_map(panel).collect()
}

/// A named quantity of an outcome or of a part of one.
pub type Quantity<T> = (&'static str, fn(&T) -> f64);

/// Extracts a number from an outcome.
pub fn outcome(of: fn(&Outcome) -> f64) -> impl Fn(&Measured) -> Option<f64> {
    move |measured| measured.outcome().map(of)
}

fn rate(panel: &str, values: &Values) -> Lines {
    (format!("{panel}, per simulated second"), values(&outcome(|outcome| outcome.per_s)))
}

fn waited(panel: &str, values: &Values) -> Lines {
    (
        format!("{panel}: % of time spent waiting for locks"),
        values(&outcome(|outcome| 100.0 * waiting(outcome))),
    )
}

/// Fraction of the used processor time spent waiting for locks.
pub fn waiting(outcome: &Outcome) -> f64 {
    let parts = &outcome.contexts;
    let waiting = parts.spinning + parts.inverted + parts.mwait;
    waiting / (waiting + outcome.contexts.working)
}

/// Panels of throughput.
pub fn throughput(results: &[Result]) -> Vec<Lines> {
    each(results, |panel, values| vec![rate(panel, values)])
}

/// Throughput, with context switches in a second panel.
pub fn switches(results: &[Result]) -> Vec<Lines> {
    each(results, |panel, values| {
        let switches = values(&outcome(|outcome| outcome.switches_per_s));
        vec![rate(panel, values), ("context switches per second".to_string(), switches)]
    })
}

/// Throughput, with the share of processor time spent waiting for locks.
pub fn collapse(results: &[Result]) -> Vec<Lines> {
    each(results, |panel, values| vec![rate(panel, values), waited(panel, values)])
}

/// Only the share of processor time spent waiting for locks.
pub fn waits(results: &[Result]) -> Vec<Lines> {
    each(results, |panel, values| vec![waited(panel, values)])
}

/// Contexts by activity, one panel per series.
pub fn contexts(results: &[Result]) -> Vec<Lines> {
    let parts: [Quantity<Outcome>; 3] = [
        ("at work", |outcome| outcome.contexts.working),
        ("spinning, the holder runs", |outcome| outcome.contexts.spinning),
        ("spinning, the holder does not run", |outcome| outcome.contexts.inverted),
    ];
    let panel = |series: &str| {
        let of_series = || results.iter().filter(|result| result.series == series);
        let line = |(name, of): Quantity<Outcome>| {
            let at = |result: &Result| Some((result.x, of(result.measured.outcome()?)));
            (name.to_string(), of_series().filter_map(at).collect())
        };
        (format!("{series}: contexts"), parts.map(line).into())
    };
    distinct(results.iter().map(|result| &result.series)).into_iter().map(panel).collect()
}
