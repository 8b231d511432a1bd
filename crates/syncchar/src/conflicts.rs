//! What a lock's sections conflict on: hot spots (section 3.1 of the paper) and the distribution of
//! conflicts over addresses (Table 3).

use crate::hash::Deterministic;
use crate::places::Places;
use crate::set::LINE;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use unconvoy_trace_stream::Access;

pub use crate::places::PlaceCount;

/// How the two sides of a conflict use the word. The patterns are bits, because a pair of sections
/// may conflict in several ways.
pub(crate) mod pattern {
    use unconvoy_trace_stream::Access;

    /// Both change it by a single instruction that reads and writes, as a counter's increment does.
    pub const IN_PLACE: u8 = 1;
    /// Both write it, and at least one reads it by another instruction, as an update of a list's
    /// head does.
    pub const UPDATE: u8 = 2;
    /// Both write it, neither reads it.
    pub const STORE: u8 = 4;
    /// One writes it, the other only reads it.
    pub const READ: u8 = 8;
    /// One did I/O.
    pub const IO: u8 = 16;
    pub const COUNT: usize = 32;

    pub fn of(a: &Access, b: &Access) -> u8 {
        match (a.written != 0 && b.written != 0, a.read != 0 || b.read != 0) {
            (false, _) => READ,
            (true, _) if a.is_in_place() && b.is_in_place() => IN_PLACE,
            (true, true) => UPDATE,
            (true, false) => STORE,
        }
    }
}

/// The most and the fewest words that a lock tracks, and the most that all locks track together
/// (some 250 bytes each). Words with few conflicts are dropped first.
const MOST_WORDS: usize = 4096;
const FEWEST_WORDS: usize = 64;
const ALL_WORDS: usize = 1 << 20;

/// Conflicts of one lock, over all samples and numbers of processors.
#[derive(Debug)]
pub(crate) struct Conflicts {
    /// The most words to track.
    most: usize,
    pub compared: u64,
    /// Pairs that conflict on a byte.
    pub on_bytes: u64,
    /// Pairs that conflict only on a line.
    pub on_lines_only: u64,
    /// Pairs that conflict on bytes or by I/O, by their set of [`pattern`]s.
    pub patterns: [u64; pattern::COUNT],
    spots: HashMap<u64, Spot, Deterministic>,
    /// Upper bound on the pairs of a word that is not in `spots`.
    dropped_pairs: u64,
    dropped: u64,
    /// For each falsely shared line: the number of pairs, and a written word in it.
    false_lines: HashMap<u64, (u64, u64), Deterministic>,
    workset_words: u64,
    worksets: u64,
}

#[derive(Debug)]
struct Spot {
    pairs: u64,
    /// Upper bound on the word's pairs before it was tracked.
    missed: u64,
    alone: u64,
    uses: Uses,
    readers: Places,
    writers: Places,
}

/// How sections used a word, in the samples in which it had a conflict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uses {
    /// Sections that only read it.
    pub read: u64,
    /// Sections that only wrote it.
    pub stored: u64,
    /// Sections that changed it by a single instruction that reads and writes.
    pub in_place: u64,
    /// Sections that read it and wrote it by different instructions.
    pub updated: u64,
}

impl Uses {
    /// Sections that wrote it in any way.
    pub fn written(&self) -> u64 {
        self.stored + self.in_place + self.updated
    }

    fn add(&mut self, access: &Access) {
        let kind = match (access.read != 0, access.written != 0) {
            (_, false) => &mut self.read,
            (false, true) => &mut self.stored,
            (true, true) if access.is_in_place() => &mut self.in_place,
            (true, true) => &mut self.updated,
        };
        *kind += 1;
    }
}

/// A word that sections conflict on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HotSpot {
    /// Its address, a multiple of 8.
    #[serde(with = "crate::address")]
    pub address: u64,
    /// Conflicting pairs of sections that it is involved in.
    pub pairs: u64,
    /// The same as a share of all conflicting pairs, from 0 to 1.
    pub share: f64,
    /// The share of all conflicting pairs that conflict on nothing else. Without conflicts on this
    /// word, these pairs would not conflict.
    pub alone: f64,
    /// How sections use it.
    pub uses: Uses,
    /// Places of first reads, most frequent first.
    pub readers: Vec<PlaceCount>,
    /// Places of first writes, most frequent first.
    pub writers: Vec<PlaceCount>,
}

/// A line in which sections conflict although they touch different bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FalseSharing {
    /// Its address, a multiple of 64.
    #[serde(with = "crate::address")]
    pub address: u64,
    /// A written word in it. The start of the line may belong to unrelated data.
    #[serde(with = "crate::address")]
    pub word: u64,
    /// Pairs of sections that share this line but no byte in it.
    pub pairs: u64,
}

/// The distribution of conflicts over addresses, as in Table 3: a few hot addresses can be tuned,
/// many cannot (section 6.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// Number of words involved in at least one conflict and in 0-19 %, 20-39 %, 40-59 %, 60-79 %,
    /// 80-99 % and 100 % of the conflicts.
    pub words: [u64; 6],
    /// Mean number of words in a workset, the union of the address sets in one sample. Most of them
    /// have no conflict.
    pub workset: f64,
    /// Conflicting pairs of sections in the samples.
    pub conflicts: u64,
}

impl Histogram {
    /// Names of the rows.
    pub const ROWS: [&str; 6] = ["0-19%", "20-39%", "40-59%", "60-79%", "80-99%", "100%"];
}

/// The number of words that each of `locks` locks may track.
fn most(locks: usize) -> usize {
    (ALL_WORDS / locks.max(1)).clamp(FEWEST_WORDS, MOST_WORDS)
}

impl Default for Conflicts {
    fn default() -> Self {
        Conflicts {
            most: MOST_WORDS,
            compared: 0,
            on_bytes: 0,
            on_lines_only: 0,
            patterns: [0; pattern::COUNT],
            spots: HashMap::default(),
            dropped_pairs: 0,
            dropped: 0,
            false_lines: HashMap::default(),
            workset_words: 0,
            worksets: 0,
        }
    }
}

impl Conflicts {
    /// Counts the words of a sample.
    pub fn workset(&mut self, words: usize) {
        self.worksets += 1;
        self.workset_words += words as u64;
    }

    /// Divides the memory among `locks` locks.
    pub fn share(&mut self, locks: usize) {
        self.most = most(locks);
    }

    /// Counts a word on which `pairs` pairs of a sample conflict, with all accesses of the sample
    /// to it.
    pub fn word(&mut self, address: u64, pairs: u32, accesses: impl Iterator<Item = Access>) {
        while self.spots.len() >= self.most && !self.spots.contains_key(&address) {
            self.drop_coldest();
        }
        let missed = self.dropped_pairs;
        let spot = self.spots.entry(address).or_insert_with(|| Spot {
            pairs: 0,
            missed,
            alone: 0,
            uses: Uses::default(),
            readers: Places::default(),
            writers: Places::default(),
        });
        spot.pairs += u64::from(pairs);
        for access in accesses {
            spot.uses.add(&access);
            spot.readers.add(if access.read != 0 { access.read_place } else { 0 });
            spot.writers.add(if access.written != 0 { access.written_place } else { 0 });
        }
    }

    /// Counts a pair that conflicts on this word only.
    pub fn alone(&mut self, address: u64) {
        if let Some(spot) = self.spots.get_mut(&address) {
            spot.alone += 1;
        }
    }

    /// Counts pairs that share the line of `word` falsely; one of them wrote `word`.
    pub fn line(&mut self, word: u64, pairs: u32) {
        let line = word / LINE;
        while self.false_lines.len() >= self.most && !self.false_lines.contains_key(&line) {
            let middle = median(self.false_lines.values().map(|(pairs, _)| *pairs));
            self.false_lines.retain(|_, (pairs, _)| *pairs > middle);
        }
        self.false_lines.entry(line).or_insert((0, word)).0 += u64::from(pairs);
    }

    /// Drops the half of the words with the fewest conflicts, and keeps one upper bound for all of
    /// them.
    #[cold]
    fn drop_coldest(&mut self) {
        let middle = median(self.spots.values().map(|spot| spot.pairs + spot.missed));
        let before = self.spots.len();
        self.spots.retain(|_, spot| spot.pairs + spot.missed > middle);
        self.dropped_pairs = self.dropped_pairs.max(middle);
        self.dropped += (before - self.spots.len()) as u64;
    }

    /// The hottest words, at most `most`.
    pub fn hot_spots(&self, most: usize) -> Vec<HotSpot> {
        let total = self.on_bytes.max(1) as f64;
        let mut spots: Vec<_> = self.spots.iter().collect();
        spots.sort_unstable_by_key(|(address, spot)| (std::cmp::Reverse(spot.pairs), **address));
        let hot = |(address, spot): (&u64, &Spot)| HotSpot {
            address: *address,
            pairs: spot.pairs,
            share: spot.pairs as f64 / total,
            alone: spot.alone as f64 / total,
            uses: spot.uses,
            readers: spot.readers.sorted(),
            writers: spot.writers.sorted(),
        };
        spots.into_iter().take(most).map(hot).collect()
    }

    /// The lines with the most false sharing, at most `most`.
    pub fn false_sharing(&self, most: usize) -> Vec<FalseSharing> {
        let mut lines: Vec<_> = self.false_lines.iter().collect();
        lines.sort_unstable_by_key(|(line, (pairs, _))| (std::cmp::Reverse(*pairs), **line));
        let sharing = |(line, (pairs, word)): (&u64, &(u64, u64))| FalseSharing {
            address: line * LINE,
            word: *word,
            pairs: *pairs,
        };
        lines.into_iter().take(most).map(sharing).collect()
    }

    /// This lock's column of Table 3.
    pub fn histogram(&self) -> Histogram {
        let mut words = [0; 6];
        // Dropped words had few conflicts.
        words[0] = self.dropped;
        for spot in self.spots.values() {
            words[row(spot.pairs, self.on_bytes)] += 1;
        }
        let workset = self.workset_words as f64 / self.worksets.max(1) as f64;
        Histogram { words, workset, conflicts: self.on_bytes }
    }
}

/// The row of Table 3 for a word involved in `pairs` of `total` conflicts.
fn row(pairs: u64, total: u64) -> usize {
    ((u128::from(pairs) * 5 / u128::from(total.max(1))) as usize).min(5)
}

fn median(values: impl Iterator<Item = u64>) -> u64 {
    let mut values: Vec<u64> = values.collect();
    let middle = values.len() / 2;
    *values.select_nth_unstable(middle).1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touched(address: u64, place: u32) -> Access {
        Access { address, read: 1, written: 1, read_place: place, written_place: place }
    }

    #[test]
    fn row_follows_table_3() {
        let rows = [
            (0, 0),
            (19, 0),
            (20, 1),
            (39, 1),
            (40, 2),
            (60, 3),
            (79, 3),
            (80, 4),
            (99, 4),
            (100, 5),
        ];
        for (pairs, expected) in rows {
            assert_eq!(row(pairs, 100), expected, "{pairs}");
        }
        assert_eq!(row(199_999, 200_000), 4, "100 % means all");
    }

    /// zone.lru_lock in Table 3: one hot address, one warm, and many that are rarely involved.
    #[test]
    fn hot_spot_leads_histogram_and_list() {
        let mut conflicts = Conflicts::default();
        for sample in 0..1000u64 {
            conflicts.on_bytes += 10;
            conflicts.workset(40);
            conflicts.word(0x10_0000 + sample * 8, 1, [touched(0, 9)].into_iter());
            conflicts.word(
                0x1000,
                9,
                [touched(0x1000, 1), touched(0x1000, 2), touched(0x1000, 1)].into_iter(),
            );
            conflicts.word(0x2000, 3, [touched(0x2000, 1)].into_iter());
        }
        let histogram = conflicts.histogram();
        assert_eq!(histogram.words, [1000, 1, 0, 0, 1, 0]);
        assert_eq!((histogram.workset, histogram.conflicts), (40.0, 10_000));
        let hot = &conflicts.hot_spots(2)[0];
        assert_eq!((hot.address, hot.pairs, hot.share), (0x1000, 9000, 0.9));
        assert_eq!(hot.uses, Uses { in_place: 3000, ..Uses::default() });
        let places =
            [PlaceCount { place: 1, sections: 2000 }, PlaceCount { place: 2, sections: 1000 }];
        assert_eq!((&hot.readers[..], &hot.writers[..]), (&places[..], &places[..]));
    }

    #[test]
    fn many_locks_track_fewer_words_each() {
        assert_eq!(
            [1, 256, 1024, 1_000_000].map(most),
            [MOST_WORDS, MOST_WORDS, 1024, FEWEST_WORDS]
        );
    }

    /// However many words conflict once, the table stays small and keeps the hot ones.
    #[test]
    fn tracked_words_are_bounded() {
        let mut conflicts = Conflicts::default();
        let words = 10 * MOST_WORDS as u64;
        for word in 0..words {
            if word == words / 2 {
                conflicts.share(ALL_WORDS / 200);
            }
            conflicts.on_bytes += 2;
            conflicts.word(0x10_0000 + word * 8, 1, [].into_iter());
            conflicts.word(0x1000, 1, [].into_iter());
            conflicts.line(word * LINE, 1);
        }
        assert!(conflicts.spots.len() <= 200 && conflicts.false_lines.len() <= 200);
        assert_eq!(conflicts.hot_spots(1)[0].pairs, words);
        assert_eq!(conflicts.histogram().words, [words, 0, 1, 0, 0, 0]);
    }
}
