//! Messages of `doctor`: what works, and what each missing thing needs.

use std::fmt::Display;
use std::path::Path;

pub(crate) fn library_not_loaded(path: &Path, complaint: &str) -> String {
    format!("{} cannot be preloaded: {complaint}", path.display())
}

pub(crate) fn processors_of_quota(count: u32, quota: &str) -> String {
    format!("{count} usable: the cgroup's quota is {quota}")
}

pub(crate) fn processors_below_quota(count: u32, quota: &str) -> String {
    format!("{count} usable; the cgroup's quota of {quota} allows more")
}

/// Times in microseconds.
pub(crate) fn quota(quota: u64, period: u64) -> String {
    let processors = (100.0 * quota as f64 / period as f64).round() / 100.0;
    let unit = if processors == 1.0 { "processor" } else { "processors" };
    format!("{processors} {unit} ({quota} us per {period} us)")
}

pub(crate) fn processors_of_parents_quota(count: u32, allowed: u32) -> String {
    format!("{count} usable of {allowed}: the quota of a parent cgroup allows no more")
}

pub(crate) fn processors_without_quota(count: u32) -> String {
    format!("{count} usable; the cgroup of this process has no quota")
}

pub(crate) fn schedstat_read() -> &'static str {
    "schedstat: the load controller sees each thread's run time and wait time"
}

pub(crate) fn schedstat_missing() -> &'static str {
    "no /proc/PID/schedstat: mount /proc, or use a kernel with CONFIG_SCHED_INFO"
}

pub(crate) fn threads_counted() -> &'static str {
    "BPF programs count the runnable threads"
}

pub(crate) fn process_recorded(may_trace_any: bool) -> &'static str {
    if may_trace_any {
        "BPF programs record any process"
    } else {
        "BPF programs record this user's processes; others need CAP_SYS_PTRACE"
    }
}

pub(crate) fn kernel_recorded() -> &'static str {
    "BPF programs record waits for the kernel's locks"
}

pub(crate) fn transactions_commit() -> &'static str {
    "hardware transactions commit"
}

pub(crate) fn emulator_found(qemu: &Path) -> String {
    format!("{} takes the plug-in", qemu.display())
}

pub(crate) fn kernel_found(qemu: &Path, image: &Path) -> String {
    format!("{} boots {}", qemu.display(), image.display())
}

pub(crate) fn scheduler_runs() -> &'static str {
    "the kernel takes sched_ext schedulers from this process"
}

pub(crate) fn scheduler_not_started(path: &Path, error: impl Display) -> String {
    format!("{}: {error}", path.display())
}

pub(crate) fn stacks_readable(may_trace_any: bool) -> &'static str {
    if may_trace_any {
        "inspect and run --watchdog read any process"
    } else {
        "inspect and run --watchdog read this user's processes"
    }
}

pub(crate) fn stacks_need_privilege(scope: &str) -> String {
    format!(
        "inspect needs root with CAP_SYS_PTRACE: kernel.yama.ptrace_scope is {scope}; `sysctl` \
         can set it to 0"
    )
}

pub(crate) fn stacks_forbidden() -> &'static str {
    "kernel.yama.ptrace_scope is 3, which forbids inspect until the next boot"
}

pub(crate) fn script(script: &str, interpreter: &Path) -> String {
    format!("{script} (a script for {})", interpreter.display())
}

pub(crate) fn not_examined(program: &str, error: impl Display) -> String {
    format!("{program}: cannot examine it: {error}")
}

pub(crate) fn no_program() -> &'static str {
    "neither an ELF file nor a script that names an interpreter"
}

pub(crate) fn program_served(program: &str) -> String {
    format!("{program}: its pthread locks can be replaced")
}

pub(crate) fn program_without_locks(program: &str) -> String {
    format!(
        "{program}: no pthread lock in it, nor in the libraries that it starts with \
         (it may load others later)"
    )
}

pub(crate) fn libraries_not_found(program: &str, names: &str) -> String {
    format!("{program}: no pthread lock in it; the loader does not find {names}")
}

pub(crate) fn foreign_loader(loader: &Path) -> String {
    format!("its loader {} is not this system's, and is not executed", loader.display())
}

pub(crate) fn libraries_not_listed(program: &str, error: impl Display) -> String {
    format!("{program}: cannot list its libraries: {error}")
}

#[cfg(test)]
pub(crate) fn samples() -> Vec<String> {
    let (library, qemu) = (Path::new("/usr/lib/libunconvoy.so"), Path::new("/usr/bin/qemu"));
    let error = "Permission denied (os error 13)";
    vec![
        library_not_loaded(library, "wrong ELF class: ELFCLASS64"),
        processors_of_quota(1, &quota(150_000, 100_000)),
        processors_below_quota(2, &quota(800_000, 100_000)),
        quota(100_000, 100_000),
        processors_of_parents_quota(2, 64),
        processors_without_quota(2),
        schedstat_read().into(),
        schedstat_missing().into(),
        threads_counted().into(),
        process_recorded(false).into(),
        kernel_recorded().into(),
        transactions_commit().into(),
        emulator_found(qemu),
        kernel_found(qemu, Path::new("/boot/vmlinuz")),
        scheduler_runs().into(),
        scheduler_not_started(qemu, error),
        stacks_readable(true).into(),
        stacks_need_privilege("1"),
        stacks_forbidden().into(),
        script("./server", Path::new("/bin/sh")),
        not_examined("./server", error),
        no_program().into(),
        program_served("./server"),
        program_without_locks("./server"),
        libraries_not_found("./server", "liba.so, libb.so"),
        libraries_not_listed("./server", error),
        libraries_not_listed("./server", foreign_loader(Path::new("/lib/ld-musl-x86_64.so.1"))),
    ]
}
