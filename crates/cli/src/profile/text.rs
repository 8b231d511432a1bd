//! The report for a terminal of 80 to 100 columns.

use unconvoy_measure::chart::quantity;

use super::options::By;
use super::remarks;
use super::report::Report;
use super::rows::{Place, Row};
use crate::advice::finding::Advice;
use crate::advice::text as sentences;
use crate::paragraph::{cut, wrapped};

/// Number of waiting places listed below a lock.
const WAITERS: usize = 2;

fn time(ns: u64) -> String {
    quantity::seconds(ns as f64 * 1e-9)
}

fn optional(ns: Option<u64>) -> String {
    ns.map_or_else(|| "-".to_string(), time)
}

fn fit(line: &str, columns: usize) -> String {
    format!("{}\n", line.trim_end().chars().take(columns).collect::<String>())
}

/// Renders the report in lines of at most `columns`, with up to `top` rows in each table.
pub fn render(report: &Report, by: By, top: usize, columns: usize) -> String {
    let mut text = wrapped(&heading(report), columns);
    match by {
        By::Class => text += &locks(&report.classes, top, columns),
        By::Lock => text += &locks(&report.locks, top, columns),
        By::Waiter => {
            text += &places("time waited", "waiting place", &report.waiters, top, columns)
        }
        By::Holder if report.holders.is_empty() => text += "\nNo holding place is known.\n",
        By::Caller if report.callers.is_empty() => {
            text += "\nNo system call is known: only profiles of --kernel have them.\n";
        }
        By::Holder | By::Caller => {}
    }
    if !report.callers.is_empty() {
        text += &places("time waited", "system call and task", &report.callers, top, columns);
    }
    if !report.holders.is_empty() {
        text += &places("waiting caused", "holding place", &report.holders, top, columns);
    }
    text += &signals(&report.classes, top, columns);
    for line in &report.remarks {
        text += &format!("\n{}", wrapped(line, columns));
    }
    text + &advice(&report.advice, columns)
}

/// The advice, with the strategy that follows from it.
pub fn advice(all: &[Advice], columns: usize) -> String {
    if all.is_empty() {
        return String::new();
    }
    let mut text = String::from("\nadvice\n");
    for (number, advice) in all.iter().enumerate() {
        for (index, paragraph) in sentences::paragraphs(advice).iter().enumerate() {
            let start = if index == 0 { format!("{}. ", number + 1) } else { String::new() };
            text += &wrapped(&format!("{start}{paragraph}"), columns);
        }
    }
    match sentences::strategy(all) {
        Some(strategy) => {
            let use_of_it = "save as FILE.toml, for unconvoy run --strategy FILE.toml -- PROGRAM";
            format!("{text}\nstrategy ({use_of_it})\n{strategy}")
        }
        None => text,
    }
}

/// One sentence on the program, its locks and the time waited.
pub fn heading(report: &Report) -> String {
    let locks: Vec<&Row> = report.locks.iter().filter(|row| !row.is_cond()).collect();
    let served = match (&report.lock[..], &report.load[..]) {
        ("libc", _) => "libc's locks".to_string(),
        (remarks::OWN, _) => "its own locks".to_string(),
        (remarks::KERNEL, _) => "the kernel's locks".to_string(),
        (lock, load) => format!("{lock}+{load}"),
    };
    let subject = match report.pid {
        0 => report.subject().to_string(),
        pid => format!("{} (process {pid})", report.subject()),
    };
    let whole = format!("{subject}: {}, {served}", quantity::seconds(report.seconds));
    if locks.is_empty() {
        // The waits of a hung program do not end.
        let is_known = report.complete && report.coverage.is_none();
        let none = if is_known { "no lock was waited for" } else { "no wait for a lock has ended" };
        return format!("{whole}; {none}");
    }
    let (waits, waited) = locks
        .iter()
        .fold((0, 0), |(waits, waited), row| (waits + row.waits, waited + row.waited_ns));
    format!(
        "{whole}; {} of waiting in {waits} waits for {} {}",
        time(waited),
        locks.len(),
        if locks.len() == 1 { "lock" } else { "locks" }
    )
}

fn locks(rows: &[Row], top: usize, columns: usize) -> String {
    let rows: Vec<&Row> = rows.iter().filter(|row| !row.is_cond()).collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut text = String::from("\nlock\n");
    text += &fit(
        &format!(
            "{:>9} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
            "waited", "share", "waits", "longest", "wait p50", "p99", "hold p50", "p99"
        ),
        columns,
    );
    for row in rows.iter().take(top) {
        let count = if row.locks > 1 { format!("{} x ", row.locks) } else { String::new() };
        text += &format!("{}\n", cut(&format!("{count}{}", row.name), columns));
        text += &fit(
            &format!(
                "{:>9} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
                time(row.waited_ns),
                percent(row.share),
                row.waits,
                time(row.longest_ns),
                optional(row.wait.p50_ns),
                optional(row.wait.p99_ns),
                optional(row.hold.p50_ns),
                optional(row.hold.p99_ns),
            ),
            columns,
        );
        for place in row.waiters.iter().take(WAITERS) {
            text += &place_line("waits in", place, columns);
        }
        for place in row.holders.iter().take(1) {
            text += &place_line("held by", place, columns);
        }
    }
    text + &hidden(rows.len(), top)
}

fn hidden(rows: usize, top: usize) -> String {
    match rows.saturating_sub(top) {
        0 => String::new(),
        more => format!("{more} more: raise --top\n"),
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

fn place_line(what: &str, place: &Place, columns: usize) -> String {
    fit(
        &format!("{:>14}  {what:<8}  {}", percent(place.share), cut(&place.place, columns - 28)),
        columns,
    )
}

fn places(title: &str, what: &str, places: &[Place], top: usize, columns: usize) -> String {
    let mut text = fit(&format!("{title:>14} {:>6}  {what}", "share"), columns);
    text.insert(0, '\n');
    for place in places.iter().take(top) {
        text += &fit(
            &format!(
                "{:>14} {:>6}  {}",
                time(place.ns),
                percent(place.share),
                cut(&place.place, columns - 23)
            ),
            columns,
        );
    }
    text + &hidden(places.len(), top)
}

/// The table of condition variables. Waiting for a signal is not contention.
fn signals(rows: &[Row], top: usize, columns: usize) -> String {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.is_cond()).collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut text = String::from("\n");
    text += &fit(
        &format!(
            "{:>14} {:>9} {:>8} {:>8}  waits for a signal (not contention)",
            "waited", "waits", "p50", "p99"
        ),
        columns,
    );
    for row in rows.iter().take(top) {
        text += &fit(
            &format!(
                "{:>14} {:>9} {:>8} {:>8}  {}",
                time(row.waited_ns),
                row.waits,
                optional(row.wait.p50_ns),
                optional(row.wait.p99_ns),
                cut(&row.name, columns - 44),
            ),
            columns,
        );
    }
    text + &hidden(rows.len(), top)
}
