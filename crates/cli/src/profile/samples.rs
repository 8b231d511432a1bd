//! Sums of the sampled waits, by place and by stack.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use unconvoy_profile::Recorded;
use unconvoy_profile::histogram::BUCKETS;
use unconvoy_profile::read::{SampledWaits, WaitedLock};

use super::names::Names;
use super::rows::{Pair, Place, Row, StackSum, quantiles};

/// Samples of one lock with the same stacks, scaled so that the samples of all locks with one name
/// add up to the time that threads waited for them: of many locks, most have no sample.
#[derive(Debug, Clone, Copy)]
pub struct Scaled {
    lock: usize,
    /// Time waited, estimated.
    ns: f64,
    waiter: Side,
    holder: Side,
}

/// One side of a sample.
#[derive(Debug, Clone, Copy)]
pub struct Side {
    /// The stack; 0 if unknown.
    stack: u32,
    /// The time waited that the stack stands for. Known stacks also stand for the unknown ones of
    /// the same lock, because whether a stack is known does not depend on the place.
    ns: f64,
    /// The number of waits that the stack stands for.
    count: f64,
}

/// What threads waited for the locks with one name, in all and in the samples.
#[derive(Default)]
struct Sums {
    wait_ns: f64,
    waits: f64,
    sampled_ns: f64,
    sampled: f64,
}

/// Selects a side of a sample.
pub type Which = fn(&Scaled) -> Side;

/// The waiters' side.
pub const WAITER: Which = |sample| sample.waiter;

/// The holders' side.
pub const HOLDER: Which = |sample| sample.holder;

/// All samples of a profile.
pub struct Samples<'a> {
    recorded: &'a Recorded,
    names: &'a Names<'a>,
    /// The samples of each lock, by its index.
    of_lock: Vec<Vec<Scaled>>,
}

impl<'a> Samples<'a> {
    /// Scales the samples. `named` has the name of each lock.
    pub fn new(recorded: &'a Recorded, named: &[String], names: &'a Names<'a>) -> Self {
        let class = |lock: usize| (named[lock].as_str(), recorded.locks[lock].kind);
        let mut sums: HashMap<_, Sums> = HashMap::new();
        for (index, lock) in recorded.locks.iter().enumerate() {
            let sums = sums.entry(class(index)).or_default();
            sums.wait_ns += lock.wait_ns as f64;
            sums.waits += lock.waits as f64;
        }
        for sample in &recorded.samples {
            let sums = sums.entry(class(sample.lock)).or_default();
            sums.sampled_ns += sample.ns as f64;
            sums.sampled += sample.count;
        }
        let scale = |sample: &SampledWaits| {
            let sums = &sums[&class(sample.lock)];
            let ns = sample.ns as f64 / f64::max(sums.sampled_ns, 1e-9) * sums.wait_ns;
            let count = sample.count / f64::max(sums.sampled, 1e-9) * sums.waits;
            let side = |stack| Side { stack, ns, count };
            Scaled {
                lock: sample.lock,
                ns,
                waiter: side(sample.waiter),
                holder: side(sample.holder),
            }
        };
        let mut scaled: Vec<Scaled> = recorded.samples.iter().map(scale).collect();
        spread(&mut scaled, &class, |sample| &mut sample.waiter);
        spread(&mut scaled, &class, |sample| &mut sample.holder);
        let mut of_lock = vec![Vec::new(); recorded.locks.len()];
        scaled.into_iter().for_each(|sample| of_lock[sample.lock].push(sample));
        Samples { recorded, names, of_lock }
    }

    /// The samples of locks, without those of condition variables.
    pub fn of_locks(&self) -> impl Iterator<Item = &Scaled> {
        let pairs = self.recorded.locks.iter().zip(&self.of_lock);
        pairs.filter(|(lock, _)| lock.kind.is_lock()).flat_map(|(_, samples)| samples)
    }

    /// The row for the locks with these indices.
    pub fn row(&self, name: &str, indices: &[usize]) -> Row {
        let locks: Vec<&WaitedLock> =
            indices.iter().map(|&index| &self.recorded.locks[index]).collect();
        let sum = |of: fn(&WaitedLock) -> u64| locks.iter().map(|lock| of(lock)).sum::<u64>();
        let longest =
            |of: fn(&WaitedLock) -> u64| locks.iter().map(|lock| of(lock)).max().unwrap_or(0);
        let counts = |of: fn(&WaitedLock) -> &Vec<u32>| {
            let mut total = vec![0; BUCKETS];
            for lock in &locks {
                total.iter_mut().zip(of(lock)).for_each(|(sum, &count)| *sum += u64::from(count));
            }
            total
        };
        let (longest_ns, longest_hold_ns) =
            (longest(|lock| lock.longest_ns), longest(|lock| lock.longest_hold_ns));
        let scaled: Vec<&Scaled> = indices.iter().flat_map(|&index| &self.of_lock[index]).collect();
        let (wait_counts, hold_counts) =
            (counts(|lock| &lock.wait_counts), counts(|lock| &lock.hold_counts));
        let of_all: f64 = scaled.iter().map(|sample| sample.ns).sum();
        let answered = scaled.iter().filter(|sample| sample.holder.stack != 0);
        let known = answered.fold(0.0, |ns, sample| ns + sample.ns);
        let is_cond = !locks[0].kind.is_lock();
        Row {
            name: name.to_string(),
            kind: locks[0].kind.name(),
            is_unknown: self.names.is_unknown(locks[0]),
            address: (locks.len() == 1).then(|| format!("{:#x}", locks[0].address)),
            locks: locks.len(),
            waits: sum(|lock| lock.waits),
            timed_out: sum(|lock| lock.timed_out.into()),
            slept: sum(|lock| lock.slept.into()),
            waited_ns: sum(|lock| lock.wait_ns),
            share: 0.0,
            longest_ns,
            longest_hold_ns,
            read_waits: sum(|lock| lock.read_waits),
            read_waited_ns: sum(|lock| lock.read_wait_ns),
            acquisitions: sum(|lock| lock.acquisitions),
            wait: quantiles(&wait_counts, longest_ns),
            hold: quantiles(&hold_counts, longest_hold_ns),
            holds: if is_cond { 0 } else { sum(|lock| lock.holds) },
            waiters: places(&scaled, WAITER, self.names),
            holders: places(&scaled, HOLDER, self.names),
            holder_known: if of_all > 0.0 { known / of_all } else { 0.0 },
            pairs: pairs(&scaled, self.names),
            entries: Vec::new(),
            indices: indices.to_vec(),
            wait_counts,
            hold_counts,
        }
    }

    /// The stacks of one side, with the time and number of waits that they stand for.
    pub fn stacks(&self, named: &[String], which: Which) -> Vec<StackSum> {
        let mut sums: BTreeMap<(Vec<String>, &str), (f64, f64)> = BTreeMap::new();
        let mut known: HashMap<u32, Vec<String>> = HashMap::new();
        for sample in self.of_locks() {
            let Side { stack, ns, count } = which(sample);
            if ns == 0.0 {
                continue;
            }
            let frames = known.entry(stack).or_insert_with(|| self.names.frames(stack));
            let sum = sums.entry((frames.clone(), &named[sample.lock])).or_default();
            sum.0 += ns;
            sum.1 += count;
        }
        sums.into_iter()
            .map(|((frames, lock), (ns, waits))| StackSum {
                frames,
                lock: lock.to_string(),
                ns: ns as u64,
                waits,
            })
            .collect()
    }
}

/// Distributes the waits with unknown stacks over the known stacks of locks of the same class.
fn spread<C: Hash + Eq>(
    scaled: &mut [Scaled],
    class: &impl Fn(usize) -> C,
    side: fn(&mut Scaled) -> &mut Side,
) {
    #[derive(Default)]
    struct Sums {
        ns: f64,
        count: f64,
        known_ns: f64,
        known_count: f64,
    }
    let mut sums: HashMap<C, Sums> = HashMap::new();
    for sample in scaled.iter_mut() {
        let sums = sums.entry(class(sample.lock)).or_default();
        let Side { stack, ns, count } = *side(sample);
        sums.ns += ns;
        sums.count += count;
        if stack != 0 {
            sums.known_ns += ns;
            sums.known_count += count;
        }
    }
    for sample in scaled.iter_mut() {
        let Sums { ns, count, known_ns, known_count } = sums[&class(sample.lock)];
        let side = side(sample);
        if known_ns > 0.0 {
            let is_known = f64::from(u8::from(side.stack != 0));
            side.ns *= is_known * ns / known_ns;
            side.count *= is_known * count / f64::max(known_count, 1e-9);
        }
    }
}

/// The known places of one side of a row, those with the most waiting first. Their times add up to
/// the row's time.
pub fn places(scaled: &[&Scaled], which: Which, names: &Names<'_>) -> Vec<Place> {
    let known = scaled.iter().filter(|sample| which(sample).stack != 0);
    let known_ns: f64 = known.map(|sample| which(sample).ns).sum();
    places_of(scaled, which, names, known_ns)
}

/// The known places of one side of all locks, those with the most waiting first.
pub fn all_places(scaled: &[&Scaled], which: Which, names: &Names<'_>) -> Vec<Place> {
    let all: f64 = scaled.iter().map(|sample| sample.ns).sum();
    places_of(scaled, which, names, all)
}

/// The system calls and tasks of the waiters, those with the most waiting first; empty unless the
/// locks are the kernel's.
pub fn callers(scaled: &[&Scaled], names: &Names<'_>) -> Vec<Place> {
    let all: f64 = scaled.iter().map(|sample| sample.ns).sum();
    summed(scaled, WAITER, &|stack| names.caller(stack), all)
}

/// The known places of one side, with their shares of `whole`.
fn places_of(scaled: &[&Scaled], which: Which, names: &Names<'_>, whole: f64) -> Vec<Place> {
    summed(scaled, which, &|stack| Some(names.place(stack)), whole)
}

fn summed(
    scaled: &[&Scaled],
    which: Which,
    named: &dyn Fn(u32) -> Option<String>,
    whole: f64,
) -> Vec<Place> {
    let all: f64 = scaled.iter().map(|sample| sample.ns).sum();
    let mut by_place: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for sample in scaled {
        let Side { stack, ns, count } = which(sample);
        if stack != 0
            && let Some(name) = named(stack)
        {
            let sums = by_place.entry(name).or_default();
            sums.0 += ns;
            sums.1 += count;
        }
    }
    let mut places: Vec<Place> = by_place
        .into_iter()
        .map(|(place, (ns, waits))| Place {
            place,
            ns: (ns / whole * all) as u64,
            share: ns / whole,
            waits,
        })
        .collect();
    places.sort_by_key(|place| (Reverse(place.ns), place.place.clone()));
    places
}

/// Pairs of a waiting and a holding place, those with the most waiting first. Samples in which both
/// are known stand for the others.
fn pairs(scaled: &[&Scaled], names: &Names<'_>) -> Vec<Pair> {
    let sum = |samples: &[&Scaled]| samples.iter().map(|sample| sample.ns).sum::<f64>();
    let is_known = |sample: &&Scaled| sample.waiter.stack != 0 && sample.holder.stack != 0;
    let known: Vec<&Scaled> = scaled.iter().copied().filter(is_known).collect();
    let used = if known.is_empty() { scaled } else { &known };
    let factor = sum(scaled) / f64::max(sum(used), 1e-9);
    let mut by_places: BTreeMap<(String, String), f64> = BTreeMap::new();
    for sample in used {
        let key = (names.place(sample.waiter.stack), names.place(sample.holder.stack));
        *by_places.entry(key).or_default() += sample.ns * factor;
    }
    let mut pairs: Vec<Pair> = by_places
        .into_iter()
        .map(|((waiter, holder), ns)| Pair { waiter, holder, ns: ns as u64 })
        .collect();
    pairs.sort_by_key(|pair| Reverse(pair.ns));
    pairs
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use unconvoy_profile::Kind;
    use unconvoy_profile::layout::{COUNT_UNIT, MAGIC, VERSION, zeroed};

    use super::*;

    /// The waits at a condition variable have no holder.
    #[test]
    fn holders_of_a_lock_do_not_stand_for_a_condition_variable_of_its_name() {
        let profile = zeroed();
        profile.header.magic.store(MAGIC, Relaxed);
        profile.header.version.store(VERSION, Relaxed);
        for (kind, address, holder) in [(Kind::Mutex, 0x1000, 0x100), (Kind::Cond, 0x2000, 0)] {
            let (number, lock) = profile.lock(kind, address).unwrap();
            profile.record_wait(lock, 1_000_000, 1, false);
            let holder = if holder == 0 { 0 } else { profile.stack(&[holder], 0) };
            let stacks = (profile.stack(&[0x200], 0), holder);
            profile.add_samples(number, stacks, (1_000_000, COUNT_UNIT), 1);
        }
        let recorded = Recorded::parse(&profile.to_bytes()).unwrap();
        let named = vec!["lock".to_string(); 2];
        let names = Names::new(&recorded);
        let samples = Samples::new(&recorded, &named, &names);
        let held: Vec<f64> = samples.of_locks().map(|sample| sample.holder.ns).collect();
        assert_eq!(held, [1e6]);
    }

    /// Of a class of many locks, most have no sample.
    #[test]
    fn samples_stand_for_the_locks_of_their_class() {
        let profile = zeroed();
        profile.header.magic.store(MAGIC, Relaxed);
        profile.header.version.store(VERSION, Relaxed);
        for index in 0..11 {
            let (number, lock) = profile.lock(Kind::Mutex, 0x1000 + 64 * index).unwrap();
            let ns = if index == 10 { 1_000_000 } else { 100_000 };
            profile.record_wait(lock, ns, 1, false);
            if index % 10 == 0 {
                let stacks = (profile.stack(&[0x100 + index as u64], 0), 0);
                profile.add_samples(number, stacks, (1_000_000, COUNT_UNIT), 1);
            }
        }
        let recorded = Recorded::parse(&profile.to_bytes()).unwrap();
        let name = |lock: &WaitedLock| if lock.wait_ns > 500_000 { "one" } else { "many" };
        let named: Vec<String> = recorded.locks.iter().map(|lock| name(lock).into()).collect();
        let names = Names::new(&recorded);
        let samples = Samples::new(&recorded, &named, &names);
        let waited = |name: &str| {
            let of_name = samples.of_locks().filter(|sample| named[sample.lock] == name);
            of_name.map(|sample| (sample.ns, sample.waiter.count)).collect::<Vec<_>>()
        };
        assert_eq!(waited("many"), [(1e6, 10.0)]);
        assert_eq!(waited("one"), [(1e6, 1.0)]);
    }
}
