//! POSIX deadlines: absolute times on one of two clocks.

use libc::{CLOCK_MONOTONIC, CLOCK_REALTIME, clockid_t, timespec};
use unconvoy_locks::primitive::{Clock as _, Native, native};

use crate::object::Until;
use crate::real;

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

    /// The absolute time in `ns` nanoseconds, on the clock as the program sees it.
    pub(crate) fn in_ns(self, ns: u64) -> timespec {
        let now = real::faked_time(self.number()).as_ref().map_or_else(|| self.now(), nanoseconds);
        timespec_of(now.saturating_add(ns))
    }

    fn now(self) -> u64 {
        match self {
            Clock::Monotonic => Native::now(),
            Clock::Realtime => native::clock(CLOCK_REALTIME),
        }
    }
}

fn timespec_of(ns: u64) -> timespec {
    timespec {
        tv_sec: (ns / 1_000_000_000).cast_signed(),
        tv_nsec: (ns % 1_000_000_000).cast_signed(),
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
        timespec_of(self.ns)
    }

    pub(crate) fn is_realtime(self) -> bool {
        self.clock == Clock::Realtime
    }

    /// Nanoseconds until the deadline passes.
    pub(crate) fn left(self) -> u64 {
        self.ns.saturating_sub(self.clock.now())
    }

    /// The deadline as locks take it.
    pub(crate) fn for_locks(self) -> u64 {
        let ns = self.ns.min(native::REALTIME - 1);
        if self.is_realtime() { native::REALTIME | ns } else { ns }
    }

    /// Whether the deadline has passed on its own clock, which may have been set meanwhile.
    pub(crate) fn has_passed(self) -> bool {
        self.clock.now() >= self.ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deadline(tv_sec: i64, tv_nsec: i64) -> Option<Deadline> {
        Deadline::new(Clock::Monotonic, Until::from(&timespec { tv_sec, tv_nsec }))
    }

    #[test]
    fn locks_take_deadlines_of_both_clocks() {
        let of = |clock, ns| Deadline { clock, ns }.for_locks();
        let has_passed = |deadline| Native::has_passed(deadline, Native::now());
        for clock in [Clock::Monotonic, Clock::Realtime] {
            assert!(has_passed(of(clock, clock.now())), "{clock:?}");
            let in_an_hour = of(clock, clock.now() + 3_600_000_000_000);
            assert!(!has_passed(in_an_hour), "{clock:?}");
            let left = Native::expected(in_an_hour) - Native::now();
            assert!((3_000_000_000_000..=3_600_000_000_000).contains(&left), "{clock:?}: {left}");
            assert!(!has_passed(of(clock, u64::MAX)), "{clock:?}");
        }
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
