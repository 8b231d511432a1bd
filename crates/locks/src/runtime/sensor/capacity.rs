//! The number of processors that the process may use, by its affinity mask and the quota of its
//! control groups.
//!
//! Both change while a program runs, as does the set of online processors, which limits every mask
//! that the kernel reports. All are read again every second.
//!
//! As in the sensors, code here does not allocate, panic or use thread-local storage.

use super::super::affinity::{self, Processors};
use super::file::File;
use super::{cgroup, threads};

/// Time between two updates. Each costs a system call per thread and some per control group.
const EVERY_NS: u64 = 1_000_000_000;

/// Greatest number of threads whose masks are read.
const MAX_MASKS: usize = 2048;

/// The capacity at the last update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Capacity {
    affinity: u32,
    quota: Option<f64>,
    /// Time of the next update.
    due: u64,
}

impl Default for Capacity {
    fn default() -> Self {
        Capacity { affinity: 1, quota: None, due: 0 }
    }
}

impl Capacity {
    /// Updates the capacity if due, from the masks of the threads that `each` visits and the
    /// process's quota.
    pub fn follow(&mut self, now: u64, each: impl FnOnce(&mut dyn FnMut(u32))) {
        if now < self.due {
            return;
        }
        self.due = now + EVERY_NS;
        self.affinity = affinity(each);
        if let Some(quota) = cgroup::quota() {
            self.quota = quota;
        }
    }

    /// [`follow`](Self::follow) with all threads of the process except `own`, for sensors that do
    /// not list threads.
    pub fn follow_process(&mut self, now: u64, own: u32) {
        self.follow(now, |visit| {
            if let Some(directory) = File::open_directory(c"/proc/self/task") {
                threads::for_each(&directory, |thread| {
                    if thread != own {
                        visit(thread);
                    }
                });
            }
        });
    }

    /// The number of processors that the process may use, above 0.
    pub fn processors(&self) -> f64 {
        let affinity = f64::from(self.affinity.max(1));
        self.quota.map_or(affinity, |quota| quota.min(affinity).max(0.01))
    }
}

/// Processors in the union of the threads' masks, since programs pin threads one by one. The
/// calling thread inherited its mask from the thread that happened to start it, so its own mask
/// counts only if no other mask can be read.
fn affinity(each: impl FnOnce(&mut dyn FnMut(u32))) -> u32 {
    let mut union = Processors::none();
    let mut visited = 0;
    each(&mut |thread| {
        if visited == MAX_MASKS {
            return;
        }
        visited += 1;
        if let Some(mask) = Processors::of(thread).filter(|_| thread != 0) {
            union.add(&mask);
        }
    });
    match union.count() {
        0 => affinity::count().unwrap_or(0),
        count => count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_with_mask_and_quota_is_the_smaller() {
        assert_eq!(Capacity { affinity: 4, quota: Some(1.5), due: 0 }.processors(), 1.5);
        assert_eq!(Capacity { affinity: 1, quota: Some(1.5), due: 0 }.processors(), 1.0);
        assert_eq!(Capacity { affinity: 4, quota: None, due: 0 }.processors(), 4.0);
    }

    #[test]
    fn follow_on_this_machine_finds_a_processor() {
        let mut capacity = Capacity { affinity: 0, ..Capacity::default() };
        capacity.follow(0, |_| {});
        assert!(capacity.affinity > 0);
        capacity.affinity = 0;
        capacity.follow_process(EVERY_NS, 0);
        assert!(capacity.affinity > 0);
    }

    #[test]
    fn follow_within_a_second_reads_once() {
        let mut capacity = Capacity::default();
        let mut updates = 0;
        for now in [0, 1, EVERY_NS - 1, EVERY_NS, EVERY_NS + 1] {
            capacity.follow(now, |_| updates += 1);
        }
        assert_eq!(updates, 2);
    }
}
