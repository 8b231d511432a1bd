//! Shared parts of panels that are drawn from records.

use serde_json::Value;
use unconvoy_measure::chart::axis::Axis;
use unconvoy_measure::chart::panel::{Panel, Point, Series};
use unconvoy_measure::chart::quantity::Unit;
use unconvoy_measure::chart::{Sign, index_of};
use unconvoy_measure::record::Record;
use unconvoy_measure::statistics::Spread;

/// A line's name and its measured points.
pub type Measured = (String, Vec<(f64, Spread)>);

/// Draws lines over positive x values, spaced by ratio.
pub fn lines(
    title: String,
    across_title: &str,
    places: &[f64],
    measured: Vec<Measured>,
    names: &mut Vec<String>,
) -> Panel {
    let ends = measured
        .iter()
        .flat_map(|(_, line)| line.iter().flat_map(|(_, spread)| [spread.min, spread.max]));
    let up = Axis::values(&ends.collect::<Vec<_>>(), Unit::Plain);
    let series = measured.into_iter().map(|(name, line)| Series {
        sign: Sign::of(index_of(&name, names)),
        points: line.into_iter().map(|(x, spread)| Point::of(Axis::at(x), &spread, &up)).collect(),
        has_markers: true,
    });
    let series = series.collect();
    Panel {
        title,
        across: Axis::at_each(places),
        across_title: across_title.to_string(),
        up,
        series,
        mark: None,
    }
}

/// A line of counts over time, without markers or bands.
pub fn stepped(sign: Sign, counts: Vec<(f64, u32)>) -> Series {
    let point = |(at, count): (f64, u32)| Point::single(at, f64::from(count));
    Series { sign, points: counts.into_iter().map(point).collect(), has_markers: false }
}

/// The runs of the first round.
pub fn first_round(record: &Record) -> impl Iterator<Item = &Value> {
    record.runs.iter().filter(|run| run.get("round").and_then(Value::as_u64) == Some(1))
}

/// A panel of counts up to `most`, over time up to `end`.
pub fn over_time(
    title: &str,
    across_title: &str,
    end: f64,
    most: u32,
    series: Vec<Series>,
) -> Panel {
    let (title, across_title) = (title.to_string(), across_title.to_string());
    let across = Axis { range: 0.0..end, ..Axis::up_to(end, Unit::Plain) };
    Panel {
        title,
        across,
        across_title,
        up: Axis::up_to(f64::from(most), Unit::Plain),
        series,
        mark: None,
    }
}
