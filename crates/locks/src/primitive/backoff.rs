//! Bounded exponential backoff (Agarwal and Cherian, ISCA 1989; the ASPLOS 2010 paper, section
//! 2.2).

use super::Spin;

/// One waiter's delays: from `first` nanoseconds, doubling up to `limit`. Each delay is drawn from
/// the upper half of its range, so that waiters that collided once do not collide again.
#[derive(Debug)]
pub struct Backoff {
    current: u64,
    limit: u64,
    random: u32,
}

impl Backoff {
    /// Returns a backoff between `first` and `limit` nanoseconds; `seed` differs between waiters.
    #[inline]
    pub fn new(first: u64, limit: u64, seed: u64) -> Self {
        // Any odd multiplier spreads the seed's low bits. Zero would be a fixed point of xorshift.
        let random = (seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32 | 1;
        Backoff { current: first, limit, random }
    }

    /// Waits once, then doubles the next wait up to the limit.
    #[inline]
    pub fn wait<P: Spin>(&mut self) {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        let half = self.current / 2;
        P::delay(half + u64::from(self.random) % (half + 1));
        self.current = (self.current * 2).min(self.limit);
    }
}
