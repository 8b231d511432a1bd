//! Load-triggered backoff: while threads wait for processors, waiters sleep for a random time.
//!
//! Johnson, Athanassoulis, Stoica and Ailamaki (DaMoN 2009), section 3.4; Johnson et al. (ASPLOS
//! 2010), section 2.3. A daemon, here the [controller](super::controller), keeps a running average
//! of
//!
//! ```text
//!   overload = queue time / (cpu time + queue time)
//! ```
//!
//! and a thread sleeps with that probability, for an exponentially distributed time. The papers'
//! threads decide at the end of a transaction, and so do those of a program with
//! [checkpoints](super::checkpoint). A lock knows no transactions. In a program that has passed no
//! checkpoint, a waiter decides once per wait, after [`SPIN_NS`], and again after each sleep.
//!
//! No thread can wake a sleeper: the control is one-sided, and the number of running threads
//! oscillates around its target. Load-triggered backoff is the baseline against which load control
//! is measured (ASPLOS 2010, Figure 5).

use core::sync::atomic::Ordering::Relaxed;

use super::sensor::Reading;
use super::{Context, Holds, LoadManager, Wait, WaitSummary};
use crate::primitive::turn::Verdict;
use crate::primitive::{
    Atomic, AtomicInt, Atomics, Clock as _, Generation as _, Parking as _, Threads as _,
};

/// Polling time before the decision: the same as before a [claim](super::control) of load control,
/// so that the two managers differ only in how threads sleep.
const SPIN_NS: u64 = 20_000;

/// Weight of the latest interval in the running average: the last five intervals count for two
/// thirds. The papers give no number.
const LATEST: f64 = 0.2;

/// The daemon's interval (DaMoN 2009, section 3.4).
const INTERVAL_NS: u64 = 10_000_000;

/// The papers' sleeps are at least a clock tick of 10 ms. Without such a tick, a sleep shorter than
/// its two context switches saves nothing.
const SHORTEST_NS: f64 = 50_000.0;

/// Longest sleep as a multiple of the mean: one sleep in 3000 would exceed it.
const LONGEST_IN_MEANS: f64 = 8.0;

/// The running average after one more reading.
#[doc(hidden)]
pub fn running_average(before: f64, reading: Reading) -> f64 {
    let overload = if reading.runnable > 0.0 { reading.waiting / reading.runnable } else { 0.0 };
    before + LATEST * (overload.clamp(0.0, 1.0) - before)
}

/// A waiter's random sequence (xorshift).
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Uniform, above 0 and at most 1.
    fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Exponentially distributed, by inversion.
    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * ln(self.uniform())
    }
}

/// The natural logarithm of a number above 0 and at most 1, to a few parts in a million. `core` has
/// none, and a lock must not call libm's: the dynamic linker may bind it lazily, under its own
/// lock.
fn ln(number: f64) -> f64 {
    let bits = number.to_bits();
    let exponent = ((bits >> 52) as i64 - 1023) as f64;
    let mantissa = f64::from_bits(bits & 0x000F_FFFF_FFFF_FFFF | 1023 << 52);
    // ln m = 2 artanh((m - 1) / (m + 1)), and the argument is below 1/3.
    let ratio = (mantissa - 1.0) / (mantissa + 1.0);
    let square = ratio * ratio;
    let series =
        1.0 + square * (1.0 / 3.0 + square * (0.2 + square * (1.0 / 7.0 + square * (1.0 / 9.0))));
    exponent * core::f64::consts::LN_2 + 2.0 * ratio * series
}

/// Sleeps for a random time, at most until `deadline`.
fn back_off<X: Context>(process: X, random: &mut Random, deadline: Option<u64>) {
    let control = process.control();
    let mean = control.backoff.load(Relaxed) as f64;
    let length = random.exponential(mean).clamp(SHORTEST_NS, LONGEST_IN_MEANS * mean) as u64;
    let wake = X::Machine::now().saturating_add(length);
    let wake = deadline.map_or(wake, |end| X::Machine::expected(end).min(wake));
    control.backed_off.fetch_add(1, Relaxed);
    let never_woken = <X::Machine as Atomics>::U32::new(0);
    while X::Machine::now() < wake {
        X::Machine::park(&never_woken, 0, Some(wake));
    }
    control.backed_off.fetch_sub(1, Relaxed);
}

/// The decision at the end of a transaction, on a machine with overload.
#[cold]
fn decide<X: Context>(process: X, holds: Holds) -> bool {
    X::Machine::generation(); // clears the overload in the child of a `fork`
    process.control().report_contention(); // the daemon stays while there is overload
    let now = X::Machine::now();
    // Two threads draw the same number only if they read the clock in the same nanosecond.
    let mut random = Random::new(now ^ u64::from(X::Machine::thread_id()) << 32);
    let sleeps = !holds.may_be_needed(process.thread_state(), now)
        && random.uniform() < process.control().overload();
    if sleeps {
        back_off(process, &mut random, None);
    }
    sleeps
}

/// Load-triggered backoff.
///
#[doc = example_of_pair!("tpmcs::TpMcs", "backoff::Backoff")]
pub struct Backoff;

/// One wait under [`Backoff`].
#[doc(hidden)]
pub struct Waiter {
    since: u64,
    decided: bool,
    random: Random,
    sleeps: u32,
}

// SAFETY: `block` acquires nothing.
unsafe impl LoadManager for Backoff {
    type Waiter = Waiter;

    const INTERVAL_NS: u64 = INTERVAL_NS;

    fn begin_wait<X: Context>(wait: &Wait<'_, X>, now: u64) -> Waiter {
        // Two waits draw the same sequence only if they begin in the same nanosecond at the same
        // lock, and then one of them acquires the lock.
        Waiter { since: now, decided: false, random: Random::new(now ^ wait.key()), sleeps: 0 }
    }

    fn turn<X: Context>(waiter: &mut Waiter, wait: &Wait<'_, X>, now: u64) -> Verdict {
        if waiter.decided || now.saturating_sub(waiter.since) < SPIN_NS {
            return Verdict::Spin;
        }
        waiter.decided = true;
        wait.process.report_contention();
        let control = wait.process.control();
        let decides = control.has_checkpoints.load(Relaxed) == 0;
        if decides && waiter.random.uniform() < control.overload() {
            Verdict::Leave
        } else {
            Verdict::Spin
        }
    }

    fn block<X: Context>(waiter: &mut Waiter, wait: &Wait<'_, X>) -> bool {
        waiter.sleeps += 1;
        back_off(wait.process, &mut waiter.random, wait.deadline);
        waiter.since = X::Machine::now();
        waiter.decided = false;
        false
    }

    fn end_wait<X: Context>(waiter: Waiter, _: &Wait<'_, X>) -> WaitSummary {
        WaitSummary { sleeps: waiter.sleeps, parked: false }
    }

    #[inline]
    fn checkpoint<X: Context>(process: X, holds: impl FnOnce() -> Holds) -> bool {
        let control = process.control();
        if control.has_checkpoints.load(Relaxed) == 0 {
            control.has_checkpoints.store(1, Relaxed);
        }
        control.has_overload() && decide(process, holds())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn overload_in_steady_state_is_waiting_over_runnable() {
        let reading = |runnable, waiting| Reading { runnable, waiting, capacity: 2.0 };
        let steady = |reading| (0..100).fold(0.0, |before, _| running_average(before, reading));
        assert!((steady(reading(8.0, 6.0)) - 0.75).abs() < 1e-6);
        assert!(steady(reading(2.0, 0.0)) < 1e-6 && steady(reading(0.0, 0.0)) < 1e-6);
        assert!((running_average(0.0, reading(8.0, 8.0)) - LATEST).abs() < 1e-9);
    }

    #[test]
    fn logarithm_of_samples_matches_std() {
        for number in [1.0, 0.999, 0.75, 0.5, 0.1, 1e-3, 1.0 / (1_u64 << 53) as f64] {
            assert!((ln(number) - number.ln()).abs() < 2e-5, "{number}");
        }
    }

    /// The first two numbers of Marsaglia's generator with shifts of 13, 7 and 17 (*Xorshift RNGs*,
    /// 2003), from 1.
    #[test]
    fn random_sequence_is_that_of_the_published_generator() {
        let mut random = Random::new(0);
        let states = [0; 2].map(|_| (random.uniform(), random.0).1);
        assert_eq!(states, [1_082_269_761, 1_152_992_998_833_853_505]);
    }

    #[test]
    fn sleeps_from_many_draws_are_exponential() {
        let mut random = Random::new(7);
        let sleeps: Vec<f64> = (0..20_000).map(|_| random.exponential(100.0)).collect();
        let mean = sleeps.iter().sum::<f64>() / 20_000.0;
        let beyond_twice = sleeps.iter().filter(|&&sleep| sleep > 200.0).count() as f64 / 20_000.0;
        assert!((mean - 100.0).abs() < 3.0, "{mean}");
        assert!((beyond_twice - 0.1353).abs() < 0.01, "{beyond_twice}");
    }
}
