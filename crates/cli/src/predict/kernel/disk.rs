//! The guest's second disk: an ext4 file system with what a workload brings, in a sparse file.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use super::parts::Parts;

/// Space that the command has there, MiB; the file has only as much as is used.
const SIZE: u64 = 2048;

/// Makes it in `folder`, with the files of `tree` if there is one.
///
/// # Errors
///
/// No space, or mke2fs failed; its own words.
pub fn make(parts: &Parts, folder: &Path, tree: Option<&Path>) -> anyhow::Result<PathBuf> {
    let disk = folder.join("work");
    let mut command = Command::new(&parts.mke2fs);
    // What the kernel would initialise later in the background is not to disturb the command.
    command.args(["-q", "-F", "-t", "ext4", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0"]);
    if let Some(tree) = tree {
        command.arg("-d").arg(tree);
    }
    let output = command.arg(&disk).arg(format!("{SIZE}M")).output();
    let output = output.with_context(|| parts.mke2fs.display().to_string())?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        let why = why.lines().find(|line| !line.starts_with("mke2fs ")).unwrap_or_default();
        bail!("the guest's disk cannot be made in {} (no space left?): {}", folder.display(), why.trim());
    }
    Ok(disk)
}
