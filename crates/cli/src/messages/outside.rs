//! Messages of `profile --pid` and `profile --kernel`.

use super::top;

pub(crate) fn no_such_process(pid: u32) -> String {
    if !std::path::Path::new("/proc/self").exists() {
        return format!("cannot look for process {pid}: mount /proc");
    }
    format!("no process {pid}: list the running ones with `ps -e`")
}

pub(crate) fn has_ended(pid: u32) -> String {
    format!("process {pid} has ended, and its parent has not waited for it yet")
}

pub(crate) fn is_thread(thread: u32, process: u32) -> String {
    format!("{thread} is a thread of process {process}: name that process instead")
}

pub(crate) fn is_kernel_thread(pid: u32) -> String {
    format!("process {pid} is a thread of the kernel, which runs no program")
}

pub(crate) fn is_32_bit(pid: u32) -> String {
    format!("process {pid} runs a 32-bit program: unconvoy reads only 64-bit programs")
}

pub(crate) fn not_permitted(pid: u32) -> String {
    if nix::unistd::geteuid().is_root() {
        return top::lacks_capability(pid);
    }
    format!("no permission to look into process {pid}: use root, or its user and CAP_SYS_PTRACE")
}

pub(crate) fn runs_under_unconvoy(pid: u32) -> String {
    format!(
        "process {pid} runs under unconvoy, or is recorded by it: use `unconvoy top {pid}` or \
         `inspect {pid}`"
    )
}

pub(crate) fn other_architecture() -> &'static str {
    "--pid and --kernel need an x86-64 machine: use `unconvoy profile -- PROGRAM` instead"
}

pub(crate) fn no_privilege() -> &'static str {
    "the kernel rejected the BPF program: use root, or CAP_BPF and CAP_PERFMON, on Linux 6.1 or \
     later"
}

pub(crate) fn recording(pid: u32, seconds: f64) -> String {
    format!("recording process {pid} for {seconds} s; Ctrl-C ends the recording")
}

pub(crate) fn recording_kernel(seconds: f64) -> String {
    format!("recording the kernel's locks for {seconds} s; Ctrl-C ends the recording")
}

pub(crate) fn no_tracepoint(name: &str) -> String {
    format!("this kernel has no tracepoint {name}: use Linux 5.19 or later")
}

pub(crate) fn hidden_symbols() -> &'static str {
    "No names: the kernel hides its symbols from this user. Use root, or CAP_SYSLOG and sysctl \
     kernel.kptr_restrict=1."
}

pub(crate) fn lost_events() -> &'static str {
    "the thread that read the BPF programs' events failed: report this as a bug"
}

pub(crate) fn seconds_out_of_range(least: f64, most: f64) -> String {
    format!("expected {least} to {most} seconds")
}

#[cfg(test)]
pub(crate) fn samples() -> Vec<String> {
    vec![
        no_such_process(4711),
        has_ended(4711),
        is_thread(4712, 4711),
        is_kernel_thread(2),
        is_32_bit(4711),
        not_permitted(4711),
        runs_under_unconvoy(4711),
        other_architecture().into(),
        no_privilege().into(),
        recording(4711, 10.0),
        recording_kernel(10.0),
        no_tracepoint("contention_begin"),
        hidden_symbols().into(),
        lost_events().into(),
        seconds_out_of_range(0.1, 86_400.0),
    ]
}
