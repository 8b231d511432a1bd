//! POSIX time-outs: absolute, on one of two clocks.

use libc::{CLOCK_MONOTONIC, CLOCK_REALTIME, clockid_t, timespec};
use unconvoy_locks::platform::{Native, Platform, native};

/// How late a wait on the realtime clock may notice that the clock was set.
const LOOK_EVERY_NS: u64 = 1_000_000_000;

/// A clock that a time-out may be on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clock {
    Realtime,
    Monotonic,
}

impl Clock {
    /// The clock of this number; `None` for those that POSIX functions refuse with `EINVAL`.
    pub(crate) fn of(clock: clockid_t) -> Option<Self> {
        match clock {
            CLOCK_REALTIME => Some(Clock::Realtime),
            CLOCK_MONOTONIC => Some(Clock::Monotonic),
            _ => None,
        }
    }

    fn now(self) -> u64 {
        match self {
            Clock::Monotonic => Native::now(),
            Clock::Realtime => native::clock(CLOCK_REALTIME),
        }
    }
}

/// A point in time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    clock: Clock,
    ns: u64,
}

impl Deadline {
    /// `None` if the nanoseconds are none. A time before the epoch has passed.
    pub(crate) fn new(clock: Clock, until: &timespec) -> Option<Self> {
        if !(0..1_000_000_000).contains(&until.tv_nsec) {
            return None;
        }
        let seconds = u64::try_from(until.tv_sec).unwrap_or(0);
        let ns = seconds.saturating_mul(1_000_000_000).saturating_add(until.tv_nsec.cast_unsigned());
        Some(Deadline { clock, ns: if until.tv_sec < 0 { 0 } else { ns } })
    }

    /// Until when to wait, on the clock that waiters read, before looking at the deadline's own
    /// clock again, which may have been set meanwhile.
    pub(crate) fn next_look(self) -> u64 {
        match self.clock {
            Clock::Monotonic => self.ns,
            Clock::Realtime => Native::now() + self.ns.saturating_sub(self.clock.now()).min(LOOK_EVERY_NS),
        }
    }

    /// Whether it has come, on its own clock, which may have been set meanwhile.
    pub(crate) fn has_passed(self) -> bool {
        self.clock.now() >= self.ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deadline(tv_sec: i64, tv_nsec: i64) -> Option<Deadline> {
        Deadline::new(Clock::Monotonic, &timespec { tv_sec, tv_nsec })
    }

    #[test]
    fn nanoseconds_are_checked() {
        assert!(deadline(1, 1_000_000_000).is_none());
        assert!(deadline(1, -1).is_none());
        assert_eq!(deadline(2, 5).map(|deadline| deadline.ns), Some(2_000_000_005));
    }

    #[test]
    fn times_before_the_epoch_have_passed_and_far_ones_have_not() {
        assert!(deadline(-1, 0).is_some_and(Deadline::has_passed));
        assert!(deadline(i64::MAX, 0).is_some_and(|deadline| !deadline.has_passed()));
    }
}
