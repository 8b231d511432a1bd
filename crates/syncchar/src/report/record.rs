//! What a report consists of, as JSON has it.

use crate::advice::Advice;
use crate::analysis::{Estimates, LockAnalysis, Options};
use crate::conflicts::PlaceCount;
use crate::estimate::Estimate;
use crate::projection::Projection;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
    /// Instructions of all emulated processors, a nanosecond each, as in the paper's section 5;
    /// shares are of all these but those that waited for locks.
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
    /// Means over the locks, weighted by time held, for each number of processors: Table 2's last
    /// row. Empty without times.
    pub average: Vec<Average>,
    /// The program's gain if all locks' sections ran optimistically, for each number of processors.
    /// Empty without times.
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
    /// The program's gain if only this lock's sections ran optimistically, for each number of
    /// processors. Empty without times.
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

/// All locks of a kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassReport {
    /// What they are called.
    pub name: String,
    /// How many there are, sampled or not.
    pub locks: u64,
    /// What was measured of all of them.
    pub times: LockTimes,
    /// Time held as a share of the run time; the locks of a kind may be held at once, so that it
    /// may exceed 1.
    pub share: Option<f64>,
    /// Sections that were analysed.
    pub sections: u64,
    /// Means over its locks, weighted by time held, for each number of processors: sections of
    /// different locks are not compared. Empty without times.
    pub average: Vec<Average>,
}

impl Report {
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
}

impl LockReport {
    /// The estimates for so many processors, with the time held.
    pub(super) fn held_at(&self, processors: u32) -> Option<(f64, Estimates)> {
        let times = self.times.as_ref()?;
        let estimates = self.analysis.estimates.iter().find(|estimates| estimates.processors == processors)?;
        Some((times.held, *estimates))
    }
}
