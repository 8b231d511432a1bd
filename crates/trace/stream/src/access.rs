//! Memory as collectors and the model describe it: regions, and a section's accesses to one word.

/// Bytes of a word, the unit in which accesses are recorded.
pub const WORD: u64 = 8;

/// A range of the program's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// The first byte.
    pub address: u64,
    /// Size in bytes.
    pub size: u64,
}

impl Region {
    /// The `size` bytes from `address`.
    #[inline]
    pub const fn new(address: u64, size: u64) -> Self {
        Region { address, size }
    }

    /// The bytes from `start` to `end`, exclusive.
    #[inline]
    pub const fn between(start: u64, end: u64) -> Self {
        Region { address: start, size: end.wrapping_sub(start) }
    }

    /// The first address after the region, saturating at `u64::MAX`.
    #[inline]
    pub const fn end(self) -> u64 {
        self.address.saturating_add(self.size)
    }

    /// Whether the region includes the byte at `address`.
    #[inline]
    pub const fn contains(self, address: u64) -> bool {
        address.wrapping_sub(self.address) < self.size
    }

    /// The aligned word that holds the whole region and the mask of the region's bytes in it.
    /// `None` if the region spans words.
    #[inline]
    pub fn word(self) -> Option<(u64, u8)> {
        let from = self.address & (WORD - 1);
        let mask = || ((1_u32 << self.size) - 1) << from;
        (self.size <= WORD - from).then(|| (self.address - from, mask() as u8))
    }

    /// The aligned words that overlap the region, each with the mask of the overlapping bytes.
    #[inline]
    pub fn words(self) -> impl Iterator<Item = (u64, u8)> {
        let (mut next, end) = (self.address & !(WORD - 1), self.end());
        std::iter::from_fn(move || {
            if next >= end {
                return None;
            }
            let word = next;
            let (from, to) = (self.address.saturating_sub(word), (end - word).min(WORD));
            next = word.saturating_add(WORD);
            Some((word, (0xff << from) as u8 & (0xff_u8 >> (WORD - to))))
        })
    }
}

/// A section's accesses to one aligned 8-byte word. Collectors, the stream and the model all use
/// this form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The word's address, a multiple of 8.
    pub address: u64,
    /// Bit n: byte n of the word was read.
    pub read: u8,
    /// Bit n: byte n of the word was written.
    pub written: u8,
    /// The place in the code that first read the word; 0: none or unknown.
    pub read_place: u32,
    /// The place that first wrote the word; 0: none or unknown.
    pub written_place: u32,
}

impl Access {
    /// The access of the instruction at `place` to some bytes of one word.
    #[inline]
    pub fn new((address, bytes): (u64, u8), reads: bool, writes: bool, place: u32) -> Self {
        Access {
            address,
            read: if reads { bytes } else { 0 },
            written: if writes { bytes } else { 0 },
            read_place: if reads { place } else { 0 },
            written_place: if writes { place } else { 0 },
        }
    }

    /// Adds a later access to the same word. The first places are kept.
    #[inline]
    pub fn merge(&mut self, later: &Access) {
        self.read |= later.read;
        self.written |= later.written;
        if self.read_place == 0 {
            self.read_place = later.read_place;
        }
        if self.written_place == 0 {
            self.written_place = later.written_place;
        }
    }

    /// The bytes read or written.
    #[inline]
    pub fn touched(&self) -> u8 {
        self.read | self.written
    }

    /// Whether a single instruction reads and writes the word, as an in-memory increment does.
    #[inline]
    pub fn is_in_place(&self) -> bool {
        self.read != 0
            && self.written != 0
            && self.read_place != 0
            && self.read_place == self.written_place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_region_have_its_byte_masks() {
        let words = |address, size| Region::new(address, size).words().collect::<Vec<_>>();
        assert_eq!(words(0x1000, 8), [(0x1000, 0xff)]);
        for (from, size) in (0..8).flat_map(|from| (0..10).map(move |size| (from, size))) {
            let (word, words) =
                (Region::new(0x1000 + from, size).word(), words(0x1000 + from, size));
            let is_in_one = from + size <= 8;
            assert_eq!(word.is_some(), is_in_one, "{from} {size}");
            assert!(
                !is_in_one || size == 0 || words == [word.unwrap()],
                "{from} {size}: {words:x?}"
            );
        }
        assert_eq!(words(0x1003, 2), [(0x1000, 0x18)]);
        assert_eq!(words(0x1006, 12), [(0x1000, 0xc0), (0x1008, 0xff), (0x1010, 0x03)]);
        assert_eq!(words(0x1000, 0), []);
        assert_eq!(
            words(u64::MAX - 9, 100).last(),
            Some(&(u64::MAX - 7, 0x7f)),
            "the end saturates, which loses the last byte"
        );
        assert!(
            Region::between(0x10, 0x20).contains(0x1f)
                && !Region::between(0x10, 0x20).contains(0x20)
        );
        assert!(!Region::default().contains(0) && !Region::new(0x10, 1).contains(0xf));
    }
}
