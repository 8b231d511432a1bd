//! Which sections are sampled: each with the same probability, since every n-th would alias with
//! locks that take turns (section 4.2 of the paper samples 10 % of them).

/// A thread's own generator: splitmix64 (Steele, Lea and Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Draws {
    state: u64,
}

impl Draws {
    /// The draws of the thread or processor of this number.
    pub fn new(seed: u64, number: u32) -> Self {
        Draws { state: seed.wrapping_add(u64::from(number) << 32) }
    }

    /// Whether this one of `rate` is drawn; always if that is 1.
    pub fn draw(&mut self, rate: u32) -> bool {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        (u128::from(mixed) * u128::from(rate)) >> 64 == 0
    }
}
