//! Where source files come from: the disk, or a made-up tree in a test.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// Files by path.
pub trait Sources {
    /// The text of a file, or nothing where there is no such file.
    fn read(&self, path: &Path) -> Option<String>;
}

/// The files under a folder of the disk.
pub struct Disk {
    /// The folder that paths are relative to.
    pub root: PathBuf,
}

impl Sources for Disk {
    fn read(&self, path: &Path) -> Option<String> {
        std::fs::read_to_string(self.root.join(path)).ok()
    }
}

/// Made-up files: path and text.
impl Sources for BTreeMap<&str, &str> {
    fn read(&self, path: &Path) -> Option<String> {
        self.get(path.to_str()?).map(|text| text.to_string())
    }
}

/// The path without `.` and `..`, as far as it has components to take back.
pub fn normalized(path: &Path) -> PathBuf {
    let mut parts: Vec<Component> = Vec::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if matches!(parts.last(), Some(Component::Normal(_))) => {
                parts.pop();
            }
            other => parts.push(other),
        }
    }
    parts.iter().collect()
}
