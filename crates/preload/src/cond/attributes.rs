//! The attributes of a condition variable, which libc's `pthread_cond_init` writes
//! ([`cond_layout`]).

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use unconvoy_locks::primitive::Native;
use unconvoy_locks::primitive::generation::ObjectGeneration;

use super::Cond;
use super::shared::is_private;
use crate::cond_layout::{self, MONOTONIC, PROCESS_SHARED};
use crate::config::{self, Service};
use crate::mutex::Mutex;
use crate::numbered::Numbered as _;
use crate::time::Clock;

impl Cond {
    fn flags(&self) -> &AtomicU32 {
        &self.words[if cond_layout::is_new() { 0 } else { 2 }]
    }

    pub(super) fn generation(&self) -> &ObjectGeneration<Native> {
        ObjectGeneration::of(&self.words[if cond_layout::is_new() { 2 } else { 0 }])
    }

    pub(super) fn is_libcs(&self) -> bool {
        config::service() == Service::Declined || self.flags().load(Relaxed) & PROCESS_SHARED != 0
    }

    /// Whether libc serves a wait with `mutex`. At the first wait with one of this library's
    /// mutexes, which libc's wait could not release, this library takes over a process-shared
    /// condition variable that other processes cannot reach; for others, see
    /// [`shared`](super::shared).
    pub(super) fn wait_is_libcs(&self, mutex: &Mutex) -> bool {
        if !self.is_libcs() {
            return false;
        }
        if config::service() == Service::Declined || mutex.is_libcs() {
            return true;
        }
        if is_private(core::ptr::from_ref(self).addr()) {
            self.flags().fetch_and(!PROCESS_SHARED, Relaxed);
        }
        false
    }

    pub(super) fn clock(&self) -> Clock {
        let monotonic = self.flags().load(Relaxed) & MONOTONIC != 0;
        if monotonic { Clock::Monotonic } else { Clock::Realtime }
    }
}
