//! A validation for people: Markdown, also on the terminal.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use unconvoy_measure::chart::quantity::Unit;
use unconvoy_measure::table::Table;

use super::{MOST_THREADS, NEAR, Report};

/// Rows that are shown of those with the largest errors.
const WORST: usize = 20;

fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new("", header.iter().copied());
    rows.into_iter().for_each(|row| table.row(row));
    table.grid()
}

fn percent(part: f64) -> String {
    if part.abs() < 1000.0 { format!("{:.0} %", 100.0 * part) } else { "much".to_string() }
}

fn errors<K: Display>(what: &str, errors: &BTreeMap<K, f64>) -> String {
    let mut rows: Vec<(&K, f64)> = errors.iter().map(|(key, &error)| (key, error)).collect();
    rows.sort_by(|one, other| one.1.total_cmp(&other.1));
    let rows = rows.into_iter().map(|(key, error)| vec![key.to_string(), percent(error)]).collect();
    table(&[what, "median error"], rows)
}

impl Report<'_> {
    /// Verdict, winners, errors by what they have in common, and the worst rows.
    pub fn markdown(&self) -> String {
        let verdict = &self.verdict;
        let mut text = String::from("# unconvoy sim --validate\n\n");
        if !self.complete {
            text.push_str("**Not complete:** not all rows were simulated.\n\n");
        }
        let goals = [
            ("median error of throughput", verdict.median_error, "25 % or less", verdict.median_error <= 0.25),
            ("points with the same winner", verdict.same_winner, "80 % or more", verdict.same_winner >= 0.8),
            ("points whose simulated winner is as fast as the measured one", verdict.as_good_winner, "", true),
            ("points whose two winners the measurement cannot tell apart", verdict.overlapping_winner, "", true),
            (
                "rounds of the measurement whose winner is that of its other rounds",
                verdict.repeatability.same_winner,
                "",
                true,
            ),
            ("rounds whose winner is as fast in the other rounds", verdict.repeatability.as_good_winner, "", true),
            ("rows simulated within the measured spread", verdict.within_spread, "", true),
            ("median distance of a row's farthest run from its own median", verdict.noise, "", true),
        ];
        let row = |(what, value, goal, holds): (&str, f64, &str, bool)| {
            let verdict = if goal.is_empty() {
                ""
            } else if holds {
                "yes"
            } else {
                "NO"
            };
            vec![what.to_string(), percent(value), goal.to_string(), verdict.to_string()]
        };
        text.push_str(&table(&["", "", "goal", "reached"], goals.into_iter().map(row).collect()));
        let _ = write!(
            text,
            "\n\n{} rows, {} points. A point is a workload at a thread count. As fast: the measured median of the lock that wins in the simulation is at most {} below \
             the fastest, or not below the slowest run of that. Cannot tell apart: that, or the fastest run of the former is not below the slowest of the latter.\n\n",
            verdict.rows,
            verdict.points,
            percent(NEAR)
        );
        let winner = |winner: &super::Winner| {
            let verdict = match winner {
                super::Winner { same: true, .. } => "the same",
                super::Winner { as_good: true, .. } => "as fast",
                super::Winner { overlaps: true, .. } => "not told apart",
                _ => "ANOTHER",
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
        let header = ["workload", "threads", "measured winner", "simulated winner", "", "its part of the best"];
        text.push_str(&table(&header, self.winners.iter().map(winner).collect()));
        for (what, group) in
            [("workload", &verdict.by_workload), ("contention", &verdict.by_contention), ("load", &verdict.by_load)]
        {
            let _ = write!(text, "\n\n{}", errors(what, group));
        }
        let _ = write!(text, "\n\n{}", errors("threads", &verdict.by_threads));
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_by(|one, other| other.error.abs().total_cmp(&one.error.abs()));
        let row = |row: &&super::Compared| {
            vec![
                row.workload.clone(),
                row.lock.clone(),
                row.threads.to_string(),
                row.measured.text(|value| Unit::Plain.show(value)),
                Unit::Plain.show(row.simulated),
                percent(row.error),
            ]
        };
        let worst = table(
            &["workload", "lock", "threads", "measured, operations/s", "simulated", "error"],
            rows.iter().take(WORST).map(row).collect(),
        );
        let _ = write!(text, "\n\nThe worst rows:\n\n{worst}\n\n");
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
        let _ = writeln!(text, "- rows of up to {MOST_THREADS} threads; libc's own locks are not simulated");
        text
    }

    fn simulated_on(&self) -> String {
        let seconds = self.seconds.map_or("as long as was measured".to_string(), |seconds| format!("{seconds} s each"));
        format!("simulated: {}; {seconds}; seed {}", self.machine.origin(), self.seed)
    }
}
