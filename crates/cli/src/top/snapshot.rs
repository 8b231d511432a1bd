//! The figures of one interval.

use serde::Serialize;

use crate::profile::rows::{Place, Row};

/// What a process did in one interval.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Snapshot {
    /// Version of the JSON format.
    pub schema: &'static str,
    /// Process id.
    pub pid: u32,
    /// Path of the program.
    pub program: String,
    /// Contention manager.
    pub lock: String,
    /// Load manager.
    pub load: String,
    /// Length of the interval.
    pub seconds: f64,
    /// Whether the process has ended.
    pub ended: bool,
    /// Number of waits for locks that ended in the interval.
    pub waits: u64,
    /// Time that these waits took.
    pub waited_ns: u64,
    /// The controller, while one runs.
    pub controller: Option<Controller>,
    /// The locks with waits that ended in the interval, the longest total wait first.
    pub locks: Vec<Lock>,
    /// What the figures do not cover.
    pub remarks: Vec<String>,
}

/// The load and its control.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Controller {
    /// The kernel's id of its thread.
    pub thread: u32,
    /// Name of the load sensor.
    pub sensor: String,
    /// Runnable threads.
    pub runnable: f64,
    /// Processors.
    pub capacity: f64,
    /// Threads that sleep for load.
    pub sleeping: u32,
    /// Threads that should sleep for load.
    pub target: u32,
    /// Intervals per second; `None` until two intervals have been seen.
    pub intervals: Option<f64>,
    /// Share of a processor that the controller used, likewise.
    pub busy: Option<f64>,
    /// Confined threads.
    pub confined: u32,
    /// Cores of the set that they are confined to; 0: no set.
    pub cores: u32,
}

/// A lock, or the locks of one name.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Lock {
    /// As in `unconvoy profile`.
    pub name: String,
    /// Mutex, rwlock or spin.
    pub kind: &'static str,
    /// Number of locks of that name.
    pub locks: usize,
    /// Number of waits.
    pub waits: u64,
    /// Time that they took.
    pub waited_ns: u64,
    /// Share of the time waited for all locks.
    pub share: f64,
    /// Longest wait, if it is the longest since the recording began; else null.
    pub longest_ns: Option<u64>,
    /// Median of the waits.
    pub wait_p50_ns: Option<u64>,
    /// 99th percentile of the waits.
    pub wait_p99_ns: Option<u64>,
    /// Median of the measured holds.
    pub held_p50_ns: Option<u64>,
    /// Times that waiters left the processor.
    pub slept: u64,
    /// Places that waited.
    pub waiters: Vec<At>,
    /// Places that held the lock meanwhile.
    pub holders: Vec<At>,
}

/// A place in the program, and the time waited there or because of it.
#[derive(Debug, Clone, Serialize)]
pub struct At {
    /// Function and line.
    pub place: String,
    /// Time in nanoseconds.
    pub ns: u64,
}

impl Lock {
    pub(super) fn of(row: &Row) -> Self {
        let places = |places: &[Place]| {
            places.iter().map(|one| At { place: one.place.clone(), ns: one.ns }).collect()
        };
        Lock {
            name: row.name.clone(),
            kind: row.kind,
            locks: row.locks,
            waits: row.waits,
            waited_ns: row.waited_ns,
            share: row.share,
            longest_ns: Some(row.longest_ns).filter(|&ns| ns > 0),
            wait_p50_ns: row.wait.p50_ns,
            wait_p99_ns: row.wait.p99_ns,
            held_p50_ns: row.hold.p50_ns,
            slept: row.slept,
            waiters: places(&row.waiters),
            holders: places(&row.holders),
        }
    }
}

/// The quantity to sort locks by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    /// Time waited.
    #[default]
    Waited,
    /// Number of waits.
    Waits,
    /// Median of the measured holds.
    Held,
    /// Name.
    Name,
}

impl Order {
    /// All orders.
    pub const ALL: [Order; 4] = [Order::Waited, Order::Waits, Order::Held, Order::Name];

    /// The heading of the column.
    pub fn name(self) -> &'static str {
        match self {
            Order::Waited => "waited",
            Order::Waits => "waits/s",
            Order::Held => "held",
            Order::Name => "lock",
        }
    }

    /// The locks in this order whose names contain `filter`, in any case.
    pub fn sorted<'a>(self, locks: &'a [Lock], filter: &str) -> Vec<&'a Lock> {
        use std::cmp::Reverse;
        let filter = filter.to_lowercase();
        let mut locks: Vec<&Lock> =
            locks.iter().filter(|lock| lock.name.to_lowercase().contains(&filter)).collect();
        match self {
            Order::Waited => locks.sort_by_key(|lock| Reverse(lock.waited_ns)),
            Order::Waits => locks.sort_by_key(|lock| Reverse(lock.waits)),
            Order::Held => locks.sort_by_key(|lock| Reverse(lock.held_p50_ns)),
            Order::Name => locks.sort_by(|one, other| one.name.cmp(&other.name)),
        }
        locks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorted_filters_by_name_and_orders_by_column() {
        let lock = |name: &str, waits, waited_ns, held| Lock {
            name: name.to_string(),
            waits,
            waited_ns,
            held_p50_ns: held,
            ..Lock::default()
        };
        let locks =
            [lock("b_lock", 1, 30, None), lock("A_LOCK", 5, 20, Some(7)), lock("c", 9, 10, None)];
        let names = |order: Order, filter: &str| -> Vec<String> {
            order.sorted(&locks, filter).iter().map(|lock| lock.name.clone()).collect()
        };
        assert_eq!(names(Order::Waited, ""), ["b_lock", "A_LOCK", "c"]);
        assert_eq!(names(Order::Waits, "Lock"), ["A_LOCK", "b_lock"]);
        assert_eq!(names(Order::Held, "")[0], "A_LOCK");
        assert_eq!(names(Order::Name, ""), ["A_LOCK", "b_lock", "c"]);
    }
}
