//! Throughput over threads, from any grid.

use crate::figure::{Figure, Made, Native, Paper, Records};
use crate::over_threads;

pub const NATIVE: Figure = Figure {
    name: "throughput",
    paper: Paper::Ours,
    title: "Throughput as threads are added",
    remark: "",
    minutes: 3,
    made: Made::Native(Native {
        benchmarks: &[&["counter"]],
        records: Records::Grids,
        draw: Some(over_threads::draw),
        ..Native::MEDIANS
    }),
};
