//! What of simulated results is drawn: panels of lines.

use unconvoy_sim::experiment::Measured;
use unconvoy_sim::grid::Result;
use unconvoy_sim::outcome::Outcome;

/// A line: its name and places.
pub type Line = (String, Vec<(f64, f64)>);

/// A panel: its title and lines.
pub type Lines = (String, Vec<Line>);

/// Adds a place to the line of this name.
pub fn add(lines: &mut Vec<Line>, name: &str, place: (f64, f64)) {
    match lines.iter_mut().find(|line| line.0 == name) {
        Some(line) => line.1.push(place),
        None => lines.push((name.to_string(), vec![place])),
    }
}

/// Names in the order in which they come.
fn distinct<'a>(names: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
    let mut distinct: Vec<&str> = Vec::new();
    for name in names {
        if !distinct.contains(&name.as_str()) {
            distinct.push(name);
        }
    }
    distinct
}

/// What makes the lines of a panel, in the order of the figure's series.
pub type Values<'a> = dyn Fn(&dyn Fn(&Measured) -> Option<f64>) -> Vec<Line> + 'a;

/// For each panel of the results what `of` makes of it: of its name and its [`Values`].
pub fn each(results: &[Result], of: impl Fn(&str, &Values) -> Vec<Lines>) -> Vec<Lines> {
    let series = distinct(results.iter().map(|result| &result.series));
    let panels = distinct(results.iter().map(|result| &result.panel));
    let panel = |panel: &&str| {
        of(panel, &|value| {
            let mut lines: Vec<Line> = series.iter().map(|name| (name.to_string(), Vec::new())).collect();
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

/// A number of an outcome.
pub fn outcome(of: fn(&Outcome) -> f64) -> impl Fn(&Measured) -> Option<f64> {
    move |measured| measured.outcome().map(of)
}

fn rate(panel: &str, values: &Values) -> Lines {
    (format!("{panel}, per simulated second"), values(&outcome(|outcome| outcome.per_s)))
}

fn waited(panel: &str, values: &Values) -> Lines {
    (format!("{panel}: % of time waited for locks"), values(&outcome(|outcome| 100.0 * waiting(outcome))))
}

/// The part of the processor time in use that is waited for locks.
pub fn waiting(outcome: &Outcome) -> f64 {
    let waiting = outcome.contexts.spinning + outcome.contexts.inverted;
    waiting / (waiting + outcome.contexts.working)
}

/// Throughput.
pub fn throughput(results: &[Result]) -> Vec<Lines> {
    each(results, |panel, values| vec![rate(panel, values)])
}

/// Throughput, and context switches in a second panel.
pub fn switches(results: &[Result]) -> Vec<Lines> {
    each(results, |panel, values| {
        let switches = values(&outcome(|outcome| outcome.switches_per_s));
        vec![rate(panel, values), ("context switches per second".to_string(), switches)]
    })
}

/// Throughput, and the part of the processor time that is waited for locks.
pub fn collapse(results: &[Result]) -> Vec<Lines> {
    each(results, |panel, values| vec![rate(panel, values), waited(panel, values)])
}

/// That part alone.
pub fn waits(results: &[Result]) -> Vec<Lines> {
    each(results, |panel, values| vec![waited(panel, values)])
}

/// Contexts by what they do, a panel for each series.
pub fn contexts(results: &[Result]) -> Vec<Lines> {
    let parts: [(&str, fn(&Outcome) -> f64); 3] = [
        ("at work", |outcome| outcome.contexts.working),
        ("spinning, the holder runs", |outcome| outcome.contexts.spinning),
        ("spinning, the holder does not run", |outcome| outcome.contexts.inverted),
    ];
    let panel = |series: &str| {
        let of_series = || results.iter().filter(|result| result.series == series);
        let line = |(name, of): (&str, fn(&Outcome) -> f64)| {
            let at = |result: &Result| Some((result.x, of(result.measured.outcome()?)));
            (name.to_string(), of_series().filter_map(at).collect())
        };
        (format!("{series}: contexts"), parts.map(line).into())
    };
    distinct(results.iter().map(|result| &result.series)).into_iter().map(panel).collect()
}
