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
pub mod figure_6;
pub mod figure_8;
pub mod figure_9;
pub mod interference;
pub mod interval;
mod series;
pub mod steadiness;
mod sweep;

use crate::figure::Change;

/// Figures 1 and 11 do not give the number of threads at full load.
const FULL_LOAD: Change = Change {
    paper: "a full load of 64 threads",
    here: "63 threads",
    why: "the paper's other figures have 63 threads where they give the number (Figures 5 and 10), \
        and one free context keeps other threads from preempting a holder",
};
