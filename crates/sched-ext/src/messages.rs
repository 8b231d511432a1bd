//! Errors and warnings of the scheduler, each with its cause and, where there is one, its remedy.

use std::path::Path;

/// `--threshold` is not a valid percentage.
pub(crate) fn not_a_percentage(text: &str) -> String {
    format!("{text} is not a number from 0.1 to 100")
}

pub(crate) fn scheduling(processors: usize) -> String {
    format!("scheduling {processors} processors; stop with Ctrl-C")
}

pub(crate) const PROCESSORS_CHANGED: &str =
    "restarting the scheduler: a processor went online or offline";

/// The kernel unloaded the scheduler. `reason` is the kernel's text.
pub(crate) fn unloaded_by_kernel(reason: &str) -> String {
    format!("the kernel unloaded the scheduler and returned to its default: {reason}")
}

/// The heading of the missing requirements, with one line for each.
pub(crate) fn requirements_missing(missing: &[String]) -> String {
    let mut text = String::from("this machine cannot run the scheduler; it lacks");
    for requirement in missing {
        text.push_str("\n  - ");
        text.push_str(requirement);
    }
    text
}

pub(crate) const PRIVILEGE_REQUIRED: &str =
    "privilege: run as root (sudo), or with CAP_SYS_ADMIN, or with CAP_BPF and CAP_PERFMON";

pub(crate) const PRIVILEGE_NOT_LIMITED: &str = "cannot give up unneeded capabilities";

pub(crate) fn release_required((major, minor): (u32, u32), present: &str) -> String {
    format!("kernel {major}.{minor} or later (this is {present}): boot a newer kernel")
}

pub(crate) const SCHED_EXT_REQUIRED: &str = "CONFIG_SCHED_CLASS_EXT (no /sys/kernel/sched_ext): \
     boot a kernel with it, such as most distributions' since 6.12";

pub(crate) const BTF_REQUIRED: &str =
    "CONFIG_DEBUG_INFO_BTF (no /sys/kernel/btf/vmlinux): boot a kernel with it";

pub(crate) const NAMESPACE_REQUIRED: &str = "the initial PID namespace: run outside containers";

pub(crate) fn other_scheduler(name: &str) -> String {
    format!("a free slot for a scheduler (the kernel has one, and {name} uses it): stop {name}")
}

/// The machine exceeds the arrays of the BPF programs.
pub(crate) fn too_many_processors(limit: usize, highest: usize) -> String {
    format!("processor {highest} is beyond the limit of {limit} processors")
}

/// The embedded BPF object does not match the loader.
pub(crate) const UNREADABLE_OBJECT: &str =
    "cannot read the embedded BPF object; rebuild unconvoy-sched-ext";

/// The verifier rejected a program.
pub(crate) const PROGRAMS_REJECTED: &str = "the kernel rejected the BPF programs";

pub(crate) const SCHEDULER_REJECTED: &str = "the kernel rejected the scheduler";

pub(crate) const NO_RING: &str = "cannot map the ring buffer of records";

pub(crate) const NO_CONTENTION_TRACE: &str =
    "cannot attach to the trace points contention_begin and contention_end";

pub(crate) const TASK_NOT_UPDATED: &str = "cannot update a task's state in the kernel";

pub(crate) const SET_NOT_UPDATED: &str = "cannot update the size of the set in the kernel";

/// The map of counters is missing or has another layout.
pub(crate) const UNREADABLE_COUNTERS: &str = "cannot read the scheduler's counters in the kernel";

pub(crate) fn no_processors(file: &Path) -> String {
    format!("{} lists no processors; mount sysfs at /sys", file.display())
}

pub(crate) fn cannot_listen(address: &str) -> String {
    format!("cannot listen at {address}; choose another address for --metrics")
}

pub(crate) fn cannot_write_metrics(file: &Path) -> String {
    format!(
        "cannot write {}; choose a file for --metrics in a folder that root owns",
        file.display()
    )
}

pub(crate) const NOT_A_REGULAR_FILE: &str = "it is a device or a pipe, and no regular file";

/// Drawing or printing failed.
pub(crate) const MONITOR_ENDED: &str = "the thread of --monitor ended unexpectedly";

#[cfg(test)]
mod tests {
    use super::*;

    /// Prints every message as a user sees it, and checks its form.
    #[test]
    fn every_message() {
        let messages = [
            not_a_percentage("much"),
            scheduling(8),
            PROCESSORS_CHANGED.into(),
            unloaded_by_kernel("runnable task stall (server[231] failed to run for 30.2s)"),
            requirements_missing(&[PRIVILEGE_REQUIRED.into(), SCHED_EXT_REQUIRED.into()]),
            PRIVILEGE_REQUIRED.into(),
            PRIVILEGE_NOT_LIMITED.into(),
            release_required((6, 12), "6.1.0-31-amd64"),
            SCHED_EXT_REQUIRED.into(),
            BTF_REQUIRED.into(),
            NAMESPACE_REQUIRED.into(),
            other_scheduler("scx_lavd"),
            too_many_processors(1024, 1500),
            UNREADABLE_OBJECT.into(),
            PROGRAMS_REJECTED.into(),
            SCHEDULER_REJECTED.into(),
            NO_RING.into(),
            NO_CONTENTION_TRACE.into(),
            TASK_NOT_UPDATED.into(),
            SET_NOT_UPDATED.into(),
            UNREADABLE_COUNTERS.into(),
            no_processors(Path::new("/sys/devices/system/cpu/online")),
            cannot_listen("localhost:9100"),
            cannot_write_metrics(Path::new("/run/unconvoy.prom")),
            NOT_A_REGULAR_FILE.into(),
            MONITOR_ENDED.into(),
        ];
        for message in &messages {
            println!("unconvoy: {message}");
            assert!(message.lines().all(|line| line.chars().count() <= 120), "{message}");
            assert!(message.contains(". ") || !message.ends_with('.'), "{message}");
        }
        let declared = include_str!("messages.rs").matches("\npub(crate) ").count();
        assert_eq!(messages.len(), declared);
    }
}
