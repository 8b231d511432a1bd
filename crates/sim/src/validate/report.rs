//! The report of a validation as Markdown, also for the terminal.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use unconvoy_measure::chart::quantity::Unit;
use unconvoy_measure::table::Table;

use super::tail::{self, FACTOR_GOAL, MEDIAN_GOAL, PERCENTILE_GOAL, RANK_GOAL};
use super::{Compared, MOST_THREADS, NEAR, Ranks, Report};

/// Number of rows shown among those with the largest errors.
const WORST: usize = 10;

fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new("", header.iter().copied());
    rows.into_iter().for_each(|row| table.row(row));
    table.grid()
}

fn percent(part: f64) -> String {
    if part.abs() < 1000.0 { format!("{:.0} %", 100.0 * part) } else { "> 100,000 %".to_string() }
}

/// Whether a goal is reached, if it is about any row or point.
fn reached(is_judged: bool, holds: bool) -> String {
    match (is_judged, holds) {
        (false, _) => "not judged",
        (true, true) => "yes",
        (true, false) => "NO",
    }
    .to_string()
}

fn errors<K: Display>(what: &str, errors: &BTreeMap<K, f64>) -> String {
    let mut rows: Vec<(&K, f64)> = errors.iter().map(|(key, &error)| (key, error)).collect();
    rows.sort_by(|one, other| one.1.total_cmp(&other.1));
    let rows = rows.into_iter().map(|(key, error)| vec![key.to_string(), percent(error)]).collect();
    table(&[what, "median error"], rows)
}

fn rows_table(rows: &[&Compared]) -> String {
    let row = |row: &&Compared| {
        vec![
            row.workload.clone(),
            row.lock.clone(),
            row.threads.to_string(),
            row.measured.text(|value| Unit::Plain.show(value)),
            Unit::Plain.show(row.simulated),
            percent(row.error),
        ]
    };
    table(
        &["workload", "lock", "threads", "measured, operations/s", "simulated", "error"],
        rows.iter().map(row).collect(),
    )
}

fn ranks_table(ranks: &[&Ranks]) -> String {
    let row = |ranks: &&Ranks| {
        vec![
            ranks.workload.clone(),
            ranks.threads.to_string(),
            ranks.locks.to_string(),
            ranks.rounds.map_or(String::new(), |rounds| format!("{rounds:.2}")),
            format!("{:.2}", ranks.simulated),
        ]
    };
    let header = ["workload", "threads", "locks", "correlation of the rounds", "of the simulation"];
    table(&header, ranks.iter().map(row).collect())
}

impl Report<'_> {
    /// Formats the verdict, the winners, the errors by group, and the worst rows.
    pub fn markdown(&self) -> String {
        let verdict = &self.verdict;
        let mut text = String::from("# unconvoy sim --validate\n\n");
        if !self.complete {
            text.push_str("**Incomplete:** some rows were not simulated.\n\n");
        }
        let goals = [
            (
                "median error of throughput",
                verdict.median_error,
                "25 % or less",
                reached(verdict.rows != 0, verdict.median_error <= 0.25),
            ),
            (
                "points with the same winner",
                verdict.same_winner,
                "80 % or more",
                reached(verdict.points != 0, verdict.same_winner >= 0.8),
            ),
            (
                "points whose simulated winner is as fast as the measured one",
                verdict.as_good_winner,
                "",
                String::new(),
            ),
            (
                "points whose winners the measurement cannot distinguish",
                verdict.overlapping_winner,
                "",
                String::new(),
            ),
            (
                "measured rounds with the same winner as the other rounds",
                verdict.repeatability.same_winner,
                "",
                String::new(),
            ),
            (
                "measured rounds whose winner is as fast in the other rounds",
                verdict.repeatability.as_good_winner,
                "",
                String::new(),
            ),
            ("rows simulated within the measured spread", verdict.within_spread, "", String::new()),
            (
                "median distance between a row's median and its farthest run",
                verdict.noise,
                "",
                String::new(),
            ),
        ];
        let row = |(what, value, goal, verdict): (&str, f64, &str, String)| {
            vec![what.to_string(), percent(value), goal.to_string(), verdict]
        };
        text.push_str(&table(&["", "", "goal", "reached"], goals.into_iter().map(row).collect()));
        let _ = write!(
            text,
            "\n\n{} rows, {} points. A point is a workload at a thread count. A simulated winner \
             is as fast if its measured median is at most {} below the measured winner's, or not \
             below the measured winner's slowest run. The winners cannot be distinguished if the \
             simulated one is as fast, or its fastest run is not below the measured winner's \
             slowest.\n\n",
            verdict.rows,
            verdict.points,
            percent(NEAR)
        );
        let winner = |winner: &super::Winner| {
            let verdict = match winner {
                super::Winner { same: true, .. } => "same",
                super::Winner { as_good: true, .. } => "as fast",
                super::Winner { overlaps: true, .. } => "indistinguishable",
                _ => "DIFFERENT",
            };
            let of_best = percent(winner.of_best);
            vec![
                winner.workload.clone(),
                winner.threads.to_string(),
                winner.measured.clone(),
                winner.simulated.clone(),
                verdict.to_string(),
                of_best,
            ]
        };
        let header = [
            "workload",
            "threads",
            "measured winner",
            "simulated winner",
            "",
            "relative throughput",
        ];
        text.push_str(&table(&header, self.winners.iter().map(winner).collect()));
        for (what, group) in [
            ("workload", &verdict.by_workload),
            ("contention", &verdict.by_contention),
            ("load", &verdict.by_load),
        ] {
            let _ = write!(text, "\n\n{}", errors(what, group));
        }
        let _ = write!(text, "\n\n{}", errors("threads", &verdict.by_threads));
        let _ = write!(text, "\n\n{}", self.tail_markdown());
        for [file, machine] in &self.records {
            let _ = writeln!(text, "- {file}: measured on {machine}");
        }
        for why in &self.left_out {
            let _ = writeln!(text, "- left out: {why}");
        }
        for failure in self.failures {
            let _ = writeln!(text, "- FAILED: {failure}");
        }
        let _ = writeln!(text, "- {}", self.simulated_on());
        let _ = writeln!(text, "- rows of up to {MOST_THREADS} threads, without libc's own locks");
        text
    }

    /// Formats the tail: its goals, the worst rows, the order of the locks, and apart from these
    /// the rows that the machine does not repeat.
    fn tail_markdown(&self) -> String {
        let tail = &self.tail;
        let has_rows = tail.rows != 0;
        let goals = vec![
            vec![
                "median error".to_string(),
                percent(tail.median_error),
                format!("{} or less", percent(MEDIAN_GOAL)),
                reached(has_rows, tail.median_error <= MEDIAN_GOAL),
            ],
            vec![
                "90th percentile of the errors".to_string(),
                percent(tail.percentile_90),
                format!("{} or less", percent(PERCENTILE_GOAL)),
                reached(has_rows, tail.percentile_90 <= PERCENTILE_GOAL),
            ],
            vec![
                format!("rows off by more than {FACTOR_GOAL} times"),
                tail.far_off.to_string(),
                "0".to_string(),
                reached(has_rows, tail.far_off == 0),
            ],
            vec![
                "rank correlation of the locks".to_string(),
                tail.rank_correlation.map_or("-".to_string(), |found| format!("{found:.2}")),
                format!("{RANK_GOAL} or more"),
                reached(tail.rank_correlation.is_some(), tail.rank_correlation >= Some(RANK_GOAL)),
            ],
        ];
        let mut text = format!(
            "{} rows with several runs, all within {} of their median:\n\n{}\n\n",
            tail.rows,
            percent(PERCENTILE_GOAL),
            table(&["", "", "goal", "reached"], goals)
        );
        let (mut repeated, mut others): (Vec<&Compared>, Vec<&Compared>) =
            self.rows.iter().partition(|row| tail::is_repeated(row));
        for rows in [&mut repeated, &mut others] {
            rows.sort_by(|one, other| {
                tail::factor_to_runs(other).total_cmp(&tail::factor_to_runs(one))
            });
        }
        repeated.truncate(WORST);
        others.retain(|row| !row.measured.contains(row.simulated));
        let _ = write!(text, "The worst rows among these:\n\n{}\n\n", rows_table(&repeated));
        let (repeated, changing): (Vec<&Ranks>, Vec<&Ranks>) =
            tail.ranks.iter().partition(|ranks| ranks.is_repeated());
        let _ = write!(
            text,
            "Points whose rounds agree on the order of the locks:\n\n{}\n\n\
             Points with one round, or whose rounds do not agree:\n\n{}\n\n\
             {} other rows have a single run, or runs that differ by more. {} of them are \
             simulated outside their runs, {} by more than {FACTOR_GOAL} times:\n\n{}\n\n",
            ranks_table(&repeated),
            ranks_table(&changing),
            tail.unrepeated,
            others.len(),
            tail.unrepeated_far_off,
            rows_table(&others),
        );
        text
    }

    fn simulated_on(&self) -> String {
        let seconds = self
            .seconds
            .map_or("as long as measured".to_string(), |seconds| format!("{seconds} s each"));
        format!("simulated: {}; {seconds}; seed {}", self.machine.origin(), self.seed)
    }
}
