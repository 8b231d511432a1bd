//! A waiter's memory of recent waits for an event: is polling for the next one likely to pay?
//!
//! A wait off the processor costs two context switches and a wake-up. A waiter that polls for as
//! long as that, and then sleeps, pays at most twice what the better choice would have cost
//! (Karlin, Li, Manasse and Owicki, *Empirical Studies of Competitive Spinning for a Shared-Memory
//! Multiprocessor*, SOSP 1991). The history spares programs with long waits this cost as well: each
//! long wait in a row multiplies the number of waits that do not poll by four.

/// Longest poll. A wake-up on a virtual machine (Xeon, 2 processors) takes 28 us from the signal
/// until the waiter runs. A thread whose signaller is just being woken must poll for longer, or one
/// interruption makes the two threads sleep in turn for dozens of waits. (Two threads that
/// alternate: 1.43 M round trips a second with 20 us, 1.66 M with 50 us.)
pub const LONGEST_POLL_NS: u64 = 50_000;

/// Longest wait that counts as short: a poll of this length costs about what it saves.
const SHORT_NS: u64 = 20_000;

/// A longer wait counts as two long waits: polling would not have shortened it noticeably.
const VERY_LONG_NS: u64 = 500_000;

/// Score from which waits are skipped.
const FREE_SCORE: u32 = 2;

/// Highest score: one wait in `1 << (MAX_SCORE - FREE_SCORE)` then polls. If waits take longer than
/// [`LONGEST_POLL_NS`], that is less than .1 % of the time.
const MAX_SCORE: u32 = 12;

/// Points that a long wait adds to the score; a short one takes off 1. So a place polls while more
/// than two thirds of its waits are short. (CPython, 2 threads on 2 processors, with a third of the
/// waits short: .93 of libc's rate if more than a third must be short, .98 with two thirds, and 1.0
/// without polls.)
const LONG_POINTS: u32 = 2;

/// The history of the waits at one place. Fits in 32 bits; 0 stands for no waits.
///
/// | bits | meaning |
/// | --- | --- |
/// | 0..4 | score, at most [`MAX_SCORE`]: rises with long waits |
/// | 4..16 | number of next waits that do not poll |
/// | 31 | set |
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct History {
    score: u32,
    skips: u32,
}

const IS_KNOWN: u32 = 1 << 31;

impl History {
    /// The history in `bits`; `None` for 0.
    #[inline]
    pub fn unpack(bits: u32) -> Option<Self> {
        (bits & IS_KNOWN != 0).then_some(History { score: bits & 15, skips: bits >> 4 & 0xfff })
    }

    /// The history in 32 bits, never 0.
    #[inline]
    pub fn pack(self) -> u32 {
        self.score | self.skips << 4 | IS_KNOWN
    }

    /// Whether the next wait should poll.
    #[inline]
    pub fn polls(self) -> bool {
        self.skips == 0
    }

    /// The history after one more wait, which took `ns` until its signal or time-out.
    #[inline]
    #[must_use]
    pub fn after(self, ns: u64) -> Self {
        if ns <= SHORT_NS {
            let score = self.score.saturating_sub(1);
            return History { score, skips: self.skips.min(skips(score)) };
        }
        if self.skips > 0 {
            return History { skips: self.skips - 1, ..self };
        }
        let points = if ns > VERY_LONG_NS { 2 * LONG_POINTS } else { LONG_POINTS };
        let score = (self.score + points).min(MAX_SCORE);
        History { score, skips: skips(score) }
    }
}

/// Number of waits to skip at a score.
fn skips(score: u32) -> u32 {
    (1 << score.saturating_sub(FREE_SCORE)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG_NS: u64 = 2 * LONGEST_POLL_NS;
    const IDLE_NS: u64 = 10_000_000;

    /// Returns the number of `waits` that poll, and the history after them.
    fn polls(mut history: History, waits: impl IntoIterator<Item = u64>) -> (u32, History) {
        let mut polls = 0;
        for ns in waits {
            polls += u32::from(history.polls());
            history = history.after(ns);
        }
        (polls, history)
    }

    #[test]
    fn first_wait_polls() {
        assert!(History::default().polls());
        assert_eq!(History::unpack(0), None);
    }

    #[test]
    fn short_waits_poll() {
        let (count, _) = polls(History::default(), [300; 1000]);
        assert_eq!(count, 1000);
    }

    #[test]
    fn three_of_four_waits_short_polls_almost_always() {
        let (count, _) = polls(History::default(), [300, 300, 300, LONG_NS].repeat(250));
        assert!(count > 900, "{count} of 1000");
    }

    #[test]
    fn every_fourth_wait_short_polls_at_most_every_second() {
        let (_, history) = polls(History::default(), [LONG_NS; 4000]);
        let (count, _) = polls(history, [300, LONG_NS, LONG_NS, LONG_NS].repeat(1000));
        assert!(count < 2500, "{count} of 4000");
    }

    #[test]
    fn long_waits_are_noticed_within_ten_polls() {
        let (_, history) = polls(History::default(), [300; 1000]);
        let (count, history) = polls(history, [LONG_NS; 1023]);
        assert!(count <= 12, "{count} polls");
        let (count, _) = polls(history, [LONG_NS; 8192]);
        assert!((7..=10).contains(&count), "{count} polls in the long run");
    }

    #[test]
    fn idle_waits_are_noticed_within_three_polls() {
        let (_, history) = polls(History::default(), [300; 1000]);
        let (count, _) = polls(history, [IDLE_NS; 1000]);
        assert!(count <= 3, "{count} polls");
    }

    #[test]
    fn short_waits_after_long_ones_poll_again_within_ten() {
        let (_, history) = polls(History::default(), [IDLE_NS; 1000]);
        let (_, history) = polls(history, [300; 10]);
        assert!(history.polls());
    }

    #[test]
    fn packed_history_is_unchanged() {
        let mut history = History::default();
        for ns in [300, LONG_NS, IDLE_NS, IDLE_NS, IDLE_NS, LONG_NS, LONG_NS, 300] {
            assert_eq!(History::unpack(history.pack()), Some(history));
            history = history.after(ns);
        }
    }
}
