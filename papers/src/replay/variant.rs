//! A recorded lock, as it was or with words left out or moved, and what Syncchar says about it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::ensure;
use serde::Serialize;
use unconvoy_cli::recorded::{self, Recorded};
use unconvoy_sim::experiment::estimates;
use unconvoy_sim::workload::replay::{Change, Recording, Times};
use unconvoy_syncchar::{Advice, Estimates, Options, advise};

use crate::messages;

/// Words that a user names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Words {
    /// The words that the advice names.
    Advised,
    /// Addresses.
    At(Vec<u64>),
}

impl Words {
    /// Parses `advice`, or addresses with commas between them.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "advice" {
            return Ok(Words::Advised);
        }
        let address = |text: &str| {
            let digits = text.strip_prefix("0x")?;
            u64::from_str_radix(digits, 16).ok()
        };
        let all: Option<Vec<u64>> = text.split(',').map(address).collect();
        all.map(Words::At).ok_or_else(|| messages::expected_addresses().to_string())
    }
}

/// A recorded lock, as it was or changed.
#[derive(Debug)]
pub struct Variant {
    /// The trace's file.
    trace: String,
    lock: String,
    program: Vec<String>,
    source: String,
    /// How it differs from the trace.
    pub change: String,
    /// The sections.
    pub recording: Arc<Recording>,
    /// Their times.
    pub times: Times,
    /// Share of the recorded run time that the lock was held.
    pub held: f64,
    sections: usize,
    /// The model's estimates, by number of processors.
    pub estimates: Vec<Estimates>,
    /// The advice, as sentences.
    pub advice: Vec<String>,
}

/// A variant in a record.
#[derive(Debug, Serialize)]
pub struct Described<'a> {
    trace: &'a str,
    lock: &'a str,
    program: &'a [String],
    source: &'a str,
    change: &'a str,
    sections: usize,
    section_ns: f64,
    between_ns: f64,
    held: f64,
    advice: &'a [String],
    estimates: &'a [Estimates],
}

impl Variant {
    /// Reads a trace. Returns the lock as it was, then without some words, then with some moved.
    pub fn of_trace(
        path: &Path,
        lock: Option<&str>,
        processors: &[u32],
        without: Option<&Words>,
        moved: Option<&Words>,
    ) -> anyhow::Result<Vec<Self>> {
        let mut recorded = recorded::read(path, lock)?;
        let sections = std::mem::take(&mut recorded.sections);
        let trace = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let lock = Lock { trace, times: times(&recorded), recorded, processors };
        let whole = Recording::new(sections);
        let (first, advised) = lock.variant(&whole, String::new())?;
        let mut variants = vec![first];
        let changes = [(without, Change::LeftOut, "without"), (moved, Change::Moved, "moved")];
        for (words, change, verb) in changes {
            let words = match words {
                None => continue,
                Some(Words::At(words)) => words,
                Some(Words::Advised) => &advised,
            };
            ensure!(!words.is_empty(), messages::advice_names_no_word(&lock.recorded.lock));
            let names: Vec<String> = words.iter().map(|&word| lock.name(word)).collect();
            let what = format!("{verb}: {}", names.join("; "));
            variants.push(lock.variant(&whole.changed(words, change), what)?.0);
        }
        Ok(variants)
    }

    /// The lock's name and its change.
    pub fn name(&self) -> String {
        let change = match self.change.as_str() {
            "" => "as recorded",
            change => change,
        };
        format!("{}, {}, {change}", self.trace, self.lock)
    }

    /// The times and the number of recorded sections, as a sentence.
    pub fn sentence(&self) -> String {
        let Times { section_ns, between_ns } = self.times;
        format!(
            "{} recorded sections of {section_ns:.0} ns on average, {between_ns:.0} ns between \
             two of a thread; held for {:.1} % of the recorded time",
            self.sections,
            100.0 * self.held
        )
    }

    /// The variant in a record.
    pub fn described(&self) -> Described<'_> {
        Described {
            trace: &self.trace,
            lock: &self.lock,
            program: &self.program,
            source: &self.source,
            change: &self.change,
            sections: self.sections,
            section_ns: self.times.section_ns,
            between_ns: self.times.between_ns,
            held: self.held,
            advice: &self.advice,
            estimates: &self.estimates,
        }
    }
}

/// A lock of a trace, without its sections.
struct Lock<'a> {
    trace: String,
    recorded: Recorded,
    times: Times,
    processors: &'a [u32],
}

impl Lock<'_> {
    /// A variant, and the words that its advice names.
    fn variant(
        &self,
        recording: &Recording,
        change: String,
    ) -> anyhow::Result<(Variant, Vec<u64>)> {
        let options = Options { processors: self.processors.to_vec(), ..Options::default() };
        let analysis = estimates(recording, options)?;
        let advice = advise(&analysis, |place| self.recorded.conditional.contains(&place), false);
        let sentences =
            advice.iter().map(|one| one.sentence(|word| Some(self.name(word)))).collect();
        let mut words: BTreeMap<u64, ()> = BTreeMap::new();
        words.extend(advice.iter().filter_map(word_of).map(|word| (word, ())));
        let variant = Variant {
            trace: self.trace.clone(),
            lock: self.recorded.lock.clone(),
            program: self.recorded.program.clone(),
            source: self.recorded.source.clone(),
            change,
            recording: Arc::new(recording.clone()),
            times: self.times,
            held: self.recorded.times.held / self.recorded.seconds,
            sections: analysis.sections as usize,
            estimates: analysis.estimates,
            advice: sentences,
        };
        Ok((variant, words.into_keys().collect()))
    }

    fn name(&self, word: u64) -> String {
        match self.recorded.words.get(&word) {
            Some(name) => format!("{name} ({word:#x})"),
            None => format!("{word:#x}"),
        }
    }
}

/// The word that a piece of advice would take from the sections.
fn word_of(advice: &Advice) -> Option<u64> {
    match *advice {
        Advice::ConditionalStore { address, .. }
        | Advice::PerThreadCounter { address, .. }
        | Advice::MoveStatistic { address, .. }
        | Advice::EntryPoints { address, .. } => Some(address),
        Advice::TooFew { .. }
        | Advice::KeepForIo { .. }
        | Advice::Transactions { .. }
        | Advice::SequenceLock { .. }
        | Advice::Pad { .. }
        | Advice::SplitSection { .. }
        | Advice::KeepLock { .. } => None,
    }
}

/// The mean time of a section, and the mean time of a processor between two sections.
fn times(recorded: &Recorded) -> Times {
    let acquisitions = recorded.times.acquisitions.max(1) as f64;
    let held = recorded.times.held;
    let rest = (recorded.seconds * recorded.processors - held).max(0.0);
    Times { section_ns: held * 1e9 / acquisitions, between_ns: rest * 1e9 / acquisitions }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_addresses_or_advice() {
        assert_eq!(Words::parse("advice"), Ok(Words::Advised));
        assert_eq!(Words::parse("0x10,0xff"), Ok(Words::At(vec![0x10, 0xff])));
        assert!(Words::parse("10").is_err() && Words::parse("0x10,").is_err());
    }

    #[test]
    fn times_come_from_acquisitions_and_processors() {
        let mut recorded = Recorded { seconds: 2.0, processors: 2.0, ..Recorded::default() };
        recorded.times.acquisitions = 1000;
        recorded.times.held = 1.0;
        assert_eq!(times(&recorded), Times { section_ns: 1e6, between_ns: 3e6 });
    }
}
