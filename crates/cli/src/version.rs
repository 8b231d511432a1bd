//! `unconvoy --version --verbose`: which build this is.

/// Programs that build.rs compiles if it finds clang.
const BPF: [(&str, &[u8]); 3] = [
    ("runnable", include_bytes!(concat!(env!("OUT_DIR"), "/runnable.bpf.o"))),
    ("waits", include_bytes!(concat!(env!("OUT_DIR"), "/waits.bpf.o"))),
    ("contention", include_bytes!(concat!(env!("OUT_DIR"), "/contention.bpf.o"))),
];

/// Whether a command line asks for more than the version's number.
pub fn is_verbose(mut arguments: impl Iterator<Item = std::ffi::OsString>) -> bool {
    arguments.any(|argument| argument == "--verbose")
}

/// Version, commit, target and the parts that a build may lack, one per line. `make deb` records
/// the commit.
pub fn verbose() -> String {
    let built: Vec<&str> =
        BPF.iter().filter(|(_, object)| !object.is_empty()).map(|(name, _)| *name).collect();
    let programs = if built.is_empty() { "none".to_string() } else { built.join(", ") };
    format!(
        "unconvoy {}\ncommit: {}\ntarget: {}-linux-gnu\nBPF programs: {programs}\n",
        env!("CARGO_PKG_VERSION"),
        option_env!("BUILD_COMMIT").unwrap_or("not recorded"),
        std::env::consts::ARCH,
    )
}
