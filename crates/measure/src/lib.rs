//! The parts of a measurement that `unconvoy compare`, `unconvoy bench` and `unconvoy sim` share.
//!
//! | module | idea |
//! | --- | --- |
//! | [`input`], [`output`], [`arguments`] | a command: files that it reads and writes, numbers |
//! | [`interrupt`], [`progress`] | a command: Ctrl-C, progress |
//! | [`parts`] | the files of an installation, and `LD_PRELOAD` |
//! | [`child`], [`failure`] | a program, watched until its end |
//! | [`rounds`] | the loop: interleaved repeats |
//! | [`transfer`] | how far the processors are apart |
//! | [`cells`], [`statistics`], [`sequential`] | measurements, medians and spread, tests |
//! | [`tries`] | a quantity of the machine, measured some times |
//! | [`context`], [`goal`], [`table`], [`record`], [`rows`] | contents of a benchmark's record |
//! | [`export`] | formats, behind one trait |
//! | [`session`], [`resume`] | a benchmark from its first run to its record |
//! | [`chart`] | figures |
//!
//! Each module uses only those above it.

pub mod arguments;
pub mod cells;
pub mod chart;
pub mod child;
pub mod context;
pub mod escaped;
pub mod export;
pub mod failure;
pub mod goal;
pub mod input;
pub mod interrupt;
mod messages;
pub mod output;
pub mod parts;
pub mod progress;
pub mod record;
pub mod resume;
pub mod rounds;
pub mod rows;
pub mod sequential;
pub mod session;
pub mod statistics;
pub mod table;
pub mod transfer;
pub mod tries;
