//! The fields of a report, as in its JSON.

use crate::advice::Advice;
use crate::analysis::{Estimates, LockAnalysis, Options};
use crate::conflicts::PlaceCount;
use crate::estimate::Estimate;
use crate::projection::{Projection, Sections, TransactionCosts};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of the JSON; it changes when readers must change.
pub const SCHEMA: &str = "unconvoy-syncchar-1";

/// The analysed run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The collector of the address sets.
    pub source: String,
    /// The program and its arguments.
    pub program: Vec<String>,
    /// Run time without instrumentation in seconds; `None` without such a run.
    pub seconds: Option<f64>,
    /// The clock behind the times.
    #[serde(default)]
    pub clock: Clock,
    /// What transactions cost on this machine; `None` if they do not commit here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costs: Option<TransactionCosts>,
}

/// The clock behind a report's times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// The clock of a run without emulation, on this machine. Shares refer to the run time.
    #[default]
    Native,
    /// Instructions of all emulated processors, a nanosecond each, as in section 5 of the paper.
    /// Shares refer to the instructions not spent waiting for locks.
    Instructions,
}

/// A lock's measurements from the native run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LockTimes {
    /// Number of acquisitions.
    pub acquisitions: u64,
    /// Time held, in seconds.
    pub held: f64,
    /// Time that all threads together waited for it, in seconds.
    pub waited: f64,
}

/// The whole report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// What ran.
    pub run: Run,
    /// The options of the analysis.
    pub options: Options,
    /// Held longest first; then locks without times, by number of sections.
    pub locks: Vec<LockReport>,
    /// Time held of all locks, including those never sampled, as a share of the run time.
    #[serde(default)]
    pub held: Option<f64>,
    /// Number of analysed sections of all locks.
    #[serde(default)]
    pub sections: u64,
    /// Locks grouped by kind, held longest first, without those whose class is unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassReport>,
    /// Means over the locks, weighted by time held, for each number of processors: the last row of
    /// Table 2. Empty without times.
    pub average: Vec<Average>,
    /// The program's gain if the sections of all locks ran optimistically, for each number of
    /// processors. Empty without times.
    pub projections: Vec<Projection>,
    /// Names of the words in this report, where known.
    #[serde(with = "crate::address::names")]
    pub words: BTreeMap<u64, String>,
    /// Names of the places in this report, where known.
    pub places: BTreeMap<u32, String>,
    /// Sentences about what was not seen or distorts the numbers.
    pub remarks: Vec<String>,
}

/// One lock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LockReport {
    /// Its name, or its number if unnamed.
    pub name: String,
    /// The name of its kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Measured times, if any.
    pub times: Option<LockTimes>,
    /// Time held as a share of the run time, from 0 to 1.
    pub share: Option<f64>,
    /// The results of the analysis.
    pub analysis: LockAnalysis,
    /// The program's gain if only this lock's sections ran optimistically, for each number of
    /// processors. Empty without times.
    pub projections: Vec<Projection>,
    /// What to change.
    pub advice: Vec<Advised>,
}

/// Advice with its sentence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advised {
    /// The advice, for programs that read the report.
    #[serde(flatten)]
    pub advice: Advice,
    /// The advice as a sentence, for people.
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

/// The locks of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassReport {
    /// The name of the kind.
    pub name: String,
    /// Number of locks, sampled or not.
    pub locks: u64,
    /// The sum of their times.
    pub times: LockTimes,
    /// Time held as a share of the run time. It may exceed 1, because locks of a kind may be held
    /// at once.
    pub share: Option<f64>,
    /// Analysed sections.
    pub sections: u64,
    /// Means over its locks, weighted by time held, for each number of processors. Sections of
    /// different locks are not compared. Empty without times.
    pub average: Vec<Average>,
}

impl Report {
    /// The mean by byte over the locks for each number of processors; `None` if nothing measured
    /// it.
    pub fn means(&self) -> impl Iterator<Item = Option<Estimate>> {
        let mean = |n: u32| self.average.iter().find(|mean| mean.processors == n);
        self.options.processors.iter().map(move |n| mean(*n).map(|mean| mean.byte))
    }

    /// The projection of all locks for each number of processors; `None` if nothing measured it.
    pub fn projected(&self) -> impl Iterator<Item = Option<&Projection>> {
        let projection = |n: u32| self.projections.iter().find(|gain| gain.processors == n);
        self.options.processors.iter().map(move |n| projection(*n))
    }

    /// The distinct names of places: one source line may have several instructions that access a
    /// word.
    pub fn names_of(&self, places: &[PlaceCount]) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for place in places {
            let name = self
                .places
                .get(&place.place)
                .cloned()
                .unwrap_or_else(|| format!("place {}", place.place));
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

impl LockReport {
    /// The estimate by byte for each number of processors; `None` if nothing measured it.
    pub fn measured(&self) -> impl Iterator<Item = Option<Estimate>> {
        self.analysis.estimates.iter().map(|both| both.is_measured().then_some(both.byte))
    }

    /// The sections' speed-up by byte and by line for each number of processors; `None` if nothing
    /// measured it.
    pub fn speed_ups(&self) -> impl Iterator<Item = Option<(f64, f64)>> {
        let both = |both: &Estimates| (both.byte.speed_up(), both.line.speed_up());
        self.analysis.estimates.iter().map(move |it| it.is_measured().then(|| both(it)))
    }

    /// The projection for each number of processors, if there are times; `None` if nothing measured
    /// its estimate.
    pub fn projected(&self) -> impl Iterator<Item = Option<&Projection>> {
        let estimates = self.analysis.estimates.iter();
        estimates.zip(&self.projections).map(|(both, gain)| both.is_measured().then_some(gain))
    }

    /// The estimates for a number of processors, with the time held.
    pub(super) fn held_at(&self, processors: u32) -> Option<(f64, Estimates)> {
        let times = self.times.as_ref()?;
        let estimates =
            self.analysis.estimates.iter().find(|estimates| estimates.processors == processors)?;
        Some((times.held, *estimates))
    }

    /// The sections, as hardware transactions on a number of processors.
    pub(super) fn sections_at(&self, processors: u32) -> Option<Sections> {
        let times = self.times.as_ref()?;
        let (held, estimates) = self.held_at(processors)?;
        Some(Sections {
            count: times.acquisitions,
            held,
            waited: times.waited,
            threads: f64::from(processors).min(self.analysis.threads as f64).max(1.0),
            speed_up: estimates.line.speed_up(),
            transfers: estimates.transfers,
            oversized: self.analysis.oversized,
        })
    }
}
