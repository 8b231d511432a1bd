//! What a user gets: locks by time held, with what optimistic concurrency would gain (Table 2 of the paper), the program's projection, hot spots and
//! advice. JSON by serde; [`Report::text`] is for a terminal.

mod class;
mod text;

pub use class::ClassReport;

use crate::advice::{Advice, advise};
use crate::analysis::{Estimates, LockAnalysis, Options};
use crate::conflicts::PlaceCount;
use crate::estimate::Estimate;
use crate::projection::{Projection, projected_time, projected_time_of_all, weighted_average};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// The form of the JSON; it changes when a reader has to.
pub const SCHEMA: &str = "unconvoy-syncchar-1";

/// What ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Who collected the address sets.
    pub source: String,
    /// The program and its arguments.
    pub program: Vec<String>,
    /// Run time without any instrument, seconds; nothing if it did not run so.
    pub seconds: Option<f64>,
    /// What times mean.
    #[serde(default)]
    pub clock: Clock,
}

/// What the times of a report are measured by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// A run without emulation, on this machine; shares are of its run time.
    #[default]
    Native,
    /// Instructions of all emulated processors, a nanosecond each, as in the paper's section 5; shares are of all these but those that waited for locks.
    Instructions,
}

/// What was measured of a lock while the program ran natively.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LockTimes {
    /// Times it was acquired.
    pub acquisitions: u64,
    /// Time it was held, seconds.
    pub held: f64,
    /// Time that threads waited for it, all together, seconds.
    pub waited: f64,
}

/// What a caller knows of the program: names for numbers.
pub trait Names {
    /// A lock's name.
    fn lock(&self, lock: u32) -> Option<String>;
    /// The variable, or the allocation, that an address belongs to.
    fn word(&self, address: u64) -> Option<String>;
    /// The function and source line of a place.
    fn place(&self, place: u32) -> Option<String>;
    /// What all locks of its kind are called, where a lock may be one of many (`dentry.d_lockref`).
    fn class(&self, _lock: u32) -> Option<String> {
        None
    }
    /// Whether the place is a store that the source makes only under a condition (section 3.3): a conditional move chose what it stores.
    fn is_conditional_store(&self, place: u32) -> bool;
}

/// For a program of which nothing is known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nameless;

impl Names for Nameless {
    fn lock(&self, _lock: u32) -> Option<String> {
        None
    }

    fn word(&self, _address: u64) -> Option<String> {
        None
    }

    fn place(&self, _place: u32) -> Option<String> {
        None
    }

    fn is_conditional_store(&self, _place: u32) -> bool {
        false
    }
}

/// The whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// What ran.
    pub run: Run,
    /// How it was analysed.
    pub options: Options,
    /// Longest held first, then those of which no time is known, by sections.
    pub locks: Vec<LockReport>,
    /// Time held of all locks as a share of the run time, those included that were never sampled.
    #[serde(default)]
    pub held: Option<f64>,
    /// Sections of all locks that were analysed.
    #[serde(default)]
    pub sections: u64,
    /// Locks of one kind together, longest held first: those of which a class is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassReport>,
    /// Means over the locks, weighted by time held, for each number of processors: Table 2's last row. Empty without times.
    pub average: Vec<Average>,
    /// The program's gain if all locks' sections ran optimistically, for each number of processors. Empty without times.
    pub projections: Vec<Projection>,
    /// Names of the words in this report that have one.
    #[serde(with = "crate::address::names")]
    pub words: BTreeMap<u64, String>,
    /// Names of the places in this report that have one.
    pub places: BTreeMap<u32, String>,
    /// What was not seen, or spoils the numbers; sentences.
    pub remarks: Vec<String>,
}

/// One lock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LockReport {
    /// Its name, or else its number.
    pub name: String,
    /// What all locks of its kind are called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// What was measured natively, if anything was.
    pub times: Option<LockTimes>,
    /// Time held as a share of the run time, from 0 to 1.
    pub share: Option<f64>,
    /// What the address sets say.
    pub analysis: LockAnalysis,
    /// The program's gain if only this lock's sections ran optimistically, for each number of processors. Empty without times.
    pub projections: Vec<Projection>,
    /// What to do about it.
    pub advice: Vec<Advised>,
}

/// Advice and its wording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advised {
    /// For programs.
    #[serde(flatten)]
    pub advice: Advice,
    /// For people.
    pub sentence: String,
}

/// Means over all locks for one number of processors.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Average {
    /// n.
    pub processors: u32,
    /// By byte.
    pub byte: Estimate,
    /// By line of 64 bytes.
    pub line: Estimate,
}

impl Report {
    /// Joins what the analysis found with what was measured natively, by lock number, and names it.
    pub fn new(
        run: Run,
        options: &Options,
        locks: Vec<LockAnalysis>,
        times: HashMap<u32, LockTimes>,
        names: &impl Names,
    ) -> Self {
        // In order, so that sums are the same each time.
        let mut times: BTreeMap<u32, LockTimes> = times.into_iter().collect();
        let all_held: f64 = times.values().map(|times| times.held).sum();
        let mut remarks = Vec::new();
        let cut_short = locks.iter().filter(|lock| lock.cut_short > 0.0).count();
        if cut_short > 0 {
            remarks.push(format!(
                "Sections of {} touched more than was recorded: what they gain is an upper bound.",
                locks_of(cut_short)
            ));
        }
        let partial = |lock: &&LockAnalysis| lock.estimates.iter().any(|estimates| estimates.partial);
        let partial = locks.iter().filter(partial).count();
        if partial > 0 {
            remarks.push(format!(
                "{} too rarely taken to fill a window for each number of processors: there, one sample is all that was compared.",
                were(partial)
            ));
        }
        if locks.is_empty() {
            remarks.push(
                "No critical section was seen: the program took no lock that is known, or none while it was sampled."
                    .into(),
            );
        }
        let mut locks: Vec<LockReport> =
            locks.into_iter().map(|analysis| LockReport::new(analysis, run.seconds, &mut times, names)).collect();
        let unsampled = times;
        if !unsampled.is_empty() {
            let run = match run.clock {
                Clock::Native => "in the native run",
                Clock::Instructions => "at some time",
            };
            remarks.push(format!("{} held {run}, but no section was sampled: not listed.", were(unsampled.len())));
        }
        let held = |lock: &LockReport| lock.times.as_ref().map_or(-1.0, |times| times.held);
        locks.sort_by(|a, b| {
            let by_sections = || b.analysis.sections.cmp(&a.analysis.sections);
            held(b).total_cmp(&held(a)).then_with(by_sections).then(a.analysis.lock.cmp(&b.analysis.lock))
        });
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
        let classes = class::by_class(&locks, &unsampled, run.seconds, &options.processors, names);
        let average = averages(locks.iter(), &options.processors);
        let total = run.seconds.filter(|seconds| *seconds > 0.0);
        let projections = total.map(|total| all_locks(&locks, &options.processors, total));
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

    /// Names of places, each once: a line may have several instructions that access a word.
    pub fn names_of(&self, places: &[PlaceCount]) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for place in places {
            let name = self.places.get(&place.place).cloned().unwrap_or_else(|| format!("place {}", place.place));
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// The report for a terminal, of the `most` longest held locks in detail.
    pub fn text(&self, most: usize) -> String {
        text::render(self, most)
    }
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
            let after = |estimate: &Estimate| projected_time(total, times.held, estimate.speed_up());
            analysis.estimates.iter().map(|estimates| projection(estimates, total, after)).collect()
        };
        let projections = known.map(project).unwrap_or_default();
        let advised = |advice: Advice| Advised { advice, sentence: advice.sentence(|address| names.word(address)) };
        LockReport {
            name: names.lock(analysis.lock).unwrap_or_else(|| format!("lock {}", analysis.lock)),
            class: names.class(analysis.lock),
            share,
            projections,
            advice: advise(&analysis, |place| names.is_conditional_store(place)).into_iter().map(advised).collect(),
            times,
            analysis,
        }
    }

    /// The estimates for so many processors, with the time held.
    fn held_at(&self, processors: u32) -> Option<(f64, Estimates)> {
        let times = self.times.as_ref()?;
        let estimates = self.analysis.estimates.iter().find(|estimates| estimates.processors == processors)?;
        Some((times.held, *estimates))
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
    }
}

fn locks_of(locks: usize) -> String {
    if locks == 1 { "1 lock".into() } else { format!("{locks} locks") }
}

fn were(locks: usize) -> String {
    format!("{} {}", locks_of(locks), if locks == 1 { "was" } else { "were" })
}

fn averages<'a>(locks: impl Iterator<Item = &'a LockReport> + Clone, processors: &[u32]) -> Vec<Average> {
    let average = |processors: &u32| {
        let held: Vec<(f64, Estimates)> = locks.clone().filter_map(|lock| lock.held_at(*processors)).collect();
        let mean = |which: fn(&Estimates) -> Estimate| {
            let part = |value: fn(&Estimate) -> f64| {
                weighted_average(held.iter().map(|(held, estimates)| (*held, value(&which(estimates)))))
            };
            Some(Estimate {
                threads: part(|estimate| estimate.threads)?,
                independence: part(|estimate| estimate.independence)?,
                conflicting: part(|estimate| estimate.conflicting)?,
                density: part(|estimate| estimate.density)?,
            })
        };
        Some(Average { processors: *processors, byte: mean(|both| both.byte)?, line: mean(|both| both.line)? })
    };
    processors.iter().filter_map(average).collect()
}

fn all_locks(locks: &[LockReport], processors: &[u32], total: f64) -> Vec<Projection> {
    let project = |processors: &u32| {
        let held: Vec<(f64, Estimates)> = locks.iter().filter_map(|lock| lock.held_at(*processors)).collect();
        let after = |which: fn(&Estimates) -> Estimate| {
            projected_time_of_all(total, held.iter().map(|(held, both)| (*held, which(both).speed_up())))
        };
        let average = |which: fn(&Estimates) -> Estimate| {
            weighted_average(held.iter().map(|(held, both)| (*held, which(both).speed_up())))
        };
        let seconds = after(|both| both.byte);
        Some(Projection {
            processors: *processors,
            sections: average(|both| both.byte)?,
            sections_by_line: average(|both| both.line)?,
            seconds,
            program: total / seconds,
            program_by_line: total / after(|both| both.line),
        })
    };
    processors.iter().filter_map(project).collect()
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
