//! Messages of `compare`.

use std::fmt::Display;
use std::path::Path;

pub(crate) fn libc_has_no_special_set() -> &'static str {
    "libc has no special set of cores: put +confine after another lock"
}

pub(crate) fn unknown_lock(name: &str, known: &str) -> String {
    format!("unknown lock '{name}'\n{known}")
}

pub(crate) fn default_is_a_pair(lock: &str, load: &str) -> String {
    format!("'default' has a load manager already: write {lock}+{load}")
}

pub(crate) fn unknown_load_manager(name: &str, known: &str) -> String {
    format!("unknown load manager '{name}'\n{known}")
}

pub(crate) fn lock_not_available(name: &str, reason: &str) -> String {
    format!("'{name}' is not available on this machine: {reason}")
}

pub(crate) fn nothing_to_draw() -> &'static str {
    "no run finished, so there is nothing to draw"
}

pub(crate) fn nothing_to_list() -> &'static str {
    "no run finished, so the file would be empty"
}

pub(crate) fn duplicate_value(option: &str, value: impl Display) -> String {
    format!("{option} lists {value} twice")
}

pub(crate) fn no_precision() -> &'static str {
    "expected a fraction from .001 to .5, such as .015"
}

pub(crate) fn precision_of_one() -> &'static str {
    "--precision is about ratios: name two or more --locks"
}

pub(crate) fn runs_for_precision(least: usize, most: usize) -> String {
    format!("with --precision, --runs takes {least} to {most}")
}

/// `half` is half the interval's width, as a fraction.
pub(crate) fn not_precise(name: &str, half: f64, wanted: f64) -> String {
    format!(
        "the ratio of {name} is known to ±{:.1} % and not to ±{:.1} %: raise --runs",
        100.0 * half,
        100.0 * wanted
    )
}

pub(crate) fn no_thread_counts() -> &'static str {
    "expected numbers with commas between them, such as 1,2,4"
}

pub(crate) fn threads_without_placeholder(placeholder: &str) -> String {
    format!(
        "--threads has no effect without {placeholder}: write it where PROGRAM takes the thread \
         count"
    )
}

pub(crate) fn no_capture_group(regex: &str) -> String {
    // The pattern of the number often stands there, without the group.
    let before = regex.trim_end_matches(['+', '*', '.', '$']);
    let before = before.strip_suffix("[0-9.]").or(before.strip_suffix("[0-9]")).unwrap_or(before);
    let before = before.strip_suffix("\\d").unwrap_or(before);
    format!("no capture group: put ( ) around the number, as in '{before}([0-9.]+)'")
}

pub(crate) fn several_capture_groups(count: usize) -> String {
    format!("{count} capture groups, expected 1: write the others as (?: )")
}

pub(crate) fn count_not_positive(count: f64) -> String {
    format!("--ops: captured {count}, but processor time per operation needs a positive count")
}

pub(crate) fn fairness_out_of_range(index: f64) -> String {
    format!("--fairness: captured {index}, but a fairness index is between 0 and 1")
}

pub(crate) fn no_match(regex: impl Display) -> String {
    format!("no line of the output matches '{regex}'")
}

/// `rest` follows the number that the expression took.
pub(crate) fn number_goes_on(regex: impl Display, text: &str, rest: &str) -> String {
    format!(
        "'{regex}' takes only the beginning of {text}{rest}: match the whole number, as \
         ([0-9.e+-]+) does, without separators"
    )
}

pub(crate) fn not_a_number(regex: impl Display, text: &str) -> String {
    format!("'{regex}' captures '{text}', which is not a number")
}

pub(crate) fn killed_after_timeout(seconds: f64) -> String {
    format!("killed after --timeout {seconds} s")
}

pub(crate) fn machine_is_loaded(load: f64, processors: u32) -> String {
    format!(
        "the load average is {load:.1} on {processors} processors: stop the other programs, or \
         expect a wide spread"
    )
}

pub(crate) fn too_few_runs(runs: u32, fewest: usize) -> String {
    format!(
        "no difference is significant with {runs} per cell: use --runs {fewest} or more",
        runs = if runs == 1 { "1 run".to_string() } else { format!("{runs} runs") }
    )
}

pub(crate) fn metric_left_out(cell: &str) -> String {
    format!("{cell} has runs with a metric of 0 or less, which the ratios leave out")
}

/// `centre` and `mean` are ratios.
pub(crate) fn skewed(cell: &str, centre: f64, mean: f64) -> String {
    format!(
        "{cell} is {centre:.2}x, but {mean:.2}x in the mean of all rounds: --json shows the \
         rounds that differ"
    )
}

/// `limit` and `widest` are fractions of the median.
pub(crate) fn wide_spread(
    limit: f64,
    wide: usize,
    cells: usize,
    worst: &str,
    widest: f64,
) -> String {
    let (limit, widest) = (100.0 * limit, 100.0 * widest);
    format!(
        "the spread exceeds {limit:.0} % in {wide} of {cells} cells (widest: {worst}, \
         {widest:.0} %): raise --runs or use a quieter machine"
    )
}

pub(crate) fn runs_saved(count: usize, file: &Path) -> String {
    format!("saved the {count} finished runs to {}", file.display())
}

pub(crate) fn cannot_save_runs(first: &Path, second: &Path) -> String {
    format!(
        "cannot save the finished runs to {} or {}:\n  name a writable file with --json",
        first.display(),
        second.display()
    )
}

#[cfg(test)]
#[test]
fn pattern_of_a_number_gets_its_group() {
    for pattern in
        ["rate: ", "rate: [0-9.]+", "rate: [0-9]+", r"rate: \d+", r"rate: \d+$", "rate: .*"]
    {
        assert!(no_capture_group(pattern).ends_with("'rate: ([0-9.]+)'"), "{pattern}");
    }
}

#[cfg(test)]
pub(crate) fn samples() -> Vec<String> {
    vec![
        libc_has_no_special_set().into(),
        unknown_lock("mutex", "  locks: loiter, tpmcs"),
        default_is_a_pair("loiter", "park"),
        unknown_load_manager("sleep", "  load managers: control, none"),
        no_precision().into(),
        precision_of_one().into(),
        runs_for_precision(8, 64),
        not_precise("default at 8 threads", 0.062, 0.02),
        lock_not_available("elided", "the processor commits no transactions"),
        nothing_to_draw().into(),
        nothing_to_list().into(),
        duplicate_value("--locks", "libc"),
        no_thread_counts().into(),
        threads_without_placeholder("{threads}"),
        no_capture_group("ops: "),
        several_capture_groups(2),
        count_not_positive(0.0),
        fairness_out_of_range(1.5),
        no_match("ops: ([0-9]+)"),
        number_goes_on("ops: ([0-9.]+)", "1.02", "e+06"),
        not_a_number("ops: (.*)", "many"),
        killed_after_timeout(2.5),
        machine_is_loaded(5.25, 2),
        too_few_runs(2, 3),
        metric_left_out("default at 8 threads"),
        skewed("default at 8 threads", 1.03, 0.94),
        wide_spread(0.1, 3, 12, "default at 8 threads", 0.24),
        runs_saved(12, Path::new("/home/user/unconvoy-compare-partial.json")),
        cannot_save_runs(
            Path::new("unconvoy-compare-partial.json"),
            Path::new("/tmp/unconvoy-compare-partial.json"),
        ),
    ]
}
