//! Figures of no paper.

pub mod bounds;
pub mod sizes;
pub mod throughput;
