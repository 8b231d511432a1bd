//! Results as panels of lines.

use unconvoy_measure::chart::axis::Axis;
use unconvoy_measure::chart::panel::{Panel, Point, Series};
use unconvoy_measure::chart::quantity::Unit;
use unconvoy_measure::chart::{self, colour, index_of};

use super::{Claim, Figure, Shown};
use crate::experiment::{Measured, Projection};
use crate::grid::Result;
use crate::outcome::SpecialSet;

/// A line: its name and places.
type Line = (String, Vec<(f64, f64)>);

/// The figure of `results`; `caption` says what was simulated.
pub fn draw(figure: &Figure, results: &[Result], claims: &[Claim], caption: String) -> chart::Figure {
    let mut names: Vec<String> = Vec::new();
    let mut panels = Vec::new();
    for (title, lines) in panels_of(figure.shown, results) {
        panels.push(panel(title, figure.across, lines, &mut names));
    }
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

/// Names in the order in which they come.
fn distinct(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut distinct: Vec<String> = Vec::new();
    for name in names {
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    }
    distinct
}

fn panels_of(shown: Shown, results: &[Result]) -> Vec<(String, Vec<Line>)> {
    let panels = distinct(results.iter().map(|result| result.panel.clone()));
    let line = |panel: &str, series: &str, of: &dyn Fn(&Measured) -> Option<f64>| -> Vec<(f64, f64)> {
        let those = results.iter().filter(|result| result.panel == panel && result.series == series);
        those.filter_map(|result| Some((result.x, of(&result.measured)?))).collect()
    };
    let series = distinct(results.iter().map(|result| result.series.clone()));
    let outcome = |of: fn(&crate::outcome::Outcome) -> f64| move |measured: &Measured| measured.outcome().map(of);
    let lines = |panel: &str, of: &dyn Fn(&Measured) -> Option<f64>| -> Vec<Line> {
        series
            .iter()
            .map(|series| (series.clone(), line(panel, series, of)))
            .filter(|line| !line.1.is_empty())
            .collect()
    };
    match shown {
        Shown::Throughput => panels
            .iter()
            .map(|panel| (format!("{panel}, per simulated second"), lines(panel, &outcome(|outcome| outcome.per_s))))
            .collect(),
        Shown::Bounds => panels.iter().map(|panel| bounds_panel(panel, results)).collect(),
        Shown::Cost => panels
            .iter()
            .map(|panel| {
                let title = format!("{panel}: us of processors per operation");
                (title, lines(panel, &outcome(super::comparison::cost_us)))
            })
            .collect(),
        Shown::Switches => panels
            .iter()
            .flat_map(|panel| {
                [
                    (format!("{panel}, per simulated second"), lines(panel, &outcome(|outcome| outcome.per_s))),
                    (
                        "context switches per second".to_string(),
                        lines(panel, &outcome(|outcome| outcome.switches_per_s)),
                    ),
                ]
            })
            .collect(),
        Shown::Collapse => panels
            .iter()
            .flat_map(|panel| {
                [
                    (format!("{panel}, per simulated second"), lines(panel, &outcome(|outcome| outcome.per_s))),
                    (format!("{panel}: % of time waited for locks"), lines(panel, &outcome(percent))),
                ]
            })
            .collect(),
        Shown::Waiting => panels
            .iter()
            .map(|panel| (format!("{panel}: % of time waited for locks"), lines(panel, &outcome(percent))))
            .collect(),
        Shown::Set => panels
            .iter()
            .map(|panel| {
                let set =
                    |of: fn(&SpecialSet) -> f64| move |measured: &Measured| measured.outcome()?.set.as_ref().map(of);
                let named = |what: &str, of: fn(&SpecialSet) -> f64| {
                    let lines = lines(panel, &set(of)).into_iter();
                    lines.map(|(name, line)| (format!("{name}: {what}"), line)).collect::<Vec<_>>()
                };
                let cores = named("cores", |set| f64::from(set.bound));
                let tasks = named("lock-intensive tasks", |set| f64::from(set.tasks));
                (format!("{panel}: special set"), cores.into_iter().chain(tasks).collect())
            })
            .collect(),
        Shown::Contexts => series
            .iter()
            .map(|series| {
                let of = |name: &str, part: fn(&crate::outcome::Outcome) -> f64| {
                    (name.to_string(), line(&panels[0], series, &outcome(part)))
                };
                let lines = vec![
                    of("at work", |outcome| outcome.contexts.working),
                    of("spinning, the holder runs", |outcome| outcome.contexts.spinning),
                    of("spinning, the holder does not run", |outcome| outcome.contexts.inverted),
                ];
                (format!("{series}: contexts"), lines)
            })
            .collect(),
        Shown::Shares => vec![("part of self alone".to_string(), shares(results))],
        Shown::Reactions => vec![("threads awake".to_string(), reactions(results))],
        Shown::Counts => vec![("threads that run or wait to run".to_string(), counts(results))],
        Shown::Times => projected(&panels, "execution time, ms", results, &TIMES),
        Shown::SpeedUps => projected(&panels, "speed-up over the lock", results, &SPEED_UPS),
    }
}

fn bounds_panel(panel: &str, results: &[Result]) -> (String, Vec<Line>) {
    let is_over_cores = super::bounds::is_over_cores(panel);
    let mut lines: Vec<Line> = Vec::new();
    for result in results.iter().filter(|result| result.panel == panel) {
        let Some(outcome) = result.measured.outcome() else { continue };
        let place = if is_over_cores { super::bounds::place(result.x, outcome) } else { (result.x, outcome.per_s) };
        match lines.iter_mut().find(|line| line.0 == result.series) {
            Some(line) => line.1.push(place),
            None => lines.push((result.series.clone(), vec![place])),
        }
    }
    (format!("{panel}, per simulated second"), lines)
}

/// A line of a prediction: its name and values.
type Predicted = (&'static str, fn(&Projection) -> f64);

const TIMES: [Predicted; 2] = [
    ("projected", |projection| projection.projected_ns() / 1e6),
    ("transactions", |projection| projection.transacted_ns / 1e6),
];

const SPEED_UPS: [Predicted; 3] = [
    ("by data independence", |projection| projection.estimate.independence),
    ("and by conflict density", |projection| projection.estimate.speed_up()),
    ("transactions", |projection| projection.locked_ns / projection.transacted_ns),
];

fn projected(panels: &[String], what: &str, results: &[Result], lines: &[Predicted]) -> Vec<(String, Vec<Line>)> {
    let line = |panel: &str, (name, of): &Predicted| {
        let of_panel = results.iter().filter(|result| result.panel == panel);
        let places = of_panel.filter_map(|result| Some((result.x, of(result.measured.projection()?))));
        (name.to_string(), places.collect())
    };
    let panel = |panel: &String| (format!("{panel}: {what}"), lines.iter().map(|lines| line(panel, lines)).collect());
    panels.iter().map(panel).collect()
}

fn shares(results: &[Result]) -> Vec<Line> {
    let alone = results.iter().find_map(|result| result.measured.outcome()).map_or(1.0, |outcome| outcome.per_s);
    let mut lines: Vec<Line> = Vec::new();
    for result in results {
        let Measured::Shares(shares) = result.measured else { continue };
        for (who, per_s) in [("self", shares.own_per_s), ("other", shares.other_per_s)] {
            let name = format!("{who}, other {} load control", result.series);
            let place = (result.x, per_s / alone);
            match lines.iter_mut().find(|line| line.0 == name) {
                Some(line) => line.1.push(place),
                None => lines.push((name, vec![place])),
            }
        }
    }
    lines
}

fn percent(outcome: &crate::outcome::Outcome) -> f64 {
    100.0 * super::taco::waiting(outcome)
}

/// Microseconds after a change that are drawn.
const DRAWN_US: f64 = 1_000.0;

fn reactions(results: &[Result]) -> Vec<Line> {
    let reactions = results.iter().find_map(|result| match &result.measured {
        Measured::Reactions(reactions) => Some(reactions),
        _ => None,
    });
    let line = |reaction: &crate::experiment::Reaction| {
        let places = reaction.awake.iter().map(|&(ns, count)| (ns as f64 / 1e3, f64::from(count)));
        (format!("{} to {} asleep", reaction.from, reaction.to), places.filter(|place| place.0 <= DRAWN_US).collect())
    };
    reactions.into_iter().flatten().map(line).collect()
}

fn counts(results: &[Result]) -> Vec<Line> {
    let line = |result: &Result| match &result.measured {
        Measured::Counts(counts) => {
            let places = counts.iter().map(|&(ns, count)| (ns as f64 / 1e9, f64::from(count)));
            Some((result.series.clone(), places.collect()))
        }
        _ => None,
    };
    results.iter().filter_map(line).collect()
}
