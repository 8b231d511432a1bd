//! Figures of our own.

pub mod bounds;
pub mod sizes;
pub mod throughput;
