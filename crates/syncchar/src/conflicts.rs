//! What a lock's sections conflict on: hot spots (section 3.1 of the paper) and the distribution of conflicts over addresses (Table 3).

use crate::set::LINE;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use unconvoy_trace_stream::Access;

/// How the two sides of a conflict use the word: bits, as a pair of sections may conflict in several ways.
pub(crate) mod pattern {
    use unconvoy_trace_stream::Access;

    /// Both change it by one instruction that reads and writes, as a counter is incremented.
    pub const IN_PLACE: u8 = 1;
    /// Both write it, and at least one reads it by another instruction, as a list's head is changed.
    pub const UPDATE: u8 = 2;
    /// Both write it, and neither reads it.
    pub const STORE: u8 = 4;
    /// One only reads what the other writes.
    pub const READ: u8 = 8;
    /// One did I/O.
    pub const IO: u8 = 16;
    pub const COUNT: usize = 32;

    /// The pattern of a conflict on a word.
    pub fn of(a: &Access, b: &Access) -> u8 {
        match (a.written != 0 && b.written != 0, a.read != 0 || b.read != 0) {
            (false, _) => READ,
            (true, _) if a.is_in_place() && b.is_in_place() => IN_PLACE,
            (true, true) => UPDATE,
            (true, false) => STORE,
        }
    }
}

/// Words that a lock remembers the conflicts of, at most and at least; and those that all locks together remember, of some 250 bytes each. Words
/// that were in few conflicts are forgotten first.
const MOST_SPOTS: usize = 4096;
const FEWEST_SPOTS: usize = 64;
const ALL_SPOTS: usize = 1 << 20;

/// Places that a word remembers, each for reading and for writing.
const MOST_PLACES: usize = 4;

/// Conflicts of one lock, of all its samples at all numbers of processors.
#[derive(Debug)]
pub(crate) struct Conflicts {
    /// Words to remember.
    most: usize,
    /// Pairs of sections compared.
    pub compared: u64,
    /// Pairs that conflict on a byte.
    pub on_bytes: u64,
    /// Pairs that conflict only on a line.
    pub on_lines_only: u64,
    /// Pairs that conflict on bytes or by I/O, by the set of [`pattern`]s in which they do.
    pub patterns: [u64; pattern::COUNT],
    spots: HashMap<u64, Spot, Deterministic>,
    /// Pairs that a word not among `spots` may have had.
    forgotten: u64,
    /// Words forgotten.
    dropped: u64,
    /// Pairs, and a word that one of the first wrote.
    false_lines: HashMap<u64, (u64, u64), Deterministic>,
    workset_words: u64,
    worksets: u64,
}

#[derive(Debug)]
struct Spot {
    pairs: u64,
    /// Pairs that it may have had before it was remembered.
    missed: u64,
    alone: u64,
    uses: Uses,
    readers: Places,
    writers: Places,
}

/// In what way sections used a word, in the samples in which it had a conflict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uses {
    /// Sections that only read it.
    pub read: u64,
    /// Sections that only wrote it.
    pub stored: u64,
    /// Sections that changed it by one instruction that reads and writes.
    pub in_place: u64,
    /// Sections that read it and wrote it, by different instructions.
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

/// A place in the code, and how many sections touched a word there first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceCount {
    /// The place, as numbered in [`Access`].
    pub place: u32,
    /// Sections, in samples with a conflict on the word; where a word has many places, an upper bound.
    pub sections: u64,
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
    /// The share of all conflicting pairs that conflict on nothing else: what goes if this word's conflicts go.
    pub alone: f64,
    /// How sections use it.
    pub uses: Uses,
    /// Where it is read first, most frequent place first.
    pub readers: Vec<PlaceCount>,
    /// Where it is written first, most frequent place first.
    pub writers: Vec<PlaceCount>,
}

/// A line that sections conflict on although they touch different bytes of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FalseSharing {
    /// Its address, a multiple of 64.
    #[serde(with = "crate::address")]
    pub address: u64,
    /// A word of it that one of the sections wrote: the line may begin with data of nobody's.
    #[serde(with = "crate::address")]
    pub word: u64,
    /// Pairs of sections that meet in this line, but not in a byte of it.
    pub pairs: u64,
}

/// How conflicts are distributed over addresses, as in Table 3: a few hot addresses can be tuned away, many cannot (section 6.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// Words that are involved in 0-19 %, 20-39 %, 40-59 %, 60-79 %, 80-99 % and 100 % of the conflicts, and at least in one.
    pub words: [u64; 6],
    /// Mean number of words of a workset: of all address sets in one sample together. Most of them are in no conflict.
    pub workset: f64,
    /// Conflicting pairs of sections that were sampled.
    pub conflicts: u64,
}

impl Histogram {
    /// The rows' names.
    pub const ROWS: [&str; 6] = ["0-19%", "20-39%", "40-59%", "60-79%", "80-99%", "100%"];
}

/// Words that each of so many locks remembers.
fn most(locks: usize) -> usize {
    (ALL_SPOTS / locks.max(1)).clamp(FEWEST_SPOTS, MOST_SPOTS)
}

impl Default for Conflicts {
    fn default() -> Self {
        Conflicts {
            most: MOST_SPOTS,
            compared: 0,
            on_bytes: 0,
            on_lines_only: 0,
            patterns: [0; pattern::COUNT],
            spots: HashMap::default(),
            forgotten: 0,
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

    /// Shares the memory out among so many locks.
    pub fn share(&mut self, locks: usize) {
        self.most = most(locks);
    }

    /// Counts a word on which `pairs` pairs of a sample conflict, with the accesses of all sections of the sample that touch it.
    pub fn word(&mut self, address: u64, pairs: u32, accesses: impl Iterator<Item = Access>) {
        while self.spots.len() >= self.most && !self.spots.contains_key(&address) {
            self.forget();
        }
        let missed = self.forgotten;
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

    /// Counts pairs that share falsely the line of this word, which one of them wrote.
    pub fn line(&mut self, word: u64, pairs: u32) {
        let line = word / LINE;
        while self.false_lines.len() >= self.most && !self.false_lines.contains_key(&line) {
            let middle = median(self.false_lines.values().map(|(pairs, _)| *pairs));
            self.false_lines.retain(|_, (pairs, _)| *pairs > middle);
        }
        self.false_lines.entry(line).or_insert((0, word)).0 += u64::from(pairs);
    }

    /// Forgets the half of the words that had the fewest conflicts; how many any of them had at most is remembered for all.
    #[cold]
    fn forget(&mut self) {
        let middle = median(self.spots.values().map(|spot| spot.pairs + spot.missed));
        let before = self.spots.len();
        self.spots.retain(|_, spot| spot.pairs + spot.missed > middle);
        self.forgotten = self.forgotten.max(middle);
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

    /// The lines most falsely shared, at most `most`.
    pub fn false_sharing(&self, most: usize) -> Vec<FalseSharing> {
        let mut lines: Vec<_> = self.false_lines.iter().collect();
        lines.sort_unstable_by_key(|(line, (pairs, _))| (std::cmp::Reverse(*pairs), **line));
        let told = |(line, (pairs, word)): (&u64, &(u64, u64))| FalseSharing {
            address: line * LINE,
            word: *word,
            pairs: *pairs,
        };
        lines.into_iter().take(most).map(told).collect()
    }

    /// Table 3's column for this lock.
    pub fn histogram(&self) -> Histogram {
        let mut words = [0; 6];
        // Forgotten words had few conflicts.
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

/// The most frequent places, by the space-saving rule: a new one replaces the rarest and takes over its count.
#[derive(Clone, Copy, Debug, Default)]
struct Places {
    places: [(u32, u64); MOST_PLACES],
}

impl Places {
    fn add(&mut self, place: u32) {
        if place == 0 {
            return;
        }
        let known = self.places.iter_mut().find(|(known, count)| *known == place && *count > 0);
        let slot = match known {
            Some(slot) => slot,
            None => self.places.iter_mut().min_by_key(|(_, count)| *count).expect("there are places"),
        };
        *slot = (place, slot.1 + 1);
    }

    fn sorted(&self) -> Vec<PlaceCount> {
        let known = self.places.iter().filter(|(_, count)| *count > 0);
        let mut places: Vec<_> =
            known.map(|(place, sections)| PlaceCount { place: *place, sections: *sections }).collect();
        places.sort_unstable_by_key(|place| (std::cmp::Reverse(place.sections), place.place));
        places
    }
}

/// Hashes addresses the same way in each run, so that an analysis can be repeated to the digit.
pub(crate) type Deterministic = BuildHasherDefault<Multiply>;

/// Fibonacci hashing; addresses are not chosen by an attacker who gains by a slow analysis.
#[derive(Debug, Default)]
pub(crate) struct Multiply(u64);

impl Hasher for Multiply {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        let product = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The table takes its index from the low bits, which a product of multiples of 8 leaves at zero.
        self.0 = product ^ (product >> 32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touched(address: u64, place: u32) -> Access {
        Access { address, read: 1, written: 1, read_place: place, written_place: place }
    }

    /// The rows of Table 3.
    #[test]
    fn rows() {
        let rows = [(0, 0), (19, 0), (20, 1), (39, 1), (40, 2), (60, 3), (79, 3), (80, 4), (99, 4), (100, 5)];
        for (pairs, expected) in rows {
            assert_eq!(row(pairs, 100), expected, "{pairs}");
        }
        assert_eq!(row(199_999, 200_000), 4, "only all is 100 %");
    }

    /// zone.lru_lock in Table 3: one hot address, one warm one, and many that are rarely involved.
    #[test]
    fn a_hot_spot_stands_out() {
        let mut conflicts = Conflicts::default();
        for sample in 0..1000u64 {
            conflicts.on_bytes += 10;
            conflicts.workset(40);
            conflicts.word(0x10_0000 + sample * 8, 1, [touched(0, 9)].into_iter());
            conflicts.word(0x1000, 9, [touched(0x1000, 1), touched(0x1000, 2), touched(0x1000, 1)].into_iter());
            conflicts.word(0x2000, 3, [touched(0x2000, 1)].into_iter());
        }
        let histogram = conflicts.histogram();
        assert_eq!(histogram.words, [1000, 1, 0, 0, 1, 0]);
        assert_eq!((histogram.workset, histogram.conflicts), (40.0, 10_000));
        let hot = &conflicts.hot_spots(2)[0];
        assert_eq!((hot.address, hot.pairs, hot.share), (0x1000, 9000, 0.9));
        assert_eq!(hot.uses, Uses { in_place: 3000, ..Uses::default() });
        let places = [PlaceCount { place: 1, sections: 2000 }, PlaceCount { place: 2, sections: 1000 }];
        assert_eq!((&hot.readers[..], &hot.writers[..]), (&places[..], &places[..]));
    }

    #[test]
    fn many_locks_remember_less() {
        assert_eq!([1, 256, 1024, 1_000_000].map(most), [MOST_SPOTS, MOST_SPOTS, 1024, FEWEST_SPOTS]);
    }

    /// However many words conflict once, the table stays small and the hot ones stay in it.
    #[test]
    fn memory_is_bounded() {
        let mut conflicts = Conflicts::default();
        let words = 10 * MOST_SPOTS as u64;
        for word in 0..words {
            if word == words / 2 {
                conflicts.share(ALL_SPOTS / 200);
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
