//! The guest's second disk: an ext4 file system with a workload's files, in a sparse file.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use super::parts::Parts;
use crate::messages::kernel as messages;

/// Size of the file system for workloads of a scale up to [`FITS`], MiB. The file occupies only
/// what is used.
const SIZE: u64 = 2048;

/// The scale at which the `find` workload uses nearly all inodes of the file system.
const FITS: f64 = 5.0;

/// Creates the disk in `folder`, with the files of `tree` if given.
///
/// # Errors
///
/// No space left, or mke2fs failed; the message quotes mke2fs.
pub fn make(
    parts: &Parts,
    folder: &Path,
    tree: Option<&Path>,
    scale: f64,
) -> anyhow::Result<PathBuf> {
    let disk = folder.join("work");
    let mut command = Command::new(&parts.mke2fs);
    // Initialise everything now, so that no background work of the kernel disturbs the command.
    command.args([
        "-q",
        "-F",
        "-t",
        "ext4",
        "-m",
        "0",
        "-E",
        "lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0",
    ]);
    if let Some(tree) = tree {
        command.arg("-d").arg(tree);
    }
    let size = SIZE * (scale / FITS).ceil().max(1.0) as u64;
    let output = command.arg(&disk).arg(format!("{size}M")).output();
    let output = output.with_context(|| parts.mke2fs.display().to_string())?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        let why = why.lines().find(|line| !line.starts_with("mke2fs ")).unwrap_or_default();
        bail!(messages::cannot_create_disk(folder, why.trim()));
    }
    Ok(disk)
}
