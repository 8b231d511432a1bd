//! How many processors the process may use: its affinity mask, and the quota of its control groups.
//!
//! Both change while a program runs, and so does the number of processors that are online, which
//! the kernel leaves out of every mask that it reports. So they are looked at again every second.
//!
//! As the sensors that use it: no allocation, no panic, no thread-local storage.

use rustix::thread::{CpuSet, Pid, sched_getaffinity};

use super::file::File;
use super::{cgroup, threads};

/// Time between two looks: they cost a system call per thread and some per group.
const EVERY_NS: u64 = 1_000_000_000;

/// Threads whose masks are looked at.
const MAX_MASKS: usize = 256;

/// The capacity, as last looked at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Capacity {
    affinity: u32,
    quota: Option<f64>,
    /// When it is looked at again.
    due: u64,
}

impl Default for Capacity {
    fn default() -> Self {
        Capacity { affinity: 1, quota: None, due: 0 }
    }
}

impl Capacity {
    /// Looks at the masks of the process's threads, which `each` visits, and at its quota, if it is
    /// time to.
    pub fn follow(&mut self, now: u64, each: impl FnOnce(&mut dyn FnMut(u32))) {
        if now < self.due {
            return;
        }
        self.due = now + EVERY_NS;
        self.affinity = affinity(each);
        self.quota = cgroup::quota();
    }

    /// The same with the threads of the process but `own`, for a sensor that does not know them.
    pub fn follow_process(&mut self, now: u64, own: u32) {
        self.follow(now, |look| {
            if let Some(directory) = File::open_directory(c"/proc/self/task") {
                threads::for_each(&directory, |thread| {
                    if thread != own {
                        look(thread);
                    }
                });
            }
        });
    }

    /// The processors that the process may use, as a number above 0.
    pub fn processors(&self) -> f64 {
        let affinity = f64::from(self.affinity.max(1));
        self.quota.map_or(affinity, |quota| quota.min(affinity).max(0.01))
    }
}

/// Processors in the union of the threads' masks: programs pin their threads one by one. The
/// calling thread's own counts only if there is no other: it has that of whichever started it.
fn affinity(each: impl FnOnce(&mut dyn FnMut(u32))) -> u32 {
    let mut union = CpuSet::new();
    let mut looked_at = 0;
    each(&mut |thread| {
        if looked_at == MAX_MASKS {
            return;
        }
        looked_at += 1;
        let mask = Pid::from_raw(thread.cast_signed()).map(|id| sched_getaffinity(Some(id)));
        if let Some(Ok(mask)) = mask {
            (0..CpuSet::MAX_CPU).filter(|&cpu| mask.is_set(cpu)).for_each(|cpu| union.set(cpu));
        }
    });
    if union.count() == 0 {
        union = sched_getaffinity(None).unwrap_or(union);
    }
    union.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_of_mask_and_quota_counts() {
        assert_eq!(Capacity { affinity: 4, quota: Some(1.5), due: 0 }.processors(), 1.5);
        assert_eq!(Capacity { affinity: 1, quota: Some(1.5), due: 0 }.processors(), 1.0);
        assert_eq!(Capacity { affinity: 4, quota: None, due: 0 }.processors(), 4.0);
    }

    #[test]
    fn this_machine_has_a_processor() {
        let mut capacity = Capacity { affinity: 0, ..Capacity::default() };
        capacity.follow(0, |_| {});
        assert!(capacity.affinity > 0);
        capacity.affinity = 0;
        capacity.follow_process(EVERY_NS, 0);
        assert!(capacity.affinity > 0);
    }

    #[test]
    fn it_is_looked_at_again_after_a_second() {
        let mut capacity = Capacity::default();
        let mut looks = 0;
        for now in [0, 1, EVERY_NS - 1, EVERY_NS, EVERY_NS + 1] {
            capacity.follow(now, |_| looks += 1);
        }
        assert_eq!(looks, 2);
    }
}
