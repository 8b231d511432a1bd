//! The patches of papers/patches fit Debian's sources. `make patched` also builds them.

use std::path::Path;
use std::process::Command;

/// Status of scripts/patched.sh on a machine that cannot fetch the sources.
const CANNOT: i32 = 3;

#[test]
#[ignore = "make test-all: fetches two source packages, ten seconds"]
fn patches_fit_debian_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for tool in ["apt-get", "dpkg-source", "patch"] {
        if Command::new(tool).arg("--version").output().is_err() {
            println!("skipped: {tool} not found");
            return;
        }
    }
    let checked = Command::new(root.join("scripts/patched.sh")).arg("--check").output();
    let checked = checked.expect("the script runs");
    let messages = String::from_utf8_lossy(&checked.stderr);
    if checked.status.code() == Some(CANNOT) {
        println!("skipped: {}", messages.trim());
        return;
    }
    assert!(checked.status.success(), "{}: {messages}", checked.status);
}
