//! The attributes of a condition variable, which libc's `pthread_cond_init` writes
//! ([`cond_layout`]).

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Relaxed, Release};

use unconvoy_locks::primitive::Native;
use unconvoy_locks::primitive::generation::ObjectGeneration;

use super::Cond;
use super::shared::is_private;
use crate::cond_layout::{self, MONOTONIC, PROCESS_SHARED};
use crate::config::{self, Service};
use crate::mutex::Mutex;
use crate::numbered::Numbered as _;
use crate::time::Clock;

/// A waiter in libc's flags: the bits above the attributes count those that wait.
const LIBCS_WAITER: u32 = 1 << 3;

impl Cond {
    fn flags(&self) -> &AtomicU32 {
        &self.words[if cond_layout::is_new() { 0 } else { 2 }]
    }

    fn generation_word(&self) -> &AtomicU32 {
        &self.words[if cond_layout::is_new() { 2 } else { 0 }]
    }

    pub(super) fn generation(&self) -> &ObjectGeneration<Native> {
        ObjectGeneration::of(self.generation_word())
    }

    pub(super) fn is_libcs(&self) -> bool {
        config::service() == Service::Declined || self.flags().load(Relaxed) & PROCESS_SHARED != 0
    }

    /// Whether libc serves a wait with `mutex`. At a wait with one of this library's mutexes, which
    /// libc's wait could not release, this library takes over a process-shared condition variable
    /// that no other process can reach and on which nobody waits; for others, see
    /// [`shared`](super::shared).
    pub(super) fn wait_is_libcs(&self, mutex: &Mutex) -> bool {
        if !self.is_libcs() {
            return false;
        }
        if config::service() == Service::Declined || mutex.is_libcs() {
            return true;
        }
        let has_waiters = self.flags().load(Relaxed) / LIBCS_WAITER != 0;
        if !has_waiters && is_private(core::ptr::from_ref(self).addr()) {
            // Libc's waits have left numbers here. The first use clears the rest.
            [self.generation_word(), self.history()].iter().for_each(|word| word.store(0, Relaxed));
            self.eventcount.store(core::ptr::null_mut(), Relaxed);
            self.flags().fetch_and(!PROCESS_SHARED, Release);
        }
        false
    }

    pub(super) fn clock(&self) -> Clock {
        let monotonic = self.flags().load(Relaxed) & MONOTONIC != 0;
        if monotonic { Clock::Monotonic } else { Clock::Realtime }
    }
}
