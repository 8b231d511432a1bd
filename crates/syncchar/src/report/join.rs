//! Joins the results of the analysis with the measured times.

use super::class::by_class;
use super::mean::averages;
use super::names::Names;
use super::record::{Advised, LockReport, LockTimes, Report, Run, SCHEMA};
use crate::advice::{Advice, advise};
use crate::analysis::{Estimates, LockAnalysis, Options};
use crate::estimate::Estimate;
use crate::messages;
use crate::projection::{
    Projection, TransactionCosts, projected_time, projected_time_of_all, weighted_average,
};
use std::collections::{BTreeMap, HashMap};

impl Report {
    /// Joins analysis and measured times by lock number, and adds names.
    pub fn new(
        run: Run,
        options: &Options,
        locks: Vec<LockAnalysis>,
        times: HashMap<u32, LockTimes>,
        names: &impl Names,
    ) -> Self {
        // Ordered, so that sums are reproducible.
        let mut times: BTreeMap<u32, LockTimes> = times.into_iter().collect();
        let all_held: f64 = times.values().map(|times| times.held).sum();
        let mut remarks = limitations(&locks, options);
        let mut locks: Vec<LockReport> = locks
            .into_iter()
            .map(|analysis| LockReport::new(analysis, run.seconds, &mut times, names))
            .collect();
        if let Some((costs, total)) = run.costs.zip(run.seconds) {
            locks.iter_mut().for_each(|lock| lock.project_elision(&costs, total));
        }
        let unsampled = times;
        if !unsampled.is_empty() {
            remarks.push(messages::locks_not_sampled(unsampled.len(), run.clock));
        }
        let held = |lock: &LockReport| lock.times.as_ref().map_or(-1.0, |times| times.held);
        locks.sort_by(|a, b| {
            let by_sections = || b.analysis.sections.cmp(&a.analysis.sections);
            held(b)
                .total_cmp(&held(a))
                .then_with(by_sections)
                .then(a.analysis.lock.cmp(&b.analysis.lock))
        });
        let mut shared = locks.iter().filter(|lock| names.admits_readers(lock.analysis.lock));
        if let Some(longest) = shared.next() {
            remarks.push(messages::readers_run_at_once(&longest.name, shared.count()));
        }
        let mut words = BTreeMap::new();
        let mut places = BTreeMap::new();
        for analysis in locks.iter().map(|lock| &lock.analysis) {
            for spot in &analysis.hot_spots {
                words.extend(names.word(spot.address).map(|name| (spot.address, name)));
                for place in spot.readers.iter().chain(&spot.writers) {
                    places.extend(names.place(place.place).map(|name| (place.place, name)));
                }
            }
            for line in &analysis.false_sharing {
                words.extend(names.word(line.word).map(|name| (line.word, name)));
            }
        }
        let classes = by_class(&locks, &unsampled, run.seconds, &options.processors, names);
        let average = averages(locks.iter(), &options.processors);
        let total = run.seconds.filter(|seconds| *seconds > 0.0);
        let projections =
            total.map(|total| all_locks(&locks, &options.processors, run.costs.as_ref(), total));
        Report {
            schema: SCHEMA.into(),
            run,
            options: options.clone(),
            held: total.map(|total| all_held / total),
            sections: locks.iter().map(|lock| lock.analysis.sections).sum(),
            classes,
            average,
            projections: projections.unwrap_or_default(),
            locks,
            words,
            places,
            remarks,
        }
    }
}

/// What limits the estimates, one sentence each.
fn limitations(locks: &[LockAnalysis], options: &Options) -> Vec<String> {
    let mut remarks = Vec::new();
    let cut_short = locks.iter().filter(|lock| lock.cut_short > 0.0).count();
    if cut_short > 0 {
        remarks.push(messages::sets_cut_short(cut_short));
    }
    let partial = |lock: &&LockAnalysis| lock.estimates.iter().any(|estimates| estimates.partial);
    let partial = locks.iter().filter(partial).count();
    if partial > 0 {
        remarks.push(messages::windows_not_filled(partial));
    }
    let unknown = |lock: &&LockAnalysis| lock.estimates.iter().any(|it| !it.is_measured());
    let unknown = locks.iter().filter(unknown).count();
    if unknown > 0 {
        let processors = options.processors.iter().copied().max().unwrap_or(1);
        remarks.push(messages::too_few_threads(unknown, processors));
    }
    if locks.is_empty() {
        remarks.push(messages::no_sections().into());
    }
    remarks
}

impl LockReport {
    fn new(
        analysis: LockAnalysis,
        seconds: Option<f64>,
        times: &mut BTreeMap<u32, LockTimes>,
        names: &impl Names,
    ) -> Self {
        let times = times.remove(&analysis.lock);
        let known = times.as_ref().zip(seconds.filter(|seconds| *seconds > 0.0));
        let share = known.map(|(times, seconds)| times.held / seconds);
        let project = |(times, total): (&LockTimes, f64)| -> Vec<Projection> {
            let after =
                |estimate: &Estimate| projected_time(total, times.held, estimate.speed_up());
            analysis.estimates.iter().map(|estimates| projection(estimates, total, after)).collect()
        };
        let projections = known.map(project).unwrap_or_default();
        let advised = |advice: Advice| Advised {
            advice,
            sentence: advice.sentence(|address| names.word(address)),
        };
        let conditional = |place| names.is_conditional_store(place);
        let admits_readers = names.admits_readers(analysis.lock);
        LockReport {
            name: names.lock(analysis.lock).unwrap_or_else(|| format!("lock {}", analysis.lock)),
            class: names.class(analysis.lock),
            share,
            projections,
            advice: advise(&analysis, conditional, admits_readers)
                .into_iter()
                .map(advised)
                .collect(),
            times,
            analysis,
        }
    }
}

impl LockReport {
    /// Adds the program's gain if this lock is elided.
    fn project_elision(&mut self, costs: &TransactionCosts, total: f64) {
        let mut projections = std::mem::take(&mut self.projections);
        for projection in &mut projections {
            let sections = self.sections_at(projection.processors);
            projection.elided = Some(costs.speed_up(total, sections.into_iter()));
        }
        self.projections = projections;
    }
}

fn projection(estimates: &Estimates, total: f64, after: impl Fn(&Estimate) -> f64) -> Projection {
    let seconds = after(&estimates.byte);
    Projection {
        processors: estimates.processors,
        sections: estimates.byte.speed_up(),
        sections_by_line: estimates.line.speed_up(),
        seconds,
        program: total / seconds,
        program_by_line: total / after(&estimates.line),
        elided: None,
    }
}

fn all_locks(
    locks: &[LockReport],
    processors: &[u32],
    costs: Option<&TransactionCosts>,
    total: f64,
) -> Vec<Projection> {
    let project = |processors: &u32| {
        let held: Vec<(f64, Estimates)> =
            locks.iter().filter_map(|lock| lock.held_at(*processors)).collect();
        let after = |which: fn(&Estimates) -> Estimate| {
            projected_time_of_all(
                total,
                held.iter().map(|(held, both)| (*held, which(both).speed_up())),
            )
        };
        let average = |which: fn(&Estimates) -> Estimate| {
            let measured = held.iter().filter(|(_, both)| both.is_measured());
            weighted_average(measured.map(|(held, both)| (*held, which(both).speed_up())))
        };
        let seconds = after(|both| both.byte);
        Some(Projection {
            processors: *processors,
            sections: average(|both| both.byte)?,
            sections_by_line: average(|both| both.line)?,
            seconds,
            program: total / seconds,
            program_by_line: total / after(|both| both.line),
            elided: costs.map(|costs| {
                let sections = locks.iter().filter_map(|lock| lock.sections_at(*processors));
                costs.speed_up(total, sections)
            }),
        })
    };
    processors.iter().filter_map(project).collect()
}

#[cfg(test)]
#[path = "../report_tests.rs"]
mod tests;
