//! The messages of the library: what failed, why, and what to do about it. The interposer and the
//! command prefix them with `unconvoy: `.

#![cfg_attr(tsan, allow(dead_code, reason = "no bare thread there"))]

/// The sensor failed while the program ran.
pub(super) const SENSOR_LOST: &str = "lost the chosen sensor (the program closed its \
     descriptors, or /proc is gone); using schedstat";

/// `/proc/self/task` cannot be read, so no controller starts.
pub(super) const NO_TASK_DIRECTORY: &str = "load control is off, waiters spin and park: \
     cannot read /proc/self/task (mount /proc)";

/// The kernel refused the controller thread.
pub(super) const NO_CONTROLLER_THREAD: &str = "waiters spin and park: cannot start the thread of \
     load control yet (raise the limit on threads)";

/// `--sensor loadavg` is unavailable.
pub(super) const NO_LOAD_AVERAGE: &str =
    "no loadavg sensor: cannot read /proc/loadavg (mount /proc); using schedstat";

/// `--sensor psi` is unavailable.
pub(super) const NO_PRESSURE: &str = "no psi sensor: cannot read /proc/pressure/cpu \
     (boot a kernel that has it with psi=1); using schedstat";

/// `--sensor bpf` is unavailable.
pub(super) const NO_COUNT: &str = "no bpf sensor: no BPF program counts this process \
     (start it with unconvoy run --sensor bpf); using schedstat";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message() {
        let all = [
            SENSOR_LOST,
            NO_TASK_DIRECTORY,
            NO_CONTROLLER_THREAD,
            NO_LOAD_AVERAGE,
            NO_PRESSURE,
            NO_COUNT,
        ];
        for message in all {
            println!("unconvoy: {message}");
            let lines: Vec<_> = message.lines().collect();
            assert!(lines.len() <= 2 && lines.iter().all(|line| line.len() <= 120), "{message}");
            assert!(!message.ends_with('.'), "{message}");
        }
        let declared = include_str!("messages.rs").matches("\npub(super) const ").count();
        assert_eq!(all.len(), declared);
    }
}
