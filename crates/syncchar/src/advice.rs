//! What to do about a lock, from the shape of its conflicts (sections 3.1, 3.3, 6.1 and 6.3 of the paper).
//!
//! Rules, each with its threshold as a constant. They see addresses and places, not source code: what they say is a first
//! place to look at, with the numbers that made them say it.

use crate::analysis::{Estimates, LockAnalysis};
use crate::conflicts::HotSpot;
use serde::{Deserialize, Serialize};

/// Pairs of sections below which nothing is said: a share of a hundred pairs has a standard error of up to 5 %.
pub const FEWEST_PAIRS: u64 = 100;

/// Share of sections with I/O from which the lock is for the I/O, not for memory (section 4.1).
pub const MOSTLY_IO: f64 = 0.5;

/// Share of the possible gain, that of n threads over one, from which sections count as mostly independent.
pub const MOSTLY_INDEPENDENT: f64 = 0.5;

/// Probability of conflict from which it is worth looking for what conflicts.
pub const WORTH_TUNING: f64 = 0.1;

/// Share of a lock's conflicts from which a word is a hot spot: the second row of Table 3, where section 6.2 begins to find single addresses.
pub const HOT: f64 = 0.2;

/// The speed-up by line against that by byte, below which false sharing is at fault.
pub const FALSELY_SHARED: f64 = 0.8;

/// Share of sections that write nothing from which readers need no lock. By judgement: four readers to a writer.
pub const MOSTLY_READERS: f64 = 0.8;

/// Share of the writes to a word that are of one kind, from which they all count as of that kind.
pub const ONE_KIND: f64 = 0.8;

/// Reads per write up to which a counter can be split: per-thread counters work "if they are updated more frequently than they are read" (section 3.1),
/// and since a read has to add up all of them, some margin is left. By judgement: four updates to a read.
pub const RARELY_READ: f64 = 0.25;

/// Words that a section touches besides a hot one, from which it does more than keep that word.
pub const OTHER_WORK: f64 = 2.0;

/// Share of the conflicts in which one side only reads, from which sections walk over what others change (lists, section 3.1).
pub const TRAVERSAL: f64 = 0.5;

/// Words from which a section is long; with [`LOOP`], a bulk operation (Figure 7). By judgement: eight full cache lines.
pub const LONG: f64 = 64.0;

/// Words written for each place that writes, from which places are in a loop over many objects.
pub const LOOP: f64 = 4.0;

/// Speed-up from which optimistic concurrency is worth a try although conflicts are many.
pub const SOME_GAIN: f64 = 1.25;

/// What to do about a lock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Advice {
    /// Too few pairs of sections of different threads were seen.
    TooFew {
        /// How many.
        pairs: u64,
    },
    /// The lock is around I/O, which cannot be undone (section 4.1).
    KeepForIo {
        /// Share of sections with I/O.
        share: f64,
    },
    /// Sections could run at once, as transactions, by lock elision or under finer locks.
    Transactions {
        /// The sections' speed-up.
        speed_up: f64,
        /// For so many processors.
        processors: u32,
    },
    /// Nearly all sections only read (section 7.2).
    SequenceLock {
        /// Share of those that do.
        share: f64,
    },
    /// Different data in one cache line.
    Pad {
        /// A word in the line most often at fault, that sections write.
        #[serde(with = "crate::address")]
        word: u64,
        /// The sections' speed-up by line.
        by_line: f64,
        /// What it would be by byte.
        by_byte: f64,
    },
    /// A store that the source makes under a condition and the code always (section 3.3, Figure 2).
    ConditionalStore {
        /// The word.
        #[serde(with = "crate::address")]
        address: u64,
        /// The place of the store.
        place: u32,
        /// Share of the conflicts that the word is in.
        share: f64,
    },
    /// A counter that is mostly written (sections 3.1 and 6.1).
    PerThreadCounter {
        /// The word.
        #[serde(with = "crate::address")]
        address: u64,
        /// Share of the conflicts that the word is in.
        share: f64,
        /// Share of the conflicts that are about nothing else.
        alone: f64,
    },
    /// A word that sections write and none looks at (sections 2 and 6.3).
    MoveStatistic {
        /// The word.
        #[serde(with = "crate::address")]
        address: u64,
        /// Share of the conflicts that the word is in.
        share: f64,
        /// Share of the conflicts that are about nothing else.
        alone: f64,
    },
    /// A structure with a single entry, such as a list's head (sections 3.1 and 6.1).
    EntryPoints {
        /// The word most conflicts are about.
        #[serde(with = "crate::address")]
        address: u64,
        /// Share of the conflicts that the word is in.
        share: f64,
    },
    /// A bulk operation under one lock (section 6.1, Figure 7).
    SplitSection {
        /// Mean words that a section touches.
        words: f64,
    },
    /// Conflicts are dense, and nothing stands out (section 6.1, last paragraph).
    KeepLock {
        /// D_n.
        density: f64,
        /// Threads compared at once.
        threads: f64,
    },
}

impl Advice {
    /// The advice in words. `name` tells a word's name, if it has one.
    pub fn sentence(&self, name: impl Fn(u64) -> Option<String>) -> String {
        let word = |address: u64| name(address).unwrap_or_else(|| format!("{address:#x}"));
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        let alone = |share: f64| match share {
            none if none < 0.005 => String::new(),
            some => format!(", and the only one of {}", percent(some)),
        };
        match self {
            Advice::TooFew { pairs } => {
                format!("Too little was seen to tell: {pairs} pairs of sections of different threads.")
            }
            Advice::KeepForIo { share } => format!(
                "Keep the lock: {} of its sections do I/O, which cannot be undone. Move the I/O out first.",
                percent(*share)
            ),
            Advice::Transactions { speed_up, processors } => format!(
                "Transactions, lock elision or finer locks would let its sections run {speed_up:.1} times as fast on {processors} processors."
            ),
            Advice::SequenceLock { share } => format!(
                "Let readers go without the lock (sequence lock, RCU or reader-writer lock): {} of its sections write nothing.",
                percent(*share)
            ),
            Advice::Pad { word: written, by_line, by_byte } => format!(
                "Give data of different threads cache lines of their own, first at {}: sections that share no byte meet in a line (speed-up {by_line:.1} by line, {by_byte:.1} by byte).",
                word(*written)
            ),
            Advice::ConditionalStore { address, share, .. } => format!(
                "The compiler made a conditional store to {} unconditional, so that sections conflict that should not ({} of its conflicts): branch around the store.",
                word(*address),
                percent(*share)
            ),
            Advice::PerThreadCounter { address, share, alone: only } => format!(
                "Make the counter {} per-thread, and add up where it is read: it is in {} of the conflicts{}.",
                word(*address),
                percent(*share),
                alone(*only)
            ),
            Advice::MoveStatistic { address, share, alone: only } => format!(
                "Move {} out of the section: it is written and never looked at there, and in {} of the conflicts{}.",
                word(*address),
                percent(*share),
                alone(*only)
            ),
            Advice::EntryPoints { address, share } => format!(
                "Give the structure behind {} several entry points, such as the buckets of a hash table: sections meet on their way in ({} of the conflicts there).",
                word(*address),
                percent(*share)
            ),
            Advice::SplitSection { words } => format!(
                "Split this bulk section into one per item: it touches {words:.0} words in a loop before it lets go of the lock."
            ),
            Advice::KeepLock { density, threads } => format!(
                "Keep the lock: its conflicts are dense ({density:.1} of {threads:.1} threads would take turns), and no single address is to blame."
            ),
        }
    }
}

/// Advice for a lock, the most promising first; never none. `conditional` says whether a place is a store that the source makes under
/// a condition: whoever can look at the code (a conditional move before the store, as in Figure 2) knows.
pub fn advise(lock: &LockAnalysis, conditional: impl Fn(u32) -> bool) -> Vec<Advice> {
    let known = lock.estimates.iter().filter(|estimates| estimates.windows > 0);
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
        advice.push(Advice::SequenceLock { share: lock.read_only });
    } else if independent {
        advice.push(transactions(estimates));
    }
    if estimates.line.speed_up() < FALSELY_SHARED * byte.speed_up()
        && let Some(line) = lock.false_sharing.first()
    {
        advice.push(Advice::Pad { word: line.word, by_line: estimates.line.speed_up(), by_byte: byte.speed_up() });
    }
    if byte.conflict_probability() >= WORTH_TUNING && lock.read_only < MOSTLY_READERS {
        let before = advice.len();
        structure(lock, conditional, &mut advice);
        if advice.len() == before && !independent {
            advice.push(match byte.speed_up() >= SOME_GAIN {
                true => transactions(estimates),
                false => Advice::KeepLock { density: byte.density, threads: byte.threads },
            });
        }
    }
    if advice.is_empty() {
        advice.push(Advice::KeepLock { density: byte.density, threads: byte.threads });
    }
    advice
}

fn transactions(estimates: &Estimates) -> Advice {
    Advice::Transactions { speed_up: estimates.byte.speed_up(), processors: estimates.processors }
}

/// What could change in the program, so that its sections conflict less.
fn structure(lock: &LockAnalysis, conditional: impl Fn(u32) -> bool, advice: &mut Vec<Advice>) {
    let hot: Vec<&HotSpot> = lock.hot_spots.iter().take_while(|spot| spot.share >= HOT).collect();
    // Where most of what a section touches is hot, the hot words are not an entry to something: they are all there is (section 6.2).
    let has_depth = lock.words - hot.len() as f64 >= OTHER_WORK;
    let mut entry = None;
    for spot in &hot {
        let written = spot.uses.written() as f64;
        let reads = spot.uses.read as f64 / written;
        let (address, share, alone) = (spot.address, spot.share, spot.alone);
        if let Some(store) = spot.writers.iter().find(|writer| conditional(writer.place)) {
            advice.push(Advice::ConditionalStore { address, place: store.place, share });
        } else if spot.uses.in_place as f64 >= ONE_KIND * written && reads <= RARELY_READ {
            // Nobody reads what it counts: there is no need to count here. Unless that is all that the section does.
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
