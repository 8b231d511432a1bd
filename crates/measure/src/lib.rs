//! The ground under `unconvoy compare`, `unconvoy bench` and `unconvoy sim`: what every measurement
//! needs, whatever is measured.
//!
//! | module | idea |
//! | --- | --- |
//! | [`output`], [`interrupt`], [`progress`], [`arguments`] | a command that measures: its files, Ctrl-C, its bar, its numbers |
//! | [`parts`] | the files of an installation, and `LD_PRELOAD` |
//! | [`child`], [`failure`] | a program, watched to its end |
//! | [`rounds`] | the loop: interleaved repeats |
//! | [`cells`], [`statistics`] | what was measured, medians and spread |
//! | [`context`], [`goal`], [`table`], [`record`], [`rows`] | what a benchmark leaves behind |
//! | [`export`] | formats, behind one trait |
//! | [`session`], [`resume`] | a benchmark from its first run to its record |
//! | [`chart`] | figures |
//!
//! Each uses those above it and none below.

pub mod arguments;
pub mod cells;
pub mod chart;
pub mod child;
pub mod context;
pub mod export;
pub mod failure;
pub mod goal;
pub mod interrupt;
pub mod output;
pub mod parts;
pub mod progress;
pub mod record;
pub mod resume;
pub mod rounds;
pub mod rows;
pub mod session;
pub mod statistics;
pub mod table;
