//! `unconvoy --version --verbose`: which build this is.

/// Whether a command line asks for more than the version's number.
pub fn is_verbose(mut arguments: impl Iterator<Item = std::ffi::OsString>) -> bool {
    arguments.any(|argument| argument == "--verbose")
}

/// Version, commit, target and the parts that a build may lack, one per line. `make deb` records
/// the commit.
pub fn verbose() -> String {
    format!(
        "unconvoy {}\ncommit: {}\ntarget: {}\nBPF programs: {}\n",
        env!("CARGO_PKG_VERSION"),
        option_env!("BUILD_COMMIT").unwrap_or("not recorded"),
        env!("BUILD_TARGET"),
        env!("BUILD_BPF"),
    )
}
