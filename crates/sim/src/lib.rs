//! A simulated machine of any size that runs unconvoy's locks, load managers and controller as they ship.
//!
//! The algorithms of crates/locks are generic over [`Primitive`](unconvoy::primitive::Primitive); [`platform::Simulated`]
//! is one. Nothing of them is written a second time here.
//!
//! | module | idea |
//! | --- | --- |
//! | [`parameters`], [`presets`] | what a machine is made of, and known ones |
//! | [`machine`] | simulated time, caches, scheduler, futexes |
//! | [`platform`] | what the locks see of it |
//! | [`process`] | load control and controller of a simulated process |
//! | `mutex`, [`pair`] | the locks, and their names |
//! | `solaris` | the mutex that the papers compare with |
//! | [`simulation`] | a machine with a program on it |
//! | [`workload`] | programs: mixes of critical sections |
//! | [`outcome`], [`experiment`] | one simulated point of a grid, and other experiments |
//! | [`grid`], [`points`] | many of them, on all processors of the host; what there is kept after each |
//! | [`calibrate`] | the machine that this runs on, measured |
//! | [`validate`] | simulated and measured throughput, compared |
//! | [`command`] | `unconvoy sim` |

pub mod calibrate;
pub mod command;
pub mod experiment;
pub mod grid;
pub mod machine;
mod mutex;
pub mod outcome;
pub mod pair;
pub mod parameters;
pub mod platform;
pub mod points;
pub mod presets;
pub mod process;
pub mod simulation;
mod solaris;
pub mod validate;
pub mod workload;
