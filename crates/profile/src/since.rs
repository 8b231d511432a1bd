//! What a profile recorded between two times: the difference of two states of its file.

use std::collections::HashMap;

use crate::read::{Recorded, SampledWaits, WaitedLock};

impl Recorded {
    /// Returns what was recorded after `earlier`, an earlier state of the same file.
    ///
    /// All counters of a file only grow, so the differences of consecutive states add up to the
    /// last one: no wait is lost and none counts twice. Locks without a wait since are left out.
    /// The longest wait or hold of a lock is 0 if an earlier one was longer.
    pub fn since(&self, earlier: &Recorded) -> Recorded {
        let before: HashMap<u32, &WaitedLock> =
            earlier.locks.iter().map(|lock| (lock.index, lock)).collect();
        let mut places = vec![None; self.locks.len()];
        let mut locks = Vec::new();
        for (place, lock) in self.locks.iter().enumerate() {
            let lock = before.get(&lock.index).map_or_else(|| lock.clone(), |old| lock.since(old));
            if lock.waits > 0 {
                places[place] = Some(locks.len());
                locks.push(lock);
            }
        }
        let key = |of: &Recorded, sample: &SampledWaits| {
            (of.locks[sample.lock].index, sample.waiter, sample.holder)
        };
        let counted: HashMap<_, _> =
            earlier.samples.iter().map(|sample| (key(earlier, sample), sample)).collect();
        let samples = self.samples.iter().filter_map(|sample| {
            let lock = places[sample.lock]?;
            let old = counted.get(&key(self, sample));
            let ns = sample.ns - old.map_or(0, |old| old.ns.min(sample.ns));
            let count = sample.count - old.map_or(0.0, |old| old.count);
            let samples = sample.samples - old.map_or(0, |old| old.samples.min(sample.samples));
            (ns > 0).then_some(SampledWaits { lock, ns, count, samples, ..*sample })
        });
        let is_new = |wait: &&_| !earlier.longest.contains(wait);
        let longest = self.longest.iter().filter(is_new).filter_map(|wait| {
            let lock = places[wait.lock]?;
            Some(crate::read::LongWait { lock, ..*wait })
        });
        let mut lost = self.lost;
        lost.iter_mut().zip(earlier.lost).for_each(|(now, old)| *now = now.saturating_sub(old));
        Recorded {
            samples: samples.collect(),
            longest: longest.collect(),
            wall_ns: self.wall_ns.saturating_sub(earlier.wall_ns),
            begin_unix_ns: self.begin_unix_ns + earlier.wall_ns,
            locks,
            lost,
            ..self.clone()
        }
    }
}

impl WaitedLock {
    fn since(&self, earlier: &WaitedLock) -> WaitedLock {
        let less = |of: fn(&WaitedLock) -> u64| of(self).saturating_sub(of(earlier));
        let counts = |of: fn(&WaitedLock) -> &Vec<u32>| {
            let old = of(earlier).iter().chain(std::iter::repeat(&0));
            of(self).iter().zip(old).map(|(now, old)| now.wrapping_sub(*old)).collect()
        };
        let if_longer = |now: u64, old: u64| if now > old { now } else { 0 };
        WaitedLock {
            waits: less(|lock| lock.waits),
            wait_ns: less(|lock| lock.wait_ns),
            longest_ns: if_longer(self.longest_ns, earlier.longest_ns),
            read_waits: less(|lock| lock.read_waits),
            read_wait_ns: less(|lock| lock.read_wait_ns),
            // A counter of 32 bits in the lock.
            acquisitions: self.acquisitions.wrapping_sub(earlier.acquisitions)
                & u64::from(u32::MAX),
            holds: less(|lock| lock.holds),
            hold_ns: less(|lock| lock.hold_ns),
            longest_hold_ns: if_longer(self.longest_hold_ns, earlier.longest_hold_ns),
            timed_out: self.timed_out.wrapping_sub(earlier.timed_out),
            slept: self.slept.wrapping_sub(earlier.slept),
            wait_counts: counts(|lock| &lock.wait_counts),
            hold_counts: counts(|lock| &lock.hold_counts),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::layout::{COUNT_UNIT, MAGIC, VERSION, zeroed};
    use crate::{Kind, Profile};

    fn state(profile: &Profile) -> Recorded {
        Recorded::parse(&profile.to_bytes()).unwrap()
    }

    fn wait(profile: &Profile, address: usize, pc: u64, ns: u64, now: u64) {
        let (index, lock) = profile.lock(Kind::Mutex, address).unwrap();
        profile.record_wait(lock, ns, now, false);
        profile.add_sample(index, (profile.stack(&[pc], 0), 0), ns, COUNT_UNIT);
    }

    #[test]
    fn differences_add_up_to_the_last_state() {
        let profile = zeroed();
        profile.header.magic.store(MAGIC, Relaxed);
        profile.header.version.store(VERSION, Relaxed);
        let mut states = vec![state(&profile)];
        for round in 1..=5_u64 {
            wait(&profile, 0x1000, 7, 100 * round, round * 1000);
            if round % 2 == 0 {
                wait(&profile, 0x2000, 7 + round, 5_000, round * 1000);
            }
            states.push(state(&profile));
        }
        let parts: Vec<Recorded> = states.windows(2).map(|pair| pair[1].since(&pair[0])).collect();
        let last = states.last().unwrap();
        let waited = |of: &Recorded| of.locks.iter().map(|lock| lock.wait_ns).sum::<u64>();
        let sampled = |of: &Recorded| of.samples.iter().map(|sample| sample.ns).sum::<u64>();
        let walls = |of: &Recorded| of.wall_ns;
        for sum in [waited, sampled, walls] {
            assert_eq!(parts.iter().map(sum).sum::<u64>(), sum(last));
        }
        assert_eq!(parts[0].locks.len(), 1);
        assert_eq!((parts[1].locks.len(), parts[1].samples.len()), (2, 2));
        assert_eq!(parts[2].locks[0].wait_ns, 300);
        assert_eq!(parts[2].begin_unix_ns, states[2].wall_ns);
        let counted = parts[3].locks.iter().flat_map(|lock| &lock.wait_counts).sum::<u32>();
        assert_eq!(counted, 2);
    }

    #[test]
    fn unchanged_file_has_no_locks() {
        let profile = zeroed();
        profile.header.magic.store(MAGIC, Relaxed);
        profile.header.version.store(VERSION, Relaxed);
        wait(&profile, 0x1000, 7, 100, 1000);
        let state = state(&profile);
        let none = state.since(&state);
        assert!(none.locks.is_empty() && none.samples.is_empty() && none.longest.is_empty());
    }
}
