//! POSIX deadlines: absolute times on one of two clocks.

use libc::{CLOCK_MONOTONIC, CLOCK_REALTIME, clockid_t, timespec};
use unconvoy_locks::lock::Acquired;
use unconvoy_locks::primitive::{Clock as _, Native, native};

use crate::object::Until;
use crate::real;

/// Longest delay before a wait on the realtime clock notices that the clock was set.
const LOOK_EVERY_NS: u64 = 1_000_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clock {
    Realtime,
    Monotonic,
}

impl Clock {
    /// The clock with this number; `None` for clocks that POSIX functions reject with `EINVAL`.
    pub(crate) fn of(clock: clockid_t) -> Option<Self> {
        match clock {
            CLOCK_REALTIME => Some(Clock::Realtime),
            CLOCK_MONOTONIC => Some(Clock::Monotonic),
            _ => None,
        }
    }

    fn number(self) -> clockid_t {
        match self {
            Clock::Realtime => CLOCK_REALTIME,
            Clock::Monotonic => CLOCK_MONOTONIC,
        }
    }

    fn now(self) -> u64 {
        match self {
            Clock::Monotonic => Native::now(),
            Clock::Realtime => native::clock(CLOCK_REALTIME),
        }
    }
}

/// Nanoseconds since the clock's epoch; 0 for times before it.
fn nanoseconds(time: &timespec) -> u64 {
    match u64::try_from(time.tv_sec) {
        Ok(seconds) => {
            seconds.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec.cast_unsigned())
        }
        Err(_) => 0,
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    clock: Clock,
    ns: u64,
}

impl Deadline {
    /// Reads `until`; `None` if its nanoseconds are out of range. A time before the epoch has
    /// passed.
    pub(crate) fn new(clock: Clock, until: Until<'_>) -> Option<Self> {
        let until = until.read();
        if !(0..1_000_000_000).contains(&until.tv_nsec) {
            return None;
        }
        let ns = nanoseconds(&until);
        Some(match real::faked_time(clock.number()) {
            None => Deadline { clock, ns },
            Some(faked) => Deadline {
                clock,
                ns: clock.now().saturating_add(ns).saturating_sub(nanoseconds(&faked)),
            },
        })
    }

    pub(crate) fn as_timespec(self) -> timespec {
        timespec {
            tv_sec: (self.ns / 1_000_000_000).cast_signed(),
            tv_nsec: (self.ns % 1_000_000_000).cast_signed(),
        }
    }

    pub(crate) fn is_realtime(self) -> bool {
        self.clock == Clock::Realtime
    }

    /// When a waiter must check the deadline's own clock again, because the realtime clock may be
    /// set meanwhile. The result is a time on the clock that waiters read.
    pub(crate) fn next_look(self) -> u64 {
        match self.clock {
            Clock::Monotonic => self.ns,
            Clock::Realtime => {
                Native::now() + self.ns.saturating_sub(self.clock.now()).min(LOOK_EVERY_NS)
            }
        }
    }

    /// Whether the deadline has passed on its own clock, which may have been set meanwhile.
    pub(crate) fn has_passed(self) -> bool {
        self.clock.now() >= self.ns
    }
}

/// Makes attempts until one acquires the lock or the deadline has passed. Each ends when the
/// deadline's own clock must be looked at.
#[inline]
pub(crate) fn attempts(
    until: Option<Deadline>,
    mut attempt: impl FnMut(Option<u64>) -> Acquired,
) -> Acquired {
    let mut sleeps = 0;
    loop {
        let mut acquired = attempt(until.map(Deadline::next_look));
        sleeps += acquired.wait.sleeps;
        if acquired.held || until.is_none_or(Deadline::has_passed) {
            acquired.wait.sleeps = sleeps;
            return acquired;
        }
    }
}

#[cfg(test)]
mod tests {
    use unconvoy_locks::load::WaitSummary;

    use super::*;

    fn deadline(tv_sec: i64, tv_nsec: i64) -> Option<Deadline> {
        Deadline::new(Clock::Monotonic, Until::from(&timespec { tv_sec, tv_nsec }))
    }

    #[test]
    fn attempts_go_on_until_the_deadline() {
        let acquired = |held| {
            let wait = WaitSummary { sleeps: 2, parked: false };
            Acquired { held, wait }
        };
        let in_an_hour = Clock::Realtime.now() + 3_600_000_000_000;
        let later = Deadline { clock: Clock::Realtime, ns: in_an_hour };
        let mut looks = Vec::new();
        let third = attempts(Some(later), |look| {
            looks.push(look.expect("a look"));
            acquired(looks.len() == 3)
        });
        assert!(third.held && third.wait.sleeps == 6);
        assert!(looks.iter().all(|&look| look <= Native::now() + LOOK_EVERY_NS));
        let passed = Deadline { clock: Clock::Realtime, ns: 0 };
        assert_eq!(attempts(Some(passed), |_| acquired(false)), acquired(false));
        assert_eq!(attempts(None, |look| acquired(look.is_none())), acquired(true));
    }

    #[test]
    fn deadline_with_invalid_nanoseconds_is_none() {
        assert!(deadline(1, 1_000_000_000).is_none());
        assert!(deadline(1, -1).is_none());
        assert_eq!(deadline(2, 5).map(|deadline| deadline.ns), Some(2_000_000_005));
    }

    #[test]
    fn deadline_before_epoch_has_passed_and_distant_one_has_not() {
        assert!(deadline(-1, 0).is_some_and(Deadline::has_passed));
        assert!(deadline(i64::MAX, 0).is_some_and(|deadline| !deadline.has_passed()));
    }
}
