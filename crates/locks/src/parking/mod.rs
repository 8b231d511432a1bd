//! Where waiters sleep: at their lock until a release ([`eventcount`]), or because of the process's
//! load ([`slots`]).

pub mod eventcount;
pub mod slots;

#[cfg(all(test, not(loom)))]
mod slots_tests;
