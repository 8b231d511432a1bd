//! The slow preparations of real programs, which `workloads/program.sh` keeps in a cache.

use std::fs;
use std::path::Path;
use std::process::Command;

/// A script that prepares a folder.
const SCRIPT: &str = "\
. \"$PROGRAM_SH\"
make_data() { mkdir \"$1\" && echo prepared >\"$1/file\"; }
cat \"$(prepared data)/file\"
";

#[test]
fn preparation_after_an_interrupted_one_starts_from_scratch() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let cache = directory.path().join("cache");
    fs::create_dir_all(cache.join("data.new")).expect("a folder");
    fs::write(cache.join("data.new/unfinished"), "").expect("a file");
    let common = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/program.sh");
    let mut script = Command::new("sh");
    script.args(["-c", SCRIPT, "data.sh", "1"]).env("PROGRAM_SH", common);
    script.env("PROGRAMS_CACHE", &cache).env("PROGRAMS_TMPDIR", directory.path());
    let output = script.env_remove("LD_PRELOAD").output().expect("the shell runs");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "prepared\n", "{complaint}");
    assert!(!cache.join("data.new").exists() && !cache.join("data/unfinished").exists());
}
