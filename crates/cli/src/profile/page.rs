//! The report as one self-contained HTML page.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use askama::Template;
use unconvoy_measure::chart::quantity;

use super::flame::{self, escape};
use super::report::Report;
use super::rows::{Pair, Place, Row};
use super::text;
use crate::advice::text as sentences;

/// Greatest number of rows of a table: more than a person would read.
const LISTED: usize = 200;

/// Greatest number of places on each side of the graph of waits.
const PLACES: usize = 12;

/// Height of a place in the graph of waits, in pixels.
const PLACE: usize = 30;

#[derive(Template)]
#[template(path = "profile.html")]
struct Page {
    subject: String,
    heading: String,
    version: &'static str,
    remarks: Vec<String>,
    advice: Vec<Vec<String>>,
    strategy: String,
    locks: Vec<LockRow>,
    hidden: usize,
    holders: Listed,
    callers: Listed,
    signals: Listed,
    longest: Vec<Cells>,
    flame_height: usize,
    flame: String,
    flame_style: &'static str,
    flame_script: &'static str,
    waits_height: usize,
    waits: String,
}

struct LockRow {
    name: String,
    numbers: Vec<Cell>,
    waiters: Vec<String>,
    holders: Vec<String>,
    facts: Vec<String>,
    singles: Listed,
}

/// A table's row: a name and numbers.
struct Cells {
    name: String,
    numbers: Vec<Cell>,
}

/// The first rows of a table, and the number of the others.
#[derive(Default)]
struct Listed {
    rows: Vec<Cells>,
    hidden: usize,
}

impl Listed {
    fn of<T>(all: impl ExactSizeIterator<Item = T>, cells: impl Fn(T) -> Cells) -> Self {
        let hidden = all.len().saturating_sub(LISTED);
        Listed { rows: all.take(LISTED).map(cells).collect(), hidden }
    }

    fn places(places: &[Place]) -> Self {
        Self::of(places.iter(), |place| Cells {
            name: place.place.clone(),
            numbers: vec![Cell::time(place.ns), Cell::share(place.share)],
        })
    }
}

/// A number: as text for people, and as a value for sorting.
struct Cell {
    text: String,
    value: u64,
}

impl Cell {
    fn time(ns: u64) -> Self {
        Cell { text: time(ns), value: ns }
    }

    fn optional(ns: Option<u64>) -> Self {
        Cell { text: ns.map_or_else(|| "–".into(), time), value: ns.unwrap_or(0) }
    }

    fn count(value: u64) -> Self {
        Cell { text: value.to_string(), value }
    }

    fn share(share: f64) -> Self {
        Cell { text: percent(share), value: (share * 1e6) as u64 }
    }
}

fn time(ns: u64) -> String {
    quantity::seconds(ns as f64 * 1e-9)
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// Renders the page.
///
/// # Errors
///
/// The template cannot be rendered.
pub fn render(report: &Report) -> anyhow::Result<String> {
    let locks: Vec<&Row> = report.classes.iter().filter(|row| !row.is_cond()).collect();
    let signals: Vec<&Row> = report.classes.iter().filter(|row| row.is_cond()).collect();
    let graph = flame::graph(report);
    let pairs: Vec<(&str, &Pair)> =
        locks.iter().flat_map(|row| row.pairs.iter().map(|pair| (&*row.name, pair))).collect();
    let (waits_height, waits) = waits(&pairs);
    let page = Page {
        subject: report.subject().to_string(),
        heading: text::heading(report),
        version: concat!("unconvoy ", env!("CARGO_PKG_VERSION")),
        remarks: report.remarks.clone(),
        advice: report.advice.iter().map(sentences::paragraphs).collect(),
        strategy: sentences::strategy(&report.advice).unwrap_or_default(),
        hidden: locks.len().saturating_sub(LISTED),
        locks: locks.iter().take(LISTED).map(|row| LockRow::new(report, row)).collect(),
        holders: Listed::places(&report.holders),
        callers: Listed::places(&report.callers),
        signals: Listed::of(signals.into_iter(), |row| Cells {
            name: row.name.clone(),
            numbers: vec![
                Cell::time(row.waited_ns),
                Cell::count(row.waits),
                Cell::optional(row.wait.p50_ns),
                Cell::optional(row.wait.p99_ns),
            ],
        }),
        longest: report
            .longest
            .iter()
            .take(20)
            .map(|wait| Cells {
                name: format!("{} in {}", wait.lock, wait.place),
                numbers: vec![
                    Cell::time(wait.ns),
                    Cell {
                        text: format!("{:.3} s", wait.at_seconds),
                        value: (wait.at_seconds * 1e9) as u64,
                    },
                    Cell::count(wait.thread.into()),
                ],
            })
            .collect(),
        flame_height: graph.height,
        flame: graph.body,
        flame_style: flame::STYLE,
        flame_script: flame::SCRIPT,
        waits_height,
        waits,
    };
    Ok(page.render()?)
}

impl LockRow {
    fn new(report: &Report, row: &Row) -> Self {
        let place = |place: &Place| format!("{} {}", percent(place.share), place.place);
        let mut facts = vec![row.kind.to_string()];
        let mut fact = |value: u64, what: &str| {
            if value > 0 {
                facts.push(format!("{value} {what}"));
            }
        };
        fact(row.read_waits, "waits were for reading");
        fact(row.timed_out, "waits timed out");
        fact(row.acquisitions, "acquisitions up to the last wait");
        let is_one = |other: &&Row| other.name == row.name && other.kind == row.kind;
        let singles: Vec<&Row> = match row.locks {
            1 => Vec::new(),
            _ => report.locks.iter().filter(is_one).collect(),
        };
        LockRow {
            name: match row.locks {
                1 => row.name.clone(),
                locks => format!("{locks} × {}", row.name),
            },
            numbers: numbers(row),
            waiters: row.waiters.iter().take(8).map(place).collect(),
            holders: row.holders.iter().take(8).map(place).collect(),
            facts,
            singles: Listed::of(singles.into_iter(), |single| Cells {
                name: single.address.clone().unwrap_or_default(),
                numbers: numbers(single),
            }),
        }
    }
}

fn numbers(row: &Row) -> Vec<Cell> {
    vec![
        Cell::time(row.waited_ns),
        Cell::share(row.share),
        Cell::count(row.waits),
        Cell::time(row.longest_ns),
        Cell::optional(row.wait.p50_ns),
        Cell::optional(row.wait.p99_ns),
        Cell::optional(row.hold.p50_ns),
        Cell::optional(row.hold.p99_ns),
    ]
}

/// Draws the graph of waits: waiting places on the left, holding places on the right, and between
/// them lines whose width shows the time waited. Returns the graph's height and its elements.
/// Each pair comes with its lock's name.
pub fn waits(pairs: &[(&str, &Pair)]) -> (usize, String) {
    let side = |of: fn(&Pair) -> &String| {
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        pairs.iter().for_each(|(_, pair)| *sums.entry(of(pair)).or_default() += pair.ns);
        let mut places: Vec<(&str, u64)> = sums.into_iter().collect();
        places.sort_by_key(|&(place, ns)| (std::cmp::Reverse(ns), place));
        places.truncate(PLACES);
        places
    };
    let (waiters, holders) = (side(|pair| &pair.waiter), side(|pair| &pair.holder));
    let total: u64 = pairs.iter().map(|(_, pair)| pair.ns).sum();
    if total == 0 {
        return (0, String::new());
    }
    let middle = |index: usize| index * PLACE + PLACE / 2;
    let mut body = String::new();
    for (lock, pair) in pairs {
        let from = waiters.iter().position(|(place, _)| *place == pair.waiter);
        let to = holders.iter().position(|(place, _)| *place == pair.holder);
        let (Some(from), Some(to)) = (from, to) else { continue };
        let width = 1.0 + 14.0 * pair.ns as f64 / total as f64;
        let _ = writeln!(
            body,
            "<line x1=\"42%\" x2=\"58%\" y1=\"{}\" y2=\"{}\" stroke-width=\"{width:.1}\"><title>\
             {}: {} waits for {}, {}</title></line>",
            middle(from),
            middle(to),
            escape(lock),
            escape(&pair.waiter),
            escape(&pair.holder),
            time(pair.ns),
        );
    }
    for (x, class, places) in [(0, "w1", &waiters), (58, "h1", &holders)] {
        for (index, (place, ns)) in places.iter().enumerate() {
            let share = 100.0 * *ns as f64 / total as f64;
            let _ = writeln!(
                body,
                "<svg class=\"p {class}\" x=\"{x}%\" y=\"{}\" width=\"42%\" height=\"{}\"><title>\
                 {place}\n{}, {share:.0} %</title><rect class=\"back\" width=\"100%\" \
                 height=\"100%\"/><rect width=\"{share:.1}%\" height=\"100%\"/><text x=\"4\" \
                 y=\"16\">{share:.0} % {place}</text></svg>",
                index * PLACE + 2,
                PLACE - 5,
                time(*ns),
                place = escape(place),
            );
        }
    }
    (waiters.len().max(holders.len()) * PLACE, body)
}
