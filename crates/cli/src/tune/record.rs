//! The record of a search: its result, and the state from which `--resume` goes on.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::json;
use unconvoy_measure::input;
use unconvoy_measure::resume::difference;
use unconvoy_measure::sequential::LOOKS;

use super::candidates::{Candidate, DEFAULT, Stage};
use super::costs::Costs;
use super::race::Race;
use super::verdict::{Ratio, Verdict};
use crate::compare::context::Context;
use crate::compare::record::Metric;
use crate::messages::command::cannot_read;
use crate::messages::search as messages;

/// Greatest number of races in a search, which share the error rate.
const RACES: f64 = 3.0;

/// No run takes that long.
const LONGEST_RUN_S: f64 = 1e9;

/// Version of the JSON format.
pub const SCHEMA: &str = "unconvoy-tune-1";

/// A search, finished or not.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// [`SCHEMA`].
    pub schema: String,
    /// Whether the search ended by itself.
    pub complete: bool,
    /// Why the search is incomplete.
    pub ended_by: Option<String>,
    /// One sentence on what was found.
    pub sentence: String,
    pub context: Context,
    pub plan: Plan,
    /// Time used, seconds.
    pub elapsed_s: f64,
    /// The profile under libc's locks; null before it ended.
    pub costs: Option<Costs>,
    /// All candidates; libc is the first, the default the second.
    pub candidates: Vec<Candidate>,
    /// Candidates that left the trials because a run failed or took too long.
    pub withdrawn: Vec<Withdrawn>,
    /// Every run, in the order of measurement.
    pub runs: Vec<Run>,
    /// Candidate that was confirmed; null before the confirmation.
    pub confirmed: Option<usize>,
    /// Whether the trials of configurations of the process ended undecided.
    #[serde(default)]
    pub is_open: bool,
    /// Number of rounds of the confirmation, fixed before the first of them.
    pub fresh_rounds: Option<usize>,
    /// What the confirmation says.
    pub verdict: Option<Verdict>,
    /// The strategy file; null if none was written.
    pub strategy: Option<String>,
    /// Causes of doubt, with remedies.
    pub warnings: Vec<String>,
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The program and its arguments, with placeholders.
    pub program: Vec<String>,
    /// The program's file and the library: path, size and time of change.
    #[serde(default)]
    pub files: Vec<String>,
    /// A single null if the program takes none.
    pub threads: Vec<Option<u32>>,
    pub metric: Metric,
    /// Greatest probability of a wrong choice in the trials, and of an interval that misses.
    pub error_rate: f64,
    /// Seed of the order within every round.
    pub seed: u64,
    pub budget_s: f64,
}

/// One run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    pub stage: Stage,
    /// From 1.
    pub round: usize,
    /// Index in the candidates.
    pub candidate: usize,
    pub threads: Option<u32>,
    pub metric: f64,
    pub wall_s: f64,
    /// See `unconvoy compare`.
    pub transfer_ns: Option<u32>,
}

/// A candidate that left the trials.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Withdrawn {
    pub stage: Stage,
    pub round: usize,
    pub candidate: usize,
    pub why: String,
}

impl Record {
    pub fn begin(plan: Plan, context: Context) -> Self {
        Record {
            schema: SCHEMA.to_string(),
            complete: false,
            ended_by: None,
            sentence: String::new(),
            context,
            plan,
            elapsed_s: 0.0,
            costs: None,
            candidates: Vec::new(),
            withdrawn: Vec::new(),
            runs: Vec::new(),
            confirmed: None,
            is_open: false,
            fresh_rounds: None,
            verdict: None,
            strategy: None,
            warnings: Vec::new(),
        }
    }

    /// Adds a warning, once.
    pub fn remark(&mut self, warning: String) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Continues the search in `file`, if it is the one that `self` begins.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or what differs.
    pub fn resumed(mut self, file: &Path) -> anyhow::Result<Self> {
        let text = match input::read_text(file, input::RECORD) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                bail!(messages::nothing_to_resume(file))
            }
            text => text.with_context(|| cannot_read(file))?,
        };
        let old: Record = serde_json::from_str(&text)
            .map_err(|error| anyhow!(messages::damaged_record(file, error)))?;
        ensure!(old.schema == SCHEMA && old.is_consistent(), messages::not_a_record(file));
        ensure!(!old.complete, messages::complete(file));
        // More time, or another order, continues the same search.
        self.plan.seed = old.plan.seed;
        let without_budget = |plan: &Plan| json!(Plan { budget_s: 0.0, ..plan.clone() });
        let plans = [&old.plan, &self.plan].map(without_budget);
        let machines = [&old.context.machine, &self.context.machine].map(|machine| json!(machine));
        for (part, [old, new]) in [("", plans), ("machine's ", machines)] {
            if let Some((what, old, new)) = difference(&old, &new) {
                bail!(messages::differs(file, &format!("{part}{what}"), &old, &new));
            }
        }
        Ok(Record {
            plan: self.plan,
            ended_by: None,
            verdict: None,
            sentence: String::new(),
            ..old
        })
    }

    /// Whether indices, rounds and metrics are possible: somebody else may have written the file.
    fn is_consistent(&self) -> bool {
        let candidates = self.candidates.len().max(1);
        let is_possible = |run: &Run| {
            run.candidate < candidates
                && (1..=self.runs.len()).contains(&run.round)
                && run.metric > 0.0
                && (0.0..LONGEST_RUN_S).contains(&run.wall_s)
        };
        self.runs.iter().all(is_possible)
            && self.withdrawn.iter().all(|it| it.candidate < candidates)
            && self.confirmed.is_none_or(|index| index < self.candidates.len())
            && (self.candidates.is_empty() || self.candidates.len() > DEFAULT)
    }

    /// The score of a run: the logarithm of its metric, greater for better.
    pub fn score(&self, run: &Run) -> f64 {
        let sign = if self.plan.metric.lower_is_better { -1.0 } else { 1.0 };
        sign * run.metric.ln()
    }

    /// The runs of a stage's round.
    pub fn round(&self, stage: Stage, round: usize) -> impl Iterator<Item = &Run> + Clone {
        self.runs.iter().filter(move |run| run.stage == stage && run.round == round)
    }

    /// The candidates that failed in the confirmation.
    pub fn lost(&self) -> impl Iterator<Item = &Withdrawn> {
        self.withdrawn.iter().filter(|it| it.stage == Stage::Confirmation)
    }

    /// Number of the stage's last round.
    pub fn rounds(&self, stage: Stage) -> usize {
        let of_stage = self.runs.iter().filter(|run| run.stage == stage);
        of_stage.map(|run| run.round).max().unwrap_or(0)
    }

    /// The candidate on top of which a stage of an interrupted search tried others: they cannot be
    /// compared with another one.
    pub fn base_of(&self, stage: Stage) -> Option<usize> {
        let mut tried = self.runs.iter().filter(|run| run.stage == stage).map(|run| run.candidate);
        tried.find(|&index| self.candidates.get(index).is_some_and(|it| it.stage != stage))
    }

    /// Removes the candidates of stages that an interrupt left without a round: the one on top of
    /// which they would run may change.
    pub fn forget_untried(&mut self) {
        for stage in [Stage::Locks, Stage::Combination] {
            let has_failed = self.withdrawn.iter().any(|it| it.stage == stage);
            if !has_failed && self.rounds(stage) == 0 {
                self.candidates.retain(|candidate| candidate.stage != stage);
            }
        }
    }

    /// A candidate's score in a round: the mean over the thread counts, which is the logarithm of
    /// the geometric mean.
    pub fn score_of(&self, stage: Stage, round: usize, candidate: usize) -> Option<f64> {
        let runs = self.round(stage, round).filter(|run| run.candidate == candidate);
        let scores: Vec<f64> = runs.map(|run| self.score(run)).collect();
        let is_whole = scores.len() == self.plan.threads.len();
        is_whole.then(|| scores.iter().sum::<f64>() / scores.len() as f64)
    }

    /// The race of some candidates in a stage, up to its last round.
    pub fn race(&self, stage: Stage, members: &[usize]) -> Race {
        let mut race = Race::new(members.len(), self.plan.error_rate / RACES);
        (1..=self.rounds(stage)).for_each(|round| self.account(&mut race, stage, round, members));
        race
    }

    /// Adds a round to a race. Candidates that did not finish the round withdraw.
    pub fn account(&self, race: &mut Race, stage: Stage, round: usize, members: &[usize]) {
        let score = |index: usize| self.score_of(stage, round, members[index]);
        for index in race.running().into_iter().filter(|&index| score(index).is_none()) {
            race.withdraw(index);
        }
        let is_eligible =
            |index: usize| self.loses_nowhere(stage, round, members[index], simple(stage, members));
        race.add_round(|index| score(index).unwrap_or_default(), is_eligible);
    }

    /// Whether the rounds up to `last` prove no loss of a candidate against the simpler ones, at no
    /// thread count. The race asks at each look, and all these tests together err as rarely as its
    /// own.
    pub fn loses_nowhere(
        &self,
        stage: Stage,
        last: usize,
        candidate: usize,
        simple: &[usize],
    ) -> bool {
        let tests = RACES * (LOOKS.len() * self.plan.threads.len() * simple.len().max(1)) as f64;
        self.plan.threads.iter().all(|&threads| {
            simple.iter().filter(|&&simple| simple != candidate).all(|&simple| {
                let values = self.differences(stage, last, threads, [candidate, simple]);
                let ratio = Ratio::of_differences(&values, self.plan.error_rate / tests);
                !ratio.is_some_and(|ratio| ratio.is_loss())
            })
        })
    }

    /// The differences of two candidates' scores at one thread count, by round of a stage up to
    /// `last`.
    pub fn differences(
        &self,
        stage: Stage,
        last: usize,
        threads: Option<u32>,
        [a, b]: [usize; 2],
    ) -> Vec<f64> {
        let rounds = 1..=last;
        rounds
            .filter_map(|round| {
                let of = |candidate: usize| {
                    let mut runs = self.round(stage, round);
                    let found = runs.find(|it| it.candidate == candidate && it.threads == threads);
                    found.map(|run| self.score(run))
                };
                Some(of(a)? - of(b)?)
            })
            .collect()
    }
}

/// The members that the others must not be slower than: libc and the default, and then what the
/// first trials chose.
pub fn simple(stage: Stage, members: &[usize]) -> &[usize] {
    &members[..members.len().min(if stage == Stage::Process { 2 } else { 1 })]
}

#[cfg(test)]
impl Record {
    /// The record of a search for a server that has not begun.
    pub fn of_a_server() -> Self {
        use super::candidates::{Facts, of_process};
        let plan = Plan {
            program: vec!["server".to_string()],
            files: Vec::new(),
            threads: vec![None],
            metric: Metric { name: "rate".to_string(), regex: None, lower_is_better: false },
            error_rate: 0.05,
            seed: 1,
            budget_s: 60.0,
        };
        let mut record = Record::begin(plan, Context::capture());
        let facts = Facts { processors: 2, threads: None };
        record.candidates = of_process(&Costs::default(), facts, 1);
        record
    }
}

#[cfg(test)]
mod tests {
    use super::super::candidates::LIBC;
    use super::*;

    #[test]
    fn entries_stay_with_the_configuration_that_they_were_tried_on() {
        let mut record = Record::of_a_server();
        let (count, mut entry) = (record.candidates.len(), record.candidates[DEFAULT].clone());
        entry.stage = Stage::Locks;
        record.candidates.push(entry.clone());
        record.forget_untried();
        assert_eq!((record.candidates.len(), record.base_of(Stage::Locks)), (count, None));

        record.candidates.push(entry);
        let run = |stage, candidate| Run {
            stage,
            round: 1,
            candidate,
            threads: None,
            metric: 1.0,
            wall_s: 1.0,
            transfer_ns: None,
        };
        record.runs =
            vec![run(Stage::Process, LIBC), run(Stage::Locks, count), run(Stage::Locks, DEFAULT)];
        record.forget_untried();
        assert_eq!(record.candidates.len(), count + 1);
        assert_eq!(record.base_of(Stage::Locks), Some(DEFAULT));
        assert_eq!(record.base_of(Stage::Combination), None);
    }
}
