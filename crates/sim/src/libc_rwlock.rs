//! libc's `pthread_rwlock_t`, to compare with: the algorithm of glibc 2.36 (as since 2.25) with
//! its default preference, readers. unconvoy has no such lock.
//!
//! The lock is in a *read phase* or in a *write phase*. Readers enter at once in a read phase. One
//! of the writers is the *primary writer*; it enters in a write phase. `readers` counts the readers
//! that hold the lock or wait for it, in units of `READER`, beside two bits:
//!
//! | readers | `WRITE_PHASE` | `PRIMARY` | meaning |
//! | --- | --- | --- | --- |
//! | n | 0 | 0 | n readers hold the lock; free if n is 0 |
//! | n | 0 | 1 | n readers hold the lock; the last one hands it to the primary writer |
//! | 0 | 1 | 0 | free; the first reader begins a read phase |
//! | n | 1 | 1 | the primary writer holds the lock; n readers wait for its release |
//!
//! A thread waits for the other phase at `phase`, and a writer to become the primary one at
//! `writers`. Both words are futexes: 1 in a write phase, or with a primary writer, plus
//! `SLEPT_ON`. Waiters sleep at once. A release wakes all threads that wait for the new phase, but
//! only one writer that waits to become the primary one.
//!
//! *Not* modelled: the preference of writers with its hand-over between writers, deadlines, and the
//! limit of readers.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use unconvoy::contention::rw::Share;
use unconvoy::primitive::{Atomic as _, AtomicInt as _, Parking as _};

use crate::machine;
use crate::platform::{Simulated, SimulatedCell};
use crate::rwlock::RwLock;

const WRITE_PHASE: u32 = 1;
const PRIMARY: u32 = 2;
const READER: u32 = 8;

const SLEPT_ON: u32 = 2;

/// The lock, with its words where glibc has them.
#[repr(C)]
pub(crate) struct LibcRwLock {
    readers: SimulatedCell<u32>,
    /// glibc's count of waiting writers, for the preference that is not modelled.
    _waiting_writers: u32,
    phase: SimulatedCell<u32>,
    writers: SimulatedCell<u32>,
    _padding: [u32; 2],
    /// Number of the writer that holds the lock plus 1.
    writer: SimulatedCell<u32>,
    _rest: [u32; 7],
}

/// Wakes all sleepers of a futex that had the value `before`.
fn wake_all(futex: &SimulatedCell<u32>, before: u32) {
    if before & SLEPT_ON != 0 {
        Simulated::unpark(futex, u32::MAX);
    }
}

impl LibcRwLock {
    pub(crate) fn unlocked() -> Self {
        let zero = || SimulatedCell::new(0);
        LibcRwLock {
            readers: zero(),
            _waiting_writers: 0,
            phase: zero(),
            writers: zero(),
            _padding: [0; 2],
            writer: zero(),
            _rest: [0; 7],
        }
    }

    /// Waits while the phase is `other`, which the thread has found in `readers`. The thread that
    /// changes `readers` changes the futex afterwards, so both must have changed.
    fn wait_for_other_phase(&self, other: u32) {
        let mut has_changed = false;
        loop {
            loop {
                let seen = self.phase.load(Relaxed);
                if seen & WRITE_PHASE != other {
                    break;
                }
                let slept_on = other | SLEPT_ON;
                if seen == slept_on
                    || self.phase.compare_exchange(seen, slept_on, Relaxed, Relaxed).is_ok()
                {
                    Simulated::park(&self.phase, slept_on, None);
                }
            }
            if has_changed {
                return;
            }
            has_changed = self.readers.load(Acquire) & WRITE_PHASE != other;
        }
    }

    fn read(&self) {
        self.writer.load(Relaxed); // Is the caller the writer?
        let mut seen = self.readers.fetch_add(READER, Acquire) + READER;
        while seen & (WRITE_PHASE | PRIMARY) == WRITE_PHASE {
            match self.readers.compare_exchange(seen, seen & !WRITE_PHASE, Acquire, Relaxed) {
                Ok(_) => return wake_all(&self.phase, self.phase.swap(0, Relaxed)),
                Err(now) => seen = now,
            }
        }
        if seen & WRITE_PHASE != 0 {
            self.wait_for_other_phase(WRITE_PHASE);
        }
    }

    fn unlock_reader(&self) {
        let mut seen = self.readers.load(Relaxed);
        let freed = loop {
            let fewer = seen - READER;
            let freed = if fewer == PRIMARY { fewer | WRITE_PHASE } else { fewer };
            match self.readers.compare_exchange(seen, freed, Release, Relaxed) {
                Ok(_) => break freed,
                Err(now) => seen = now,
            }
        };
        if freed & WRITE_PHASE != 0 {
            wake_all(&self.phase, self.phase.swap(WRITE_PHASE, Relaxed));
        }
    }

    /// Waits until the caller is the primary writer. Returns the value of `readers` then, and
    /// whether other writers may sleep.
    fn become_primary(&self) -> (u32, bool) {
        let mut seen = self.readers.fetch_or(PRIMARY, Acquire);
        let mut has_slept = false;
        while seen & PRIMARY != 0 {
            let futex = self.writers.load(Relaxed);
            let slept_on = 1 | SLEPT_ON;
            let may_sleep = futex == slept_on
                || futex == 1
                    && self.writers.compare_exchange(1, slept_on, Relaxed, Relaxed).is_ok();
            if may_sleep {
                has_slept = true;
                Simulated::park(&self.writers, slept_on, None);
            }
            seen = self.readers.load(Relaxed);
            while seen & PRIMARY == 0 {
                match self.readers.compare_exchange(seen, seen | PRIMARY, Acquire, Relaxed) {
                    Ok(_) => return (seen | PRIMARY, has_slept),
                    Err(now) => seen = now,
                }
            }
        }
        (seen | PRIMARY, has_slept)
    }

    fn write(&self) {
        self.writer.load(Relaxed); // Is the caller the writer?
        let (mut seen, has_slept) = self.become_primary();
        // Another writer may sleep because of the flag that this one has set or found.
        self.writers.store(1 | if has_slept { SLEPT_ON } else { 0 }, Relaxed);
        while seen == PRIMARY {
            match self.readers.compare_exchange(seen, seen | WRITE_PHASE, Acquire, Relaxed) {
                Ok(_) => {
                    self.phase.store(WRITE_PHASE, Relaxed);
                    seen |= WRITE_PHASE;
                }
                Err(now) => seen = now,
            }
        }
        if seen & WRITE_PHASE == 0 {
            self.wait_for_other_phase(0);
        }
        self.writer.store(machine::thread() + 1, Relaxed);
    }

    fn unlock_writer(&self) {
        self.writer.store(0, Relaxed);
        let wakes_writer = self.writers.swap(0, Relaxed) & SLEPT_ON != 0;
        let mut seen = self.readers.load(Relaxed);
        let has_readers = loop {
            let has_readers = seen >= READER;
            let kept = if has_readers { !(PRIMARY | WRITE_PHASE) } else { !PRIMARY };
            match self.readers.compare_exchange(seen, seen & kept, Release, Relaxed) {
                Ok(_) => break has_readers,
                Err(now) => seen = now,
            }
        };
        if has_readers {
            wake_all(&self.phase, self.phase.swap(0, Relaxed));
        }
        if wakes_writer {
            Simulated::unpark(&self.writers, 1);
        }
    }
}

impl RwLock for LibcRwLock {
    fn lock(&self, share: Share) {
        match share {
            Share::Write => self.write(),
            Share::Read | Share::ReadAfterWriters => self.read(),
        }
    }

    fn unlock(&self) {
        if self.writer.load(Relaxed) == machine::thread() + 1 {
            self.unlock_writer();
        } else {
            self.unlock_reader();
        }
    }
}
