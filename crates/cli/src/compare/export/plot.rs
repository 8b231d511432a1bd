//! Figure exporter: metric, processor time and fairness over threads, as SVG and PNG.

use std::path::Path;

use anyhow::bail;
use unconvoy_measure::arguments::processor_count;
use unconvoy_measure::chart::axis::Axis;
use unconvoy_measure::chart::panel::{Panel, Point, Series};
use unconvoy_measure::chart::quantity::Unit;
use unconvoy_measure::chart::{Figure, Sign};
use unconvoy_measure::export::Exporter;
use unconvoy_measure::statistics::Spread;

use super::super::record::Record;
use super::super::summary::Summary;
use crate::messages::compare as messages;

/// Greatest number of locks that a title names.
const FEW: usize = 5;

/// The figure as SVG.
pub struct Svg;

impl Exporter<Record> for Svg {
    fn render(&self, record: &Record) -> anyhow::Result<Option<Vec<u8>>> {
        Ok(Some(figure(record)?.svg()?.into_bytes()))
    }
}

/// The figure as PNG, if `unconvoy-png` is installed.
pub struct Png;

impl Exporter<Record> for Png {
    fn render(&self, record: &Record) -> anyhow::Result<Option<Vec<u8>>> {
        figure(record)?.png()
    }
}

fn figure(record: &Record) -> anyhow::Result<Figure> {
    if record.summary.is_empty() {
        bail!(messages::nothing_to_draw());
    }
    let names = record.plan.names();
    let program = record.plan.program.first().map(Path::new).and_then(Path::file_name);
    let untitled = || {
        let locks = match &names[..] {
            few if few.len() <= FEW => few.join(", "),
            many => format!("{} locks", many.len()),
        };
        program
            .map_or(String::new(), |program| format!("{} under {locks}", program.to_string_lossy()))
    };
    Ok(Figure {
        title: record.title.clone().unwrap_or_else(untitled),
        panels: panels(record),
        caption: caption(record),
        remark: None,
        names,
    })
}

/// Returns the panels that the record has data for.
fn panels(record: &Record) -> Vec<Panel> {
    let unit = if record.metric.is_wall_time() { Unit::Seconds } else { Unit::Plain };
    let better = if record.metric.lower_is_better { "lower" } else { "higher" };
    let mut panels = vec![panel(
        record,
        format!("{} ({better} is better)", record.metric.name),
        |summary| Some(summary.metric),
        |values| Axis::values(values, unit),
    )];
    let is_per_operation = record.summary.iter().any(|s| s.cpu_per_operation_s.is_some());
    panels.push(if is_per_operation {
        panel(
            record,
            "processor time per operation (lower is better)".to_string(),
            |summary| summary.cpu_per_operation_s,
            |values| Axis::values(values, Unit::Seconds),
        )
    } else {
        panel(
            record,
            "processor time per run (lower is better)".to_string(),
            |summary| Some(summary.cpu_s),
            |values| Axis::values(values, Unit::Seconds),
        )
    });
    if record.summary.iter().any(|summary| summary.fairness.is_some()) {
        panels.push(panel(
            record,
            "Jain's fairness index (1 is fair)".to_string(),
            |summary| summary.fairness,
            |_| Axis::index(),
        ));
    }
    panels
}

fn panel(
    record: &Record,
    title: String,
    value: impl Fn(&Summary) -> Option<Spread>,
    axis: impl Fn(&[f64]) -> Axis,
) -> Panel {
    let counts: Vec<u32> = record.plan.threads.iter().copied().flatten().collect();
    let names = record.plan.names();
    let across = if counts.is_empty() {
        Axis::names(&names)
    } else {
        Axis::at_each(&counts.iter().copied().map(f64::from).collect::<Vec<_>>())
    };
    let shown: Vec<Spread> = record.summary.iter().filter_map(&value).collect();
    let up = axis(&shown.iter().flat_map(|s| [s.min, s.max]).collect::<Vec<_>>());
    let series = names.iter().enumerate().map(|(index, name)| {
        let of_name = record.summary.iter().filter(|summary| summary.configuration == *name);
        let mut points: Vec<Point> = of_name
            .filter_map(|summary| {
                let spread = value(summary)?;
                let at = summary.threads.map_or(index as f64, |count| f64::from(count).log2());
                Some(Point::of(at, &spread, &up))
            })
            .collect();
        points.sort_by(|a, b| a.at.total_cmp(&b.at));
        Series { sign: Sign::of(index), points, has_markers: true }
    });
    let series = series.collect();
    let processor_line = (!counts.is_empty()).then(|| {
        let processors = record.context.machine.processors;
        (f64::from(processors).log2(), processor_count(processors))
    });
    let across_title = if counts.is_empty() { String::new() } else { "threads".to_string() };
    Panel { title, across, across_title, up, series, mark: processor_line }
}

/// Returns what was measured, and on which machine.
fn caption(record: &Record) -> String {
    let partial = if record.complete { "" } else { "INCOMPLETE, " };
    let runs = record.run_count();
    format!("{partial}median of {runs}, band: smallest to largest. {}", record.context.line())
}
