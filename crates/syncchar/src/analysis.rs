//! The analysis as it runs: sections come in, estimates come out; what is held in between is one window per lock and number of processors.

use crate::compare::Comparison;
use crate::conflicts::{Conflicts, Deterministic, FalseSharing, Histogram, HotSpot, pattern};
use crate::estimate::{Estimate, Means};
use crate::set::AddressSet;
use crate::window::Window;
use fastrand::Rng;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use unconvoy_trace_stream::{Access, Section};

/// Hot spots and falsely shared lines that are told of each lock.
const MOST_TOLD: usize = 32;

/// The most processors that can be asked for; a comparison takes their square in memory.
pub const MOST_PROCESSORS: u32 = 1024;

/// How to analyse.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// Numbers of processors to predict for, each from 1 to [`MOST_PROCESSORS`].
    pub processors: Vec<u32>,
    /// Sections after which a window closes although fewer threads were seen than processors are asked for; 512 in the paper (section 4.2).
    pub window: u32,
    /// Samples drawn of a window of more sections than processors, or of more than a quarter of `window`; of a shorter one there is one, as in the paper.
    pub draws: u32,
    /// Take one of so many of the sections given, at random; 1 for all. A collector has sampled already.
    pub one_in: u32,
    /// What the draws start from; the same sections with the same seed give the same numbers.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options { processors: vec![2, 8, 16, 32], window: 512, draws: 8, one_in: 1, seed: 0 }
    }
}

impl Options {
    fn open(&self, processors: u32) -> Window {
        Window::new(processors.min(self.window / 4), self.draws)
    }
}

/// Options that make no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// A number of processors of 0, above [`MOST_PROCESSORS`], or none at all.
    #[error("numbers of processors are from 1 to {MOST_PROCESSORS}, and there is at least one")]
    Processors,
    /// A window of no sections, no draw, or one in no sections.
    #[error("window, draws and one_in are at least 1")]
    Zero,
}

/// Estimates the data independence and conflict density of each lock, from its sections.
#[derive(Debug)]
pub struct Analysis {
    options: Options,
    locks: HashMap<u32, State, Deterministic>,
    comparison: Comparison,
}

/// One lock.
#[derive(Debug)]
struct State {
    rng: Rng,
    /// Per number of processors.
    windows: Vec<Window>,
    means: Vec<WindowMeans>,
    sections: u64,
    threads: HashSet<u32, Deterministic>,
    words: u64,
    most_words: u64,
    io: u64,
    cut_short: u64,
    drawn: Drawn,
    conflicts: Conflicts,
}

#[derive(Clone, Copy, Debug, Default)]
struct WindowMeans {
    windows: u64,
    partial: bool,
    bytes: Means,
    lines: Means,
}

/// Of the sections in samples, whose address sets were looked at.
#[derive(Clone, Copy, Debug, Default)]
struct Drawn {
    sections: u64,
    read_only: u64,
    written_words: u64,
    written_places: u64,
}

/// What was found of one lock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LockAnalysis {
    /// Its number.
    pub lock: u32,
    /// Sections analysed.
    pub sections: u64,
    /// Threads that had one.
    pub threads: u64,
    /// Mean words of 8 bytes in an address set.
    pub words: f64,
    /// The most words in one.
    pub most_words: u64,
    /// Share of sections that did I/O, from 0 to 1.
    pub io: f64,
    /// Share of sections that touched more than was recorded; the estimates are upper bounds by as much.
    pub cut_short: f64,
    /// Share of sections that wrote nothing, of those drawn.
    pub read_only: f64,
    /// Words written for each place in the code that wrote, of those drawn: far above 1 for loops over many objects. 0 if places are unknown.
    pub words_per_place: f64,
    /// For each number of processors asked for, in that order.
    pub estimates: Vec<Estimates>,
    /// What pairs of sections conflict on.
    pub pairs: Pairs,
    /// Table 3 for this lock.
    pub histogram: Histogram,
    /// The words most conflicts are about.
    pub hot_spots: Vec<HotSpot>,
    /// The lines most falsely shared.
    pub false_sharing: Vec<FalseSharing>,
}

/// Estimates for one number of processors.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimates {
    /// n.
    pub processors: u32,
    /// Windows compared.
    pub windows: u64,
    /// Whether no window closed, and the one that was open at the end was compared instead.
    pub partial: bool,
    /// By byte.
    pub byte: Estimate,
    /// By line of 64 bytes.
    pub line: Estimate,
}

/// Pairs of sections compared, at all numbers of processors together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pairs {
    /// All of them.
    pub compared: u64,
    /// Those that conflict on a byte or by I/O.
    pub conflicting: u64,
    /// Those that conflict only on a line.
    pub falsely_shared: u64,
    /// Of the conflicting, those where on each common word one side only reads.
    pub only_read: u64,
}

impl Analysis {
    /// An analysis that has seen nothing.
    ///
    /// # Errors
    ///
    /// Options that make no sense.
    pub fn new(options: Options) -> Result<Self, OptionsError> {
        let possible = |processors: &u32| (1..=MOST_PROCESSORS).contains(processors);
        if options.processors.is_empty() || !options.processors.iter().all(possible) {
            return Err(OptionsError::Processors);
        }
        if options.window == 0 || options.draws == 0 || options.one_in == 0 {
            return Err(OptionsError::Zero);
        }
        Ok(Analysis { options, locks: HashMap::default(), comparison: Comparison::default() })
    }

    /// Takes the next section, whose [`order`](Section::order) is not asked for: sections come in that of their unlocks, at least those of one lock.
    pub fn section<A>(&mut self, section: Section, accesses: A)
    where
        A: IntoIterator<Item = Access, IntoIter: ExactSizeIterator>,
    {
        let options = &self.options;
        let locks = self.locks.len();
        let state = self.locks.entry(section.lock).or_insert_with(|| State::new(section.lock, options));
        if options.one_in > 1 && state.rng.u32(..options.one_in) != 0 {
            return;
        }
        let accesses = accesses.into_iter();
        let words = accesses.len() as u64;
        state.sections += 1;
        state.threads.insert(section.thread);
        state.words += words;
        state.most_words = state.most_words.max(words);
        state.io += u64::from(section.does_io());
        state.cut_short += u64::from(section.is_cut_short());
        let mut told = Some(accesses);
        let mut kept: Option<Arc<AddressSet>> = None;
        let drawn = &mut state.drawn;
        let mut set = || {
            let make =
                || Arc::new(drawn.look(AddressSet::new(told.take().expect("made once")).with_io(section.does_io())));
            kept.get_or_insert_with(make).clone()
        };
        for (index, processors) in options.processors.iter().enumerate() {
            let window = &mut state.windows[index];
            window.add(section.thread, &mut state.rng, &mut set);
            if window.threads() == *processors as usize || window.sections() == options.window {
                state.conflicts.share(locks);
                close(window, &mut state.means[index], &mut self.comparison, &mut state.conflicts);
            }
        }
    }

    /// Says that a lock will not be seen again, so that its windows can go; what was found stays.
    pub fn retire(&mut self, lock: u32) {
        if let Some(state) = self.locks.get_mut(&lock) {
            state.close_first(&mut self.comparison);
            state.windows.clear();
            state.windows.extend(self.options.processors.iter().map(|processors| self.options.open(*processors)));
        }
    }

    /// Ends the analysis: all locks, by number. A window that is still open counts only for a lock and number of processors of which none closed.
    pub fn finish(mut self) -> Vec<LockAnalysis> {
        let mut locks: Vec<LockAnalysis> = Vec::with_capacity(self.locks.len());
        for (lock, mut state) in self.locks.drain().filter(|(_, state)| state.sections > 0) {
            state.close_first(&mut self.comparison);
            locks.push(state.analysis(lock, &self.options.processors));
        }
        locks.sort_unstable_by_key(|lock| lock.lock);
        locks
    }

    /// The options.
    pub fn options(&self) -> &Options {
        &self.options
    }
}

/// Compares a window's samples, and empties it.
fn close(window: &mut Window, means: &mut WindowMeans, comparison: &mut Comparison, conflicts: &mut Conflicts) {
    means.windows += 1;
    let weight = window.weight();
    for sample in window.samples() {
        let sets: Vec<&AddressSet> = sample.iter().map(|set| &**set).collect();
        let (bytes, lines) = comparison.compare(&sets, conflicts);
        means.bytes.add(bytes, weight);
        means.lines.add(lines, weight);
    }
    window.clear();
}

impl State {
    fn new(lock: u32, options: &Options) -> Self {
        let windows = options.processors.iter().map(|processors| options.open(*processors)).collect();
        State {
            // Of its own, so that a lock's numbers do not depend on how its sections interleave with those of others.
            rng: Rng::with_seed(options.seed ^ u64::from(lock).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            windows,
            means: vec![WindowMeans::default(); options.processors.len()],
            sections: 0,
            threads: HashSet::default(),
            words: 0,
            most_words: 0,
            io: 0,
            cut_short: 0,
            drawn: Drawn::default(),
            conflicts: Conflicts::default(),
        }
    }

    /// Closes each window that has something to compare and whose like never closed.
    fn close_first(&mut self, comparison: &mut Comparison) {
        for (window, means) in self.windows.iter_mut().zip(&mut self.means) {
            if means.windows == 0 && window.threads() > 0 {
                means.partial = true;
                close(window, means, comparison, &mut self.conflicts);
            }
        }
    }

    fn analysis(&self, lock: u32, processors: &[u32]) -> LockAnalysis {
        let share = |part: u64, of: u64| part as f64 / of.max(1) as f64;
        let estimates = processors.iter().zip(&self.means);
        let estimates = estimates.map(|(processors, means)| Estimates {
            processors: *processors,
            windows: means.windows,
            partial: means.partial,
            byte: means.bytes.estimate(),
            line: means.lines.estimate(),
        });
        let patterns = &self.conflicts.patterns;
        LockAnalysis {
            lock,
            sections: self.sections,
            threads: self.threads.len() as u64,
            words: share(self.words, self.sections),
            most_words: self.most_words,
            io: share(self.io, self.sections),
            cut_short: share(self.cut_short, self.sections),
            read_only: share(self.drawn.read_only, self.drawn.sections),
            words_per_place: share(self.drawn.written_words, self.drawn.written_places),
            estimates: estimates.collect(),
            pairs: Pairs {
                compared: self.conflicts.compared,
                conflicting: patterns.iter().sum(),
                falsely_shared: self.conflicts.on_lines_only,
                only_read: patterns[usize::from(pattern::READ)],
            },
            histogram: self.conflicts.histogram(),
            hot_spots: self.conflicts.hot_spots(MOST_TOLD),
            false_sharing: self.conflicts.false_sharing(MOST_TOLD),
        }
    }
}

impl Drawn {
    /// Looks at a section that was drawn.
    fn look(&mut self, set: AddressSet) -> AddressSet {
        self.sections += 1;
        self.read_only += u64::from(set.is_read_only());
        let placed = set.accesses().iter().filter(|access| access.written != 0 && access.written_place != 0);
        let mut places: Vec<u32> = placed.map(|access| access.written_place).collect();
        self.written_words += places.len() as u64;
        places.sort_unstable();
        places.dedup();
        self.written_places += places.len() as u64;
        set
    }
}

#[cfg(test)]
#[path = "analysis_tests.rs"]
mod tests;
