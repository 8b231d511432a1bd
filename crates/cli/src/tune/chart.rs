//! Before and after: how many times as fast as libc, with intervals, as SVG.
//!
//! Horizontal positions are percentages, so that the drawing fits any width and its text keeps its
//! size. The axis is logarithmic: twice and half as fast are equally far from 1.

use std::fmt::Write as _;

use unconvoy_measure::arguments::thread_count;

use super::candidates::LIBC;
use super::record::Record;
use super::verdict::{Comparison, Ratio, Verdict};
use crate::profile::flame::escape;

/// Height of a row, of a group's heading and of the axis, in pixels.
const ROW: usize = 38;
const HEADING: usize = 26;
const AXIS: usize = 24;

/// Left and right end of the axis, in percent.
const ENDS: (f64, f64) = (34.0, 96.0);

/// Values that may be marked on the axis.
const TICKS: [f64; 24] = [
    0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0,
    5.0, 10.0, 20.0, 50.0, 100.0, 200.0,
];
/// Smallest distance between two ticks, in percent.
const APART: f64 = 7.0;

/// A heading and its rows: name, whether it is recommended, ratio.
type Group = (String, Vec<(String, bool, Ratio)>);

/// Draws the comparisons with libc. Returns the height and the elements.
pub fn draw(record: &Record, verdict: &Verdict) -> (usize, String) {
    let against_libc = || verdict.comparisons.iter().filter(|it| it.against == LIBC);
    let counts: Vec<Option<u32>> = record.plan.threads.clone();
    let mut groups: Vec<Group> = Vec::new();
    let mut group = |title: String, ratio: &dyn Fn(&Comparison) -> Ratio| {
        let rows = against_libc().map(|it| {
            let name = record.candidates[it.candidate].name.clone();
            (name, it.candidate == verdict.recommended, ratio(it))
        });
        groups.push((title, rows.collect()));
    };
    if let [only] = counts[..] {
        group(only.map_or_else(String::new, thread_count), &|it| it.whole);
    } else {
        group("all thread counts (geometric mean)".to_string(), &|it| it.whole);
        for (index, count) in counts.iter().enumerate() {
            group(count.map_or_else(String::new, thread_count), &|it| it.by_threads[index]);
        }
    }
    let ratios = || groups.iter().flat_map(|(_, rows)| rows.iter().map(|(.., ratio)| ratio));
    let low = ratios().map(|ratio| ratio.low).fold(0.97, f64::min).max(0.01);
    let high = ratios().map(|ratio| ratio.high).fold(1.03, f64::max).min(200.0);
    let at = |value: f64| {
        let part = (value.clamp(low, high) / low).ln() / (high / low).ln();
        ENDS.0 + (ENDS.1 - ENDS.0) * part
    };
    let mut body = String::new();
    let mut y = 0;
    for (title, rows) in &groups {
        if !title.is_empty() {
            y += HEADING;
            let _ = writeln!(body, "<text class=\"group\" x=\"0\" y=\"{}\">{title}</text>", y - 8);
        }
        for (name, is_recommended, ratio) in rows {
            let class = if *is_recommended { "row best" } else { "row" };
            let (name, text) = (escape(name), ratio.text());
            let middle = y + ROW / 2;
            let (from, to, point) = (at(ratio.low), at(ratio.high), at(ratio.ratio));
            let _ = writeln!(
                body,
                "<g class=\"{class}\"><title>{name}: {text} times libc</title>\
                 <svg width=\"32%\" height=\"100%\"><text x=\"0\" y=\"{}\">{name}</text>\
                 <text class=\"number\" x=\"0\" y=\"{}\">{text}</text></svg>\
                 <line x1=\"{from:.2}%\" x2=\"{to:.2}%\" y1=\"{middle}\" y2=\"{middle}\"/>\
                 <circle cx=\"{point:.2}%\" cy=\"{middle}\" r=\"6\"/></g>",
                middle - 2,
                middle + 13,
            );
            y += ROW;
        }
    }
    let mut axis = String::new();
    for tick in ticks(low, high, at) {
        let (x, class) = (at(tick), if tick == 1.0 { "tick one" } else { "tick" });
        let _ = writeln!(
            axis,
            "<g class=\"{class}\"><line x1=\"{x:.2}%\" x2=\"{x:.2}%\" y1=\"0\" y2=\"{y}\"/>\
             <text x=\"{x:.2}%\" y=\"{}\">{tick}</text></g>",
            y + 17,
        );
    }
    (y + AXIS, axis + &body)
}

/// The values marked on the axis: 1 first, then those that are far enough from the others.
fn ticks(low: f64, high: f64, at: impl Fn(f64) -> f64) -> Vec<f64> {
    let mut chosen: Vec<f64> = vec![1.0];
    for tick in TICKS.into_iter().filter(|tick| (low..=high).contains(tick)) {
        if chosen.iter().all(|other| (at(tick) - at(*other)).abs() >= APART) {
            chosen.push(tick);
        }
    }
    chosen
}
