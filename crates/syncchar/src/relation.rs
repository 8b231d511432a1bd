//! A symmetric relation on the sections of a sample: their graph of conflicts.

/// A bit matrix: row i has bit j if i and j are related. Irreflexive.
#[derive(Debug, Default)]
pub(crate) struct Relation {
    stride: usize,
    bits: Vec<u64>,
}

impl Relation {
    /// Clears the relation for `size` elements.
    pub fn reset(&mut self, size: usize) {
        self.stride = size.div_ceil(64);
        self.bits.clear();
        self.bits.resize(self.stride * size, 0);
    }

    pub fn relate(&mut self, i: usize, j: usize) {
        debug_assert_ne!(i, j);
        self.bits[i * self.stride + j / 64] |= 1 << (j % 64);
        self.bits[j * self.stride + i / 64] |= 1 << (i % 64);
    }

    pub fn has(&self, i: usize, j: usize) -> bool {
        self.bits[i * self.stride + j / 64] >> (j % 64) & 1 == 1
    }

    /// The number of elements related to any other, and of related pairs.
    pub fn count(&self) -> (u32, u32) {
        let mut degrees = 0;
        let mut related = 0;
        for row in self.bits.chunks_exact(self.stride.max(1)) {
            let degree: u32 = row.iter().map(|word| word.count_ones()).sum();
            degrees += degree;
            related += u32::from(degree > 0);
        }
        (related, degrees / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_returns_elements_and_pairs() {
        let mut relation = Relation::default();
        relation.reset(130);
        relation.relate(0, 129);
        relation.relate(129, 64);
        relation.relate(64, 129);
        assert!(relation.has(129, 0) && relation.has(64, 129) && !relation.has(0, 64));
        assert_eq!(relation.count(), (3, 2));
        relation.reset(2);
        assert_eq!(relation.count(), (0, 0));
    }
}
