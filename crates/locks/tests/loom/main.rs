//! Every interleaving, within loom's bounds, of the shipped sources of the locks, the eventcount and
//! the sleep-slot buffer.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p unconvoy --test loom --release`; without the flag there is
//! nothing here.
#![cfg(loom)]

mod locks;
mod model;
mod parking;
mod rwlock;
mod slots;
