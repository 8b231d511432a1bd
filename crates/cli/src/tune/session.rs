//! The search: first run, profile, trials, confirmation. Each step fills its part of the record,
//! and skips what a resumed record has.

use std::collections::BTreeMap;
use std::ffi::{OsString, c_int};
use std::time::{Duration, Instant};

use unconvoy_measure::arguments::thread_count;
use unconvoy_measure::chart::quantity;
use unconvoy_measure::export::Destination;
use unconvoy_measure::progress::Progress;
use unconvoy_measure::sequential::{Interval, centre};

use super::budget::{self, Budget, Overhead};
use super::candidates::{self, DEFAULT, Facts, LIBC, Stage};
use super::race::WORTH;
use super::record::{Record, Run, Withdrawn, simple};
use super::verdict::{Comparison, Verdict};
use crate::compare::configuration::Configuration;
use crate::compare::failure::Failure;
use crate::compare::plan::words;
use crate::compare::trial::{End, Runner};
use crate::messages::compare::killed_after_timeout;
use crate::messages::search as messages;
use crate::refusal::Refusal;

/// Fewer rounds of trials deserve a warning.
const FEW_ROUNDS: usize = 4;

/// Why the search ended early.
pub enum Stop {
    /// The program could not be started.
    Refused(Refusal),
    Failed(Failure),
    Interrupted(c_int),
    /// No result is possible: what to say.
    Undecided(String),
}

/// A running search.
pub struct Session<'a> {
    pub record: Record,
    pub runner: Runner<'a>,
    /// The program and its arguments, with placeholders.
    pub program: Vec<OsString>,
    /// Longest time that the user allows for one run.
    pub timeout: Option<Duration>,
    /// File that is rewritten after each round.
    pub state: Destination<Record>,
    pub progress: Progress,
    pub started: Instant,
    /// Time that an interrupted search had used.
    pub before_s: f64,
    /// By candidate.
    pub configurations: BTreeMap<usize, Configuration>,
    pub overhead: Overhead,
}

impl Session<'_> {
    /// Searches, and leaves what was found in the record.
    ///
    /// # Errors
    ///
    /// See [`Stop`].
    pub fn search(&mut self) -> Result<(), Stop> {
        self.first()?;
        self.profile()?;
        let costs = self.record.costs.clone().unwrap_or_default();
        let (overhead_s, has_locks) = (self.overhead.of_run(), candidates::has_locks(&costs));
        let budget = Budget::new(&self.record, self.elapsed(), overhead_s, has_locks);
        if let Some(best) = self.record.confirmed {
            return self.confirm(best, &budget); // of an interrupted search
        }
        if self.record.candidates.is_empty() {
            budget.check().map_err(Stop::Undecided)?;
            let facts = Facts {
                processors: self.record.context.machine.processors,
                threads: self.record.plan.threads.iter().copied().max().flatten(),
            };
            let most = budget.configurations();
            self.record.candidates = candidates::of_process(&costs, facts, most);
        }
        let best = self.trials(&budget)?;
        self.confirm(best, &budget)
    }

    pub fn elapsed(&self) -> f64 {
        self.before_s + self.started.elapsed().as_secs_f64()
    }

    /// Finds the best candidate.
    fn trials(&mut self, budget: &Budget) -> Result<usize, Stop> {
        let members = self.of_stage(Stage::Process);
        let costs = self.record.costs.clone().unwrap_or_default();
        self.record.forget_untried();
        let base = match self.record.base_of(Stage::Locks) {
            Some(base) => base,
            None => self.race(Stage::Process, &members, budget.process_until())?,
        };
        if self.of_stage(Stage::Locks).is_empty() {
            let more = candidates::of_locks(&self.record.candidates[base], &costs);
            self.record.candidates.extend(more.into_iter().take(budget.entries()));
        }
        let of_locks = self.of_stage(Stage::Locks);
        let is_tried = self.record.rounds(Stage::Locks) > 0; // by an interrupted search
        if of_locks.is_empty() || budget.entries() == 0 && !is_tried {
            return Ok(base);
        }
        let with_base: Vec<usize> = std::iter::once(base).chain(of_locks).collect();
        let best = match self.record.base_of(Stage::Combination) {
            Some(best) => best,
            None => self.race(Stage::Locks, &with_base, budget.locks_until())?,
        };
        match self.combination(base, best, &with_base) {
            None => Ok(best),
            Some(both) => self.race(Stage::Combination, &[best, both], budget.combination_until()),
        }
    }

    /// A candidate with the entries of the best and of the next best that is for another lock, if
    /// both seem to gain.
    fn combination(&mut self, base: usize, best: usize, members: &[usize]) -> Option<usize> {
        if let [both] = self.of_stage(Stage::Combination)[..] {
            return Some(both); // of an interrupted search
        }
        let gain = |index: usize| {
            let rounds = 1..=self.record.rounds(Stage::Locks);
            let score = |round, it| self.record.score_of(Stage::Locks, round, it);
            let values =
                rounds.filter_map(|round| Some(score(round, index)? - score(round, base)?));
            centre(&values.collect::<Vec<_>>())
        };
        let lock = |index: usize| self.record.candidates[index].locks.last();
        let others = members.iter().filter(|&&it| it != base && lock(it) != lock(best));
        let next = others.copied().max_by(|&a, &b| gain(a).total_cmp(&gain(b)))?;
        if best == base || gain(next) < WORTH / 2.0 {
            return None;
        }
        let [best, next] = [best, next].map(|index| &self.record.candidates[index]);
        let both = candidates::combined(best, next);
        self.record.candidates.push(both);
        Some(self.record.candidates.len() - 1)
    }

    /// The candidates that a stage adds.
    fn of_stage(&self, stage: Stage) -> Vec<usize> {
        let all = self.record.candidates.iter().enumerate();
        all.filter(|(_, candidate)| candidate.stage == stage).map(|(index, _)| index).collect()
    }

    /// Races candidates until one is proven best, no difference that matters can remain, or the
    /// time has come. Returns the best so far.
    fn race(&mut self, stage: Stage, members: &[usize], until_s: f64) -> Result<usize, Stop> {
        let members = self.prepared(members);
        let mut race = self.record.race(stage, &members);
        while !race.is_over() {
            let round = race.rounds() + 1;
            let running = race.running();
            let seconds = self.round_seconds(running.iter().map(|&index| members[index]));
            if self.elapsed() + seconds > until_s {
                let runs = running.len() * self.record.plan.threads.len();
                self.remark_on_rounds(race.rounds(), members.len(), seconds / runs as f64);
                break;
            }
            let running: Vec<usize> = running.into_iter().map(|index| members[index]).collect();
            self.round(stage, round, &running)?;
            self.record.account(&mut race, stage, round, &members);
        }
        if stage == Stage::Process {
            self.record.is_open = !race.is_decided();
        }
        let simple = simple(stage, &members);
        let is_eligible =
            |index: usize| self.record.loses_nowhere(stage, race.rounds(), members[index], simple);
        let leader = match race.rounds() {
            // Without a trial, the likeliest one is confirmed.
            0 if stage == Stage::Process && members.len() > simple.len() => Some(simple.len()),
            0 => Some(0),
            _ => race.leader(is_eligible).or_else(|| race.leader(|_| true)),
        };
        // An entry must probably be better than none: among equals, luck decides who leads.
        let is_chosen = |index| stage == Stage::Process || race.seems_better(index, 0);
        match leader {
            Some(index) if race.rounds() > 0 && !is_chosen(index) => Ok(members[0]),
            leader => Ok(leader.map_or(LIBC, |index| members[index])),
        }
    }

    /// The members that can run here.
    fn prepared(&mut self, members: &[usize]) -> Vec<usize> {
        let program = words(&self.program, self.record.plan.threads[0]).swap_remove(0);
        let mut able = Vec::new();
        for &index in members {
            let candidate = &self.record.candidates[index];
            match candidate.configuration(&program) {
                Ok(configuration) => {
                    self.configurations.insert(index, configuration);
                    able.push(index);
                }
                Err(why) => {
                    let remark = messages::not_tried(&candidate.name, &why);
                    self.record.remark(remark);
                }
            }
        }
        able
    }

    /// Adds a warning if time sufficed for a few rounds only.
    fn remark_on_rounds(&mut self, rounds: usize, candidates: usize, run_s: f64) {
        if rounds < FEW_ROUNDS {
            let run = quantity::seconds(run_s);
            self.record.remark(messages::few_rounds(&run, candidates, rounds));
        }
    }

    /// Runs candidates once per thread count in random order, and keeps the round's runs.
    fn round(&mut self, stage: Stage, round: usize, running: &[usize]) -> Result<(), Stop> {
        let threads = &self.record.plan.threads;
        let mut cells: Vec<(usize, Option<u32>)> = running
            .iter()
            .flat_map(|&index| threads.iter().map(move |&threads| (index, threads)))
            .collect();
        let seed = self.record.plan.seed + ((stage as u64) << 32) + round as u64;
        fastrand::Rng::with_seed(seed).shuffle(&mut cells);
        let begin_s = self.elapsed();
        let (mut runs, mut withdrawn): (Vec<Run>, Vec<Withdrawn>) = (Vec::new(), Vec::new());
        for (candidate, threads) in cells {
            if withdrawn.iter().any(|it| it.candidate == candidate) {
                continue;
            }
            let limit = Some(self.limit(threads));
            let mut ended = self.measure(stage, round, candidate, threads, limit);
            // Repeat a slow run of libc: the machine may have slowed it, and the search needs it.
            let is_too_long = matches!(ended, Err(End::TimedOut(..))) && limit != self.timeout;
            if candidate == LIBC && is_too_long {
                ended = self.measure(stage, round, candidate, threads, limit);
            }
            match ended {
                Ok(run) => runs.push(run),
                Err(End::TimedOut(limit, _)) if candidate != LIBC => {
                    let why = self.killed_after(limit);
                    if stage == Stage::Confirmation {
                        let name = &self.record.candidates[candidate].name;
                        self.record.remark(messages::failed_under(name, &why, ""));
                    }
                    withdrawn.push(Withdrawn { stage, round, candidate, why });
                }
                Err(End::Failed(why, output)) if candidate != LIBC => {
                    let name = &self.record.candidates[candidate].name;
                    let text = String::from_utf8_lossy(&output.tail);
                    let last_line = text.lines().last().unwrap_or_default();
                    self.record.remark(messages::failed_under(name, &why, last_line));
                    withdrawn.push(Withdrawn { stage, round, candidate, why });
                }
                Err(end) => {
                    return Err(self.failed(&format!("round {round}"), candidate, threads, end));
                }
            }
        }
        let is_whole = withdrawn.is_empty(); // else it has runs whose time is unknown
        self.record.runs.extend(runs.iter().cloned());
        self.record.withdrawn.extend(withdrawn);
        self.record.elapsed_s = self.elapsed();
        self.state.keep(&self.record);
        if is_whole {
            self.overhead.add(self.elapsed() - begin_s, &runs);
        }
        self.progress.now_and_then(self.done());
        Ok(())
    }

    /// Measures the best, libc and the default afresh, and decides.
    fn confirm(&mut self, best: usize, budget: &Budget) -> Result<(), Stop> {
        let best = *self.record.confirmed.get_or_insert(best);
        // Omit a candidate that failed in the trials, such as the default.
        let is_able = |&index: &usize| {
            let mut all = self.record.withdrawn.iter();
            !all.any(|it| it.candidate == index && it.stage != Stage::Confirmation)
        };
        let members = [LIBC, DEFAULT].into_iter().chain((best > DEFAULT).then_some(best));
        let members = self.prepared(&members.filter(is_able).collect::<Vec<_>>());
        let seconds = self.round_seconds(members.iter().copied());
        let left = (budget.until() - self.elapsed()) / seconds;
        let rounds = budget::confirmation_rounds(&self.expected(best), left);
        let rounds = *self.record.fresh_rounds.get_or_insert(rounds);
        let done = self.record.rounds(Stage::Confirmation);
        let mut ended = Ok(());
        for round in done + 1..=done.max(rounds) {
            let mut rest = members.clone();
            rest.retain(|&index| self.record.lost().all(|it| it.candidate != index));
            if rest.len() < 2 || ended.is_err() {
                break;
            }
            // A resumed confirmation gains at least one round.
            let seconds = self.round_seconds(rest.iter().copied());
            if round > done + 1 && budget.ends_before(round, self.elapsed(), seconds) {
                break;
            }
            ended = self.round(Stage::Confirmation, round, &rest);
        }
        self.decide(best);
        if members == [best] {
            // The default failed in the trials, and libc is the best of the others.
            self.record.verdict = Some(Verdict::of(best, 0, Vec::new()));
        }
        // Without the best, the others alone do not say that nothing helps.
        let verdict = self.record.verdict.as_ref();
        let is_result = |lost: usize| match verdict {
            Some(verdict) => lost != best || verdict.recommended != LIBC,
            None => false,
        };
        match self.record.lost().find(|it| !is_result(it.candidate)) {
            Some(it) if ended.is_ok() => {
                let name = &self.record.candidates[it.candidate].name;
                Err(Stop::Undecided(messages::not_confirmed(name, &it.why)))
            }
            _ => ended,
        }
    }

    /// Decides by the fresh runs so far.
    fn decide(&mut self, best: usize) {
        let record = &self.record;
        let stage = Stage::Confirmation;
        let last = record.rounds(stage);
        let failed = |index: usize| record.lost().any(|it| it.candidate == index);
        let mut pairs = vec![[DEFAULT, LIBC]];
        if best > DEFAULT {
            pairs.extend([[best, LIBC], [best, DEFAULT]]);
        }
        let comparisons = pairs.into_iter().filter(|pair| !pair.iter().any(|&it| failed(it)));
        let comparisons: Vec<Comparison> = comparisons
            .filter_map(|pair| {
                let counts = record.plan.threads.iter();
                let all: Vec<Vec<f64>> =
                    counts.map(|&threads| record.differences(stage, last, threads, pair)).collect();
                Comparison::of(pair, &all, record.plan.error_rate)
            })
            .collect();
        if !comparisons.is_empty() {
            self.record.verdict = Some(Verdict::of(best, record.rounds(stage), comparisons));
        }
    }

    /// The differences that the confirmation measures, as far as the trials of configurations of
    /// the process show them.
    fn expected(&self, best: usize) -> Vec<Option<Interval>> {
        let pairs = [[best, LIBC], [best, DEFAULT], [DEFAULT, LIBC]];
        let intervals = pairs.into_iter().filter(|[a, b]| a > b).map(|[a, b]| {
            let rounds = 1..=self.record.rounds(Stage::Process);
            let score = |round, it| self.record.score_of(Stage::Process, round, it);
            let values = rounds.filter_map(|round| Some(score(round, a)? - score(round, b)?));
            Interval::of(&values.collect::<Vec<_>>(), self.record.plan.error_rate)
        });
        intervals.collect()
    }

    /// How long a round of these candidates probably takes.
    fn round_seconds(&self, running: impl Iterator<Item = usize>) -> f64 {
        let overhead_s = self.overhead.of_run();
        running.map(|candidate| budget::round_seconds(&self.record, candidate, overhead_s)).sum()
    }

    /// The time after which a run is hopeless.
    fn limit(&self, threads: Option<u32>) -> Duration {
        let mut first = self.record.round(Stage::First, 1);
        let wall = first.find(|run| run.threads == threads).map_or(60.0, |run| run.wall_s);
        let limit = Duration::from_secs_f64(3.0 * wall + 2.0);
        self.timeout.map_or(limit, |timeout| timeout.min(limit))
    }

    /// Why a run was killed.
    fn killed_after(&self, limit: Duration) -> String {
        match self.timeout {
            Some(timeout) if timeout == limit => killed_after_timeout(limit.as_secs_f64()),
            _ => messages::took_too_long(limit.as_secs_f64()),
        }
    }

    /// Whole seconds since the start. Runs that had begun can exceed the budget.
    fn done(&self) -> u64 {
        self.elapsed() as u64
    }

    pub(super) fn show(&self, what: &str) {
        self.progress.begin(what);
        self.progress.at(self.done());
    }

    pub(super) fn measure(
        &mut self,
        stage: Stage,
        round: usize,
        candidate: usize,
        threads: Option<u32>,
        limit: Option<Duration>,
    ) -> Result<Run, End> {
        self.show(&self.describe(candidate, threads));
        let configuration = &self.configurations[&candidate];
        let trial = self.runner.run(&words(&self.program, threads), configuration, limit)?;
        let metric = trial.metric;
        if metric <= 0.0 {
            return Err(End::Failed(messages::metric_not_positive(metric), trial.output));
        }
        let wall_s = trial.usage.wall.as_secs_f64();
        let transfer_ns = trial.transfer_ns;
        Ok(Run { stage, round, candidate, threads, metric, wall_s, transfer_ns })
    }

    /// `loiter+park, 8 threads`.
    fn describe(&self, candidate: usize, threads: Option<u32>) -> String {
        let name = self.configurations[&candidate].name.clone();
        threads.map_or(name.clone(), |threads| format!("{name}, {}", thread_count(threads)))
    }

    pub(super) fn failed(
        &self,
        which: &str,
        candidate: usize,
        threads: Option<u32>,
        end: End,
    ) -> Stop {
        let which = format!("{}, {which}", self.describe(candidate, threads));
        match end {
            End::Refused(refusal) => Stop::Refused(refusal),
            End::Interrupted(signal) => Stop::Interrupted(signal),
            End::Failed(why, output) => Stop::Failed(Failure::new(which, why, &output)),
            End::TimedOut(limit, output) => {
                Stop::Failed(Failure::new(which, self.killed_after(limit), &output))
            }
        }
    }
}
