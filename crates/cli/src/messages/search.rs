//! Messages of `tune -- PROGRAM`.

use std::fmt::Display;
use std::path::Path;

use unconvoy_measure::arguments::counted;

pub(crate) fn no_budget() -> &'static str {
    "expected 1s to 24h, such as 90s or 5m"
}

pub(crate) fn no_error_rate() -> &'static str {
    "expected 0.0001 to 0.5"
}

pub(crate) fn output_rejected(option: &str, file: &Path, why: impl Display) -> String {
    format!("{option} {}: {why}", file.display())
}

pub(crate) fn not_ours(file: &Path) -> String {
    format!(
        "{} exists and is not from `unconvoy tune`: name another file, or this one, with --output",
        file.display()
    )
}

pub(crate) fn earlier_strategy(file: &Path) -> String {
    format!("{} is from an earlier search: this one found nothing to put there", file.display())
}

pub(crate) fn would_lose_search(file: &Path) -> String {
    let file = file.display();
    format!(
        "{file} exists, where this search would keep its runs:\n  \
         continue that search with --resume {file}, remove the file, or name another with --json"
    )
}

pub(crate) fn default_output_rejected(file: &Path, why: impl Display) -> String {
    format!("{}: {why}; name another file with --output", file.display())
}

pub(crate) fn not_a_record(file: &Path) -> String {
    format!("{} is not a record of `unconvoy tune`: start again without --resume", file.display())
}

pub(crate) fn damaged_record(file: &Path, why: impl Display) -> String {
    format!("{} ({why})", not_a_record(file))
}

pub(crate) fn nothing_to_resume(file: &Path) -> String {
    format!(
        "no search to resume: {} does not exist, and a search that ended keeps no such file;\n  \
         start again without --resume",
        file.display()
    )
}

pub(crate) fn complete(file: &Path) -> String {
    format!("{} is complete: there is nothing to resume", file.display())
}

pub(crate) fn differs(file: &Path, what: &str, old: &str, new: &str) -> String {
    let is = if what.ends_with('s') { "are" } else { "is" };
    format!(
        "{} cannot be resumed: its {what} {is} {old} and not {new};\n  \
         repeat its command on its machine, or start again without --resume",
        file.display()
    )
}

pub(crate) fn budget_too_small(run: &str, minutes: u64) -> String {
    format!(
        "Undecided: a run takes {run}, so the budget is too small for trials: try --budget \
         {minutes}m"
    )
}

pub(crate) fn first_run_too_long(seconds: f64) -> String {
    format!(
        "Undecided: the first run did not end within the budget of {seconds:.0} s: raise --budget, \
         or choose a program that ends"
    )
}

pub(crate) fn trials_open() -> String {
    "the trials did not tell all candidates apart, so another one may still gain: raise --budget, \
     or use a quieter machine"
        .to_string()
}

pub(crate) fn no_profile() -> &'static str {
    "the program recorded no profile, so no lock has an entry of its own"
}

pub(crate) fn not_tried(candidate: &str, why: &str) -> String {
    format!("not tried: {candidate}: {why}")
}

/// `last_line` is the end of the program's output.
pub(crate) fn failed_under(candidate: &str, why: &str, last_line: &str) -> String {
    let text = format!("the search drops {candidate}, under which the program failed: {why}");
    if last_line.is_empty() { text } else { format!("{text}\n  its last line: {last_line}") }
}

pub(crate) fn took_too_long(seconds: f64) -> String {
    format!("killed after {seconds:.1} s: three times as long as the first run, plus 2 s")
}

pub(crate) fn not_confirmed(candidate: &str, why: &str) -> String {
    format!(
        "Undecided: {candidate} failed in the confirmation ({why}): find out why, and search again"
    )
}

pub(crate) fn metric_not_positive(value: f64) -> String {
    format!("the metric is {value}, but ratios need more than 0: choose another --metric")
}

pub(crate) fn few_rounds(run: &str, candidates: usize, rounds: usize) -> String {
    format!(
        "a run takes {run}: the budget sufficed for {candidates} candidates and {rounds} rounds of \
         trials; raise --budget for more"
    )
}

pub(crate) fn short_runs(run: &str) -> String {
    format!(
        "a run takes {run}, much of it to start and end the program: let the program do more work"
    )
}

/// `half` is half the interval's width, in percent.
pub(crate) fn varies(half: f64, rounds: usize, time: &str) -> String {
    format!(
        "the metric varies too much: the interval is ±{half:.1} %; a gain of 2 % needs {rounds} \
         runs of each, {time} in all:\n  use a quieter machine, longer runs, or a larger --budget"
    )
}

pub(crate) fn varies_at_one_count() -> String {
    "the metric varies too much with one of the thread counts:\n  use a quieter machine, longer \
     runs, or a larger --budget"
        .to_string()
}

/// `near` and `far` are ratios with their numbers of rounds.
pub(crate) fn depends_on_distance(
    candidate: &str,
    (near, near_rounds): (String, usize),
    (far, far_rounds): (String, usize),
) -> String {
    format!(
        "the virtual processors moved, and the result depends on that: {candidate} is\n  \
         {near} in {near_rounds} rounds with near processors, and\n  \
         {far} in {far_rounds} rounds with far ones:\n  \
         search again where processors stay, or weigh the two ratios yourself"
    )
}

pub(crate) fn leads(candidate: &str, rounds: usize, ratio: f64) -> String {
    format!(
        "So far, not confirmed: {candidate}, {ratio:.2} times libc in {} of trials",
        counted(rounds as u64, "round")
    )
}

/// `ratio` is "1.84 times libc (1.71 to 1.97)".
pub(crate) fn leads_afresh(candidate: &str, ratio: &str, rounds: usize) -> String {
    format!("So far, not confirmed: {candidate}, {ratio} in {rounds} fresh rounds")
}

pub(crate) fn nothing_yet() -> &'static str {
    "Nothing was found before the end: no round of trials ended"
}

pub(crate) fn kept(command: &str) -> String {
    format!("the runs so far are kept; to resume: {command}")
}

#[cfg(test)]
pub(crate) fn samples() -> Vec<String> {
    let file = Path::new("server-tune.json");
    vec![
        no_budget().into(),
        no_error_rate().into(),
        output_rejected("--output", Path::new("/server.toml"), "permission denied"),
        not_ours(Path::new("server.toml")),
        earlier_strategy(file),
        would_lose_search(file),
        default_output_rejected(Path::new("server.toml"), "cannot write to / (permission denied)"),
        not_a_record(file),
        damaged_record(file, "expected value at line 1 column 1"),
        nothing_to_resume(file),
        complete(file),
        differs(file, "machine's cpu", "\"Z80\"", "\"AMD EPYC\""),
        budget_too_small("60.0 s", 21),
        first_run_too_long(30.0),
        trials_open(),
        no_profile().into(),
        not_tried("elided", "this processor has no transactions"),
        failed_under("tpmcs+control", "exit status 3", "no database"),
        took_too_long(5.0),
        not_confirmed("default", "exit status 3"),
        metric_not_positive(0.0),
        few_rounds("25.0 s", 3, 2),
        short_runs("4.00 ms"),
        varies(7.5, 120, "4.00 s"),
        varies_at_one_count(),
        depends_on_distance(
            "default",
            ("1.65 times libc (1.38 to 1.97)".into(), 7),
            ("0.94 times libc (0.83 to 1.05)".into(), 18),
        ),
        leads("loiter+park", 4, 1.32),
        leads_afresh("loiter+park", "1.32 times libc (1.20 to 1.45)", 3),
        nothing_yet().into(),
        kept("unconvoy tune --resume server-tune.json -- ./server"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verb_agrees_with_what_differs() {
        let text = |what: &str| differs(Path::new("tune.json"), what, "[2]", "[4]");
        assert!(text("threads").contains("its threads are [2] and not [4]"));
        assert!(text("machine's cpu").contains("its machine's cpu is [2] and not [4]"));
    }
}
