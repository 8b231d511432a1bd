//! Results of one figure from several seeds: read from records, put together, summarised.
//!
//! A claim is judged on the median of its numbers, one number per seed. So a ratio compares two
//! points of the same seed. A drawn point is the median of the seeds' values.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, ptr};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use unconvoy_measure::statistics::Spread;
use unconvoy_sim::experiment::Measured;
use unconvoy_sim::grid::Result;

use crate::claim::{Claim, three_decimals};
use crate::figure::Simulated;
use crate::messages;

/// The results of a cell, by seed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// See [`unconvoy_sim::grid::Cell`].
    pub panel: String,
    /// See [`unconvoy_sim::grid::Cell`].
    pub series: String,
    /// See [`unconvoy_sim::grid::Cell`].
    pub x: f64,
    /// Results, in the order of the seeds.
    #[serde(default)]
    pub seeds: Vec<OfSeed>,
    /// The only result, in records from before there were several seeds.
    #[serde(default, skip_serializing)]
    measured: Option<Measured>,
}

/// The result of a cell with one seed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OfSeed {
    /// The seed.
    pub seed: u64,
    /// The measurements.
    pub measured: Measured,
}

/// The part of a record that another run can use.
#[derive(Debug, Deserialize)]
pub struct Stored {
    /// The figure's name without `sim-`.
    pub figure: String,
    /// Version of the program that simulated it.
    pub unconvoy: String,
    /// The seed of a record with one seed; the first of several.
    seed: u64,
    /// The seeds asked for.
    #[serde(default)]
    pub seeds: Vec<u64>,
    /// Fingerprint of the cells; see [`crate::figure::Simulated::fingerprint`].
    #[serde(default)]
    pub plan: Option<String>,
    /// Fingerprint of the program that simulated it; see [`crate::figure::build`].
    #[serde(default)]
    pub build: Option<String>,
    /// Whether the results are of a quick version.
    #[serde(default)]
    pub quick: bool,
    /// Whether every cell was simulated with every seed, or failed.
    pub complete: bool,
    /// Errors of the cells that failed.
    #[serde(default)]
    pub failures: Vec<String>,
    #[serde(default)]
    results: Vec<Cell>,
}

impl Stored {
    /// Reads a record, of today's format or with a single seed.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is no record of a simulated figure.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path).with_context(|| messages::cannot_read(path))?;
        let mut stored: Self =
            serde_json::from_str(&text).with_context(|| messages::not_a_simulated_record(path))?;
        if stored.seeds.is_empty() {
            stored.seeds.push(stored.seed);
        }
        for cell in &mut stored.results {
            let (seed, measured) = (stored.seed, cell.measured.take());
            cell.seeds.extend(measured.map(|measured| OfSeed { seed, measured }));
        }
        Ok(stored)
    }

    /// Whether every cell has results of all the record's seeds.
    pub fn is_whole(&self) -> bool {
        self.complete && self.failures.is_empty()
    }

    /// Number of points.
    pub fn points(&self) -> usize {
        self.results.len()
    }

    /// Whether every cell has results of all these seeds.
    pub fn has_all(&self, seeds: &[u64]) -> bool {
        self.is_whole() && seeds.iter().all(|seed| self.seeds.contains(seed))
    }

    /// The results that it has of `seed`.
    pub fn of_seed(&self, seed: u64) -> Vec<Result> {
        of_seed(&self.results, seed)
    }
}

/// The results with `seed`, in the cells' order.
pub fn of_seed(cells: &[Cell], seed: u64) -> Vec<Result> {
    let result = |cell: &Cell| {
        let (panel, series) = (cell.panel.clone(), cell.series.clone());
        let found = cell.seeds.iter().find(|of_seed| of_seed.seed == seed)?;
        Some(Result { panel, series, x: cell.x, measured: found.measured.clone() })
    };
    cells.iter().filter_map(result).collect()
}

/// Puts the results of each seed together, cell by cell.
pub fn joined(seeds: &[(u64, Vec<Result>)]) -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    for (seed, results) in seeds {
        for result in results {
            let of_seed = OfSeed { seed: *seed, measured: result.measured.clone() };
            let is_same = |cell: &&mut Cell| {
                cell.x == result.x && cell.series == result.series && cell.panel == result.panel
            };
            match cells.iter_mut().find(is_same) {
                Some(cell) => cell.seeds.push(of_seed),
                None => cells.push(Cell {
                    panel: result.panel.clone(),
                    series: result.series.clone(),
                    x: result.x,
                    seeds: vec![of_seed],
                    measured: None,
                }),
            }
        }
    }
    cells
}

/// The results of one figure from several records.
#[derive(Debug)]
pub struct Merged<'a> {
    /// The results, by seed.
    pub seeds: Vec<(u64, Vec<Result>)>,
    /// The records that these results come from.
    pub sources: Vec<&'a Stored>,
}

/// Puts the records of one figure together. If several have a seed, the one with the most results
/// of it counts, because an incomplete record names seeds that have not begun. Of equal ones, the
/// first whole record counts, or else the first.
///
/// # Errors
///
/// A record is of another figure.
pub fn merged<'a>(figure: &str, records: &'a [Stored]) -> anyhow::Result<Merged<'a>> {
    let mut best: BTreeMap<u64, (Vec<Result>, &'a Stored)> = BTreeMap::new();
    for record in records {
        ensure!(
            record.figure == figure,
            messages::record_of_another_figure(figure, &record.figure)
        );
        for &seed in &record.seeds {
            let results = record.of_seed(seed);
            let is_better = best.get(&seed).is_none_or(|(known, source)| {
                (known.len(), source.is_whole()) < (results.len(), record.is_whole())
            });
            if is_better {
                best.insert(seed, (results, record));
            }
        }
    }
    let is_source = |record: &&Stored| best.values().any(|(_, source)| ptr::eq(*source, *record));
    let sources = records.iter().filter(is_source).collect();
    let seeds = best.into_iter().map(|(seed, (results, _))| (seed, results)).collect();
    Ok(Merged { seeds, sources })
}

/// A claim and its numbers from all seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judged {
    /// The claim with its tolerance.
    pub claim: String,
    /// The median and, with several seeds, the smallest and the largest number.
    pub found: String,
    /// Whether the median is within the bounds, and no seed that was simulated lacks a number.
    pub holds: bool,
    /// The bounds; null if there is none.
    pub bounds: (Option<f64>, Option<f64>),
    /// The number of each seed; null if the seed has none.
    pub numbers: Vec<Option<f64>>,
    /// Number of seeds whose number is within the bounds.
    pub seeds_that_hold: usize,
    /// Number of seeds that have a number. JSON writes an infinite one as null, too.
    pub seeds_judged: usize,
}

impl Judged {
    /// Whether a seed disagrees with the verdict. With an even number of seeds, the median may be
    /// within the bounds although no seed's number is.
    pub fn is_disputed(&self) -> bool {
        self.seeds_that_hold != if self.holds { self.seeds_judged } else { 0 }
    }

    /// The number found and, if the seeds disagree, with how many of them the claim holds.
    pub fn evidence(&self) -> String {
        let (held, all) = (self.seeds_that_hold, self.seeds_judged);
        let split = if self.is_disputed() {
            format!("; holds with {held} of {all} seeds")
        } else {
            String::new()
        };
        format!("found {}{split}", self.found)
    }
}

/// Judges the figure's claims.
pub fn judged(simulated: &Simulated, seeds: &[(u64, Vec<Result>)]) -> Vec<Judged> {
    let of_seeds: Vec<Vec<Claim>> =
        seeds.iter().map(|(_, results)| (simulated.claims)(results)).collect();
    let judge = |(place, first): (usize, &Claim)| {
        let of_claim = || of_seeds.iter().filter_map(|claims| claims.get(place));
        let numbers: Vec<Option<f64>> = of_claim().map(|claim| claim.number).collect();
        let mut of_each = seeds.iter().zip(&numbers);
        let lacks_one = of_each.any(|((_, results), it)| !results.is_empty() && it.is_none());
        let spread = Spread::of(numbers.iter().copied().flatten());
        let whole = Claim { number: spread.map(|spread| spread.median), ..first.clone() };
        let found = match spread {
            Some(spread) if seeds.len() > 1 => spread.text(three_decimals),
            _ => whole.found(),
        };
        let finite = |bound: f64| bound.is_finite().then_some(bound);
        Judged {
            claim: first.words.clone(),
            found,
            holds: whole.holds() && !lacks_one,
            bounds: (finite(*first.bounds.start()), finite(*first.bounds.end())),
            seeds_judged: numbers.iter().flatten().count(),
            numbers,
            seeds_that_hold: of_claim().filter(|claim| claim.holds()).count(),
        }
    };
    of_seeds.first().into_iter().flatten().enumerate().map(judge).collect()
}

/// A line of a drawing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// Title of its panel.
    pub panel: String,
    /// Its name.
    pub line: String,
    /// Its points.
    pub points: Vec<Place>,
}

/// A point of a line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Place {
    /// Position on the horizontal axis.
    pub x: f64,
    /// Median of the values.
    pub median: f64,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
    /// The value of each seed; null if the seed has no point here.
    pub values: Vec<Option<f64>>,
}

/// The lines of the drawing, panel by panel. A point that only some seeds have, such as the number
/// of cores that a search found, summarises these seeds.
pub fn lines(simulated: &Simulated, seeds: &[(u64, Vec<Result>)]) -> Vec<Line> {
    let drawn = if simulated.is_first_seed { &seeds[..seeds.len().min(1)] } else { seeds };
    let mut lines: Vec<(Line, Vec<Vec<Option<f64>>>)> = Vec::new();
    for (number, (_, results)) in drawn.iter().enumerate() {
        for (panel, of_panel) in (simulated.panels)(results) {
            for (name, points) in of_panel {
                let is_same = |known: &(Line, _)| known.0.panel == panel && known.0.line == name;
                let place = lines.iter().position(is_same).unwrap_or_else(|| {
                    let line = Line { panel: panel.clone(), line: name, points: Vec::new() };
                    lines.push((line, Vec::new()));
                    lines.len() - 1
                });
                let (line, values) = &mut lines[place];
                for (x, value) in points {
                    let at = line.points.iter().position(|point| point.x == x);
                    let at = at.unwrap_or_else(|| {
                        line.points.push(Place {
                            x,
                            median: value,
                            min: value,
                            max: value,
                            values: Vec::new(),
                        });
                        values.push(vec![None; drawn.len()]);
                        values.len() - 1
                    });
                    values[at][number] = Some(value);
                }
            }
        }
    }
    lines.into_iter().map(|(line, values)| summarised(line, values)).collect()
}

fn summarised(mut line: Line, values: Vec<Vec<Option<f64>>>) -> Line {
    for (point, values) in line.points.iter_mut().zip(values) {
        if let Some(spread) = Spread::of(values.iter().copied().flatten()) {
            (point.median, point.min, point.max) = (spread.median, spread.min, spread.max);
        }
        point.values = values;
    }
    // A later seed may have found a place between two earlier ones.
    if line.points.iter().any(|point| point.values.contains(&None)) {
        line.points.sort_by(|one, other| one.x.total_cmp(&other.x));
    }
    line
}

/// The cells with the median of every number. With an even number of seeds it is the smaller of the
/// two in the middle, because a count has no half.
pub fn medians(cells: &[Cell]) -> anyhow::Result<Vec<Result>> {
    let median = |cell: &Cell| {
        let values: serde_json::Result<Vec<Value>> =
            cell.seeds.iter().map(|of_seed| serde_json::to_value(&of_seed.measured)).collect();
        let measured = serde_json::from_value(middle(&values?))?;
        Ok(Result { panel: cell.panel.clone(), series: cell.series.clone(), x: cell.x, measured })
    };
    cells.iter().map(median).collect()
}

/// The median of each number of JSON values of one shape.
fn middle(values: &[Value]) -> Value {
    let Some(first) = values.first() else { return Value::Null };
    match first {
        Value::Object(members) => {
            let of_member = |name: &String| {
                let values: Vec<Value> =
                    values.iter().filter_map(|value| value.get(name).cloned()).collect();
                (name.clone(), middle(&values))
            };
            Value::Object(members.keys().map(of_member).collect())
        }
        Value::Number(_) => {
            let mut numbers: Vec<&Value> = values.iter().filter(|one| one.is_number()).collect();
            let number = |value: &Value| value.as_f64().unwrap_or_default();
            numbers.sort_by(|one, other| number(one).total_cmp(&number(other)));
            numbers.get(numbers.len().saturating_sub(1) / 2).map_or(Value::Null, |&one| one.clone())
        }
        _ => first.clone(),
    }
}

/// The lines as CSV: a row per point, with the value of each seed.
///
/// # Errors
///
/// The CSV writer failed.
pub fn csv(lines: &[Line], seeds: &[u64]) -> anyhow::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let fixed = ["panel", "line", "x", "median", "min", "max"].map(String::from);
    writer
        .write_record(fixed.into_iter().chain(seeds.iter().map(|seed| format!("seed {seed}"))))?;
    for line in lines {
        for point in &line.points {
            let numbers = [point.x, point.median, point.min, point.max].map(|one| one.to_string());
            let value = |place: usize| {
                let value = point.values.get(place).copied().flatten();
                value.map_or_else(String::new, |value| value.to_string())
            };
            let row = [line.panel.clone(), line.line.clone()].into_iter().chain(numbers);
            writer.write_record(row.chain((0..seeds.len()).map(value)))?;
        }
    }
    Ok(writer.into_inner()?)
}

#[cfg(test)]
#[path = "seeds_tests.rs"]
mod tests;
