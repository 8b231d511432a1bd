//! What to change about a lock, from the pattern of its conflicts (sections 3.1, 3.3, 6.1 and 6.3
//! of the paper).
//!
//! Each rule has its threshold as a constant. The rules see addresses and places, not source code:
//! their advice is a first place to look at, with the numbers behind it.

use crate::analysis::{Estimates, LockAnalysis};
use crate::conflicts::HotSpot;
use crate::estimate::Estimate;
use serde::{Deserialize, Serialize};

/// The fewest pairs of sections on which advice is based: a share of a hundred pairs has a standard
/// error of up to 5 %.
pub const FEWEST_PAIRS: u64 = 100;

/// Share of sections with I/O above which the lock protects I/O rather than memory (section 4.1).
pub const MOSTLY_IO: f64 = 0.5;

/// Share of the possible gain (n threads over one) above which sections count as mostly
/// independent.
pub const MOSTLY_INDEPENDENT: f64 = 0.5;

/// Probability of conflict above which conflicts are worth analysing.
pub const WORTH_TUNING: f64 = 0.1;

/// Share of a lock's conflicts above which a word is a hot spot: the second row of Table 3, where
/// section 6.2 begins to find single addresses.
pub const HOT: f64 = 0.2;

/// Ratio of the speed-ups by line and by byte below which false sharing is the cause.
pub const FALSELY_SHARED: f64 = 0.8;

/// Share of read-only sections above which readers need no lock. By judgement: four readers per
/// writer.
pub const MOSTLY_READERS: f64 = 0.8;

/// Share of a word's writes above which one kind of write represents all.
pub const ONE_KIND: f64 = 0.8;

/// Reads per write up to which a counter can be split: per-thread counters work "if they are
/// updated more frequently than they are read" (section 3.1), and a read has to sum all of them,
/// which calls for a margin. By judgement: four updates per read.
pub const RARELY_READ: f64 = 0.25;

/// A section that touches at least this many words besides a hot word does more than update that
/// word.
pub const OTHER_WORK: f64 = 2.0;

/// Share of conflicts with a read-only side above which sections are taken to traverse a structure
/// that other sections change (lists, section 3.1).
pub const TRAVERSAL: f64 = 0.5;

/// Number of words above which a section is long. A long section that also exceeds [`LOOP`] is a
/// bulk operation (Figure 7). By judgement: eight full cache lines.
pub const LONG: f64 = 64.0;

/// Number of words written per writing place above which the places are in a loop over many
/// objects.
pub const LOOP: f64 = 4.0;

/// Speed-up above which optimistic concurrency is worth a try despite many conflicts.
pub const SOME_GAIN: f64 = 1.25;

/// What to change about a lock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Advice {
    /// Too few pairs of sections of different threads.
    TooFew {
        /// Number of pairs.
        pairs: u64,
    },
    /// The lock protects I/O, which cannot be undone (section 4.1).
    KeepForIo {
        /// Share of sections with I/O.
        share: f64,
    },
    /// Sections could run concurrently: as transactions, by lock elision, or under finer locks.
    Transactions {
        /// The sections' speed-up.
        speed_up: f64,
        /// Number of processors.
        processors: u32,
    },
    /// Nearly all sections only read (section 7.2).
    SequenceLock {
        /// Share of read-only sections.
        share: f64,
        /// Whether the lock is a reader-writer lock already.
        admits_readers: bool,
    },
    /// Different data share a cache line.
    Pad {
        /// A written word in the line with the most false sharing.
        #[serde(with = "crate::address")]
        word: u64,
        /// The sections' speed-up by line.
        by_line: f64,
        /// The sections' speed-up by byte.
        by_byte: f64,
    },
    /// A conditional store in the source that the compiler made unconditional (section 3.3, Figure
    /// 2).
    ConditionalStore {
        /// The stored word.
        #[serde(with = "crate::address")]
        address: u64,
        /// The place of the store.
        place: u32,
        /// Share of the conflicts that involve the word.
        share: f64,
    },
    /// A counter that is mostly written (sections 3.1 and 6.1).
    PerThreadCounter {
        /// The counter.
        #[serde(with = "crate::address")]
        address: u64,
        /// Share of the conflicts that involve the word.
        share: f64,
        /// Share of the conflicts on no other word.
        alone: f64,
    },
    /// A word that sections write and never read (sections 2 and 6.3).
    MoveStatistic {
        /// The written word.
        #[serde(with = "crate::address")]
        address: u64,
        /// Share of the conflicts that involve the word.
        share: f64,
        /// Share of the conflicts on no other word.
        alone: f64,
    },
    /// A structure with a single entry point, such as a list's head (sections 3.1 and 6.1).
    EntryPoints {
        /// The word with the most conflicts.
        #[serde(with = "crate::address")]
        address: u64,
        /// Share of the conflicts that involve the word.
        share: f64,
    },
    /// A bulk operation under one lock (section 6.1, Figure 7).
    SplitSection {
        /// Mean number of words touched by a section.
        words: f64,
    },
    /// Conflicts are dense, and no other advice fits: without a hot spot (section 6.1, last
    /// paragraph), or if the hot data is all that sections work on.
    KeepLock {
        /// D_n.
        density: f64,
        /// Threads compared at once.
        threads: f64,
        /// The word with the most conflicts, if it is a hot spot.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hot: Option<HotWord>,
    },
}

/// A word that sections conflict on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HotWord {
    /// Its address.
    #[serde(with = "crate::address")]
    pub address: u64,
    /// Share of the conflicts that involve the word.
    pub share: f64,
    /// Share of the conflicts on no other word.
    pub alone: f64,
}

impl Advice {
    /// The advice as a sentence. `name` returns a word's name, if it has one.
    pub fn sentence(&self, name: impl Fn(u64) -> Option<String>) -> String {
        let word = |address: u64| name(address).unwrap_or_else(|| format!("{address:#x}"));
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        let alone = |share: f64| match share {
            none if none < 0.005 => String::new(),
            some => format!(", in {} alone", percent(some)),
        };
        match self {
            Advice::TooFew { pairs } => {
                format!("Too little data: {pairs} pairs of sections from different threads.")
            }
            Advice::KeepForIo { share } => format!(
                "Keep the lock: {} of its sections do I/O, which cannot be undone. \
                 Move the I/O out first.",
                percent(*share)
            ),
            Advice::Transactions { speed_up, processors } => format!(
                "Transactions, lock elision or finer locks would run its sections \
                 {speed_up:.1} times as fast on {processors} processors."
            ),
            Advice::SequenceLock { share, admits_readers } => format!(
                "Use {}: {} of its sections write nothing.",
                if *admits_readers {
                    "a sequence lock or RCU"
                } else {
                    "a sequence lock, RCU or a reader-writer lock"
                },
                percent(*share)
            ),
            Advice::Pad { word: written, by_line, by_byte } => format!(
                "Put data of different threads on separate cache lines, first at {}: sections \
                 share lines but no bytes (speed-up {by_line:.1} by line, {by_byte:.1} by byte).",
                word(*written)
            ),
            Advice::ConditionalStore { address, share, .. } => format!(
                "Branch around the store to {}: the compiler made a conditional store \
                 unconditional ({} of the conflicts).",
                word(*address),
                percent(*share)
            ),
            Advice::PerThreadCounter { address, share, alone: only } => format!(
                "Make the counter {} per-thread and sum it on reads: \
                 it is in {} of the conflicts{}.",
                word(*address),
                percent(*share),
                alone(*only)
            ),
            Advice::MoveStatistic { address, share, alone: only } => format!(
                "Move {} out of the section: it is written but never read there, \
                 and is in {} of the conflicts{}.",
                word(*address),
                percent(*share),
                alone(*only)
            ),
            Advice::EntryPoints { address, share } => format!(
                "Give the structure behind {} several entry points, such as hash buckets: \
                 sections conflict on the way in ({} of the conflicts).",
                word(*address),
                percent(*share)
            ),
            Advice::SplitSection { words } => format!(
                "Split this bulk section into one per item: it touches {words:.0} words in a \
                 loop before it releases the lock."
            ),
            Advice::KeepLock { density, threads, hot } => {
                let cause = match hot {
                    None => ", and no single address causes them".into(),
                    Some(hot) => format!(
                        ": sections work on the same data, first on {}, which is in {} of the \
                         conflicts{}",
                        word(hot.address),
                        percent(hot.share),
                        alone(hot.alone)
                    ),
                };
                format!(
                    "Keep the lock: conflicts are dense ({density:.1} of {threads:.1} threads \
                     would take turns){cause}."
                )
            }
        }
    }
}

/// Advice for a lock, the most promising first; at least one entry. `conditional` says whether a
/// place is a store that the source makes under a condition. Callers can tell from the machine
/// code: a conditional move precedes the store, as in Figure 2. `admits_readers`: it is a
/// reader-writer lock.
pub fn advise(
    lock: &LockAnalysis,
    conditional: impl Fn(u32) -> bool,
    admits_readers: bool,
) -> Vec<Advice> {
    let known = lock.estimates.iter().filter(|estimates| estimates.is_measured());
    let largest = known.max_by_key(|estimates| estimates.processors);
    let Some(estimates) = largest.filter(|_| lock.pairs.compared >= FEWEST_PAIRS) else {
        return vec![Advice::TooFew { pairs: lock.pairs.compared }];
    };
    if lock.io >= MOSTLY_IO {
        return vec![Advice::KeepForIo { share: lock.io }];
    }
    let byte = estimates.byte;
    let independent = byte.speed_up() - 1.0 >= MOSTLY_INDEPENDENT * (byte.threads - 1.0);
    let mut advice = Vec::new();
    if lock.read_only >= MOSTLY_READERS {
        advice.push(Advice::SequenceLock { share: lock.read_only, admits_readers });
    } else if independent {
        advice.push(transactions(estimates));
    }
    if estimates.line.speed_up() < FALSELY_SHARED * byte.speed_up()
        && let Some(line) = lock.false_sharing.first()
    {
        advice.push(Advice::Pad {
            word: line.word,
            by_line: estimates.line.speed_up(),
            by_byte: byte.speed_up(),
        });
    }
    if byte.conflict_probability() >= WORTH_TUNING && lock.read_only < MOSTLY_READERS {
        let before = advice.len();
        structure(lock, conditional, &mut advice);
        if advice.len() == before && !independent {
            advice.push(match byte.speed_up() >= SOME_GAIN {
                true => transactions(estimates),
                false => keep(lock, &byte),
            });
        }
    }
    if advice.is_empty() {
        advice.push(keep(lock, &byte));
    }
    advice
}

fn keep(lock: &LockAnalysis, byte: &Estimate) -> Advice {
    let hot = lock.hot_spots.first().filter(|spot| spot.share >= HOT);
    Advice::KeepLock {
        density: byte.density,
        threads: byte.threads,
        hot: hot.map(|&HotSpot { address, share, alone, .. }| HotWord { address, share, alone }),
    }
}

fn transactions(estimates: &Estimates) -> Advice {
    Advice::Transactions { speed_up: estimates.byte.speed_up(), processors: estimates.processors }
}

/// Adds changes to the program's data structures that would reduce conflicts.
fn structure(lock: &LockAnalysis, conditional: impl Fn(u32) -> bool, advice: &mut Vec<Advice>) {
    let hot: Vec<&HotSpot> = lock.hot_spots.iter().take_while(|spot| spot.share >= HOT).collect();
    // If most words of a section are hot, they are not an entry point to a structure but all of
    // its data (section 6.2).
    let has_depth = lock.words - hot.len() as f64 >= OTHER_WORK;
    let mut entry = None;
    for spot in &hot {
        let written = spot.uses.written() as f64;
        let reads = spot.uses.read as f64 / written;
        let (address, share, alone) = (spot.address, spot.share, spot.alone);
        if let Some(store) = spot.writers.iter().find(|writer| conditional(writer.place)) {
            advice.push(Advice::ConditionalStore { address, place: store.place, share });
        } else if spot.uses.in_place as f64 >= ONE_KIND * written && reads <= RARELY_READ {
            // If no section reads the counter, the count can move out of the section, unless
            // counting is all that the section does.
            advice.push(match spot.uses.read == 0 && lock.words - 1.0 >= OTHER_WORK {
                true => Advice::MoveStatistic { address, share, alone },
                false => Advice::PerThreadCounter { address, share, alone },
            });
        } else if spot.uses.stored as f64 >= ONE_KIND * written && spot.uses.read == 0 {
            advice.push(Advice::MoveStatistic { address, share, alone });
        } else if has_depth && entry.is_none() {
            entry = Some(Advice::EntryPoints { address, share });
        }
    }
    let is_bulk = lock.words >= LONG && lock.words_per_place >= LOOP;
    let traversal = lock.pairs.only_read as f64 >= TRAVERSAL * lock.pairs.conflicting as f64;
    if let Some(spot) = lock.hot_spots.first()
        && (hot.is_empty() && traversal && !is_bulk)
    {
        entry = Some(Advice::EntryPoints { address: spot.address, share: spot.share });
    }
    advice.extend(entry);
    if is_bulk {
        advice.push(Advice::SplitSection { words: lock.words });
    }
}

#[cfg(test)]
#[path = "advice_tests.rs"]
mod tests;
