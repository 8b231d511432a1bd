//! Messages of `predict`, except those about a kernel's guest.

use std::fmt::Display;
use std::path::Path;

pub(crate) fn qemu_user_not_found(name: &str) -> String {
    format!("{name} not found: install qemu-user of Debian 12 (7.2)")
}

pub(crate) fn qemu_user_without_plugins(path: &Path) -> String {
    let path = path.display();
    format!("{path} does not support plug-ins: install qemu-user of Debian 12 (7.2)")
}

pub(crate) fn qemu_user_too_new(path: &Path, release: u32) -> String {
    format!(
        "{} is of release {release}, with another interface for plug-ins: \
         install qemu-user of Debian 12 (7.2)",
        path.display()
    )
}

pub(crate) fn qemu_failed(path: &Path, error: impl Display) -> String {
    format!("{}: cannot run it: {error}", path.display())
}

pub(crate) fn analysis_failed() -> &'static str {
    "the analysis failed: report the panic above"
}

pub(crate) fn interrupted_early() -> &'static str {
    "interrupted before anything was collected"
}

pub(crate) fn names_too_long(bytes: usize, most: usize) -> String {
    format!("its names take {bytes} bytes, but a record holds at most {most}")
}

pub(crate) fn trace_without_end() -> &'static str {
    "the trace has no end record: its collector was cut off"
}

pub(crate) fn no_run_time() -> &'static str {
    "the trace has no run time: its program was ended early"
}

pub(crate) fn no_sections_of(lock: Option<&str>) -> String {
    match lock {
        Some(name) => format!(
            "the trace has no lock {name} with sections and times: list its locks with `unconvoy \
             predict --analyse`"
        ),
        None => "the trace has no lock with sections and times".to_string(),
    }
}

pub(crate) fn invalid_record(name: &str) -> String {
    format!("cannot parse the {name} record")
}

pub(crate) fn cannot_keep_trace(why: impl Display) -> String {
    format!("cannot keep the trace: {why}")
}

pub(crate) fn nothing_recorded() -> &'static str {
    "nothing was recorded"
}

pub(crate) fn cannot_keep_trace_in(file: &Path) -> String {
    format!("cannot keep the trace in {}", file.display())
}

pub(crate) fn cannot_write(file: &Path) -> String {
    format!("cannot write {}", file.display())
}

pub(crate) fn option_rejected(option: &str, value: impl Display, why: impl Display) -> String {
    format!("{option} {value}: {why}")
}

pub(crate) fn scale_out_of_range() -> &'static str {
    "expected a number from 0.001 to 100"
}

#[cfg(test)]
pub(crate) fn samples() -> Vec<String> {
    let qemu = Path::new("/usr/bin/qemu-x86_64");
    vec![
        qemu_user_not_found("qemu-x86_64"),
        qemu_user_without_plugins(qemu),
        qemu_user_too_new(qemu, 10),
        qemu_failed(qemu, "Permission denied (os error 13)"),
        analysis_failed().into(),
        interrupted_early().into(),
        names_too_long(20_000_000, 16_777_216),
        trace_without_end().into(),
        no_run_time().into(),
        no_sections_of(Some("queue")),
        invalid_record("context"),
        cannot_keep_trace("No space left on device (os error 28)"),
        nothing_recorded().into(),
        cannot_keep_trace_in(Path::new("server.parquet")),
        cannot_write(Path::new("report.html")),
        option_rejected("--qemu", "/usr/bin/true", "not QEMU, or a shared library is missing"),
        scale_out_of_range().into(),
    ]
}
