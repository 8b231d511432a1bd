//! Verdicts on the table. Pure.

use unconvoy_measure::goal::{Goal, Judgement, Verdict};
use unconvoy_measure::statistics::short;

use super::grid::{ADAPTIVE, DEFAULT, Grid, NORMAL, throughput};
use crate::goals;
use crate::run::Values;

/// Shortest measurement for the fairness goal, seconds.
const FAIRNESS_SECONDS: f64 = 2.0;
/// Largest thread count of the saturated goals.
const MOST_THREADS: u32 = 64;
/// The row of TP-MCS under load control.
const TPMCS: &str = "tpmcs+control";

/// Judges all goals, in their order.
pub(super) fn judge(grid: &Grid) -> Vec<Judgement> {
    let name = |row: usize| grid.rows[row].name.as_str();
    let [normal, adaptive, default] = [NORMAL, ADAPTIVE, DEFAULT].map(name);
    vec![
        saturated(grid).of_rows([normal, default]),
        fairness(grid).of_rows([default]),
        latency(grid).of_rows([default]),
        longest_wait(grid).of_rows([default]),
        processor_time(grid).of_rows([adaptive, default]),
        think_1_adaptive(grid).of_rows([adaptive, default]),
        think_1_rows(grid),
        think_10(grid).of_rows([normal, default]),
        tpmcs_200(grid).of_rows([TPMCS]),
        tpmcs_3200(grid).of_rows([TPMCS]),
    ]
}

fn place(threads: u32) -> String {
    format!("{threads} threads")
}

/// Returns the contended thread counts that the saturated goals cover.
fn contended(grid: &Grid) -> impl Iterator<Item = u32> {
    grid.threads.iter().copied().filter(|threads| (2..=MOST_THREADS).contains(threads))
}

fn saturated(grid: &Grid) -> Judgement {
    let fraction =
        |threads| Some((grid.fraction(grid.find(DEFAULT, threads, 0)?)?.median, place(threads)));
    goals::SATURATED.judge_worst(contended(grid).filter_map(fraction))
}

/// Returns medians of the default lock's `metric` without think time.
fn medians(grid: &Grid, metric: impl Fn(&Values) -> Option<f64>) -> Vec<(f64, String)> {
    let median = |threads| {
        Some((
            grid.samples.spread(grid.find(DEFAULT, threads, 0)?, &metric)?.median,
            place(threads),
        ))
    };
    contended(grid).filter_map(median).collect()
}

fn fairness(grid: &Grid) -> Judgement {
    let judgement = goals::FAIRNESS.judge_worst(medians(grid, Values::jain));
    if grid.seconds < FAIRNESS_SECONDS && judgement.measured.is_some() {
        judgement.without_verdict("needs --seconds 2 or more")
    } else {
        judgement
    }
}

fn latency(grid: &Grid) -> Judgement {
    let worst = medians(grid, |values| Some(values.get("p999_ns")? / 1e6));
    if worst.is_empty() {
        goals::LATENCY.not_judged("needs --latency")
    } else {
        goals::LATENCY.judge_worst(worst)
    }
}

/// Returns the bound on a wait for a saturated lock with sections of `section` ns, in milliseconds:
/// one sleep for load, and twice the queue. A thread at the front of the queue lets others overtake
/// it for 100 us, and a hand-over takes up to 10 us. If sections are so long that waiters park,
/// they are overtaken for another 10 ms, or without a bound (docs/explanation/correctness.md).
fn longest_wait_bound_ms(threads: u32, section: u64) -> Option<f64> {
    let overtaken = match section {
        0..20_000 => 0.0,
        20_000..=1_000_000 => return None,
        _ => 10.0,
    };
    Some(100.0 + overtaken + 2.0 * f64::from(threads) * (0.110 + section as f64 / 1e6))
}

/// Judges the longest wait of all rounds instead of the median, because a bound holds for each.
fn longest_wait(grid: &Grid) -> Judgement {
    let fraction = |threads| {
        let bound = longest_wait_bound_ms(threads, grid.section)?;
        let default = grid.find(DEFAULT, threads, 0)?;
        let waits = grid.samples.spread(default, |values| Some(values.get("max_ns")? / 1e6))?;
        let longest = format!("{} ms in {} rounds", short(waits.max), waits.count);
        let place = format!("{}, {longest}, bound {} ms", place(threads), short(bound));
        Some((waits.max / bound, place))
    };
    let worst: Vec<_> = contended(grid).filter_map(fraction).collect();
    if worst.is_empty() {
        goals::LONGEST_WAIT.not_judged("needs --latency, and --cs below 20000 or above 1000000")
    } else {
        goals::LONGEST_WAIT.judge_worst(worst)
    }
}

/// Returns ratios of the default lock to another row, with the row's name.
fn ratios(
    grid: &Grid,
    to: usize,
    threads: impl Iterator<Item = u32>,
    think: u64,
    metric: fn(&Values) -> Option<f64>,
) -> Vec<(f64, String)> {
    let name = grid.rows.get(to).map_or("", |row| &row.name);
    let ratio = |threads| {
        let ratio = grid.samples.ratio(
            grid.find(DEFAULT, threads, think)?,
            grid.find(to, threads, think)?,
            metric,
        )?;
        Some((ratio.median, format!("{threads} threads, {name}")))
    };
    threads.filter_map(ratio).collect()
}

fn processor_time(grid: &Grid) -> Judgement {
    goals::CPU.judge_worst(ratios(grid, ADAPTIVE, contended(grid), 0, Values::cpu_ns_per_op))
}

fn think_1_adaptive(grid: &Grid) -> Judgement {
    goals::THINK_1_ADAPTIVE.judge_worst(ratios(
        grid,
        ADAPTIVE,
        grid.threads.iter().copied(),
        1000,
        throughput,
    ))
}

fn think_1_rows(grid: &Grid) -> Judgement {
    let others = (0..grid.rows.len()).filter(|&row| row != DEFAULT);
    goals::THINK_1_ROWS.judge_worst(
        others.flat_map(|row| ratios(grid, row, grid.threads.iter().copied(), 1000, throughput)),
    )
}

/// Judges each thread count: it passes within the limit, or if the default's median lies between
/// libc's slowest and fastest run.
fn think_10(grid: &Grid) -> Judgement {
    const THINK: u64 = 10_000;
    let all = ratios(grid, NORMAL, grid.threads.iter().copied(), THINK, throughput);
    let outside: Vec<_> = grid
        .threads
        .iter()
        .filter(|&&threads| !within_spread(grid, threads, THINK))
        .copied()
        .collect();
    let outside = ratios(grid, NORMAL, outside.into_iter(), THINK, throughput);
    let judgement = goals::THINK_10.judge_worst(all);
    let verdict = goals::THINK_10.judge_worst(outside);
    // The worst thread count outside libc's spread decides. If all are within it, report the worst.
    match (judgement.measured, verdict.measured) {
        (Some(_), None) => Judgement {
            verdict: Verdict::Pass,
            note: format!("{}, within libc's spread", judgement.note),
            ..judgement
        },
        (_, Some(_)) => verdict,
        (None, None) => judgement,
    }
}

fn within_spread(grid: &Grid, threads: u32, think: u64) -> bool {
    let spread = |row| grid.samples.spread(grid.find(row, threads, think)?, throughput);
    match (spread(DEFAULT), spread(NORMAL)) {
        (Some(ours), Some(libc)) => libc.contains(ours.median),
        _ => false,
    }
}

fn tpmcs_200(grid: &Grid) -> Judgement {
    kept(grid, &goals::TPMCS_200, 2)
}

fn tpmcs_3200(grid: &Grid) -> Judgement {
    kept(grid, &goals::TPMCS_3200, 32)
}

/// Judges the throughput of TP-MCS under load control at `load` threads per processor, relative to
/// two threads, which must be another cell.
fn kept(grid: &Grid, goal: &Goal, load: u32) -> Judgement {
    const BASE: u32 = 2;
    let threads = load * grid.processors;
    if threads == BASE {
        return goal.not_judged(format!("this load is {BASE} threads, the base, on this machine"));
    }
    let ratio = || {
        let row = grid.rows.iter().position(|row| row.name == TPMCS)?;
        grid.samples.ratio(grid.find(row, threads, 0)?, grid.find(row, BASE, 0)?, throughput)
    };
    match ratio() {
        Some(ratio) => goal.judge(ratio.median, place(threads)),
        None => goal.not_judged(format!("needs --locks {TPMCS} --threads {BASE},{threads}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::grid::cells;
    use super::*;
    use crate::setup::configurations;
    use unconvoy_measure::cells::{Sample, Samples};

    /// Returns `judge`'s result for a table with throughputs from `ops`, which takes row, threads
    /// and round.
    fn judged<J>(
        threads: &[u32],
        think: u64,
        ops: impl Fn(usize, u32, u32) -> f64,
        judge: impl Fn(&Grid) -> J,
    ) -> J {
        let values = |row, threads, round| {
            let ops = ops(row, threads, round);
            Values::parse(&format!("ops_per_sec {ops}\njain 0.95\ncpu_ns_per_op 200\n"))
        };
        judged_by(threads, think, values, |grid| judge(grid))
    }

    /// Returns `judge`'s result for a table of `values`.
    fn judged_by<J>(
        threads: &[u32],
        think: u64,
        values: impl Fn(usize, u32, u32) -> Values,
        judge: impl Fn(&mut Grid) -> J,
    ) -> J {
        let (rows, _) =
            configurations(&["tpmcs+control".parse().expect("a known name")], true).expect("rows");
        let cells = cells(&rows, threads, &[think]);
        let sample = |round: u32, index: usize| {
            let cell = &cells[index];
            let value = values(cell.row, cell.threads, round);
            Sample::new(index, round, value)
        };
        let all = (1..=3)
            .flat_map(|round| (0..cells.len()).map(move |index| (round, index)))
            .map(|(round, index)| sample(round, index))
            .collect();
        judge(&mut Grid {
            rows: &rows,
            threads,
            thinks: &[think],
            cells: &cells,
            samples: &Samples { all, ended_by: None },
            processors: 2,
            section: 100,
            seconds: 1.0,
        })
    }

    #[test]
    fn worst_thread_count_decides() {
        let ops = |row, threads, _| if row == DEFAULT && threads == 4 { 8e6 } else { 1e7 };
        judged(&[1, 2, 4], 0, ops, |grid| {
            let judgement = saturated(grid);
            assert_eq!(
                (judgement.measured, judgement.verdict, judgement.note.as_str()),
                (Some(0.8), Verdict::Miss, "worst: 4 threads")
            );
            assert_eq!(fairness(grid).verdict, Verdict::NotJudged);
            assert_eq!(latency(grid).note, "needs --latency");
            assert!(longest_wait(grid).note.starts_with("needs --latency, and --cs"));
            assert_eq!(processor_time(grid).verdict, Verdict::Pass);
        });
    }

    #[test]
    fn longest_wait_is_judged_by_the_bound_for_its_threads() {
        // 4 threads and sections of 100 ns: 100.8808 ms.
        let values = |_, _, _| Values::parse("ops_per_sec 1\nmax_ns 50440400\n");
        judged_by(&[4], 0, values, |grid| {
            let measured = longest_wait(grid).measured.expect("a longest wait");
            assert!((measured - 0.5).abs() < 1e-6, "{measured}");
        });
    }

    #[test]
    fn longest_wait_of_one_round_decides() {
        let values = |_, _, round| {
            Values::parse(if round == 2 { "max_ns 200000000\n" } else { "max_ns 1000000\n" })
        };
        judged_by(&[4], 0, values, |grid| {
            let judgement = longest_wait(grid);
            assert_eq!(judgement.verdict, Verdict::Miss);
            assert_eq!(judgement.note, "worst: 4 threads, 200 ms in 3 rounds, bound 101 ms");
        });
    }

    #[test]
    fn sections_between_which_some_waiters_park_have_no_bound() {
        assert_eq!(longest_wait_bound_ms(4, 1_000_001).map(f64::round), Some(119.0));
        assert_eq!([20_000, 1_000_000].map(|section| longest_wait_bound_ms(4, section)), [None; 2]);
    }

    #[test]
    fn tpmcs_goals_compare_with_two_threads() {
        let ops = |row, threads, _| if row == 3 { 1e6 / f64::from(threads) } else { 1e7 };
        judged(&[2, 4, 64], 0, ops, |grid| {
            assert_eq!(tpmcs_200(grid).measured, Some(0.5));
            assert_eq!(tpmcs_3200(grid).verdict, Verdict::Miss);
        });
    }

    #[test]
    fn tpmcs_goal_is_not_judged_if_its_load_is_the_base() {
        let values = |_, _, _| Values::parse("ops_per_sec 1000000\n");
        judged_by(&[2, 32], 0, values, |grid| {
            grid.processors = 1;
            assert_eq!(tpmcs_200(grid).verdict, Verdict::NotJudged);
            assert_eq!(tpmcs_3200(grid).verdict, Verdict::Pass);
        });
    }

    #[test]
    fn goals_are_about_the_rows_that_decide_them() {
        let ops = |_, threads, _| 1e7 / f64::from(threads).sqrt();
        judged(&[1, 2, 4, 64], 0, ops, |grid| {
            let rows = |judgement: &Judgement| judgement.rows.clone().unwrap_or_default().join(" ");
            let rows: Vec<String> = judge(grid).iter().map(rows).collect();
            assert_eq!(rows[0], "libc default");
            assert_eq!((rows[4].as_str(), rows[8].as_str()), ("libc-adaptive default", TPMCS));
        });
    }

    #[test]
    fn window_without_operations_passes_no_goal() {
        let values = |row, _, _| {
            let ops = if row == DEFAULT { 0 } else { 5 };
            Values::parse(&format!("ops {ops}\nops_per_sec {ops}\njain 1\ncpu_ns_per_op 0.5\n"))
        };
        judged_by(&[4], 0, values, |grid| {
            grid.seconds = FAIRNESS_SECONDS;
            for goal in [saturated, fairness, processor_time] {
                assert_eq!(goal(grid).verdict, Verdict::Miss);
            }
        });
    }

    #[test]
    fn think_time_selects_its_own_goals() {
        let ops = |row, _, _| if row == 3 { 2e6 } else { 1e6 };
        judged(&[1, 8], 1000, ops, |grid| {
            assert_eq!(saturated(grid).verdict, Verdict::NotJudged);
            assert_eq!(think_1_adaptive(grid).verdict, Verdict::Pass);
            assert_eq!(think_1_rows(grid).measured, Some(0.5));
        });
    }

    #[test]
    fn think_10_passes_within_libcs_spread() {
        let verdict = |ops: &dyn Fn(usize, u32, u32) -> f64| {
            judged(&[8], 10_000, ops, |grid| think_10(grid).verdict)
        };
        assert_eq!(verdict(&|row, _, _| if row == DEFAULT { 9e5 } else { 1e6 }), Verdict::Miss);
        // libc's slowest run is slower than the default.
        let wide = |row, _, round| match row {
            DEFAULT => 9e5,
            NORMAL if round == 1 => 8e5,
            _ => 1e6,
        };
        assert_eq!(verdict(&wide), Verdict::Pass);
    }
}
