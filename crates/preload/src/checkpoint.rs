//! `unconvoy_checkpoint`, for programs that mark the points between two units of their work.
//!
//! The library counts the locks that a thread holds, so that the thread does not sleep at a
//! checkpoint while it holds one. The fast paths of the default pair do not count. A program's
//! first checkpoint therefore [ends](config::count_held_locks) them in its process, and all other
//! programs keep them. Locks that a thread acquired before that are not counted.

use unconvoy_locks::load::Holds;
use unconvoy_locks::runtime::held_locks;

use crate::chosen::pair;
use crate::config::{self, Service};
use crate::strategy;

/// May sleep for load. Returns whether the thread slept.
#[unsafe(no_mangle)]
pub extern "C" fn unconvoy_checkpoint() -> bool {
    match config::service() {
        Service::Declined => return false,
        Service::Default => config::count_held_locks(),
        Service::Chosen | Service::Elided => {}
    }
    (pair().checkpoint)(holds)
}

/// The locks that the calling thread holds. Mutexes that may be elided are not counted.
fn holds() -> Holds {
    match held_locks() {
        _ if config::service() == Service::Elided || strategy::may_elide() => Holds::Unknown,
        0 => Holds::Nothing,
        _ => Holds::Locks,
    }
}
