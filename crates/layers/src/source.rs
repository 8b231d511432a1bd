//! Access to source files: on disk, or synthetic in a test.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// A set of files by path.
pub trait Sources {
    /// Returns the text of a file; `None` if there is no such file.
    fn read(&self, path: &Path) -> Option<String>;
}

/// The files below a folder on disk.
pub struct Disk {
    /// Paths are relative to this folder.
    pub root: PathBuf,
}

impl Sources for Disk {
    fn read(&self, path: &Path) -> Option<String> {
        std::fs::read_to_string(self.root.join(path)).ok()
    }
}

/// Synthetic files: path and text.
impl Sources for BTreeMap<&str, &str> {
    fn read(&self, path: &Path) -> Option<String> {
        self.get(path.to_str()?).map(|text| text.to_string())
    }
}

/// Removes `.`, and resolves `..` as far as components precede it.
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
