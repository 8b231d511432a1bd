//! The online analysis: sections come in, estimates come out. Meanwhile the analysis holds one
//! window per lock and number of processors.

use crate::compare::Comparison;
use crate::conflicts::{Conflicts, FalseSharing, Histogram, HotSpot, pattern};
use crate::estimate::Estimate;
use crate::hash::Deterministic;
use crate::set::AddressSet;
use crate::transfers::LineUses;
use crate::widening::{Counting, Fitting, Sizes, Widening, expected_threads};
use fastrand::Rng;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;
use unconvoy_trace_stream::sampling::{Draws, Sampling};
use unconvoy_trace_stream::{Access, Section};

/// The most hot spots and falsely shared lines reported for each lock.
const MOST_LISTED: usize = 32;

/// The most processors to predict for. A comparison takes memory quadratic in their number.
pub const MOST_PROCESSORS: u32 = 1024;

/// How to analyse.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// Numbers of processors to predict for, each from 1 to [`MOST_PROCESSORS`].
    pub processors: Vec<u32>,
    /// Number of sections after which a window closes even if it has fewer threads than processors;
    /// 512 in the paper (section 4.2).
    pub window: u32,
    /// Greatest width of a window as a multiple of `window`, for locks whose threads take turns; 1
    /// widens no window, as in the paper.
    #[serde(default = "never_widened")]
    pub widest: u32,
    /// Number of samples drawn from a long window: one with more sections than processors, or with
    /// more than a quarter of `window`. One sample is drawn from a shorter window, as in the paper.
    pub draws: u32,
    /// N: analyse 1 of N given sections, at random; 1 analyses all. Use 1 for sections that a
    /// collector has sampled already.
    pub one_in: u32,
    /// How these sections are drawn.
    #[serde(skip)]
    pub sampling: Sampling,
    /// Seed of the draws. The same sections and seed give the same numbers.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            processors: vec![2, 8, 16, 32],
            window: 512,
            widest: WIDEST,
            draws: 8,
            one_in: 1,
            sampling: Sampling::default(),
            seed: 0,
        }
    }
}

/// The default of [`Options::widest`]: 131072 sections. If sixteen threads on two processors take
/// turns of a scheduler's time slice, 10^4 sections of 300 ns each, all of them have a turn within
/// 10^5 sections.
const WIDEST: u32 = 256;

/// [`Options::widest`] in records that are older than this option.
fn never_widened() -> u32 {
    1
}

impl Options {
    fn windows(&self, processors: u32) -> Widening {
        let Options { window: sections, draws, widest, .. } = *self;
        Widening::new(Sizes { processors, sections, draws, widest })
    }
}

/// Invalid options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// No number of processors, or one outside 1 to [`MOST_PROCESSORS`].
    #[error("invalid processors: give at least one number, each from 1 to {MOST_PROCESSORS}")]
    Processors,
    /// `window`, `widest`, `draws` or `one_in` is 0.
    #[error("invalid sampling: window, widest, draws and one_in must be at least 1")]
    Zero,
}

/// Estimates data independence and conflict density of each lock from its sections.
#[derive(Debug)]
pub struct Analysis {
    options: Options,
    locks: HashMap<u32, State, Deterministic>,
    comparison: Comparison,
}

#[derive(Debug)]
struct State {
    rng: Rng,
    /// Sections given, analysed or not.
    given: u64,
    /// One per number of processors.
    windows: Vec<Widening>,
    sections: u64,
    /// Sections of each thread.
    threads: HashMap<u32, u64, Deterministic>,
    words: u64,
    most_words: u64,
    io: u64,
    cut_short: u64,
    read_only: u64,
    drawn: Drawn,
    uses: LineUses,
    conflicts: Conflicts,
}

/// Totals over the sections in samples, the only ones whose address sets are built.
#[derive(Clone, Copy, Debug, Default)]
struct Drawn {
    written_words: u64,
    written_places: u64,
}

/// The results for one lock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LockAnalysis {
    /// The lock's number.
    pub lock: u32,
    /// Sections analysed.
    pub sections: u64,
    /// Number of threads with a section.
    pub threads: u64,
    /// Mean number of 8-byte words in an address set.
    pub words: f64,
    /// The largest number of words in an address set.
    pub most_words: u64,
    /// Share of sections with I/O, from 0 to 1.
    pub io: f64,
    /// Share of sections whose sets are incomplete. The estimates are upper bounds to that extent.
    pub cut_short: f64,
    /// Share of sections that wrote nothing.
    pub read_only: f64,
    /// Words written per writing place, over drawn sections: far above 1 for loops over many
    /// objects. 0 if places are unknown.
    pub words_per_place: f64,
    /// Share of drawn sections that write more lines than a hardware transaction may.
    #[serde(default)]
    pub oversized: f64,
    /// One per requested number of processors, in that order.
    pub estimates: Vec<Estimates>,
    /// Counts of conflicting pairs.
    pub pairs: Pairs,
    /// Table 3 for this lock.
    pub histogram: Histogram,
    /// The words with the most conflicts.
    pub hot_spots: Vec<HotSpot>,
    /// The lines with the most false sharing.
    pub false_sharing: Vec<FalseSharing>,
}

/// Estimates for one number of processors.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimates {
    /// n.
    pub processors: u32,
    /// Windows compared.
    pub windows: u64,
    /// Sections after which these windows closed, at the latest: [`Options::window`], or more if
    /// threads take turns. 0 in records that are older than the widening of windows.
    #[serde(default)]
    pub sections: u32,
    /// Whether no window closed and the one open at the end was compared instead.
    pub partial: bool,
    /// By byte.
    pub byte: Estimate,
    /// By line of 64 bytes.
    pub line: Estimate,
    /// Mean number of transfers of cache lines between processors, and of their invalidations, that
    /// a section waits for, if sections run as hardware transactions.
    #[serde(default)]
    pub transfers: f64,
}

impl Estimates {
    /// Whether sections of different threads were compared. Otherwise the estimates are those of a
    /// single thread and say nothing of several processors.
    pub fn is_measured(&self) -> bool {
        self.windows > 0 && (self.processors == 1 || self.byte.threads > 1.0)
    }
}

/// Pairs of sections compared, over all numbers of processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pairs {
    /// All pairs.
    pub compared: u64,
    /// Pairs that conflict on a byte or by I/O.
    pub conflicting: u64,
    /// Pairs that conflict only on a line.
    pub falsely_shared: u64,
    /// Conflicting pairs in which, for each word that they conflict on, one side only reads the
    /// word.
    pub only_read: u64,
}

impl Analysis {
    /// An empty analysis.
    ///
    /// # Errors
    ///
    /// Invalid options.
    pub fn new(options: Options) -> Result<Self, OptionsError> {
        let possible = |processors: &u32| (1..=MOST_PROCESSORS).contains(processors);
        if options.processors.is_empty() || !options.processors.iter().all(possible) {
            return Err(OptionsError::Processors);
        }
        if [options.window, options.widest, options.draws, options.one_in].contains(&0) {
            return Err(OptionsError::Zero);
        }
        Ok(Analysis { options, locks: HashMap::default(), comparison: Comparison::default() })
    }

    /// Adds the next section. Sections of one lock come in the order of their unlocks;
    /// [`order`](Section::order) itself is not used.
    pub fn section<A>(&mut self, section: Section, accesses: A)
    where
        A: IntoIterator<Item = Access, IntoIter: ExactSizeIterator + Clone>,
    {
        let options = &self.options;
        let locks = self.locks.len();
        let state =
            self.locks.entry(section.lock).or_insert_with(|| State::new(section.lock, options));
        let draws = Draws::new(options.sampling, options.one_in, options.seed, section.lock);
        state.given += 1;
        if !draws.is_sampled(state.given - 1) {
            return;
        }
        let accesses = accesses.into_iter();
        let words = accesses.len() as u64;
        state.sections += 1;
        *state.threads.entry(section.thread).or_default() += 1;
        state.words += words;
        state.most_words = state.most_words.max(words);
        state.io += u64::from(section.does_io());
        state.cut_short += u64::from(section.is_cut_short());
        // Samples have as many sections of a thread that seldom takes the lock as of any other, so
        // this share is not that of the drawn sections.
        state.read_only += u64::from(accesses.clone().all(|access| access.written == 0));
        let mut accesses = Some(accesses);
        let mut kept: Option<Arc<AddressSet>> = None;
        let (drawn, uses) = (&mut state.drawn, &mut state.uses);
        let mut set = || {
            let make = || {
                let set = AddressSet::new(accesses.take().expect("the set is made once"));
                let set = set.with_io(section.does_io());
                drawn.count(&set);
                uses.add(section.thread, &set);
                Arc::new(set)
            };
            kept.get_or_insert_with(make).clone()
        };
        for windows in &mut state.windows {
            if windows.add(section.thread, &mut state.rng, &mut set) {
                state.conflicts.share(locks);
                windows.close(&mut Counting {
                    comparison: &mut self.comparison,
                    conflicts: &mut state.conflicts,
                    rng: &mut state.rng,
                });
            }
        }
    }

    /// Closes the windows of a lock that will not be seen again. Its results stay.
    pub fn retire(&mut self, lock: u32) {
        if let Some(state) = self.locks.get_mut(&lock) {
            state.close_first(&mut self.comparison);
            state.windows.iter_mut().for_each(Widening::clear);
        }
    }

    /// Ends the analysis and returns the results ordered by lock number. A window that is still
    /// open counts only if no window of its lock and number of processors has closed.
    pub fn finish(mut self) -> Vec<LockAnalysis> {
        let mut locks: Vec<LockAnalysis> = Vec::with_capacity(self.locks.len());
        for (lock, mut state) in self.locks.drain().filter(|(_, state)| state.sections > 0) {
            state.close_first(&mut self.comparison);
            locks.push(state.analysis(lock, &self.options));
        }
        locks.sort_unstable_by_key(|lock| lock.lock);
        locks
    }

    /// The options of this analysis.
    pub fn options(&self) -> &Options {
        &self.options
    }
}

impl State {
    fn new(lock: u32, options: &Options) -> Self {
        let windows =
            options.processors.iter().map(|processors| options.windows(*processors)).collect();
        State {
            // One generator per lock, so that a lock's numbers do not depend on how its sections
            // interleave with those of others.
            rng: Rng::with_seed(options.seed ^ u64::from(lock).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            given: 0,
            windows,
            sections: 0,
            threads: HashMap::default(),
            words: 0,
            most_words: 0,
            io: 0,
            cut_short: 0,
            read_only: 0,
            drawn: Drawn::default(),
            uses: LineUses::default(),
            conflicts: Conflicts::default(),
        }
    }

    /// Closes each non-empty window whose number of processors has no closed window yet.
    fn close_first(&mut self, comparison: &mut Comparison) {
        let State { windows, conflicts, rng, .. } = self;
        for windows in windows {
            windows.close_first(&mut Counting { comparison, conflicts, rng });
        }
    }

    fn analysis(&self, lock: u32, options: &Options) -> LockAnalysis {
        let share = |part: u64, of: u64| part as f64 / of.max(1) as f64;
        let expected = expected_threads(self.threads.values().copied(), options.window);
        // More processors than threads move no further lines.
        let threads = self.threads.len() as u32;
        let by_processors = || options.processors.iter().zip(&self.windows);
        // Once all threads have a processor, more change nothing. Windows for more would never be
        // full, and would depend on the length of the threads' turns.
        let enough = by_processors().filter(|(processors, _)| **processors >= threads);
        let enough = enough.min_by_key(|(processors, _)| **processors);
        let estimates = by_processors().map(|(processors, windows)| {
            let windows = match enough {
                Some((fewer, windows)) if fewer < processors => windows,
                _ => windows,
            };
            let Fitting { means, sections, partial } = windows.estimate(expected);
            Estimates {
                processors: *processors,
                windows: means.windows,
                sections,
                partial,
                byte: means.bytes.estimate(),
                line: means.lines.estimate(),
                transfers: self.uses.transfers(threads.min(*processors)),
            }
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
            read_only: share(self.read_only, self.sections),
            words_per_place: share(self.drawn.written_words, self.drawn.written_places),
            oversized: self.uses.oversized(),
            estimates: estimates.collect(),
            pairs: Pairs {
                compared: self.conflicts.compared,
                conflicting: patterns.iter().sum(),
                falsely_shared: self.conflicts.on_lines_only,
                only_read: patterns[usize::from(pattern::READ)],
            },
            histogram: self.conflicts.histogram(),
            hot_spots: self.conflicts.hot_spots(MOST_LISTED),
            false_sharing: self.conflicts.false_sharing(MOST_LISTED),
        }
    }
}

impl Drawn {
    /// Counts a drawn section.
    fn count(&mut self, set: &AddressSet) {
        let placed =
            set.accesses().iter().filter(|access| access.written != 0 && access.written_place != 0);
        let mut places: Vec<u32> = placed.map(|access| access.written_place).collect();
        self.written_words += places.len() as u64;
        places.sort_unstable();
        places.dedup();
        self.written_places += places.len() as u64;
    }
}

#[cfg(test)]
#[path = "analysis_tests.rs"]
mod tests;
