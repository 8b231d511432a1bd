//! A Java virtual machine, and the program `c/Contention.java`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{installed, plain, run};

pub struct Java {
    pub path: PathBuf,
    classes: tempfile::TempDir,
}

/// Lines that one round of the program prints.
pub const LINES: usize = 5;

impl Java {
    pub fn compiled() -> Option<Self> {
        let compiler = installed("javac", "default-jdk-headless")?;
        let path = installed("java", "default-jdk-headless")?;
        let classes = tempfile::tempdir().expect("a temporary directory");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/Contention.java");
        run(plain(&compiler).arg("-d").arg(classes.path()).arg(source)).success("javac");
        Some(Java { path, classes })
    }

    /// Completes the command of a virtual machine that runs the program.
    pub fn contention<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .args(["-XX:-UsePerfData", "-Xmx64m", "-cp"])
            .arg(self.classes.path())
            .arg("Contention")
            .current_dir(self.classes.path())
    }
}
