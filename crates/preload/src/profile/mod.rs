//! The lock profile for `UNCONVOY_PROFILE=FILE`: how long threads wait for which lock, where in the
//! program they wait, and which code holds the lock meanwhile.
//!
//! Only waits are recorded, so an acquisition that finds the lock free costs nothing. A wait of
//! length t is sampled with probability min(1, t / period): at a random time of its first period,
//! the waiting thread records its call stack ([`mod@wait`]) and asks for the holder's ([`ask`]). It
//! sets the lock's parked bit, which sends the next release to the slow path. There the holder
//! finds the request, and records its own stack after the release. Some holds that follow a wait
//! are measured in the same way: the holder sets the bit for its own release.
//!
//! Where libc serves the lock, [`libcs`] measures around libc's functions, and a thread records its
//! wait after it has released the lock ([`ended`]).
//!
//! The file is mapped ([`mod@file`]) and filled in place, so that the records of a killed program
//! remain. Nothing here allocates or locks after the start.

mod ask;
mod classes;
mod ended;
mod estimate;
mod exposition;
mod file;
pub(crate) mod libcs;
mod metrics;
mod modules;
mod name;
mod origin;
mod page;
mod place;
mod process;
mod section;
mod shared;
mod signal;
mod stack;
mod state;
mod symbols;
mod wait;

pub(crate) use ask::releasing;
pub(crate) use origin::{first_taken, initialised};
pub(crate) use page::{controller_ended, interval};
pub(crate) use process::{after_fork, begin, confine, end, may_record};
pub(crate) use signal::SignalWait;
pub(crate) use stack::{begin as prepare_unwinding, unwind};
pub(crate) use state::Waited;
pub(crate) use unconvoy_profile::Kind;
pub(crate) use wait::wait;

/// Looks up the functions that this module stands in for.
pub(crate) fn find_all() {
    stack::find_all();
    modules::find_all();
}
