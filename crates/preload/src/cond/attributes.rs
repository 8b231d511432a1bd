//! The attributes of a condition variable, which libc's `pthread_cond_init` writes.
//!
//! glibc 2.41 removed a field, so that the word with the attributes moved from byte 36 to byte 28.
//! Distributions take such changes into older versions, too. So libc's function is asked once,
//! instead of its version.

use core::sync::atomic::AtomicU8;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use libc::{CLOCK_MONOTONIC, PTHREAD_PROCESS_SHARED};
use unconvoy_locks::primitive::Native;
use unconvoy_locks::primitive::generation::ObjectGeneration;

use super::Cond;
use crate::config::{self, Service};
use crate::init::words_of_cond;
use crate::mutex::Mutex;
use crate::numbered::Numbered as _;
use crate::time::Clock;

/// Bits of the flags: glibc's `__PTHREAD_COND_SHARED_MASK` and
/// `__PTHREAD_COND_CLOCK_MONOTONIC_MASK`.
const PROCESS_SHARED: u32 = 1;
const MONOTONIC: u32 = 2;

/// The words of a `pthread_cond_t` that may hold the flags: [`Cond::words`]' first and last.
const FIRST: usize = 7;
const LAST: usize = 9;

/// Which of the two it is in this process's libc.
static FLAGS: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const IN_FIRST: u8 = 1;
const IN_LAST: u8 = 2;
const ELSEWHERE: u8 = 3;

#[inline(always)]
fn place() -> u8 {
    match FLAGS.load(Relaxed) {
        UNKNOWN => find(),
        known => known,
    }
}

#[cold]
fn find() -> u8 {
    let words = words_of_cond(PTHREAD_PROCESS_SHARED, CLOCK_MONOTONIC);
    let place = place_in(&words);
    FLAGS.store(place, Relaxed);
    place
}

/// Where the flags are, by a condition variable with both attributes.
fn place_in(words: &[u32; 12]) -> u8 {
    const BOTH: u32 = PROCESS_SHARED | MONOTONIC;
    let mut set = (0..words.len()).filter(|&word| words[word] != 0);
    match (set.next(), set.next()) {
        (Some(FIRST), None) if words[FIRST] == BOTH => IN_FIRST,
        (Some(LAST), None) if words[LAST] == BOTH => IN_LAST,
        _ => ELSEWHERE,
    }
}

/// Whether this library knows where libc keeps the attributes.
pub(crate) fn are_known() -> bool {
    place() != ELSEWHERE
}

impl Cond {
    fn flags(&self) -> &AtomicU32 {
        &self.words[if place() == IN_FIRST { 0 } else { 2 }]
    }

    pub(super) fn generation(&self) -> &ObjectGeneration<Native> {
        ObjectGeneration::of(&self.words[if place() == IN_FIRST { 2 } else { 0 }])
    }

    pub(super) fn is_libcs(&self) -> bool {
        self.flags().load(Relaxed) & PROCESS_SHARED != 0 || config::service() == Service::Declined
    }

    /// Whether libc serves a wait with `mutex`. This library takes over a process-shared condition
    /// variable at the first wait with one of its own mutexes. POSIX requires all concurrent
    /// waiters to use that mutex, which is private to the process, and libc's wait could not
    /// release it.
    pub(super) fn wait_is_libcs(&self, mutex: &Mutex) -> bool {
        if self.is_libcs() && config::service() != Service::Declined && !mutex.is_libcs() {
            self.flags().fetch_and(!PROCESS_SHARED, Relaxed);
        }
        self.is_libcs()
    }

    pub(super) fn clock(&self) -> Clock {
        let monotonic = self.flags().load(Relaxed) & MONOTONIC != 0;
        if monotonic { Clock::Monotonic } else { Clock::Realtime }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(set: &[(usize, u32)]) -> [u32; 12] {
        let mut words = [0; 12];
        set.iter().for_each(|&(word, value)| words[word] = value);
        words
    }

    #[test]
    fn attributes_are_found_where_libc_writes_them() {
        assert_eq!(place_in(&words(&[(9, 3)])), IN_LAST, "glibc 2.36");
        assert_eq!(place_in(&words(&[(7, 3)])), IN_FIRST, "glibc 2.41");
        for unknown in [&[] as &[_], &[(8, 3)], &[(9, 12)], &[(7, 3), (9, 3)], &[(0, 1), (9, 3)]] {
            assert_eq!(place_in(&words(unknown)), ELSEWHERE, "{unknown:?}");
        }
        assert!(are_known());
    }
}
