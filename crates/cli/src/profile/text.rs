//! The report for a terminal of 100 columns.

use unconvoy_measure::chart::quantity;

use super::options::By;
use super::remarks;
use super::report::Report;
use super::rows::{Place, Row};
use crate::advice::finding::Advice;
use crate::advice::text as sentences;
use crate::paragraph::{COLUMNS, wrapped};

/// Number of waiting places listed below a lock.
const WAITERS: usize = 2;

fn time(ns: u64) -> String {
    quantity::seconds(ns as f64 * 1e-9)
}

fn optional(ns: Option<u64>) -> String {
    ns.map_or_else(|| "-".to_string(), time)
}

/// Shortens a text in its middle, where paths and template arguments say least.
fn cut(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_string();
    }
    let (head, tail) = (width / 2 - 1, width - width / 2 - 2);
    let first: String = text.chars().take(head).collect();
    let last: String = text.chars().skip(length - tail).collect();
    format!("{first}...{last}")
}

fn fit(line: &str) -> String {
    format!("{}\n", line.trim_end().chars().take(COLUMNS).collect::<String>())
}

/// Renders the report, with up to `top` rows in each table.
pub fn render(report: &Report, by: By, top: usize) -> String {
    let mut text = wrapped(&heading(report));
    match by {
        By::Class => text += &locks(&report.classes, top),
        By::Lock => text += &locks(&report.locks, top),
        By::Waiter => text += &places("time waited", "waiting place", &report.waiters, top),
        By::Holder if report.holders.is_empty() => text += "\nNo holding place is known.\n",
        By::Caller if report.callers.is_empty() => {
            text += "\nNo system call is known: only profiles of --kernel have them.\n";
        }
        By::Holder | By::Caller => {}
    }
    if !report.callers.is_empty() {
        text += &places("time waited", "system call and task", &report.callers, top);
    }
    if !report.holders.is_empty() {
        text += &places("waiting caused", "holding place", &report.holders, top);
    }
    text += &signals(&report.classes, top);
    for line in &report.remarks {
        text += &format!("\n{}", wrapped(line));
    }
    text + &advice(&report.advice)
}

/// The advice, with the strategy that follows from it.
pub fn advice(all: &[Advice]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let mut text = String::from("\nadvice\n");
    for (number, advice) in all.iter().enumerate() {
        for (index, paragraph) in sentences::paragraphs(advice).iter().enumerate() {
            let start = if index == 0 { format!("{}. ", number + 1) } else { String::new() };
            text += &wrapped(&format!("{start}{paragraph}"));
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

fn locks(rows: &[Row], top: usize) -> String {
    let rows: Vec<&Row> = rows.iter().filter(|row| !row.is_cond()).collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut text = fit(&format!(
        "\nlock\n{:>9} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "waited", "share", "waits", "longest", "wait p50", "p99", "hold p50", "p99"
    ));
    for row in rows.iter().take(top) {
        let count = if row.locks > 1 { format!("{} x ", row.locks) } else { String::new() };
        text += &format!("{}\n", cut(&format!("{count}{}", row.name), COLUMNS));
        text += &fit(&format!(
            "{:>9} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
            time(row.waited_ns),
            percent(row.share),
            row.waits,
            time(row.longest_ns),
            optional(row.wait.p50_ns),
            optional(row.wait.p99_ns),
            optional(row.hold.p50_ns),
            optional(row.hold.p99_ns),
        ));
        for place in row.waiters.iter().take(WAITERS) {
            text += &place_line("waits in", place);
        }
        for place in row.holders.iter().take(1) {
            text += &place_line("held by", place);
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

fn place_line(what: &str, place: &Place) -> String {
    fit(&format!("{:>14}  {what:<8}  {}", percent(place.share), cut(&place.place, COLUMNS - 28)))
}

fn places(title: &str, what: &str, places: &[Place], top: usize) -> String {
    let mut text = fit(&format!("{title:>14} {:>6}  {what}", "share"));
    text.insert(0, '\n');
    for place in places.iter().take(top) {
        text += &fit(&format!(
            "{:>14} {:>6}  {}",
            time(place.ns),
            percent(place.share),
            cut(&place.place, COLUMNS - 23)
        ));
    }
    text + &hidden(places.len(), top)
}

/// The table of condition variables. Waiting for a signal is not contention.
fn signals(rows: &[Row], top: usize) -> String {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.is_cond()).collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut text = String::from("\n");
    text += &fit(&format!(
        "{:>14} {:>9} {:>8} {:>8}  waits for a signal (not contention)",
        "waited", "waits", "p50", "p99"
    ));
    for row in rows.iter().take(top) {
        text += &fit(&format!(
            "{:>14} {:>9} {:>8} {:>8}  {}",
            time(row.waited_ns),
            row.waits,
            optional(row.wait.p50_ns),
            optional(row.wait.p99_ns),
            cut(&row.name, COLUMNS - 44),
        ));
    }
    text + &hidden(rows.len(), top)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_keeps_both_ends() {
        assert_eq!(cut("short", 10), "short");
        let cut = cut("std::map<std::string, std::vector<int>>::find (map.h:12)", 30);
        assert_eq!(cut.chars().count(), 30);
        assert!(cut.starts_with("std::map<") && cut.ends_with("(map.h:12)"), "{cut}");
    }
}
