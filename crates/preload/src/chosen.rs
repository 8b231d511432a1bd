//! The pair of contention manager and load manager that serves this process, by the environment.

use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr};

use unconvoy_locks::catalogue::{Availability, CONTENTION, LOAD, availability, environment};

use crate::dispatch::{self, Pair};
use crate::message::say;
use crate::variables::named;

static CHOSEN: AtomicPtr<Pair> = AtomicPtr::new(ptr::null_mut());

/// The process's pair; chosen on the first call, which may come before any constructor has run.
#[inline]
pub(crate) fn pair() -> &'static Pair {
    // SAFETY: null or one of `PAIRS`.
    match unsafe { CHOSEN.load(Acquire).as_ref() } {
        Some(pair) => pair,
        None => choose(),
    }
}

#[cold]
fn choose() -> &'static Pair {
    let pair = named_pair();
    CHOSEN.store(ptr::from_ref(pair).cast_mut(), Release);
    pair
}

/// The pair whose path is compiled in.
pub(crate) fn default_pair() -> &'static Pair {
    dispatch::find(CONTENTION[0].name, LOAD[0].name).expect("the catalogue's names are those of the pairs")
}

/// The pair that the environment names.
fn named_pair() -> &'static Pair {
    let lock = named(&environment::LOCK);
    let load = named(&environment::LOAD_MANAGER);
    if !is_usable(lock) {
        return default_pair();
    }
    dispatch::find(lock, load).unwrap_or_else(default_pair)
}

/// Whether this machine can run the contention manager `lock`; says so, once, if it cannot, or not in
/// full.
fn is_usable(lock: &'static str) -> bool {
    static SAID: AtomicBool = AtomicBool::new(false);
    let (reason, consequence, is_usable) = match availability(lock) {
        Availability::Full => return true,
        Availability::Reduced(reason) => (reason, "; running without", true),
        Availability::Refused(reason) => (reason, "; using the default lock", false),
    };
    if !SAID.swap(true, Relaxed) {
        say(&[lock, ": ", reason, consequence]);
    }
    is_usable
}
