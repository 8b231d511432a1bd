//! Messages of `run`, `stats`, `sched`, of the study and of reference texts.

use std::fmt::Display;
use std::path::Path;

pub(crate) fn cannot_execute(program: impl Display, error: impl Display) -> String {
    format!("{program}: cannot execute: {error}")
}

pub(crate) fn program_is_directory(name: impl Display) -> String {
    format!("{name}: cannot execute: it is a directory")
}

pub(crate) fn no_temporary_directory(parent: &Path, why: &str) -> String {
    let parent = parent.display();
    format!("cannot create a directory in {parent} ({why}): set TMPDIR to another directory")
}

pub(crate) fn program_not_found(name: &str) -> String {
    format!("{name}: program not found")
}

pub(crate) fn program_not_in_path(name: &str) -> String {
    format!("{name}: program not found in PATH")
}

pub(crate) fn interpreter_not_installed(name: &str, interpreter: &str) -> String {
    format!("{name}: its interpreter {interpreter} is not installed")
}

pub(crate) fn no_lock_replaced(program: &str, script: &str, obstacle: impl Display) -> String {
    format!("no lock is replaced in {program}{script}: {obstacle}")
}

pub(crate) fn go_program() -> &'static str {
    "it is a Go program, and Go's runtime has locks of its own"
}

pub(crate) fn static_program() -> &'static str {
    "it is statically linked, so no dynamic loader reads LD_PRELOAD"
}

pub(crate) fn secure_program(what: &str) -> String {
    format!("it is {what}, so the dynamic loader ignores LD_PRELOAD")
}

pub(crate) fn musl_program(loader: &str) -> String {
    format!("it uses musl ({loader}), but libunconvoy.so needs glibc")
}

pub(crate) fn foreign_program(architecture: &str) -> String {
    let own = std::env::consts::ARCH;
    format!("it is a program for {architecture}, but libunconvoy.so is for {own}")
}

pub(crate) fn unknown_sensor(names: &str, most: u32) -> String {
    format!("expected one of {names},\n  where N is above 0 and at most {most}")
}

pub(crate) fn interval_out_of_range(least: f64, most: f64) -> String {
    format!("expected {least} to {most} milliseconds")
}

pub(crate) fn no_statistics(file: &Path, why: &str) -> String {
    format!("--stats {}: {why}; continuing without statistics", file.display())
}

pub(crate) fn no_metrics(file: &Path, why: &str) -> String {
    format!("--metrics {}: {why}; continuing without metrics", file.display())
}

pub(crate) fn is_directory() -> &'static str {
    "it is a directory: name a file in it"
}

pub(crate) fn directory_not_utf_8(directory: &Path) -> String {
    format!("{} is not UTF-8: name a file in another directory", directory.display())
}

pub(crate) fn name_not_utf_8() -> &'static str {
    "its name is not UTF-8: choose another name"
}

pub(crate) fn not_a_regular_file() -> &'static str {
    "it is a device or a pipe: name a regular file"
}

pub(crate) fn same_file(option: &str, other: &str, file: &Path) -> String {
    format!("{option} and {other} both name {}: choose two files", file.display())
}

pub(crate) fn cannot_write_to_directory(directory: &Path, why: &str) -> String {
    format!("cannot write to {} ({why})", directory.display())
}

pub(crate) fn cannot_write_to_file(why: &str) -> String {
    format!("cannot write to it ({why})")
}

pub(crate) fn cannot_read(file: &Path) -> String {
    format!("cannot read {}", file.display())
}

pub(crate) fn statistics_empty(file: &Path) -> String {
    let file = file.display();
    format!("{file} is empty: a signal, `_exit` or `exec` ended the program, or the write failed")
}

/// `other` is a record that a child process wrote.
pub(crate) fn statistics_in_other_file(file: &Path, other: &Path) -> String {
    let other = other.display();
    format!(
        "{} is empty, but the program's child processes wrote records; read the largest:\n  \
         unconvoy stats {other}",
        file.display()
    )
}

pub(crate) fn statistics_cut_off(file: &Path) -> String {
    format!("{} is cut off: the program may have been killed while writing it", file.display())
}

pub(crate) fn statistics_of_other_format(file: &Path, format: &str, own: &str) -> String {
    format!("{} has the format {format}, but this command reads {own}", file.display())
}

pub(crate) fn not_statistics(file: &Path, why: &str) -> String {
    format!("{} is not a record of `unconvoy run --stats`: {why}", file.display())
}

pub(crate) fn statistics_incomplete(file: &Path, own: &str) -> String {
    format!("{} is not a complete {own} record", file.display())
}

pub(crate) fn cannot_write_manual(directory: &Path) -> String {
    format!("cannot write the manual pages to {}: name a directory", directory.display())
}

pub(crate) fn bpf_not_available(instead: &str, why: impl Display) -> String {
    format!("bpf sensor not available, using {instead}: {why}")
}

pub(crate) fn in_pid_namespace() -> &'static str {
    "this process is in a PID namespace: run the command on the host instead of in a container"
}

pub(crate) fn built_without_clang() -> &'static str {
    "this command was built without clang: install clang and build it again"
}

pub(crate) fn no_type_information() -> &'static str {
    "no /sys/kernel/btf/vmlinux: use a kernel with CONFIG_DEBUG_INFO_BTF"
}

pub(crate) fn no_bpf_privilege() -> &'static str {
    "the kernel rejected the BPF program: use root, or CAP_BPF and CAP_PERFMON, on Linux 5.19 or \
     later"
}

pub(crate) fn bpf_object_lacks(what: &str) -> String {
    format!("the BPF object has no {what}: build the command again")
}

pub(crate) fn cannot_attach(tracepoint: &str) -> String {
    format!("cannot attach to the tracepoint {tracepoint}")
}

pub(crate) fn cannot_map_count() -> &'static str {
    "cannot map the BPF program's count"
}

pub(crate) fn nothing_counted() -> &'static str {
    "the BPF program counts no events of this process"
}

pub(crate) fn no_descriptors() -> &'static str {
    "no file descriptors left: raise `ulimit -n`"
}

pub(crate) fn descriptor_taken(number: i32) -> String {
    format!("another thread took file descriptor {number}")
}

/// A tip, in clap's words.
pub(crate) fn negative_value(word: &str) -> String {
    format!("to pass '{word}' as an option's value, use '--OPTION={word}'")
}

/// A tip, in clap's words.
pub(crate) fn run_program(program: &str) -> String {
    format!("to run a program with its locks replaced, use 'unconvoy run -- {program}'")
}

pub(crate) fn option_of_own_locks(option: &str) -> String {
    format!("{option} is for unconvoy's own locks: omit --lock libc")
}

/// `loads` are the load managers that the option serves.
pub(crate) fn option_of_load_manager(option: &str, loads: &[&str], load: &str) -> String {
    let all: Vec<String> = loads.iter().map(|name| format!("`--load {name}`")).collect();
    let all = all.join(" and ");
    format!("{option} is for {all}, not for `{load}`: omit it, or set --load")
}

#[cfg(test)]
pub(crate) fn samples() -> Vec<String> {
    let file = Path::new("locks.json");
    let (error, schema) = ("Permission denied (os error 13)", "unconvoy-stats-1");
    vec![
        cannot_execute("./server", error),
        program_is_directory("/tmp"),
        no_temporary_directory(Path::new("/tmp"), "No space left on device (os error 28)"),
        program_not_found("./server"),
        program_not_in_path("server"),
        interpreter_not_installed("./script", "/usr/bin/ruby"),
        no_lock_replaced("./script", " (a script for /opt/tool)", static_program()),
        go_program().into(),
        static_program().into(),
        secure_program("set-user-ID"),
        musl_program("/lib/ld-musl-x86_64.so.1"),
        foreign_program("Aarch64"),
        unknown_sensor("schedstat, loadavg, psi, bpf, fixed:N", 65_536),
        interval_out_of_range(0.5, 1000.0),
        no_statistics(file, is_directory()),
        no_metrics(file, is_directory()),
        is_directory().into(),
        directory_not_utf_8(Path::new("/tmp/dir")),
        name_not_utf_8().into(),
        not_a_regular_file().into(),
        same_file("--json", "--csv", file),
        cannot_write_to_directory(Path::new("/missing"), "No such file or directory"),
        cannot_write_to_file("Permission denied"),
        cannot_read(file),
        option_of_own_locks("--load"),
        option_of_load_manager("--sleep-timeout", &["control", "published"], "malthus"),
        negative_value("-5"),
        run_program("./server"),
        statistics_empty(file),
        statistics_in_other_file(file, Path::new("locks.json.17679")),
        statistics_cut_off(file),
        statistics_of_other_format(file, "unconvoy-stats-2", schema),
        not_statistics(file, "it is not JSON"),
        statistics_incomplete(file, schema),
        cannot_write_manual(Path::new("/usr/share/man/man1")),
        bpf_not_available("schedstat", no_descriptors()),
        in_pid_namespace().into(),
        built_without_clang().into(),
        no_type_information().into(),
        no_bpf_privilege().into(),
        bpf_object_lacks("program sched_switch"),
        cannot_attach("sched_switch"),
        cannot_map_count().into(),
        nothing_counted().into(),
        no_descriptors().into(),
        descriptor_taken(1020),
    ]
}
