//! Where libc keeps a condition variable's attributes.
//!
//! glibc 2.41 removed a field, so that the word with the attributes moved from byte 36 to byte 28.
//! Distributions take such changes into older versions, too. So libc's function is asked once,
//! instead of its version. The version decides if another library would get the question, as
//! libfaketime: its function takes a lock, whose service is unknown before the answer.

use core::ffi::CStr;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU8, AtomicU32};

use libc::{CLOCK_MONOTONIC, PTHREAD_PROCESS_SHARED, pthread_cond_t, pthread_condattr_t};

use crate::object::InPlace;
use crate::real;

/// Bits of the attributes: glibc's `__PTHREAD_COND_SHARED_MASK` and
/// `__PTHREAD_COND_CLOCK_MONOTONIC_MASK`.
pub(crate) const PROCESS_SHARED: u32 = 1;
pub(crate) const MONOTONIC: u32 = 2;

/// The word with the attributes in glibc 2.41 and in 2.36.
const NEW: u8 = 7;
const OLD: u8 = 9;

/// The number of that word in this process's libc.
static WORD: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const ELSEWHERE: u8 = u8::MAX;

/// Whether the attributes are in word 7, as in glibc 2.41, and not in word 9.
#[inline(always)]
pub(crate) fn is_new() -> bool {
    word() == NEW
}

/// Whether they are in one of these words.
pub(crate) fn is_known() -> bool {
    word() != ELSEWHERE
}

#[inline(always)]
fn word() -> u8 {
    match WORD.load(Relaxed) {
        UNKNOWN => find(),
        known => known,
    }
}

#[cold]
fn find() -> u8 {
    let word = if real::initialises_conds_itself() {
        word_with_attributes(&initialised())
    } else {
        // SAFETY: returns a string constant.
        word_in(unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) })
    };
    WORD.store(word, Relaxed);
    word
}

/// A condition variable, in words.
#[repr(C, align(8))]
struct Words([AtomicU32; 12]);

// SAFETY: any bytes are words.
unsafe impl InPlace for Words {
    type Libcs = pthread_cond_t;
}

/// A condition variable that libc has initialised with both attributes; zeroes if it refuses.
fn initialised() -> [u32; 12] {
    let words = Words([const { AtomicU32::new(0) }; 12]);
    // SAFETY: zeroes are valid for the type, and libc's functions initialise it.
    let attributes = unsafe {
        let mut attributes: pthread_condattr_t = core::mem::zeroed();
        libc::pthread_condattr_init(&raw mut attributes);
        libc::pthread_condattr_setpshared(&raw mut attributes, PTHREAD_PROCESS_SHARED);
        libc::pthread_condattr_setclock(&raw mut attributes, CLOCK_MONOTONIC);
        attributes
    };
    real::pthread_cond_init(words.libcs(), &attributes);
    words.0.map(AtomicU32::into_inner)
}

fn word_with_attributes(words: &[u32; 12]) -> u8 {
    let mut set = (0_u8..).zip(words).filter(|(_, word)| **word != 0);
    match (set.next(), set.next()) {
        (Some((at @ (OLD | NEW), &word)), None) if word == PROCESS_SHARED | MONOTONIC => at,
        _ => ELSEWHERE,
    }
}

/// The word in glibc of this version, as glibc's authors published it.
fn word_in(version: &CStr) -> u8 {
    let numbers = version.to_str().ok().and_then(|version| version.split_once('.'));
    let minor = |text: &str| text.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u32>().ok();
    match numbers.and_then(|(major, rest)| Some((major.parse::<u32>().ok()?, minor(rest)?))) {
        Some(numbers) if numbers >= (2, 41) => NEW,
        Some(_) => OLD,
        None => ELSEWHERE,
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
        assert_eq!(word_with_attributes(&words(&[(9, 3)])), OLD);
        assert_eq!(word_with_attributes(&words(&[(7, 3)])), NEW);
        for unknown in [&[] as &[_], &[(8, 3)], &[(9, 12)], &[(7, 3), (9, 3)], &[(0, 1), (9, 3)]] {
            assert_eq!(word_with_attributes(&words(unknown)), ELSEWHERE, "{unknown:?}");
        }
        assert!(is_known());
    }

    #[test]
    fn place_follows_from_version() {
        for (version, word) in [
            (c"2.36", OLD),
            (c"2.40.9000", OLD),
            (c"2.41", NEW),
            (c"2.100", NEW),
            (c"3.0", NEW),
            (c"2.42-dev", NEW),
            (c"2", ELSEWHERE),
            (c"", ELSEWHERE),
        ] {
            assert_eq!(word_in(version), word, "{version:?}");
        }
    }
}
