//! The sensors of the load, one file per source. They implement the [sensor
//! interface](crate::load::sensor).

pub mod bpf;
pub mod capacity;
mod cgroup;
pub mod choice;
pub(super) mod file;
pub mod fixed;
pub mod loadavg;
pub mod psi;
pub mod schedstat;
mod threads;
