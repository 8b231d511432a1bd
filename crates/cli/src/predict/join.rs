//! Matches the locks of the native run with those of the emulated run. Addresses differ between the
//! runs. Two positions relative to a file are equal in both: that of a static lock, and that of the
//! return address of a lock's first acquisition.
//!
//! Several locks may be first acquired at one place, such as the locks of a table or the successive
//! locks at one address. Only their total times are known, which are divided in proportion to each
//! lock's acquisitions under emulation.

use std::collections::HashMap;
use std::path::Path;

use unconvoy_syncchar::LockTimes;

use super::remarks::number;
use super::trace::Lock;
use crate::images::{Images, Origin};
use crate::stats;

/// The times of each lock, and remarks about locks that could not be matched.
pub struct Joined {
    /// Times by lock number.
    pub times: HashMap<u32, LockTimes>,
    /// One sentence per limitation.
    pub remarks: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    At(Origin),
    FirstTaken(Origin),
}

/// Matches the locks of a native run with those of a trace.
pub fn join<'a>(
    native: &stats::Record,
    locks: impl Iterator<Item = &'a Lock>,
    images: &Images,
) -> Joined {
    let mut measured: HashMap<Key, LockTimes> = HashMap::new();
    let (mut placeless, mut lost) = (0, 0.0);
    let mut canonical = HashMap::new();
    for lock in &native.locks {
        let mut origin = |offset: &stats::Offset| {
            let file =
                canonical.entry(offset.object.clone()).or_insert_with(|| resolved(&offset.object));
            Origin { file: file.clone(), offset: offset.offset }
        };
        let key = match (&lock.at, &lock.first_taken) {
            (Some(at), _) => Key::At(origin(at)),
            (None, Some(first)) => Key::FirstTaken(origin(first)),
            (None, None) => {
                placeless += 1;
                lost += seconds(lock.hold_ns);
                continue;
            }
        };
        let sum = measured.entry(key).or_default();
        sum.acquisitions += lock.acquisitions;
        sum.held += seconds(lock.hold_ns);
        sum.waited += seconds(lock.wait_ns);
    }
    let mut emulated: HashMap<Key, Vec<&Lock>> = HashMap::new();
    let locks: Vec<&Lock> = locks.collect();
    for &lock in &locks {
        let key = match images.origin(lock.address) {
            Some(at) => Some(Key::At(at)),
            None => images.origin(lock.pc).map(Key::FirstTaken),
        };
        if let Some(key) = key {
            emulated.entry(key).or_default().push(lock);
        }
    }
    let mut times = HashMap::new();
    let mut shared = 0;
    for (key, locks) in emulated {
        let Some(sum) = measured.remove(&key) else { continue };
        shared += if locks.len() > 1 { locks.len() } else { 0 };
        times.extend(share(&sum, &locks));
    }
    lost += measured.values().map(|times| times.held).sum::<f64>();
    let unjoined = placeless + measured.len();
    let mut remarks = Vec::new();
    if shared > 0 {
        remarks.push(format!(
            "{shared} locks share the place of their first acquisition with others: hold times at \
             such a place are divided in proportion to acquisitions."
        ));
    }
    if unjoined > 0 {
        remarks.push(format!(
            "{unjoined} locks of the native run, held for {lost:.6} s in total, match no lock of \
             the emulated run. That run first acquired them at another place, or not at all."
        ));
    }
    let untimed = || locks.iter().filter(|lock| !times.contains_key(&lock.number));
    if untimed().next().is_some() {
        remarks.push(format!(
            "{}, acquired {} times under emulation, have no native times and do not count in the \
             row of all locks. The library does not replace C11's mtx_t, nor locks inside libc.",
            number(untimed().count() as u64, "lock", "locks"),
            untimed().map(|lock| lock.acquisitions).sum::<u64>()
        ));
    }
    if native.dropped_locks > 0 {
        remarks.push(format!(
            "At least {} more locks have no native times: the library's table was full.",
            native.dropped_locks
        ));
    }
    Joined { times, remarks }
}

/// Divides the total times of several locks among them.
fn share(sum: &LockTimes, locks: &[&Lock]) -> Vec<(u32, LockTimes)> {
    let all: u64 = locks.iter().map(|lock| lock.acquisitions).sum();
    let part = |lock: &Lock| match all {
        0 => 1.0 / locks.len() as f64,
        all => lock.acquisitions as f64 / all as f64,
    };
    let times = |lock: &&Lock| {
        let part = part(lock);
        let acquisitions = (sum.acquisitions as f64 * part).round() as u64;
        (lock.number, LockTimes { acquisitions, held: sum.held * part, waited: sum.waited * part })
    };
    locks.iter().map(times).collect()
}

fn resolved(path: &Path) -> std::path::PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_path_buf())
}

fn seconds(ns: u64) -> f64 {
    ns as f64 * 1e-9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::Mapping;
    use serde_json::json;

    fn native(locks: serde_json::Value) -> stats::Record {
        let record = json!({
            "program": "p", "pid": 1, "lock": "l", "load": "c", "wall_ns": 1, "locks": locks,
        });
        serde_json::from_value(record).unwrap()
    }

    fn images() -> Images {
        // The file does not exist, so only its addresses are known.
        Images::new(&[Mapping {
            base: 0x40_0000,
            end: 0x41_0000,
            offset: 0,
            path: "/no/program".into(),
        }])
    }

    fn lock(number: u32, address: u64, pc: u64, acquisitions: u64) -> Lock {
        Lock { number, address, size: 40, pc, acquisitions, held: None, object: None }
    }

    #[test]
    fn join_matches_static_locks_by_position() {
        let native = native(json!([
            {
                "at": {"object": "/no/program", "offset": "0x8000"},
                "acquisitions": 10, "hold_ns": 2_000_000_000_u64,
            },
            {
                "at": {"object": "/no/program", "offset": "0x8028"},
                "acquisitions": 20, "hold_ns": 1_000_000_000_u64,
            },
        ]));
        // Both first acquired at one place, as by a function that takes the lock as an argument.
        let locks = [lock(0, 0x40_8028, 0x40_1000, 7), lock(1, 0x40_8000, 0x40_1000, 9)];
        let joined = join(&native, locks.iter(), &images());
        assert_eq!(joined.times[&0], LockTimes { acquisitions: 20, held: 1.0, waited: 0.0 });
        assert_eq!(joined.times[&1], LockTimes { acquisitions: 10, held: 2.0, waited: 0.0 });
        assert!(joined.remarks.is_empty(), "{:?}", joined.remarks);
    }

    #[test]
    fn join_matches_other_locks_by_first_acquisition() {
        let native = native(json!([
            {
                "first_taken": {"object": "/no/program", "offset": "0x1000"},
                "acquisitions": 30, "hold_ns": 3_000_000_000_u64,
            },
            {
                "first_taken": {"object": "/no/program", "offset": "0x2000"},
                "acquisitions": 1, "hold_ns": 500_000_000,
            },
            {"acquisitions": 1, "hold_ns": 500_000_000},
        ]));
        let locks = [
            lock(0, 0x7f00_0000, 0x40_1000, 20),
            lock(1, 0x7f00_1000, 0x40_1000, 10),
            lock(2, 0x7f00_2000, 0, 1),
        ];
        let joined = join(&native, locks.iter(), &images());
        assert_eq!(joined.times.len(), 2);
        assert_eq!(joined.times[&0].acquisitions, 20);
        assert!((joined.times[&1].held - 1.0).abs() < 1e-9);
        assert!(joined.remarks[0].starts_with("2 locks share the place"), "{:?}", joined.remarks);
        assert!(
            joined.remarks[1].starts_with("2 locks of the native run, held for 1.0"),
            "{:?}",
            joined.remarks
        );
    }
}
