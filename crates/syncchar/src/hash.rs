//! A hasher of addresses that is the same in each run, so that an analysis is exactly reproducible.

use std::hash::{BuildHasherDefault, Hasher};

pub(crate) type Deterministic = BuildHasherDefault<Multiply>;

/// Fibonacci hashing. Slow lookups gain an attacker nothing, so it needs no random seed.
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
        // The table's index comes from the low bits, which are 0 in a product of a multiple of 8.
        self.0 = product ^ (product >> 32);
    }
}
