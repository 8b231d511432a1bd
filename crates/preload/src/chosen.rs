//! The pair of contention manager and load manager that serves this process, named by the
//! environment.

use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr};

use unconvoy_locks::catalogue::{Availability, CONTENTION, LOAD, availability, environment};

use crate::dispatch::{self, Pair};
use crate::message;
use crate::variables::named;

static CHOSEN: AtomicPtr<Pair> = AtomicPtr::new(ptr::null_mut());

/// The process's pair. The first call chooses it, possibly before any constructor has run.
#[inline]
pub(crate) fn pair() -> &'static Pair {
    // SAFETY: null or an element of `PAIRS`.
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

/// The default pair, which is called directly and not through its table.
pub(crate) fn default_pair() -> &'static Pair {
    dispatch::find(CONTENTION[0].name, LOAD[0].name).expect("the catalogue's names have pairs")
}

/// The pair that the environment names, or the default pair if this machine cannot run that lock.
fn named_pair() -> &'static Pair {
    let lock = named(&environment::LOCK);
    let load = named(&environment::LOAD_MANAGER);
    if !is_usable(lock) {
        return default_pair();
    }
    dispatch::find(lock, load).unwrap_or_else(default_pair)
}

/// Whether this machine can run the contention manager `lock`. Warns once if it cannot, or only in
/// part.
fn is_usable(lock: &'static str) -> bool {
    static WARNED: AtomicBool = AtomicBool::new(false);
    let (warning, is_usable) = match availability(lock) {
        Availability::Full => return true,
        Availability::Reduced(reason) => (message::reduced_lock(lock, reason), true),
        Availability::Refused(reason) => (message::refused_lock(lock, reason), false),
    };
    if !WARNED.swap(true, Relaxed) {
        warning.print();
    }
    is_usable
}
