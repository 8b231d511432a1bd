//! The waiting share of the special set, by vote (section 3.3). Each lock-intensive task adds the
//! length of its time slices, and its waiting time in them, to two sums.
//!
//! The paper guards the sums with a spin lock and only tries to take it, so that no task waits to
//! vote: if the lock is taken, the vote is dropped. A multi-threaded back end must provide that
//! lock.

/// The two sums, in nanoseconds (`voting_locking` and `voting_slice`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Votes {
    waited_ns: u64,
    ran_ns: u64,
    count: u64,
    /// Number of votes since the sums were last cleared or halved.
    recent: u64,
}

impl Votes {
    /// Adds a time slice.
    pub fn vote(&mut self, ran_ns: u64, waited_ns: u64) {
        self.ran_ns += ran_ns;
        // A wait that began before the slice can be longer than the slice.
        self.waited_ns += waited_ns.min(ran_ns);
        self.count += 1;
        self.recent += 1;
    }

    /// p(n): the waiting share of the voted time, 0 to 1. 0 without votes.
    pub fn share(&self) -> f64 {
        if self.ran_ns == 0 { 0.0 } else { self.waited_ns as f64 / self.ran_ns as f64 }
    }

    /// Whether the votes cover more than `ns_per_core` of time slices for each of `cores` cores,
    /// and at least `votes` of them are newer than the last halving.
    pub fn suffice(&self, cores: u32, ns_per_core: u64, votes: u64) -> bool {
        self.ran_ns > u64::from(cores) * ns_per_core && self.recent >= votes
    }

    /// Number of votes since the sums were last cleared.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Halves both sums, so that old votes count less (`SHRINK_VOTING(1, 2)`).
    pub fn halve(&mut self) {
        self.ran_ns /= 2;
        self.waited_ns /= 2;
        self.recent = 0;
    }

    /// Clears both sums (`CLEAR_VOTING`).
    pub fn clear(&mut self) {
        *self = Votes::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_covers_all_voted_time() {
        let mut votes = Votes::default();
        assert_eq!(votes.share(), 0.0);
        votes.vote(6_000_000, 600_000);
        votes.vote(2_000_000, 1_000_000);
        assert_eq!(votes.share(), 0.2);
        votes.halve();
        assert_eq!(votes.share(), 0.2);
        // The new vote weighs as much as all earlier ones.
        votes.vote(4_000_000, 4_000_000);
        assert_eq!(votes.share(), 0.6);
    }

    #[test]
    fn wait_beyond_the_slice_is_capped() {
        let mut votes = Votes::default();
        votes.vote(1_000, 5_000);
        assert_eq!(votes.share(), 1.0);
    }

    #[test]
    fn votes_suffice_above_a_fixed_time_per_core() {
        let mut votes = Votes::default();
        votes.vote(512_000, 0);
        assert!(votes.suffice(1, 256_000, 0));
        assert!(!votes.suffice(2, 256_000, 0), "exactly the limit does not suffice");
        votes.vote(1, 0);
        assert!(votes.suffice(2, 256_000, 0));
    }

    #[test]
    fn halved_votes_count_but_do_not_suffice_again() {
        let mut votes = Votes::default();
        (0..2).for_each(|_| votes.vote(1_000, 0));
        assert!(votes.suffice(1, 500, 2));
        votes.halve();
        assert_eq!(votes.count(), 2);
        assert!(!votes.suffice(1, 500, 2));
        votes.clear();
        assert_eq!(votes.count(), 0);
    }
}
