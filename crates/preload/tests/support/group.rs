//! A control group of one test.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

/// A control group; removed on drop.
pub struct Group(PathBuf);

impl Group {
    /// Makes a group below `parent`, or says why not.
    pub fn make(parent: &Path) -> Result<Self, String> {
        let path = parent.join(format!("unconvoy-test-{}", std::process::id()));
        fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Group(path))
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A killed process leaves its group a moment later.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            sleep(Duration::from_millis(20));
        }
        println!("{} is still there", self.0.display());
    }
}
