//! The report for a terminal: Table 2, the projected gain, then each lock.

use super::record::{Clock, LockReport, Report};
use crate::conflicts::{Histogram, HotSpot, PlaceCount};
use crate::estimate::Estimate;
use crate::projection::Projection;
use comfy_table::{CellAlignment, Table, presets};
use std::fmt::Write;

/// Hot spots shown for each lock.
const SPOTS: usize = 8;
/// Kinds of locks shown.
const KINDS: usize = 40;

impl Report {
    /// The report for a terminal, with details of the `most` locks held longest.
    pub fn text(&self, most: usize) -> String {
        render(self, most)
    }
}

fn render(report: &Report, most: usize) -> String {
    let mut out = heading(report);
    if !report.locks.is_empty() {
        out.push_str(&held(report));
        out.push_str(&kinds(report));
        out.push_str(&gain(report));
    }
    for lock in report.locks.iter().take(most) {
        out.push_str(&detail(report, lock));
    }
    let hidden = report.locks.len().saturating_sub(most);
    if hidden > 0 {
        let locks = if hidden == 1 { "lock appears" } else { "locks appear" };
        let _ = writeln!(out, "\n{hidden} more {locks} only in the tables.");
    }
    for remark in &report.remarks {
        let _ = writeln!(out, "\nnote: {remark}");
    }
    out
}

fn heading(report: &Report) -> String {
    let run = &report.run;
    let mut out = format!("{} (address sets by {}", run.program.join(" "), run.source);
    if let Some(seconds) = run.seconds {
        let _ = match run.clock {
            Clock::Native => write!(out, "; native run {seconds:.3} s"),
            Clock::Instructions => write!(out, "; {seconds:.3} s of work on all processors"),
        };
    }
    out.push_str(")\n");
    if run.clock == Clock::Instructions {
        out.push_str(
            "Times count instructions of all processors, a nanosecond each.\n\
             Shares exclude instructions spent waiting for locks.\n",
        );
    }
    out
}

/// Table 2.
fn held(report: &Report) -> String {
    let processors = &report.options.processors;
    let mut header = vec!["lock".to_string(), "time held".into(), "sections".into()];
    header.extend(processors.iter().map(|n| format!("indep. {n}")));
    header.extend(processors.iter().map(|n| format!("density {n}")));
    let mut table = table(header, 1);
    let row = |name: String, share: String, sections: String, estimates: Vec<Option<Estimate>>| {
        let mut row = vec![name, share, sections];
        row.extend(estimates.iter().map(|one| number(one.map(|one| one.independence))));
        row.extend(estimates.iter().map(|one| number(one.map(|one| one.density))));
        row
    };
    for lock in &report.locks {
        let analysis = &lock.analysis;
        table.add_row(row(
            lock.name.clone(),
            percent(lock.share),
            analysis.sections.to_string(),
            lock.measured().collect(),
        ));
    }
    if !report.average.is_empty() {
        table.add_row(row(
            "weighted average".into(),
            percent(report.held),
            report.sections.to_string(),
            report.means().collect(),
        ));
    }
    format!(
        "\nData independence and conflict density by byte, per number of processors. \
         `sections` is the number of sections analysed.\n{table}\n"
    )
}

/// Locks grouped by kind, if some kind has several.
fn kinds(report: &Report) -> String {
    if report.classes.iter().all(|class| class.locks < 2) {
        return String::new();
    }
    let header = ["kind of lock", "locks", "time held", "acquisitions", "waited, s"];
    let mut header: Vec<String> = header.map(String::from).to_vec();
    let processors = &report.options.processors;
    header.extend(processors.iter().map(|n| format!("indep. {n}")));
    header.extend(processors.iter().map(|n| format!("density {n}")));
    let mut table = table(header, 1);
    for class in report.classes.iter().take(KINDS) {
        let times = &class.times;
        let mut row = vec![class.name.clone(), class.locks.to_string(), percent(class.share)];
        row.extend([times.acquisitions.to_string(), format!("{:.6}", times.waited)]);
        let mean = |n: &u32| {
            class.average.iter().find(|average| average.processors == *n).map(|mean| mean.byte)
        };
        row.extend(processors.iter().map(|n| number(mean(n).map(|mean| mean.independence))));
        row.extend(processors.iter().map(|n| number(mean(n).map(|mean| mean.density))));
        table.add_row(row);
    }
    let hidden = report.classes.len().saturating_sub(KINDS);
    let more = if hidden > 0 {
        format!("{hidden} more kinds appear only in the JSON report.\n")
    } else {
        String::new()
    };
    format!(
        "\nLocks grouped by kind. Sections of different locks are not compared.\n{table}\n{more}"
    )
}

/// Speed-ups of sections and program.
fn gain(report: &Report) -> String {
    let processors = &report.options.processors;
    let mut header = vec!["speed-up".to_string()];
    header.extend(processors.iter().map(|n| format!("sections {n}")));
    let projected = !report.projections.is_empty();
    if projected {
        header.extend(processors.iter().map(|n| format!("program {n}")));
    }
    let costs = report.run.costs.filter(|_| projected);
    if costs.is_some() {
        header.extend(processors.iter().map(|n| format!("elided {n}")));
    }
    let mut table = table(header, 1);
    for lock in &report.locks {
        let mut row = vec![lock.name.clone()];
        row.extend(lock.speed_ups().map(both));
        if projected {
            row.extend(programs(&lock.projected().collect::<Vec<_>>(), costs.is_some()));
        }
        table.add_row(row);
    }
    if projected {
        let mut row = vec!["all locks".to_string()];
        let all: Vec<Option<&Projection>> = report.projected().collect();
        row.extend(all.iter().map(|gain| both(gain.map(|it| (it.sections, it.sections_by_line)))));
        row.extend(programs(&all, costs.is_some()));
        table.add_row(row);
        let mut row = vec!["run time, s".to_string()];
        row.extend(all.iter().map(|_| String::new()));
        let seconds = |gain: &Projection| format!("{:.3}", gain.seconds);
        row.extend(all.iter().map(|gain| gain.map_or_else(unknown, seconds)));
        table.add_row(row);
    }
    let costs = costs.map_or_else(String::new, |costs| {
        format!(
            "`elided`: speed-up of the program with `elided` locks on the machine of the native \
             run, where a transaction costs {:.1} ns more than a free lock, and a line's transfer \
             {:.0} ns.\n",
            costs.pair_ns, costs.transfer_ns
        )
    });
    format!(
        "\nSpeed-up with optimistic sections: by byte; in brackets by cache line, if different.\n\
         {costs}{table}\n"
    )
}

/// The program's speed-ups, and those with elided locks.
fn programs(gains: &[Option<&Projection>], with_elided: bool) -> Vec<String> {
    let program = |gain: &Projection| (gain.program, gain.program_by_line);
    let mut row: Vec<String> = gains.iter().map(|gain| both(gain.map(program))).collect();
    if with_elided {
        row.extend(gains.iter().map(|gain| number(gain.and_then(|gain| gain.elided))));
    }
    row
}

/// A speed-up by byte, and by line if that differs.
fn both(speed_up: Option<(f64, f64)>) -> String {
    let Some((byte, line)) = speed_up else { return unknown() };
    match format!("{byte:.2}") == format!("{line:.2}") {
        true => format!("{byte:.2}"),
        false => format!("{byte:.2} ({line:.2})"),
    }
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(unknown, |value| format!("{value:.2}"))
}

/// A number that nothing measured.
fn unknown() -> String {
    "-".into()
}

fn detail(report: &Report, lock: &LockReport) -> String {
    let analysis = &lock.analysis;
    let mut out = format!("\n{}\n", lock.name);
    for advised in &lock.advice {
        let _ = writeln!(out, "  -> {}", advised.sentence);
    }
    let _ = writeln!(
        out,
        "  {} sections of {} threads, {:.1} words each, {} read-only, {} with I/O",
        analysis.sections,
        analysis.threads,
        analysis.words,
        percent(Some(analysis.read_only)),
        percent(Some(analysis.io)),
    );
    if let Some(times) = &lock.times {
        let _ = writeln!(
            out,
            "  {}{} acquisitions, held {:.6} s, waited for {:.6} s",
            if report.run.clock == Clock::Native { "natively " } else { "" },
            times.acquisitions,
            times.held,
            times.waited
        );
    }
    if analysis.histogram.conflicts > 0 {
        let _ = writeln!(out, "  words by the share of conflicts:");
        let Histogram { words, workset, conflicts } = analysis.histogram;
        let rows: Vec<String> = Histogram::ROWS
            .iter()
            .zip(words)
            .map(|(row, words)| format!("{row}: {words}"))
            .collect();
        let _ = writeln!(out, "    {}", rows.join("  "));
        let _ = writeln!(out, "    mean workset {workset:.0} words, {conflicts} conflicts sampled");
    }
    for spot in analysis.hot_spots.iter().take(SPOTS) {
        out.push_str(&hot_spot(report, spot));
    }
    for line in analysis.false_sharing.iter().take(1) {
        let _ = writeln!(
            out,
            "  false sharing: {} pairs of sections in the cache line of {}",
            line.pairs,
            word(report, line.word)
        );
    }
    out
}

fn hot_spot(report: &Report, spot: &HotSpot) -> String {
    let places = |places: &[PlaceCount]| report.names_of(places).join(", ");
    let mut out = format!(
        "  {}: in {} of the conflicts, in {} alone\n",
        word(report, spot.address),
        percent(Some(spot.share)),
        percent(Some(spot.alone))
    );
    if !spot.readers.is_empty() {
        let _ = writeln!(out, "    read at {}", places(&spot.readers));
    }
    if !spot.writers.is_empty() {
        let _ = writeln!(out, "    written at {}", places(&spot.writers));
    }
    out
}

fn word(report: &Report, address: u64) -> String {
    match report.words.get(&address) {
        Some(name) => format!("{name} ({address:#x})"),
        None => format!("{address:#x}"),
    }
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "unknown".into(), |share| format!("{:.2}%", 100.0 * share))
}

/// A table whose columns from index `numbers` on are right-aligned numbers.
fn table(header: Vec<String>, numbers: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_header(header);
    for column in table.column_iter_mut().skip(numbers) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
