//! Medians, ratios and a conclusion from the runs. Pure.

use serde::Serialize;
use unconvoy_measure::arguments::thread_count;
use unconvoy_measure::statistics::{FEWEST_RUNS, Spread};

use super::plan::Plan;
use super::ratio::{ERROR_RATE, Ratio};
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
    /// How many times as good as the first configuration at the same thread count.
    #[serde(flatten)]
    pub ratio: Option<Ratio>,
    /// The same with a wider interval, for a choice among all ratios: the probability that any of
    /// these intervals misses its true ratio is that of one interval of the table (Bonferroni's
    /// inequality).
    #[serde(skip)]
    pub joint: Option<Ratio>,
}

/// Summarises the runs so far, row by row in the plan's order.
pub fn summarise(plan: &Plan, runs: &[Run], lower_is_better: bool) -> Vec<Summary> {
    let mut summaries: Vec<Summary> = Vec::new();
    let ratios = (plan.configurations.len() - 1) * plan.threads.len();
    for &threads in &plan.threads {
        let of_cell = |name: &str| -> Vec<&Run> {
            let is_of_cell = |run: &&Run| run.threads == threads && run.configuration == name;
            runs.iter().filter(is_of_cell).collect()
        };
        let first = of_cell(&plan.configurations[0].name);
        for (index, configuration) in plan.configurations.iter().enumerate() {
            let of_cell = of_cell(&configuration.name);
            let each = |value: fn(&Run) -> f64| Spread::of(of_cell.iter().map(|run| value(run)));
            let some = |value: fn(&Run) -> Option<f64>| {
                Spread::of(of_cell.iter().filter_map(|run| value(run)))
            };
            let (Some(metric), Some(wall_s), Some(cpu_s)) =
                (each(|run| run.metric), each(|run| run.wall_s), each(Run::cpu_s))
            else {
                continue;
            };
            let ratio = |error: f64| {
                let is_first = index == 0;
                (!is_first).then(|| Ratio::of(&of_cell, &first, lower_is_better, error)).flatten()
            };
            summaries.push(Summary {
                configuration: configuration.name.clone(),
                threads,
                metric,
                wall_s,
                cpu_s,
                cpu_per_operation_s: some(Run::cpu_per_operation_s),
                fairness: some(|run| run.fairness),
                ratio: ratio(ERROR_RATE),
                joint: ratio(ERROR_RATE / ratios.max(1) as f64),
            });
        }
    }
    summaries
}

/// Whether the ratios of all configurations at a thread count are known to `precision`.
pub fn is_precise(summaries: &[Summary], threads: Option<u32>, precision: f64) -> bool {
    // The first configuration has no ratio, and neither has one whose metric is 0.
    let mut compared = summaries.iter().filter(|it| it.threads == threads).skip(1).peekable();
    compared.peek().is_some()
        && compared.all(|summary| summary.ratio.is_some_and(|it| it.is_within(precision)))
}

/// States in one sentence what was gained or lost against the first configuration, and where. Luck
/// helps to make a ratio the best or the worst of several, so their intervals allow for the choice.
pub fn conclude(plan: &Plan, summaries: &[Summary]) -> String {
    let first = &plan.configurations[0].name;
    let mut compared: Vec<(&Summary, Ratio)> =
        summaries.iter().filter_map(|summary| Some((summary, summary.joint?))).collect();
    compared.sort_by(|a, b| a.1.ratio.total_cmp(&b.1.ratio));
    let (Some(worst), Some(best)) = (compared.first(), compared.last()) else {
        return match plan.configurations.len() {
            _ if summaries.is_empty() => "No run finished.".to_string(),
            1 => format!("Only {first} was measured: nothing to compare it with."),
            _ => format!("Nothing to compare with {first}: too few runs finished, or measured 0."),
        };
    };
    let cells = match compared.len() {
        1 => place(best),
        _ => format!("at best {}, at worst {}", place(best), place(worst)),
    };
    let is_left_out = |it: &Summary| it.metric.min <= 0.0;
    let cells = match summaries.iter().any(is_left_out) {
        true => format!("{cells}, without the runs that measured 0"),
        false => cells,
    };
    if compared.iter().any(|(_, ratio)| ratio.differs) {
        format!("Against {first}: {cells}.")
    } else {
        format!("No difference from {first} is significant: {cells}.")
    }
}

/// `default 1.42x (1.31 to 1.55) at 8 threads`.
fn place((cell, ratio): &(&Summary, Ratio)) -> String {
    format!("{} {}{}", cell.configuration, ratio.text(), at(cell))
}

/// `default at 8 threads`.
fn name(cell: &Summary) -> String {
    format!("{}{}", cell.configuration, at(cell))
}

fn at(cell: &Summary) -> String {
    cell.threads.map_or(String::new(), |threads| format!(" at {}", thread_count(threads)))
}

/// Returns the causes of doubt about the figures, each with its remedy.
pub fn warnings(plan: &Plan, summaries: &[Summary]) -> Vec<String> {
    let mut warnings = Vec::new();
    if (plan.runs as usize) < FEWEST_RUNS && plan.configurations.len() > 1 {
        warnings.push(messages::too_few_runs(plan.runs, FEWEST_RUNS));
    }
    let half = |cell: &&Summary| cell.ratio.and_then(|it| it.half_width()).unwrap_or_default();
    let widest = summaries.iter().max_by(|a, b| half(a).total_cmp(&half(b)));
    if let (Some(cell), Some(precision)) = (widest, plan.precision)
        && half(&cell) > precision
    {
        warnings.push(messages::not_precise(&name(cell), half(&cell), precision));
    }
    if let Some(cell) = summaries.iter().find(|cell| cell.metric.min <= 0.0) {
        warnings.push(messages::metric_left_out(&name(cell)));
    }
    let mut means = summaries.iter().filter_map(|cell| Some((cell, cell.ratio?)));
    if let Some((cell, ratio, mean)) =
        means.find_map(|(cell, ratio)| Some((cell, ratio, ratio.skewed_mean()?)))
    {
        warnings.push(messages::skewed(&name(cell), ratio.ratio, mean));
    }
    let widest =
        summaries.iter().max_by(|a, b| a.metric.relative().total_cmp(&b.metric.relative()));
    if let Some(cell) = widest.filter(|cell| cell.metric.relative() > WIDE_SPREAD) {
        let wide = summaries.iter().filter(|cell| cell.metric.relative() > WIDE_SPREAD).count();
        let (cells, widest) = (summaries.len(), cell.metric.relative());
        warnings.push(messages::wide_spread(WIDE_SPREAD, wide, cells, &name(cell), widest));
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
            precision: None,
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
    fn summary_has_ratio_to_first_configuration_only() {
        let runs = runs(&[("libc", 8, [2.0, 2.0, 2.0]), ("default", 8, [4.0, 4.1, 4.0])]);
        let summaries = summarise(&plan(), &runs, false);
        assert_eq!(summaries.len(), 2, "one-thread cells without runs have no summary");
        assert!(summaries[0].ratio.is_none() && summaries[1].ratio.unwrap().differs);
        assert_eq!(summaries[1].cpu_per_operation_s.unwrap().median, 0.001);
        let rows = serde_json::to_value(&summaries).unwrap();
        assert!(rows[0].get("ratio").is_none() && rows[1]["ratio"].is_f64(), "{rows}");
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
            "Against libc: at best default 2.02x (1.92 to 2.12) at 8 threads, at worst default \
             1.00x (0.96 to 1.04) at 1 thread."
        );
    }

    /// One of four cells of the same lock lies above 1 by luck.
    #[test]
    fn conclusion_allows_for_the_choice_of_the_best() {
        let one = |threads| Plan { threads, ..plan() };
        let lucky = [1.01, 1.012, 1.02];
        let same = [1.0, 1.01, 0.99];
        let cells = [(1, same), (2, lucky), (4, same), (8, same)];
        let runs: Vec<Run> = cells
            .iter()
            .flat_map(|&(threads, values)| {
                runs(&[("libc", threads, [1.0; 3]), ("default", threads, values)])
            })
            .collect();
        let alone = summarise(&one(vec![Some(2)]), &runs, false);
        assert!(conclude(&plan(), &alone).starts_with("Against libc: default 1.0140x ("));
        let four = one(cells.iter().map(|&(threads, _)| Some(threads)).collect());
        let text = conclude(&four, &summarise(&four, &runs, false));
        assert!(text.starts_with("No difference from libc is significant: at best"), "{text}");
    }

    #[test]
    fn metric_of_zero_and_skewed_ratios_are_warned_of() {
        let zero = runs(&[("libc", 8, [1.0; 3]), ("default", 8, [0.0, 1.0, 1.0])]);
        let zero = warnings(&plan(), &summarise(&plan(), &zero, false));
        assert!(zero.iter().any(|text| text.contains("default at 8 threads")), "{zero:?}");
        let mut many = Vec::new();
        for round in 0..8 {
            let mut three = runs(&[("libc", 8, [1.0; 3]), ("default", 8, [1.03, 1.031, 1.029])]);
            three.iter_mut().for_each(|run| run.round += 3 * round);
            many.extend(three);
        }
        assert!(warnings(&plan(), &summarise(&plan(), &many, false)).is_empty());
        let slow = many.iter_mut().filter(|run| run.configuration == "default").take(3);
        slow.for_each(|run| run.metric = 0.5);
        let skewed = warnings(&plan(), &summarise(&plan(), &many, false));
        assert!(skewed[0].contains("0.94x") && skewed[0].contains("1.03x"), "{skewed:?}");
    }

    #[test]
    fn conclusion_without_significant_difference_says_so() {
        let runs = runs(&[("libc", 8, [1.0, 2.0, 3.0]), ("default", 8, [1.5, 2.5, 2.8])]);
        let summaries = summarise(&plan(), &runs, false);
        assert!(
            conclude(&plan(), &summaries).starts_with("No difference from libc is significant")
        );
        assert!(warnings(&plan(), &summaries)[0].contains("raise --runs"));
    }

    #[test]
    fn conclusion_without_runs_says_so() {
        assert_eq!(conclude(&plan(), &[]), "No run finished.");
        let half = summarise(&plan(), &runs(&[("libc", 8, [1.0; 3])]), false);
        assert!(conclude(&plan(), &half).contains("too few runs"));
        let zero = runs(&[("libc", 8, [0.0; 3]), ("default", 8, [1.0; 3])]);
        assert!(conclude(&plan(), &summarise(&plan(), &zero, false)).contains("too few runs"));
    }

    #[test]
    fn counts_are_precise_once_all_their_ratios_are() {
        let runs = runs(&[
            ("libc", 1, [10.0, 10.5, 9.5]),
            ("default", 1, [9.9, 10.4, 9.6]),
            ("libc", 8, [2.0, 2.0, 2.0]),
        ]);
        let summaries = summarise(&plan(), &runs, false);
        assert!(is_precise(&summaries, Some(1), 0.03) && !is_precise(&summaries, Some(1), 0.01));
        assert!(!is_precise(&summaries, Some(8), 0.5), "the default has no run");
    }
}
