//! What an elided lock has learnt: whether its sections run faster as transactions.
//!
//! The rate of conflicts does not answer this question. A short section loses more time to a
//! conflict than a long one, and many processors gain even at a high rate. Taking the lock also has
//! an advantage of its own: barging keeps the lock's data on one processor. So the lock measures
//! both ways, one after the other, and keeps the faster one.
//!
//! ```text
//!             enough failures                as many sections as the level says
//!    ELIDE -----------------------> LOCK ---------------------------------------> TRIAL
//!      ^                             ^ '--------- not faster: next level ----------' |
//!      '------------------------------------- faster --------------------------------'
//! ```
//!
//! | bits | ELIDE | TRIAL | LOCK |
//! | --- | --- | --- | --- |
//! | 0: sections take the lock | 0 | 0 | 1 |
//! | 1: sections are counted | 0 | 1 | 1 |
//! | 2: the TRIAL is over | 0 | 0 | 1 if a TRIAL has ended, but not been judged |
//! | 3: elision has won | the last TRIAL | the previous TRIAL | the previous TRIAL |
//! | 4 to 5: level | | level of the preceding LOCK | 0 to 3; see [`LOCK_NS`] |
//! | 6 to 12: count | failures | units to go | units to go |
//! | 13 to 19 | more of the failures | pace of the preceding LOCK | more of the units; the pace if a TRIAL has ended |
//! | 20 to 29: since | last failure | start | start, or start of its last [`MEASURED`] units |
//!
//! A unit is [`SAMPLED`](crate::primitive::SAMPLED) sections. Sections are counted by sampling, so
//! that few of them write to the lock's cache line. Elided sections are counted only in a TRIAL.
//!
//! A pace is eight times the binary logarithm of the time that the measured units took, in
//! multiples of 2^8 ns. Times are kept in units of 2^10 ns, modulo 2^20 ns. If the measured units
//! take longer than that, the result is wrong, and the lock may use the slower way for a while.

/// What one lock has learnt, in 30 bits. Zero is the initial state, which elides.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Learnt(pub(super) u32);

/// Number of units in a measurement: 256 sections. Each thread counts its own sections up to
/// [`SAMPLED`](crate::primitive::SAMPLED), so the number may be off by one unit per thread.
const MEASURED: u32 = 16;
/// Number of units of the shortest LOCK, the one of level 0. It is long enough for barging to set
/// in: a barging turn takes about 100 us.
const LEAST_UNITS: u32 = 64;
/// Duration of a LOCK of levels 1 to 3. A lost trial costs about 200 us, mostly until barging sets
/// in again: 2 % of the time at the last level. (With a last LOCK of 1024 units, however short, the
/// red-black tree, with sections of 30 ns, lost 20 %. With 20 ms instead of 10, locks that win some
/// trials gained less: with sections of RW and 4 threads .96 instead of 1.20.)
const LOCK_NS: [u64; 3] = [1_000_000, 3_000_000, 10_000_000];

/// Number of failures that start a measurement: before and after elision has won one.
const FAILURES: [u32; 2] = [4, 128];
/// One failure is forgotten each time this interval passes, because interrupts alone abort some
/// hundred transactions a second.
const FORGOTTEN_NS: u64 = 100_000;

const TAKES: u32 = 1;
const ELIDE: u32 = 0;
const TRIAL: u32 = 2;
const LOCK: u32 = 2 | TAKES;

const IS_OVER: u32 = 1 << 2;
const WINS: u32 = 3;
const LEVEL: u32 = 4;
const COUNT: u32 = 6;
const PACE: u32 = 13;
const SINCE: u32 = 20;
const COUNT_MASK: u32 = (1 << (PACE - COUNT)) - 1;
/// Mask of a count that also uses the bits of the pace.
const LONG_COUNT_MASK: u32 = (1 << (SINCE - COUNT)) - 1;
const SINCE_MASK: u32 = (1 << 10) - 1;
/// The binary logarithm of the unit of `since`, nanoseconds.
const TICK: u32 = 10;

fn pace(ns: u64) -> u32 {
    let ns = ns.max(1 << 8);
    let exponent = 63 - ns.leading_zeros();
    let eighths = (ns >> (exponent - 3)) as u32 & 7;
    ((exponent - 8) * 8 + eighths).min(COUNT_MASK)
}

/// The shortest time of this pace, nanoseconds.
fn ns_of(pace: u32) -> u64 {
    u64::from(8 + pace % 8) << (pace / 8 + 5)
}

/// Number of units of a LOCK of this level, if [`MEASURED`] units take this `pace`.
fn units(level: u32, pace: u32) -> u32 {
    let Some(longer) = level.checked_sub(1) else {
        return LEAST_UNITS;
    };
    let units = LOCK_NS[longer as usize] * u64::from(MEASURED) / ns_of(pace);
    units.clamp(LEAST_UNITS.into(), LONG_COUNT_MASK.into()) as u32
}

impl Learnt {
    /// The state at the start of a phase, given the trials won (0 or 1), the level and the count.
    fn new(phase: u32, (wins, level): (u32, u32), count: u32, now: u64) -> Self {
        let since = (now >> TICK) as u32 & SINCE_MASK;
        Learnt(since << SINCE | count << COUNT | level << LEVEL | wins << WINS | phase)
    }

    fn phase(self) -> u32 {
        self.0 & LOCK
    }

    fn wins(self) -> u32 {
        self.0 >> WINS & 1
    }

    fn level(self) -> u32 {
        self.0 >> LEVEL & 3
    }

    fn count(self) -> u32 {
        self.0 >> COUNT & COUNT_MASK
    }

    fn long_count(self) -> u32 {
        self.0 >> COUNT & LONG_COUNT_MASK
    }

    fn pace(self) -> u32 {
        self.0 >> PACE & COUNT_MASK
    }

    fn elapsed(self, now: u64) -> u64 {
        let ticks = ((now >> TICK) as u32).wrapping_sub(self.0 >> SINCE) & SINCE_MASK;
        u64::from(ticks) << TICK
    }

    /// The first LOCK after failures.
    fn begin_lock(wins: u32, now: u64) -> Self {
        Self::new(LOCK, (wins, 0), LEAST_UNITS, now)
    }

    /// Whether the next section takes the lock.
    #[inline]
    pub(super) fn takes_lock(self) -> bool {
        self.0 & TAKES != 0
    }

    /// Whether the next section takes the lock without [deciding](Self::decides_next) anything.
    #[inline]
    pub(super) fn only_takes_lock(self) -> bool {
        self.0 & (TAKES | IS_OVER) == TAKES
    }

    /// Whether elided sections are [counted](Self::count_unit) now.
    #[inline]
    pub(super) fn is_trial(self) -> bool {
        self.phase() == TRIAL
    }

    /// Whether sections that take the lock are counted now.
    #[inline]
    pub(super) fn counts_locked(self) -> bool {
        self.0 & TRIAL != 0
    }

    /// Counts a finished unit of a TRIAL. Leaves the decision after the last unit to the next
    /// section: this one may be inside a transaction, where it cannot read the clock.
    #[inline]
    pub(super) fn count_trial_unit(self) -> Self {
        let next = Learnt(self.0.wrapping_sub(1 << COUNT));
        if self.count() > 1 { next } else { Learnt(next.0 | TAKES | IS_OVER) }
    }

    /// Counts a unit of sections that has ended.
    pub(super) fn count_unit(self, now: impl FnOnce() -> u64) -> Self {
        let next = Learnt(self.0.wrapping_sub(1 << COUNT));
        if self.is_trial() {
            return self.count_trial_unit();
        }
        if self.decides_next() || !self.counts_locked() {
            return self;
        }
        match self.long_count() - 1 {
            0 => {
                let now = now();
                let count = pace(self.elapsed(now)) << (PACE - COUNT) | MEASURED;
                Self::new(TRIAL, (self.wins(), self.level()), count, now)
            }
            MEASURED => Self::new(LOCK, (self.wins(), self.level()), MEASURED, now()),
            _ => next,
        }
    }

    /// Whether a TRIAL is over.
    #[inline]
    pub(super) fn decides_next(self) -> bool {
        self.0 & IS_OVER != 0
    }

    /// Whether elision has lost a TRIAL that is not over yet.
    pub(super) fn is_lost(self, now: u64) -> bool {
        self.is_trial() && pace(self.elapsed(now)) >= self.pace()
    }

    /// The state that follows a TRIAL that is over or lost; the same state if another thread has
    /// decided meanwhile.
    pub(super) fn decided(self, now: u64) -> Self {
        if !self.is_trial() && !self.decides_next() {
            self
        } else if pace(self.elapsed(now)) < self.pace() {
            Self::new(ELIDE, (1, 0), 0, now)
        } else {
            let level = (self.level() + 1).min(LOCK_NS.len() as u32);
            Self::new(LOCK, (0, level), units(level, self.pace()), now)
        }
    }

    /// Records a failed elision that counts as `weight` failures.
    pub(super) fn failed(self, weight: u32, now: u64) -> Self {
        if self.phase() != ELIDE {
            return self;
        }
        let forgotten = (self.elapsed(now) / FORGOTTEN_NS) as u32;
        let failures = self.long_count().saturating_sub(forgotten) + weight;
        if failures < FAILURES[self.wins() as usize] {
            Self::new(ELIDE, (self.wins(), 0), failures, now)
        } else {
            Self::begin_lock(self.wins(), now)
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Runs the units of a LOCK or TRIAL, each of which takes `unit_ns`.
    fn run(mut learnt: Learnt, now: &mut u64, unit_ns: u64) -> Learnt {
        let phase = learnt.phase();
        while learnt.phase() == phase && !learnt.decides_next() {
            *now += unit_ns;
            learnt = learnt.count_unit(|| *now);
        }
        learnt
    }

    /// Fails until a measurement begins.
    fn fail(mut learnt: Learnt, now: u64) -> (Learnt, u32) {
        let mut failures = 0;
        while !learnt.takes_lock() {
            learnt = learnt.failed(1, now);
            failures += 1;
        }
        (learnt, failures)
    }

    /// Runs a LOCK and a TRIAL whose units take `lock_ns` and `trial_ns`.
    fn measure(learnt: Learnt, now: &mut u64, lock_ns: u64, trial_ns: u64) -> Learnt {
        let trial = run(learnt, now, lock_ns);
        assert!(trial.is_trial());
        let over = run(trial, now, trial_ns);
        assert!(over.decides_next() && over.takes_lock());
        over.decided(*now)
    }

    #[test]
    fn second_thread_leaves_decision_as_it_is() {
        for (lock_ns, trial_ns) in [(2000, 1000), (1000, 2000)] {
            let mut now = 5 * MS;
            let learnt = fail(Learnt(0), now).0;
            let decided = measure(learnt, &mut now, lock_ns, trial_ns);
            assert_eq!(decided.decided(now).0, decided.0, "{lock_ns}, {trial_ns}");
        }
        assert_eq!(Learnt(0).count_unit(|| 5 * MS).0, 0, "only a LOCK or a TRIAL counts units");
    }

    #[test]
    fn faster_trial_leads_to_elision() {
        let mut now = 5 * MS;
        let (lock, _) = fail(Learnt(0), now);
        assert!(!measure(lock, &mut now, 5_000, 4_000).takes_lock());
    }

    #[test]
    fn slower_or_equal_trials_lead_to_longer_locks() {
        let mut now = 5 * MS;
        let (mut learnt, _) = fail(Learnt(0), now);
        // Units of 5 us; a pace is an eighth too short at most.
        for (number, expected) in [64, 200, 600, 2_000, 2_000].into_iter().enumerate() {
            assert_eq!(learnt.phase(), LOCK);
            let units = learnt.long_count();
            assert!((expected..=expected * 9 / 8).contains(&units), "LOCK {number}: {units}");
            learnt = measure(learnt, &mut now, 5_000, 5_000 + 2_000 * (number as u64 & 1));
        }
    }

    #[test]
    fn lock_of_any_pace_is_counted_in_its_bits() {
        for level in 0..=LOCK_NS.len() as u32 {
            for pace in 0..=COUNT_MASK {
                assert!((LEAST_UNITS..=LONG_COUNT_MASK).contains(&units(level, pace)));
            }
        }
        for ns in [256, 300, 1_000, 13_600, 85_000, 1_000_000] {
            assert!(ns_of(pace(ns)) <= ns && ns < ns_of(pace(ns) + 1), "{ns}");
        }
    }

    #[test]
    fn trial_is_lost_before_its_end_once_it_took_longer() {
        let mut now = 5 * MS;
        let trial = run(fail(Learnt(0), now).0, &mut now, 5_000);
        assert!(!trial.is_lost(now + 40_000));
        assert!(trial.is_lost(now + 5_000 * u64::from(MEASURED)));
    }

    #[test]
    fn won_trial_raises_the_number_of_failures_before_the_next() {
        let mut now = 5 * MS;
        let (lock, first) = fail(Learnt(0), now);
        let (lock, second) = fail(measure(lock, &mut now, 5_000, 4_000), now);
        assert_eq!((first, second), (FAILURES[0], FAILURES[1]));
        let (_, after_loss) = fail(Learnt(0), now);
        assert_eq!(after_loss, FAILURES[0]);
        assert!(measure(lock, &mut now, 5_000, 6_000).takes_lock());
    }

    #[test]
    fn failures_far_apart_are_forgotten() {
        let mut learnt = Learnt(0);
        for interrupt in 1..10_000 {
            learnt = learnt.failed(1, interrupt * MS);
        }
        assert!(!learnt.takes_lock());
    }

    #[test]
    fn no_count_of_a_lock_looks_like_the_end_of_a_trial() {
        let mut learnt = Learnt::new(LOCK, (0, 3), LONG_COUNT_MASK, 0);
        while !learnt.is_trial() {
            assert!(learnt.takes_lock() && !learnt.decides_next());
            learnt = learnt.count_unit(|| MS);
        }
    }
}
