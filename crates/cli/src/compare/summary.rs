//! Medians, ratios and a conclusion from the runs. Pure.

use serde::Serialize;
use unconvoy_measure::arguments::thread_count;
use unconvoy_measure::statistics::{FEWEST_RUNS, Spread};

use super::plan::Plan;
use super::run::Run;
use crate::messages::compare as messages;

/// A median absolute deviation above this fraction of the median causes a warning.
const WIDE_SPREAD: f64 = 0.10;

/// One configuration at one thread count.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// Name of the configuration.
    pub configuration: String,
    /// Thread count, `null` if the program takes none.
    pub threads: Option<u32>,
    /// Value of the metric.
    pub metric: Spread,
    /// Elapsed time, seconds.
    pub wall_s: Spread,
    /// Processor time, seconds.
    pub cpu_s: Spread,
    /// Processor time per operation, seconds.
    pub cpu_per_operation_s: Option<Spread>,
    /// Jain's fairness index.
    pub fairness: Option<Spread>,
    /// How many times as good as the first configuration at the same thread count. Above 1 is
    /// better, whichever way the metric goes.
    pub ratio: Option<f64>,
    /// Whether the difference from the first configuration exceeds the spread.
    pub differs: Option<bool>,
}

/// Summarises the runs so far, row by row in the plan's order.
pub fn summarise(plan: &Plan, runs: &[Run], lower_is_better: bool) -> Vec<Summary> {
    let mut summaries: Vec<Summary> = Vec::new();
    for &threads in &plan.threads {
        let mut first: Option<Spread> = None;
        for (index, configuration) in plan.configurations.iter().enumerate() {
            let of_cell: Vec<&Run> = runs
                .iter()
                .filter(|run| run.threads == threads && run.configuration == configuration.name)
                .collect();
            let each = |value: fn(&Run) -> f64| Spread::of(of_cell.iter().map(|run| value(run)));
            let some = |value: fn(&Run) -> Option<f64>| {
                Spread::of(of_cell.iter().filter_map(|run| value(run)))
            };
            let (Some(metric), Some(wall_s), Some(cpu_s)) =
                (each(|run| run.metric), each(|run| run.wall_s), each(Run::cpu_s))
            else {
                continue;
            };
            if index == 0 {
                first = Some(metric);
            }
            let against = first.filter(|_| index > 0);
            summaries.push(Summary {
                configuration: configuration.name.clone(),
                threads,
                metric,
                wall_s,
                cpu_s,
                cpu_per_operation_s: some(Run::cpu_per_operation_s),
                fairness: some(|run| run.fairness),
                ratio: against.and_then(|first| ratio(&metric, &first, lower_is_better)),
                differs: against.map(|first| metric.differs_from(&first)),
            });
        }
    }
    summaries
}

/// Returns how many times as good `this` is; `None` if the quotient is not finite.
fn ratio(this: &Spread, first: &Spread, lower_is_better: bool) -> Option<f64> {
    let (above, below) =
        if lower_is_better { (first.median, this.median) } else { (this.median, first.median) };
    (below != 0.0).then(|| above / below).filter(|ratio| ratio.is_finite())
}

/// States in one sentence what was gained or lost against the first configuration, and where.
pub fn conclude(plan: &Plan, summaries: &[Summary]) -> String {
    let first = &plan.configurations[0].name;
    let mut compared: Vec<(&Summary, f64)> =
        summaries.iter().filter_map(|summary| Some((summary, summary.ratio?))).collect();
    compared.sort_by(|a, b| a.1.total_cmp(&b.1));
    let (Some(worst), Some(best)) = (compared.first(), compared.last()) else {
        return match plan.configurations.len() {
            _ if summaries.is_empty() => "No run finished.".to_string(),
            1 => format!("Only {first} was measured: nothing to compare it with."),
            _ => format!("Too few runs finished to compare anything with {first}."),
        };
    };
    let is_real = compared.iter().any(|(summary, _)| summary.differs == Some(true));
    let cells = match compared.len() {
        1 => place(best, is_real),
        _ => format!("at best {}, at worst {}", place(best, is_real), place(worst, is_real)),
    };
    if is_real {
        format!("Against {first}: {cells}.")
    } else {
        format!("No difference from {first} exceeds the spread: {cells}.")
    }
}

/// `default 1.42x at 8 threads (beyond the spread)`.
fn place((summary, ratio): &(&Summary, f64), with_certainty: bool) -> String {
    let at = summary
        .threads
        .map_or_else(String::new, |threads| format!(" at {}", thread_count(threads)));
    let certainty = match summary.differs {
        _ if !with_certainty => "",
        Some(true) => " (beyond the spread)",
        _ => " (within the spread)",
    };
    format!("{} {}{at}{certainty}", summary.configuration, times(*ratio))
}

/// Formats a ratio with three significant digits or so.
pub fn times(ratio: f64) -> String {
    match ratio {
        r if r >= 100.0 => format!("{r:.0}x"),
        r if r >= 10.0 => format!("{r:.1}x"),
        r if r < 0.1 => format!("{r:.3}x"),
        r => format!("{r:.2}x"),
    }
}

/// Returns the causes of doubt about the figures, each with its remedy.
pub fn warnings(plan: &Plan, summaries: &[Summary]) -> Vec<String> {
    let mut warnings = Vec::new();
    if (plan.runs as usize) < FEWEST_RUNS && plan.configurations.len() > 1 {
        warnings.push(messages::too_few_runs(plan.runs, FEWEST_RUNS));
    }
    let widest =
        summaries.iter().max_by(|a, b| a.metric.relative().total_cmp(&b.metric.relative()));
    if let Some(cell) = widest.filter(|cell| cell.metric.relative() > WIDE_SPREAD) {
        let wide = summaries.iter().filter(|cell| cell.metric.relative() > WIDE_SPREAD).count();
        let threads =
            cell.threads.map_or(String::new(), |threads| format!(" at {threads} threads"));
        warnings.push(messages::wide_spread(
            WIDE_SPREAD,
            wide,
            summaries.len(),
            &format!("{}{threads}", cell.configuration),
            cell.metric.relative(),
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::super::configuration::Configuration;
    use super::*;

    fn plan() -> Plan {
        Plan {
            configurations: ["libc", "default"].map(|c| Configuration::parse(c).unwrap()).to_vec(),
            threads: vec![Some(1), Some(8)],
            runs: 3,
            warmup: 0,
            seed: 1,
            program: vec!["p".into()],
        }
    }

    fn runs(cells: &[(&str, u32, [f64; 3])]) -> Vec<Run> {
        let mut runs = Vec::new();
        for (configuration, threads, values) in cells {
            for (round, metric) in (1..).zip(*values) {
                runs.push(Run {
                    configuration: configuration.to_string(),
                    threads: Some(*threads),
                    round,
                    metric,
                    operations: Some(1000.0),
                    fairness: None,
                    wall_s: 1.0,
                    user_s: 0.5,
                    system_s: 0.5,
                    max_rss_kib: 1,
                    voluntary_switches: 0,
                    involuntary_switches: 0,
                    exit_status: 0,
                    load_average_before: None,
                    transfer_ns: None,
                });
            }
        }
        runs
    }

    #[test]
    fn ratio_above_one_is_better_in_either_direction() {
        let runs = runs(&[("libc", 8, [2.0, 2.0, 2.0]), ("default", 8, [4.0, 4.1, 4.0])]);
        let higher = summarise(&plan(), &runs, false);
        assert_eq!(higher.len(), 2, "one-thread cells without runs have no summary");
        assert_eq!((higher[0].ratio, higher[0].differs), (None, None));
        assert_eq!((higher[1].ratio, higher[1].differs), (Some(2.0), Some(true)));
        assert_eq!(summarise(&plan(), &runs, true)[1].ratio, Some(0.5));
        assert_eq!(higher[1].cpu_per_operation_s.unwrap().median, 0.001);
    }

    #[test]
    fn conclusion_names_best_and_worst() {
        let runs = runs(&[
            ("libc", 1, [10.0, 10.5, 9.5]),
            ("default", 1, [9.9, 10.4, 9.6]),
            ("libc", 8, [2.0, 2.0, 2.0]),
            ("default", 8, [4.0, 4.1, 4.0]),
        ]);
        assert_eq!(
            conclude(&plan(), &summarise(&plan(), &runs, false)),
            "Against libc: at best default 2.00x at 8 threads (beyond the spread), \
             at worst default 0.99x at 1 thread (within the spread)."
        );
    }

    #[test]
    fn conclusion_within_spread_reports_no_difference() {
        let runs = runs(&[("libc", 8, [1.0, 2.0, 3.0]), ("default", 8, [1.5, 2.5, 3.5])]);
        let summaries = summarise(&plan(), &runs, false);
        assert!(conclude(&plan(), &summaries).starts_with("No difference from libc"));
        assert!(warnings(&plan(), &summaries)[0].contains("raise --runs"));
    }

    #[test]
    fn conclusion_without_runs_says_so() {
        assert_eq!(conclude(&plan(), &[]), "No run finished.");
        let half = summarise(&plan(), &runs(&[("libc", 8, [1.0; 3])]), false);
        assert!(conclude(&plan(), &half).contains("Too few runs"));
        let zero = runs(&[("libc", 8, [0.0; 3]), ("default", 8, [1.0; 3])]);
        assert_eq!(summarise(&plan(), &zero, false)[1].ratio, None);
    }
}
