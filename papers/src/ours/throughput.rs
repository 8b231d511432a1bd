//! Throughput over threads, of any grid.

use crate::figure::{Figure, Made, Native, Paper};
use crate::over_threads;

/// The figure on this machine.
pub const NATIVE: Figure = Figure {
    name: "throughput",
    paper: Paper::Ours,
    number: None,
    title: "Throughput as threads are added",
    remark: "",
    minutes: 3,
    made: Made::Native(Native {
        benchmarks: &[&["counter"]],
        records: &[],
        measured_by: "counter (or any other grid)",
        draw: Some(over_threads::draw),
        is_first_round: false,
    }),
};
