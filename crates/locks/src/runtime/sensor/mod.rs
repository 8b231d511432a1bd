//! The sensors of the load, each of which reads the kernel in its own way; the
//! [interface](crate::load::sensor) is below.

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
