//! Messages of `profile`.

use std::fmt::Display;
use std::path::Path;

pub(crate) fn not_a_profile(file: &Path, why: impl Display) -> String {
    format!("{} cannot be read as a profile: {why}", file.display())
}

pub(crate) fn not_replaced() -> &'static str {
    "it exists and is not a profile: remove it, or name another file"
}

pub(crate) fn no_profile(program: &Path, obstacle: impl Display) -> String {
    format!("no profile of {}: {obstacle}", program.display())
}

pub(crate) fn no_profile_written(program: &Path) -> String {
    format!(
        "no profile: {} did not load libunconvoy.so, or could not create the file",
        program.display()
    )
}

pub(crate) fn output_rejected(option: &str, file: &Path, why: impl Display) -> String {
    format!("{option} {}: {why}", file.display())
}

/// `file` is the process's profile so far, if that is kept.
pub(crate) fn left_process(pid: u32, file: Option<&Path>) -> String {
    let text = format!(
        "warning: the program left a process behind: run it in the foreground, or profile the \
         process:\n  unconvoy profile --pid {pid}"
    );
    match file {
        None => text,
        Some(file) => {
            let file = file.display();
            format!("{text}\n  unconvoy profile --read {file} shows its profile so far")
        }
    }
}

pub(crate) fn load_without_lock() -> &'static str {
    "--load needs --lock: libc's locks have no load manager"
}

pub(crate) fn wrong_interval() -> &'static str {
    "expected a time of 1 s to 24 h, such as 60s or 5m"
}

pub(crate) fn wrong_bound() -> &'static str {
    "expected a number of files, or of bytes such as 500M"
}

pub(crate) fn interval_not_written(file: &Path, why: impl Display) -> String {
    format!(
        "{} cannot be written: {why}. Further profiles may be missing; the program goes on",
        file.display()
    )
}

#[cfg(test)]
pub(crate) fn samples() -> Vec<String> {
    let (file, program) = (Path::new("locks.profile"), Path::new("/usr/bin/server"));
    vec![
        not_a_profile(file, "it is not a lock profile"),
        not_replaced().into(),
        no_profile(program, "it is a Go program, and Go's runtime has locks of its own"),
        no_profile_written(program),
        output_rejected("--json", file, "it is a directory: name a file in it"),
        left_process(17_679, Some(Path::new("locks.profile.17679"))),
        load_without_lock().into(),
        wrong_interval().into(),
        wrong_bound().into(),
        interval_not_written(file, "No space left on device"),
    ]
}
