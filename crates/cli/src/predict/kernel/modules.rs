//! The kernel modules that the guest loads, each after its dependencies: those that it needs and
//! that are not built in.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSection};

use crate::messages::kernel as messages;
use crate::refusal::Refusal;

/// Modules for the guest's disks and their file system. A kernel that has one built in has no
/// module file for it.
const NEEDED: [&str; 3] = ["virtio_pci", "virtio_blk", "ext4"];

/// A module's name and its uncompressed contents.
pub type Module = (String, Vec<u8>);

/// Returns the modules to load, each after its dependencies.
///
/// # Errors
///
/// A module cannot be read or uncompressed (125).
pub fn needed(directory: &Path) -> Result<Vec<Module>, Refusal> {
    let mut files = HashMap::new();
    collect(directory, &mut files).map_err(|error| refused(directory, &error.to_string()))?;
    let mut modules = Vec::new();
    for name in NEEDED {
        if files.contains_key(name) {
            load(name, &files, &mut modules)?;
        }
    }
    Ok(modules)
}

fn load(
    name: &str,
    files: &HashMap<String, PathBuf>,
    modules: &mut Vec<Module>,
) -> Result<(), Refusal> {
    if modules.iter().any(|(loaded, _)| loaded == name) {
        return Ok(());
    }
    // A dependency without a file is taken to be built in. If it is not, the guest reports a
    // failure.
    let Some(file) = files.get(name) else { return Ok(()) };
    let contents = uncompressed(file)?;
    // Busybox's decompressors do not always report a failure.
    if !contents.starts_with(b"\x7fELF") {
        return Err(refused(file, messages::damaged_module()));
    }
    for dependency in dependencies(&contents) {
        load(&dependency, files, modules)?;
    }
    modules.push((name.to_string(), contents));
    Ok(())
}

/// Returns the dependencies in a module's `.modinfo`: zero-terminated strings `key=value`.
fn dependencies(module: &[u8]) -> Vec<String> {
    let information = || object::File::parse(module).ok()?.section_by_name(".modinfo")?.data().ok();
    let mut names = Vec::new();
    for line in information().unwrap_or_default().split(|byte| *byte == 0) {
        let line = String::from_utf8_lossy(line);
        if let Some(depends) = line.strip_prefix("depends=") {
            names.extend(depends.split(',').filter(|name| !name.is_empty()).map(canonical));
        } else if let Some(before) = line.strip_prefix("softdep=pre:") {
            let before = before.split("post:").next().unwrap_or_default();
            names.extend(before.split_whitespace().map(canonical));
        }
    }
    names
}

/// The kernel treats `-` and `_` in module names as the same.
fn canonical(name: &str) -> String {
    name.replace('-', "_")
}

fn collect(directory: &Path, files: &mut HashMap<String, PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            collect(&path, files)?;
        } else if let Some((name, _)) =
            entry.file_name().to_str().and_then(|name| name.split_once(".ko"))
        {
            files.insert(canonical(name), path);
        }
    }
    Ok(())
}

/// Returns the uncompressed module. Busybox decompresses most distributions' formats, and the guest
/// needs it anyway.
fn uncompressed(file: &Path) -> Result<Vec<u8>, Refusal> {
    let program: &[&str] = match file.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => &["busybox", "xz", "-dc"],
        Some("gz") => &["busybox", "gunzip", "-c"],
        Some("zst") => &["zstd", "-dcq"],
        _ => return std::fs::read(file).map_err(|error| refused(file, &error.to_string())),
    };
    let output = Command::new(program[0]).args(&program[1..]).arg(file).output();
    let output =
        output.map_err(|error| refused(file, &messages::cannot_execute_tool(program[0], error)))?;
    if !output.status.success() {
        return Err(refused(file, String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(output.stdout)
}

fn refused(file: &Path, why: &str) -> Refusal {
    Refusal::installation(messages::cannot_read_module(file, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needed_in_empty_directory_is_empty() {
        let folder = tempfile::tempdir().unwrap();
        assert!(needed(folder.path()).unwrap().is_empty());
    }

    #[test]
    fn needed_rejects_damaged_modules() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("drivers/virtio-blk.ko");
        std::fs::create_dir(folder.path().join("drivers")).unwrap();
        std::fs::write(&file, b"not ELF").unwrap();
        assert!(
            needed(folder.path())
                .unwrap_err()
                .to_string()
                .contains("virtio-blk.ko: the file is damaged")
        );
        std::fs::write(&file, b"\x7fELF, but no more").unwrap();
        assert_eq!(needed(folder.path()).unwrap()[0].0, "virtio_blk");
        std::fs::write(folder.path().join("ext4.ko.xz"), b"not xz").unwrap();
        assert!(needed(folder.path()).unwrap_err().to_string().contains("ext4.ko.xz"));
    }
}
