//! The figures and tables of the papers that unconvoy implements: measured and simulated, with the
//! benchmarks behind them and the papers' claims.
//!
//! | module | idea |
//! | --- | --- |
//! | `asplos`, `damon`, `syncchar`, `taco`, `ours` | a folder per paper, a file per figure: plan, claims, drawing |
//! | [`figure`] | the type of a figure |
//! | [`plan`], [`claim`], [`view`] | the parts of a simulated figure |
//! | `seeds`, `earlier`, `record_text` | results of several seeds: medians, judged claims; records |
//! | `record_view`, `over_threads` | panels drawn from measured records |
//! | `workloads`, `databases` | the papers' programs; TATP and TPC-C |
//! | [`catalogue`] | all figures |
//! | `simulated`, `native` | how to make one figure |
//! | `replay` | recorded critical sections, simulated, beside Syncchar's prediction |
//! | `bench`, `command` | `unconvoy bench`, `unconvoy papers` |
//! | `messages` | errors and warnings |
//! | [`study`] | `unconvoy-study`, which runs `bench`, `papers` and `sim` |
//!
//! The programs in C and C++ are in `papers/workloads`.

mod asplos;
mod bench;
pub mod catalogue;
pub mod claim;
mod command;
mod damon;
mod databases;
mod earlier;
pub mod figure;
mod messages;
mod native;
mod ours;
mod over_threads;
pub mod plan;
mod record_text;
mod record_view;
mod replay;
mod seeds;
mod simulated;
pub mod study;
mod syncchar;
mod taco;
pub mod view;
mod workloads;
