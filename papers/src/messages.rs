//! Every error and warning that a user of `bench` and `papers` can meet from this crate.

use std::path::Path;
use std::process::ExitStatus;

/// `papers run --from` with several names.
pub(crate) fn from_needs_one_figure() -> &'static str {
    "--from needs the name of one figure; see `unconvoy papers list`"
}

/// One of several figures failed; the others are still made.
pub(crate) fn figure_failed(name: &str, error: &anyhow::Error) -> String {
    format!("{name}: {error:#}")
}

/// The end of `papers` after failures.
pub(crate) fn figures_failed(names: &[&str]) -> String {
    format!("failed figures: {}; the messages above say why", names.join(", "))
}

/// `--resume` found results of other cells, or of another simulator.
pub(crate) fn record_of_another_plan(name: &str, record: &Path) -> String {
    format!(
        "{name}: {} has other points or is of another build; simulating all again",
        record.display()
    )
}

/// `papers run --from` with records of different experiments.
pub(crate) fn records_of_different_plans() -> &'static str {
    "the records have different points or are of different versions; simulate one of them again"
}

/// `papers run --from` with records of different builds.
pub(crate) fn records_of_different_builds() -> &'static str {
    "warning: the records are of different builds, which may have other locks"
}

/// A figure is simulated again, and not to its end.
pub(crate) fn complete_record_kept(record: &Path, unfinished: &Path) -> String {
    format!(
        "{} is complete and stays; --resume continues {}",
        record.display(),
        unfinished.display()
    )
}

/// A seed of several begins.
pub(crate) fn simulating_seed(name: &str, seed: u64, number: usize, of: usize) -> String {
    format!("{name}: seed {seed}, {number} of {of}")
}

/// Where the figure with the paper's own parameters is.
pub(crate) fn see_published(name: &str) -> String {
    format!("`unconvoy papers run {name}-published` has the paper's own parameters")
}

/// `--resume` found nothing to do.
pub(crate) fn record_kept(name: &str, record: &Path) -> String {
    format!("{name}: {} is complete and kept", record.display())
}

/// `--resume` found a quick version's record where a full one is wanted.
pub(crate) fn record_is_quick(name: &str, record: &Path) -> String {
    format!("{name}: {} is of a quick version; measuring all again", record.display())
}

pub(crate) fn full_record_replaced_by_quick(full: &Path) -> String {
    format!(
        "a quick record would replace full results: {}\n  name another place with --plot or --out",
        full.display()
    )
}

/// A quick version would replace the full record `first` and `others` more.
pub(crate) fn full_records_replaced(first: &Path, others: usize) -> String {
    let more = if others == 0 { String::new() } else { format!(" and {others} more") };
    format!(
        "--quick would replace full results: {}{more}\n  \
         name another directory with --out, or remove them",
        first.display()
    )
}

/// An output directory that cannot be made.
pub(crate) fn cannot_create(directory: &Path) -> String {
    format!("cannot create {}", directory.display())
}

/// A record that cannot be opened.
pub(crate) fn cannot_read(path: &Path) -> String {
    format!("cannot read {}", path.display())
}

/// A program that cannot be executed.
pub(crate) fn cannot_start(program: &Path) -> String {
    format!("cannot start {}", program.display())
}

/// A number outside of its range, or no number; `unit` is a plural noun.
pub(crate) fn expected_number(unit: &str, low: f64, high: f64) -> String {
    format!("expected {unit} from {low} to {high}")
}

/// A workload found its own data broken.
pub(crate) fn data_inconsistent(benchmark: &str) -> String {
    format!("{benchmark} found its data inconsistent: do not use this lock")
}

/// `--data` names no loaded data set.
pub(crate) fn data_set_missing(directory: &Path, workload: &str, command: &str) -> String {
    format!("{} holds no data set of {workload}; load one: `{command}`", directory.display())
}

/// The trial run on a data set failed.
pub(crate) fn data_set_unusable(command: &str) -> String {
    format!("the data set is unusable; load another: `{command}`")
}

/// A load began.
pub(crate) fn loading(job: &str) -> String {
    format!("{job}; this may take minutes")
}

/// A file given to `--from` that cannot be parsed.
pub(crate) fn not_a_record(path: &Path) -> String {
    format!("{} is not a record of `unconvoy bench`", path.display())
}

/// A file given to `--from` of a simulated figure that cannot be parsed.
pub(crate) fn not_a_simulated_record(path: &Path) -> String {
    format!("{} is not a record of a simulated figure", path.display())
}

/// A record of the wrong simulated figure.
pub(crate) fn record_of_another_figure(wanted: &str, found: &str) -> String {
    format!("this record is of figure {found}, not of {wanted}")
}

/// The context of the error for an unreadable record.
pub(crate) fn figure_needs_record(figure: &str, benchmarks: &str) -> String {
    format!("figure {figure} needs a record of `unconvoy bench {benchmarks}`")
}

/// A record of the wrong benchmark.
pub(crate) fn wrong_record(figure: &str, benchmarks: &str, found: &str) -> String {
    format!("{}, but this record is of {found}", figure_needs_record(figure, benchmarks))
}

/// A record of a benchmark without thread counts.
pub(crate) fn no_throughput_over_threads(benchmark: &str, known: &[&str]) -> String {
    format!(
        "a record of {benchmark} has no throughput over threads; these have:\n{}",
        known.join(", ")
    )
}

/// A record that was interrupted before its first run.
pub(crate) fn record_without_runs(benchmark: &str) -> String {
    format!("the record of {benchmark} has no runs to draw; measure again, or --resume it")
}

/// A record that lacks the named part.
pub(crate) fn record_lacks(what: &str) -> String {
    format!("the record lacks {what}; measure again")
}

/// `steadiness` whose target leaves no thread to sleep.
pub(crate) fn target_not_below_threads() -> &'static str {
    "--target must be below --threads, or no thread has to sleep"
}

/// A workload program printed too little.
pub(crate) fn no_metric(process: &str, metric: &str) -> String {
    format!("{process} printed no {metric}")
}

/// `bump --realtime` without the privilege.
pub(crate) fn realtime_denied() -> &'static str {
    "cannot switch to real-time priority; grant CAP_SYS_NICE, or omit --realtime"
}

/// The real controller ran during `bump`.
pub(crate) fn controller_interfered() -> &'static str {
    "the controller changed the target during the benchmark; measure again"
}

/// The interposer wrote no statistics.
pub(crate) fn no_statistics(path: &Path) -> String {
    format!("the library did not write {}", path.display())
}

/// Statistics that cannot be used.
pub(crate) fn bad_statistics(why: &str) -> String {
    format!("the library's statistics {why}; use the library of this version")
}

/// The rows with a special set are left out.
pub(crate) fn no_special_set(why: &anyhow::Error) -> String {
    format!("the rows with a special set of cores are left out: {why:#}")
}

/// The row of `unconvoy sched` is left out.
pub(crate) fn scheduler_left_out(name: &str, why: &anyhow::Error) -> String {
    format!("{name} is left out: {why:#}")
}

/// The kernel has another scheduler.
pub(crate) fn another_scheduler_loaded(name: &str) -> String {
    format!("the scheduler {name} is loaded, and the kernel takes only one; unload {name}")
}

/// The kernel takes no scheduler.
pub(crate) fn no_sched_ext(directory: &Path) -> String {
    format!("this kernel has no sched_ext ({} is missing)", directory.display())
}

/// Loading a scheduler without privilege.
pub(crate) fn needs_root() -> &'static str {
    "loading a scheduler needs root"
}

/// The scheduler ended at its start without a message.
pub(crate) fn scheduler_exited(status: ExitStatus) -> String {
    format!("the scheduler ended with {status}")
}

/// The scheduler takes too long to load.
pub(crate) fn scheduler_not_enabled(seconds: u64) -> String {
    format!("the kernel did not enable the scheduler within {seconds} s")
}

/// The scheduler failed during a run.
pub(crate) fn scheduler_unloaded(row: &str) -> String {
    format!("{row}: the kernel unloaded the scheduler during the run")
}

/// `report` given in place of a benchmark.
pub(crate) fn report_measures_nothing() -> &'static str {
    "`report` measures nothing; name a benchmark"
}

/// `replay --without` or `--moved` with something else.
pub(crate) fn expected_addresses() -> &'static str {
    "expected `advice`, or addresses such as 0x4000020340 with commas between them"
}

/// `replay --without advice` where the advice is about no word.
pub(crate) fn advice_names_no_word(lock: &str) -> String {
    format!("the advice for {lock} names no word; give addresses instead")
}

/// A command of `unconvoy` given to `unconvoy-study`.
pub(crate) fn not_a_study_command() -> &'static str {
    "unconvoy-study runs bench, sim and papers; run other commands with unconvoy"
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn every_message() {
        let path = Path::new("results/r.json");
        let directory = Path::new("data/tatp");
        let load = "unconvoy bench tatp --load --data data/tatp";
        let why = || anyhow::anyhow!("the disk is full");
        let messages: Vec<String> = vec![
            from_needs_one_figure().into(),
            figure_failed("asplos-9", &why()),
            figures_failed(&["asplos-9", "sim-taco-1"]),
            record_of_another_plan("sim-asplos-9", path),
            records_of_different_plans().into(),
            records_of_different_builds().into(),
            complete_record_kept(Path::new("a.json"), Path::new("a.json.new")),
            simulating_seed("sim-asplos-9", 3, 2, 5),
            see_published("sim-asplos-8"),
            record_kept("asplos-9", path),
            record_is_quick("asplos-9", path),
            full_record_replaced_by_quick(path),
            full_records_replaced(path, 6),
            cannot_create(directory),
            cannot_read(path),
            cannot_start(Path::new("/usr/bin/unconvoy-sched-ext")),
            expected_number("milliseconds", 0.1, 1e6),
            data_inconsistent("tatp"),
            data_set_missing(directory, "tatp", load),
            data_set_unusable(load),
            loading("tatp --load"),
            not_a_record(path),
            not_a_simulated_record(path),
            record_of_another_figure("taco-1", "taco-3"),
            figure_needs_record("asplos-9", "contention"),
            wrong_record("asplos-9", "contention", "pair"),
            no_throughput_over_threads("pair", &["counter", "hashtable"]),
            record_without_runs("counter"),
            record_lacks("its thread counts"),
            target_not_below_threads().into(),
            no_metric("self", "tps"),
            realtime_denied().into(),
            controller_interfered().into(),
            no_statistics(path),
            bad_statistics("have no locks"),
            no_special_set(&why()),
            scheduler_left_out("unconvoy sched", &why()),
            another_scheduler_loaded("scx_lavd"),
            no_sched_ext(Path::new("/sys/kernel/sched_ext")),
            needs_root().into(),
            scheduler_exited(ExitStatus::from_raw(256)),
            scheduler_not_enabled(20),
            scheduler_unloaded("unconvoy sched"),
            report_measures_nothing().into(),
            expected_addresses().into(),
            advice_names_no_word("the cache"),
            not_a_study_command().into(),
        ];
        for message in &messages {
            println!("unconvoy: {message}");
            assert!(message.lines().all(|line| line.chars().count() <= 120), "{message}");
            assert!(!message.ends_with('.') || message.contains(". "), "{message}");
        }
        let source = include_str!("messages.rs").split("#[cfg(test)]").next().unwrap_or_default();
        assert_eq!(
            messages.len(),
            source.matches("pub(crate) fn ").count(),
            "a message is missing"
        );
    }
}
