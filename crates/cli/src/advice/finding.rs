//! What an advice says.

use serde::Serialize;

use super::entry::Entry;

/// What is wrong with a lock, and what would help it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// The locks' name; empty if the advice is about the whole program.
    pub lock: String,
    /// Number of locks of that name.
    pub locks: usize,
    /// The places that hold the lock, or else those that wait for it; the worst first.
    pub places: Vec<String>,
    /// Whether these places hold the lock.
    #[serde(skip)]
    pub are_holders: bool,
    pub problem: Problem,
    /// The problem in a sentence, with its numbers.
    pub sentence: String,
    /// The entries of a strategy file that would help, without a rebuild; empty if none would.
    pub strategy: Vec<Choice>,
    /// What to change in the source, as a sentence; empty if nothing is known.
    pub source: String,
    /// The gain of `strategy`, or of the change in the source if that is empty. `None` if unknown.
    pub gain: Option<Gain>,
    pub based_on: Basis,
    /// What the process did while threads waited for the lock, if it was observed.
    pub observed: Option<SpanEvidence>,
}

/// What the process did while threads waited for a lock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct SpanEvidence {
    pub seconds: f64,
    /// Mean number of processors that the process used.
    pub running: f64,
    /// Mean number of idle processors of the machine.
    pub idle: f64,
    /// Mean number of threads that waited for a processor.
    pub delayed: f64,
    /// Share of the processor time in the kernel.
    pub system: f64,
    /// Share of the time in which a thread held the lock, if known.
    pub held: Option<f64>,
    /// Mean number of threads that waited for the lock.
    pub waiting: f64,
}

/// The kinds of problems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Problem {
    OverloadConvoy,
    SaturatedShortSections,
    IndependentSections,
    ReadMostly,
    LongSections,
    IoUnderLock,
    PreemptedHolder,
    SharedLine,
    Unknown,
    NothingToMend,
    SleepingAndWaking,
    MoreRecordsNeeded,
}

impl Problem {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Problem::OverloadConvoy => "overload convoy",
            Problem::SaturatedShortSections => "saturated short sections",
            Problem::IndependentSections => "independent sections",
            Problem::ReadMostly => "read-mostly under a mutex",
            Problem::LongSections => "long sections",
            Problem::IoUnderLock => "I/O under the lock",
            Problem::PreemptedHolder => "a holder that is preempted",
            Problem::SharedLine => "unrelated data on one line",
            Problem::Unknown => "a lock or a wait for work",
            Problem::NothingToMend => "nothing to mend",
            Problem::SleepingAndWaking => "sleeping and waking",
            Problem::MoreRecordsNeeded => "not in these records",
        }
    }
}

/// Who serves some locks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// The locks; `None` for those of the whole process, if a strategy cannot name them.
    pub entry: Option<Entry>,
    /// The entry's or the process's `lock`.
    pub lock: &'static str,
}

/// A factor on the program's throughput while threads wait for the lock.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Gain {
    pub low: f64,
    pub expected: f64,
    pub high: f64,
    /// Share of the recorded time to which the factor applies.
    pub part: f64,
}

/// Where an advice's numbers come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    MeasuredWaits,
    #[serde(rename = "syncchar-model")]
    SyncCharModel,
}

impl Basis {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Basis::MeasuredWaits => "measured waits",
            Basis::SyncCharModel => "Syncchar's model",
        }
    }
}
