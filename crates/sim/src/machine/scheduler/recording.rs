//! Records what threads do with locks: in the [accounts](super::accounts), and if enabled, wait by
//! wait.

use super::Scheduler;
use super::waits::Waits;

impl Scheduler {
    /// Records waits of which more than `bound` nanoseconds count; call before the first thread is
    /// added.
    pub(crate) fn enable_waits(&mut self, bound: u64) {
        assert!(self.queues.tasks.is_empty(), "record waits from the first thread on");
        self.waits = Some(Waits::new(bound));
    }

    /// Records that `thread` begins to acquire `lock`.
    pub(crate) fn begin_wait(&mut self, thread: u32, lock: usize, now: u64) {
        self.accounts.begin_wait(thread, lock, now);
        if let Some(waits) = &mut self.waits {
            waits.begin(thread, lock, now);
        }
    }

    /// Records that `thread` has acquired `lock`.
    pub(crate) fn acquire(&mut self, thread: u32, lock: usize, now: u64) {
        self.accounts.acquire(thread, lock, now);
        if let Some(waits) = &mut self.waits {
            waits.acquire(thread, lock, now);
        }
    }

    /// Records that `thread` releases `lock`.
    pub(crate) fn release(&mut self, thread: u32, lock: usize, now: u64) {
        self.accounts.release(thread, lock, now);
        if let Some(waits) = &mut self.waits {
            waits.release(lock, now);
        }
    }
}
