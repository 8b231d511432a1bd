//! The waiting share in the special set, by vote (section 3.3): each lock-intensive task adds its time slices, and what
//! it waited in them, to two sums.
//!
//! The paper guards the sums by a spin lock that is only ever tried for, so that voting is never waited for: a vote that
//! comes at the wrong time is lost. That is the back end's part, if it has several threads.

/// The two sums, in nanoseconds (`voting_locking` and `voting_slice`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Votes {
    waited_ns: u64,
    ran_ns: u64,
    count: u64,
}

impl Votes {
    /// Adds a time slice.
    pub fn vote(&mut self, ran_ns: u64, waited_ns: u64) {
        self.ran_ns += ran_ns;
        // A wait that began before the slice is no part of it.
        self.waited_ns += waited_ns.min(ran_ns);
        self.count += 1;
    }

    /// p(n): the part of the voted time that was spent waiting, 0 to 1. 0 without votes.
    pub fn share(&self) -> f64 {
        if self.ran_ns == 0 { 0.0 } else { self.waited_ns as f64 / self.ran_ns as f64 }
    }

    /// Whether there is enough for a set of `cores` cores: more than `ns_per_core` of time slices each.
    pub fn suffice(&self, cores: u32, ns_per_core: u64) -> bool {
        self.ran_ns > u64::from(cores) * ns_per_core
    }

    /// Votes since the sums were cleared or halved.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Halves both sums, so that what is old counts for less (`SHRINK_VOTING(1, 2)`).
    pub fn halve(&mut self) {
        self.ran_ns /= 2;
        self.waited_ns /= 2;
        self.count = 0;
    }

    /// `CLEAR_VOTING`.
    pub fn clear(&mut self) {
        *self = Votes::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_of_all_voted_time() {
        let mut votes = Votes::default();
        assert_eq!(votes.share(), 0.0);
        votes.vote(6_000_000, 600_000);
        votes.vote(2_000_000, 1_000_000);
        assert_eq!(votes.share(), 0.2);
        votes.halve();
        assert_eq!(votes.share(), 0.2);
        // What is new now counts for as much as all before.
        votes.vote(4_000_000, 4_000_000);
        assert_eq!(votes.share(), 0.6);
    }

    #[test]
    fn a_wait_that_is_longer_than_the_slice_is_the_slice() {
        let mut votes = Votes::default();
        votes.vote(1_000, 5_000);
        assert_eq!(votes.share(), 1.0);
    }

    #[test]
    fn enough_is_more_than_a_fixed_time_per_core() {
        let mut votes = Votes::default();
        votes.vote(512_000, 0);
        assert!(votes.suffice(1, 256_000));
        assert!(!votes.suffice(2, 256_000), "exactly as much is not more");
        votes.vote(1, 0);
        assert!(votes.suffice(2, 256_000));
    }
}
