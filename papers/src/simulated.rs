//! Makes a figure on simulated machines: simulates it seed by seed, checks the claims, draws.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, ensure};
use comfy_table::{Table, presets as styles};
use serde::Serialize;
use unconvoy_measure::chart::axis::Axis;
use unconvoy_measure::chart::panel::{Panel, Point, Series};
use unconvoy_measure::chart::quantity::Unit;
use unconvoy_measure::chart::{self, Sign, index_of};
use unconvoy_measure::failure::Usage;
use unconvoy_measure::output::{can_write, complain, is_replaceable, print, with_suffix, write};
use unconvoy_measure::statistics::Spread;
use unconvoy_sim::grid::{Cell, Ended, Result};
use unconvoy_sim::points::{Simulated as Points, Write, finish, simulate};

use crate::earlier::{is_usable, short_name, usable};
use crate::figure::{self, Figure, Simulated};
use crate::messages;
use crate::plan::Size;
use crate::record_text;
use crate::seeds::{self, Judged, Line, Merged, Stored};

/// How to simulate a figure, and where to put it.
pub struct How<'a> {
    /// How much to simulate.
    pub size: Size,
    /// The seeds, in order.
    pub seeds: Vec<u64>,
    /// Points to simulate at a time; `None` means the number of processors.
    pub jobs: Option<u32>,
    /// Whether to keep the finished points of an earlier record.
    pub resume: bool,
    /// Path of the files, without extension.
    pub base: &'a Path,
    /// Path of the record, if not beside the drawings.
    pub json: Option<PathBuf>,
}

impl How<'_> {
    /// Path of the record.
    fn record(&self) -> PathBuf {
        self.json.clone().unwrap_or_else(|| with_suffix(self.base, ".json"))
    }
}

/// Format of the record. Records before the second had one seed, and no schema.
const SCHEMA: &str = "unconvoy-figure-2";

/// The record of a simulated figure.
#[derive(Serialize)]
struct Record<'a> {
    schema: &'static str,
    /// Always true: nothing here was measured on a real machine.
    simulated: bool,
    unconvoy: &'a str,
    /// The first seed.
    seed: u64,
    seeds: &'a [u64],
    /// Always null: each point has its own length.
    seconds: Option<f64>,
    figure: &'a str,
    /// Fingerprint of the cells; null if the record was made from others.
    plan: Option<&'a str>,
    /// Fingerprint of the program that simulated them, unless there were several.
    #[serde(skip_serializing_if = "Option::is_none")]
    build: Option<&'a str>,
    /// Whether the results are of a quick version.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    quick: bool,
    complete: bool,
    failures: &'a [String],
    /// Parameters that differ from the paper's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    changes: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    claims: Vec<Judged>,
    /// The drawing's data; not of a course, which the results have.
    #[serde(skip_serializing_if = "Option::is_none")]
    lines: Option<&'a [Line]>,
    results: Vec<seeds::Cell>,
}

/// The results so far.
struct SoFar<'a> {
    figure: &'a Figure,
    simulated: &'a Simulated,
    seeds: Vec<u64>,
    /// By seed; empty for a seed that has not begun.
    results: Vec<(u64, Vec<Result>)>,
    failures: Vec<String>,
    /// Index of the seed that is being simulated. Its claims would compare with missing points.
    current: Option<usize>,
    complete: bool,
    unconvoy: String,
    plan: Option<String>,
    build: Option<String>,
    quick: bool,
}

/// Simulates the figure, prints its claims, and writes record and drawings. The record is rewritten
/// after each point.
///
/// # Errors
///
/// Fails if a point fails, a file cannot be written, or a signal arrives.
pub fn make(figure: &Figure, simulated: &Simulated, how: &How) -> anyhow::Result<()> {
    let json = how.record();
    let plan = simulated.fingerprint(how.size);
    let unfinished = with_suffix(&json, ".new");
    // A record that was simulated again continues, rather than the complete one that it replaces.
    let stored = how.resume.then(|| usable(figure, &[&unfinished, &json], &plan, &how.seeds));
    let (from, stored) = stored.flatten().unzip();
    if let Some(stored) = &stored
        && stored.has_all(&how.seeds)
    {
        complain(&messages::record_kept(figure.name, &json));
        let is_drawn = with_suffix(how.base, ".svg").exists();
        return match json == with_suffix(how.base, ".json") && !is_drawn {
            true => redraw(figure, simulated, &[json], how.base),
            false => Ok(()),
        };
    }
    // Simulated again, a complete record stays until the new one is complete.
    let is_kept = from.as_ref() != Some(&json) && Stored::read(&json).is_ok_and(|it| it.complete);
    let so_far_in = if is_kept { &unfinished } else { &json };
    can_write(&json)?;
    for end in [".csv", ".svg", ".png"] {
        can_write(&with_suffix(how.base, end))?;
    }
    // An extended record keeps the seeds that it has.
    let mut seeds = stored.as_ref().map_or_else(Vec::new, |stored| stored.seeds.clone());
    seeds.extend(&how.seeds);
    seeds.sort_unstable();
    seeds.dedup();
    let known = |seed: u64| stored.as_ref().map_or_else(Vec::new, |stored| stored.of_seed(seed));
    let so_far = RefCell::new(SoFar {
        figure,
        simulated,
        results: seeds.iter().map(|&seed| (seed, known(seed))).collect(),
        seeds: seeds.clone(),
        failures: Vec::new(),
        current: None,
        complete: false,
        unconvoy: env!("CARGO_PKG_VERSION").to_string(),
        plan: Some(plan),
        build: Some(figure::build()?),
        quick: how.size == Size::Reduced,
    });
    let mut ended = Ended { complete: true, ..Ended::default() };
    for (number, &seed) in seeds.iter().enumerate() {
        let cells = simulated.cells(how.size, seed);
        let done = std::mem::take(&mut so_far.borrow_mut().results[number].1);
        let missing: Vec<Cell> =
            cells.iter().filter(|cell| find(&done, cell).is_none()).cloned().collect();
        if seeds.len() > 1 && !missing.is_empty() {
            complain(&messages::simulating_seed(figure.name, seed, number + 1, seeds.len()));
        }
        so_far.borrow_mut().current = Some(number);
        let keep = |ended: &Ended, when| {
            let mut so_far = so_far.borrow_mut();
            let all = || done.iter().chain(&ended.results);
            let in_order = cells.iter().filter_map(|cell| all().find(|one| is_of(one, cell)));
            so_far.results[number].1 = in_order.cloned().collect();
            if so_far.is_empty() || when == Write::SoFar && !is_replaceable(so_far_in) {
                return Ok(());
            }
            write(so_far_in, record_text::json(&so_far.record(&so_far.lines()))?)
        };
        let Points { ended: of_seed, written } = simulate(how.jobs, &missing, &keep)?;
        written?;
        so_far.borrow_mut().failures.extend(of_seed.failures.iter().cloned());
        ended.failures.extend(of_seed.failures);
        ended.complete &= of_seed.complete;
        if !ended.complete {
            break;
        }
    }
    let mut so_far = so_far.into_inner();
    so_far.complete = ended.complete;
    if ended.complete {
        so_far.current = None;
    }
    // Do not replace an earlier record by nothing.
    if so_far.is_empty() {
        return finish(&ended);
    }
    if so_far.complete || !is_kept {
        so_far.write(how.base, &json)?;
        // Ignore a failure: most figures have no such file.
        let _ = std::fs::remove_file(&unfinished);
    } else {
        complain(&messages::complete_record_kept(&json, &unfinished));
    }
    finish(&ended)
}

/// Draws the figure from records and checks its claims again. The seeds of several records are put
/// together; a record whose results are not used makes the figure neither incomplete nor failed.
///
/// # Errors
///
/// Fails if a record cannot be read or is of another figure, or if a file cannot be written.
pub fn redraw(
    figure: &Figure,
    simulated: &Simulated,
    records: &[PathBuf],
    base: &Path,
) -> anyhow::Result<()> {
    let stored: Vec<Stored> =
        records.iter().map(|path| Stored::read(path)).collect::<anyhow::Result<_>>()?;
    let name = short_name(figure);
    let Merged { seeds: results, sources } = seeds::merged(name, &stored)?;
    let first = stored.first().context(messages::record_lacks("its results"))?;
    ensure!(
        results.iter().any(|(_, results)| !results.is_empty()),
        messages::record_lacks("its results")
    );
    let is_alike = |one: &Stored| one.plan == first.plan && one.unconvoy == first.unconvoy;
    ensure!(stored.iter().all(is_alike), messages::records_of_different_plans());
    if stored.iter().any(|one| one.build != first.build) {
        complain(messages::records_of_different_builds());
    }
    // Each seed may be whole although the record that it comes from lacks others.
    let json = with_suffix(base, ".json");
    let quick = stored.iter().any(|stored| stored.quick);
    let is_full = |path: &Path| Stored::read(path).is_ok_and(|known| !known.quick);
    if quick && !records.contains(&json) && is_full(&json) {
        return Err(Usage::of(anyhow!(messages::full_record_replaced_by_quick(&json))));
    }
    let points = stored.iter().filter(|one| one.is_whole()).map(Stored::points).max();
    let complete = sources.iter().all(|source| source.complete)
        || results.iter().all(|(_, results)| Some(results.len()) == points);
    let so_far = SoFar {
        figure,
        simulated,
        seeds: results.iter().map(|(seed, _)| *seed).collect(),
        results,
        failures: sources.iter().flat_map(|source| source.failures.clone()).collect(),
        current: None,
        complete,
        unconvoy: first.unconvoy.clone(),
        plan: first.plan.clone(),
        build: first
            .build
            .clone()
            .filter(|build| sources.iter().all(|it| it.build.as_ref() == Some(build))),
        quick,
    };
    so_far.write(base, &json)
}

/// The full record that a quick version of the figure would replace, if there is one. A record from
/// before records named their size counts as full, unless it has the quick version's plan.
pub fn replaced_full_record(figure: &Figure, simulated: &Simulated, how: &How) -> Option<PathBuf> {
    let json = how.record();
    let stored = Stored::read(&json).ok()?;
    let quick_plan = simulated.fingerprint(Size::Reduced);
    let is_quick = stored.quick || stored.plan.as_ref() == Some(&quick_plan);
    let is_kept = how.resume && is_usable(figure, &stored, &quick_plan, &how.seeds);
    (!is_quick && !is_kept).then_some(json)
}

fn is_of(result: &Result, cell: &Cell) -> bool {
    result.x == cell.x && result.series == cell.series && result.panel == cell.panel
}

fn find<'a>(results: &'a [Result], cell: &Cell) -> Option<&'a Result> {
    results.iter().find(|result| is_of(result, cell))
}

impl SoFar<'_> {
    fn is_empty(&self) -> bool {
        self.results.iter().all(|(_, results)| results.is_empty())
    }

    /// The claims, by the seeds that have all points, if there is one.
    fn judged(&self) -> Vec<Judged> {
        let has_results = |number: usize| !self.results[number].1.is_empty();
        match self.current {
            Some(current) if (0..self.results.len()).any(|it| it != current && has_results(it)) => {
                let mut whole = self.results.clone();
                whole[current].1.clear();
                seeds::judged(self.simulated, &whole)
            }
            _ => seeds::judged(self.simulated, &self.results),
        }
    }

    fn lines(&self) -> Vec<Line> {
        seeds::lines(self.simulated, &self.results)
    }

    fn record<'a>(&'a self, lines: &'a [Line]) -> Record<'a> {
        Record {
            schema: SCHEMA,
            simulated: true,
            unconvoy: &self.unconvoy,
            seed: self.seeds.first().copied().unwrap_or_default(),
            seeds: &self.seeds,
            seconds: None,
            figure: short_name(self.figure),
            plan: self.plan.as_deref(),
            build: self.build.as_deref(),
            quick: self.quick,
            complete: self.complete,
            failures: &self.failures,
            changes: self.simulated.changes.iter().map(ToString::to_string).collect(),
            claims: self.judged(),
            lines: (!self.simulated.is_first_seed).then_some(lines),
            results: seeds::joined(&self.results),
        }
    }

    /// Writes record, CSV file and drawings, and prints the claims.
    fn write(&self, base: &Path, json: &Path) -> anyhow::Result<()> {
        let lines = self.lines();
        let record = self.record(&lines);
        write(json, record_text::json(&record)?)?;
        let table = with_suffix(base, ".csv");
        let drawn = if self.simulated.is_first_seed { &self.seeds[..1] } else { &self.seeds };
        write(&table, seeds::csv(&lines, drawn)?)?;
        let files = self.draw(&record, &lines).write(base)?;
        let files: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
        print(&format!(
            "{}\n{}, {} and {}\n",
            self.text(&record)?,
            files.join(", "),
            table.display(),
            json.display()
        ))?;
        Ok(())
    }

    /// What the terminal shows of the figure.
    fn text(&self, record: &Record) -> anyhow::Result<String> {
        let state = if self.is_whole() { "" } else { "INCOMPLETE. " };
        let mut text = format!("{}\n\n{state}{}\n\n", self.figure.title, self.figure.remark);
        for change in &record.changes {
            text.push_str(&format!("Changed against the paper: {change}.\n"));
        }
        if !record.changes.is_empty() {
            text.push_str(&format!("{}.\n\n", messages::see_published(self.figure.name)));
        }
        for claim in &record.claims {
            let verdict = if claim.holds { "holds        " } else { "DOES NOT HOLD" };
            text.push_str(&format!("{verdict}  {} ({})\n", claim.claim, claim.evidence()));
        }
        if let Some(tabulate) = self.simulated.table {
            let mut rows = tabulate(&seeds::medians(&record.results)?).into_iter();
            let mut table = Table::new();
            table.load_style(styles::ASCII_MARKDOWN);
            table.set_header(rows.next().unwrap_or_default());
            table.add_rows(rows);
            text.push_str(&format!("\nAt 32 tasks:\n\n{table}\n"));
        }
        Ok(text)
    }

    /// Lays out the figure.
    fn draw(&self, record: &Record, lines: &[Line]) -> chart::Figure {
        let (figure, mut names) = (self.figure, Vec::new());
        let mut panels: Vec<(&str, Vec<&Line>)> = Vec::new();
        for line in lines {
            match panels.iter_mut().find(|panel| panel.0 == line.panel) {
                Some(panel) => panel.1.push(line),
                None => panels.push((&line.panel, vec![line])),
            }
        }
        let panel = |(title, lines): (&str, Vec<&Line>)| {
            panel(title.to_string(), self.simulated.across, &lines, &mut names)
        };
        let panels = panels.into_iter().map(panel).collect();
        let shape = record.claims.iter().map(|claim| {
            let what = if claim.holds { "holds" } else { "DOES NOT HOLD" };
            format!("{} ({what}; {})", claim.claim, claim.evidence())
        });
        let changes = record.changes.iter().map(|change| format!("Changed: {change}."));
        let remark = [figure.remark.to_string()].into_iter().chain(changes);
        let remark = remark.chain(["Claims checked here:".to_string()]).chain(shape);
        let remark = Some(remark.collect::<Vec<_>>().join(" * "));
        let title = figure.title.to_string();
        chart::Figure { title, names, panels, caption: self.caption(), remark }
    }

    fn is_whole(&self) -> bool {
        self.complete && self.failures.is_empty()
    }

    fn caption(&self) -> String {
        let what = if self.is_whole() { "" } else { "INCOMPLETE. " };
        let shown = match self.seeds.as_slice() {
            [one] => format!("seed {one}"),
            all if self.simulated.is_first_seed => {
                format!("{}; drawn: seed {}, claims: medians", named(all), all[0])
            }
            all => format!("{}: medians; band: smallest to largest", named(all)),
        };
        format!("{what}Simulated, not measured: unconvoy {}, {shown}", self.unconvoy)
    }
}

/// Seeds as text: a range, if there are no gaps.
fn named(seeds: &[u64]) -> String {
    let (first, last) = (seeds[0], seeds[seeds.len() - 1]);
    if last - first == seeds.len() as u64 - 1 {
        return format!("seeds {first} to {last}");
    }
    let all: Vec<_> = seeds.iter().map(u64::to_string).collect();
    format!("seeds {}", all.join(", "))
}

fn panel(title: String, across_title: &str, lines: &[&Line], names: &mut Vec<String>) -> Panel {
    let places = || lines.iter().flat_map(|line| &line.points);
    let across = Axis::up_to(places().map(|place| place.x).fold(0.0, f64::max), Unit::Plain);
    let ends: Vec<f64> = places().flat_map(|place| [place.min, place.max]).collect();
    let up = Axis::values(&ends, Unit::Plain);
    let series = lines.iter().map(|line| {
        let point = |place: &seeds::Place| match Spread::of(place.values.iter().copied().flatten())
        {
            Some(spread) => Point::of(place.x, &spread, &up),
            None => Point::single(place.x, up.position(place.median)),
        };
        Series {
            sign: Sign::of(index_of(&line.line, names)),
            points: line.points.iter().map(point).collect(),
            has_markers: line.points.len() < 40,
        }
    });
    let series = series.collect();
    Panel { title, across, across_title: across_title.to_string(), up, series, mark: None }
}
