//! Every interleaving, within loom's bounds, of the shipped locks, the eventcount and the
//! sleep-slot buffer.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p unconvoy --test loom --release`; empty without the flag.
#![cfg(loom)]

mod biased;
mod locks;
mod model;
mod parking;
mod rwlock;
mod slots;
