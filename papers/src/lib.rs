//! The apparatus of the papers that unconvoy implements: their figures and tables, native and
//! simulated, the benchmarks that they are drawn from, and what they claim.
//!
//! | module | idea |
//! | --- | --- |
//! | `asplos`, `damon`, `syncchar`, `taco`, `ours` | a folder a paper, a file a figure: what is simulated or measured, what is claimed, what is drawn |
//! | [`figure`] | what a figure is |
//! | [`plan`], [`claim`], [`view`] | what simulated figures are made of |
//! | `record_view`, `over_threads` | panels of native records |
//! | `workloads`, `databases` | the papers' programs; TATP and TPC-C |
//! | [`catalogue`] | all figures |
//! | `simulated`, `native` | a figure made |
//! | `bench`, `command` | `unconvoy bench`, `unconvoy papers` |
//! | [`study`] | `unconvoy-study`: both, and `unconvoy sim` |
//!
//! The programs in C and C++ are in `papers/workloads`.

mod asplos;
mod bench;
pub mod catalogue;
pub mod claim;
mod command;
mod damon;
mod databases;
pub mod figure;
mod native;
mod ours;
mod over_threads;
pub mod plan;
mod record_view;
mod simulated;
pub mod study;
mod syncchar;
mod taco;
pub mod view;
mod workloads;
