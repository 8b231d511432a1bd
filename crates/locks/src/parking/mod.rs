//! Where waiters sleep: at their lock until a release ([`eventcount`]), or for the load of the whole
//! process ([`slots`]).

pub mod eventcount;
pub mod slots;
