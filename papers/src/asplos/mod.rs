//! Johnson, Stoica, Ailamaki, Mowry, *Decoupling Contention Management from Scheduling*, ASPLOS
//! 2010: the figures, and the benchmarks that measure some of them on this machine.

pub mod bump;
pub mod contention;
pub mod figure_1;
pub mod figure_10;
pub mod figure_11;
pub mod figure_12;
pub mod figure_3;
pub mod figure_4;
pub mod figure_5;
pub mod figure_8;
pub mod figure_9;
pub mod interference;
pub mod interval;
mod series;
pub mod steadiness;
mod sweep;
