//! From the speed-up of a lock's sections to that of the program, by Amdahl's law (section 4.4 of
//! the paper).

use serde::{Deserialize, Serialize};

/// The run time if the sections of one lock run `speed_up` times as fast: "the time not associated
/// with the lock plus the time associated with the lock divided by the speedup". All times have the
/// same unit. `held` is clamped to `total`.
pub fn projected_time(total: f64, held: f64, speed_up: f64) -> f64 {
    let held = held.clamp(0.0, total);
    total - held + held / speed_up
}

/// The run time if all locks speed up at once, each given as (time held, speed-up). Locks may be
/// held concurrently, so the times may add up to more than the run time. They are then scaled down
/// to the run time: without knowledge of the overlaps there is no better estimate.
pub fn projected_time_of_all(total: f64, locks: impl Iterator<Item = (f64, f64)>) -> f64 {
    let (held, shortened) = locks.fold((0.0, 0.0), |(held, shortened), (lock, speed_up)| {
        (held + lock, shortened + lock / speed_up)
    });
    if held <= 0.0 {
        return total;
    }
    projected_time(total, held, held / shortened)
}

/// What hardware transactions cost on one machine, where an ideal transactional memory costs
/// nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TransactionCosts {
    /// Begin and commit of a transaction, less lock and unlock of a free lock: nanoseconds.
    pub pair_ns: f64,
    /// Transfer of a cache line from another processor, or its invalidation there: nanoseconds.
    pub transfer_ns: f64,
    /// Transactions that an interrupt aborts, for each second inside transactions.
    pub interrupts_per_s: f64,
    /// A reading of the clock, in nanoseconds. The native run reads it at the beginning and at
    /// the end of each section, so about one reading counts as held.
    pub clock_ns: f64,
}

/// The sections of one lock.
#[derive(Clone, Copy, Debug)]
pub struct Sections {
    /// Number of sections.
    pub count: u64,
    /// Time held, in seconds.
    pub held: f64,
    /// Time that all threads together waited, in seconds.
    pub waited: f64,
    /// Number of threads that run at once and take the lock, at least 1.
    pub threads: f64,
    /// Expected speed-up if they run concurrently, by line: 1 to `threads`.
    pub speed_up: f64,
    /// Cache lines that a section waits for then.
    pub transfers: f64,
    /// Share of the sections that fit no transaction.
    pub oversized: f64,
}

impl Sections {
    /// These sections without the clock readings of the native run, and the time that the readings
    /// took of all threads. Threads wait for other threads' readings, too.
    fn without_clock(self, clock_ns: f64) -> (Self, f64) {
        let readings = self.count as f64 * clock_ns * 1e-9;
        let held = (self.held - readings).max(0.0);
        let waited = self.waited * held / (self.held + readings).max(f64::MIN_POSITIVE);
        (Sections { held, waited, ..self }, 2.0 * readings + self.waited - waited)
    }
}

impl TransactionCosts {
    /// The time, in seconds, that all threads together spend in these sections and waiting for
    /// them, as transactions: never more than with the lock, which an elided lock takes where that
    /// is faster. A section that does not fit into a transaction, or that an interrupt aborts, runs
    /// alone. Of the waiting, the part remains that conflicts cause. An ideal memory delays one of
    /// two conflicting sections by half a section on average. Hardware aborts it, so that it also
    /// loses what it has done: as much again.
    fn thread_seconds(&self, sections: Sections) -> f64 {
        let Sections { count, held, waited, threads, speed_up, .. } = sections;
        let extra_ns = self.pair_ns + sections.transfers * self.transfer_ns;
        let longer = held + count as f64 * extra_ns * 1e-9;
        let each = longer / count.max(1) as f64;
        let commits = (1.0 - sections.oversized) * (-self.interrupts_per_s * each).exp();
        let conflicts =
            if threads > 1.0 { (threads / speed_up - 1.0) / (threads - 1.0) } else { 0.0 };
        let alone = (2.0 * conflicts).min(1.0) * commits + 1.0 - commits;
        let slower = longer / held.max(f64::MIN_POSITIVE);
        (longer + waited * alone * slower).min(held + waited)
    }

    /// The speed-up of a program that runs for `total` seconds, if these locks are elided.
    pub fn speed_up(&self, total: f64, locks: impl Iterator<Item = Sections>) -> f64 {
        let (mut before, mut saved, mut most) = (total, 0.0, 1.0f64);
        for lock in locks {
            let (lock, readings) = lock.without_clock(self.clock_ns);
            before -= readings / lock.threads;
            saved += (lock.held + lock.waited - self.thread_seconds(lock)) / lock.threads;
            most = most.max(lock.threads);
        }
        if before <= 0.0 { 1.0 } else { before / (before - saved).max(before / most) }
    }
}

/// The mean of values weighted by time held, as in the last row of Table 2. `None` if no lock was
/// held.
pub fn weighted_average(values: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let (weights, sum) = values
        .fold((0.0, 0.0), |(weights, sum), (held, value)| (weights + held, sum + held * value));
    (weights > 0.0).then(|| sum / weights)
}

/// A projected gain.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Projection {
    /// Number of processors.
    pub processors: u32,
    /// The sections' speed-up, I_n + (|C_n| - D_n), by byte.
    pub sections: f64,
    /// The same by cache line, as hardware would see it.
    pub sections_by_line: f64,
    /// The program's run time in seconds, by byte.
    pub seconds: f64,
    /// The program's speed-up, by byte.
    pub program: f64,
    /// The program's speed-up, by line.
    pub program_by_line: f64,
    /// The program's speed-up if its locks are elided on a machine with these
    /// [costs](TransactionCosts), by line. `None` without such a machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elided: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_lock_follows_amdahl() {
        // Half the time in the lock, four times as fast: 0.5 + 0.125.
        assert_eq!(projected_time(1.0, 0.5, 4.0), 0.625);
        assert_eq!(projected_time(10.0, 0.0, 4.0), 10.0);
        assert_eq!(projected_time(10.0, 10.0, 4.0), 2.5);
        assert_eq!(projected_time(10.0, 11.0, 4.0), 2.5);
    }

    #[test]
    fn overlapping_locks_are_scaled_to_the_run() {
        let locks = [(0.25, 2.0), (0.5, 4.0)];
        assert_eq!(projected_time_of_all(1.0, locks.into_iter()), 0.25 + 0.125 + 0.125);
        assert_eq!(projected_time_of_all(1.0, std::iter::empty()), 1.0);
        // Locks are held for 1.5 s of a run of 1.0 s, so the whole run is in sections, which run
        // 1.5 / 0.5 times as fast on average.
        let overlapping = [(1.0, 4.0), (0.5, 2.0)];
        assert!((projected_time_of_all(1.0, overlapping.into_iter()) - 1.0 / 3.0).abs() < 1e-12);
    }

    /// Two threads that do nothing but sections of 300 ns, for a second.
    fn saturated() -> Sections {
        Sections {
            count: 3_000_000,
            held: 0.9,
            waited: 1.0,
            threads: 2.0,
            speed_up: 2.0,
            transfers: 0.0,
            oversized: 0.0,
        }
    }

    fn speed_up(costs: TransactionCosts, sections: Sections) -> f64 {
        costs.speed_up(1.0, std::iter::once(sections))
    }

    #[test]
    fn ideal_transactions_remove_the_waiting_without_conflicts() {
        let ideal = TransactionCosts::default();
        assert_eq!(speed_up(ideal, saturated()), 2.0);
        assert_eq!(speed_up(ideal, Sections { speed_up: 1.0, ..saturated() }), 1.0);
        // Ideally a quarter of the waiting would remain, and with lost work twice as much.
        let half = Sections { speed_up: 2.0 / 1.25, ..saturated() };
        assert!((speed_up(ideal, half) - 1.0 / 0.75).abs() < 1e-12);
        assert_eq!(speed_up(ideal, Sections { waited: 0.0, ..saturated() }), 1.0);
    }

    #[test]
    fn sections_without_commit_run_alone() {
        let oversized = Sections { oversized: 1.0, ..saturated() };
        assert_eq!(speed_up(TransactionCosts::default(), oversized), 1.0);
        // Two interrupts in each section of 1 ms, on average.
        let interrupts = TransactionCosts { interrupts_per_s: 2000.0, ..Default::default() };
        let long = Sections { count: 900, ..saturated() };
        let remains = 1.0 - (-2.0f64).exp();
        assert!((speed_up(interrupts, long) - 1.0 / (0.5 + 0.5 * remains)).abs() < 1e-12);
    }

    #[test]
    fn transactions_slower_than_the_lock_leave_its_time() {
        let costs = TransactionCosts { pair_ns: 2.0, transfer_ns: 100.0, ..Default::default() };
        // 3 million sections take 102 ns longer, and 1.9 s of the threads' time become 1.206 s.
        let long = Sections { transfers: 1.0, ..saturated() };
        assert!((speed_up(costs, long) - 1.0 / (1.0 - (1.9 - 1.206) / 2.0)).abs() < 1e-9);
        assert_eq!(speed_up(costs, Sections { transfers: 5.0, ..saturated() }), 1.0);
    }

    #[test]
    fn clock_readings_are_no_part_of_the_gain() {
        // Of each section of 300 ns, 100 ns are a reading, and threads wait for 200 of 400 ns.
        let costs = TransactionCosts { clock_ns: 100.0, ..Default::default() };
        let (sections, readings) = saturated().without_clock(costs.clock_ns);
        assert!((sections.held - 0.6).abs() < 1e-9 && (sections.waited - 0.5).abs() < 1e-9);
        assert!((readings - 1.1).abs() < 1e-9);
        // 0.45 s remain, of which the two threads wait for 0.25 s each.
        assert!((speed_up(costs, saturated()) - 0.45 / 0.225).abs() < 1e-9, "at most 2");
    }

    #[test]
    fn average_is_weighted_by_time_held() {
        assert_eq!(weighted_average([(1.0, 2.0), (3.0, 4.0)].into_iter()), Some(3.5));
        assert_eq!(weighted_average(std::iter::empty()), None);
    }
}
