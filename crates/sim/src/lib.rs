//! A simulator that runs unconvoy's locks, load managers and controller on a machine of any size.
//!
//! The simulator contains no copy of the algorithms. The code in crates/locks is generic over
//! [`Primitive`](unconvoy::primitive::Primitive), which [`platform::Simulated`] implements.
//!
//! | module | contents |
//! | --- | --- |
//! | [`parameters`], [`presets`] | the parameters of a machine; known machines |
//! | [`quantiles`], [`dispatch`] | distributions of times; dispatch tables |
//! | [`machine`] | simulated time, caches, scheduler and futexes |
//! | [`platform`] | the primitives that the locks call |
//! | [`process`] | load control and the controller of a simulated process |
//! | `mutex`, `rwlock`, [`pair`] | the locks and their names |
//! | `solaris`, `pipelined` | locks to compare with: the papers' mutex, and with pipelined wake-ups |
//! | `libc_rwlock` | another one: libc's reader-writer lock |
//! | [`simulation`] | a machine with a program on it |
//! | [`workload`] | programs: mixes of critical sections |
//! | [`outcome`], [`experiment`] | one simulated point of a grid; other experiments |
//! | [`grid`], [`points`] | grids of points, run on all processors of the host; the record kept after each point |
//! | [`calibrate`] | measurements of the host |
//! | [`validate`] | comparison of simulated with measured throughput |
//! | [`command`], `messages` | `unconvoy sim`; its errors and warnings |

pub mod calibrate;
pub mod command;
pub mod dispatch;
pub mod experiment;
pub mod grid;
mod libc_rwlock;
pub mod machine;
pub mod machine_file;
mod messages;
mod mutex;
pub mod outcome;
pub mod pair;
pub mod parameters;
mod pipelined;
pub mod platform;
pub mod points;
pub mod presets;
pub mod process;
pub mod quantiles;
mod rwlock;
pub mod simulation;
mod solaris;
pub mod validate;
pub mod workload;
