//! The kernel modules that the guest loads: those it needs that are not built in, with what they depend on, in order.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSection};

use crate::refusal::Refusal;

/// What the guest's disks and their file system need. A kernel that has one built in has no such module.
const NEEDED: [&str; 3] = ["virtio_pci", "virtio_blk", "ext4"];

/// A module's name and its file, uncompressed.
pub type Module = (String, Vec<u8>);

/// All modules to load, each after those that it depends on.
///
/// # Errors
///
/// One cannot be read or uncompressed, or depends on one that is not there (125).
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

fn load(name: &str, files: &HashMap<String, PathBuf>, modules: &mut Vec<Module>) -> Result<(), Refusal> {
    if modules.iter().any(|(loaded, _)| loaded == name) {
        return Ok(());
    }
    // A dependency that has no file is built in; the guest says so if not.
    let Some(file) = files.get(name) else { return Ok(()) };
    let contents = uncompressed(file)?;
    // Busybox's decompressors do not always say that they failed.
    if !contents.starts_with(b"\x7fELF") {
        return Err(refused(file, "it is damaged, or no module"));
    }
    for dependency in dependencies(&contents) {
        load(&dependency, files, modules)?;
    }
    modules.push((name.to_string(), contents));
    Ok(())
}

/// What a module says that it depends on, in `.modinfo`: strings `key=value`, each ended by a zero.
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

/// The kernel takes both signs for one.
fn canonical(name: &str) -> String {
    name.replace('-', "_")
}

fn collect(directory: &Path, files: &mut HashMap<String, PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            collect(&path, files)?;
        } else if let Some((name, _)) = entry.file_name().to_str().and_then(|name| name.split_once(".ko")) {
            files.insert(canonical(name), path);
        }
    }
    Ok(())
}

/// The module as the kernel takes it. Busybox has the compressors of most distributions, and it is needed for the guest anyway.
fn uncompressed(file: &Path) -> Result<Vec<u8>, Refusal> {
    let program: &[&str] = match file.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => &["busybox", "xz", "-dc"],
        Some("gz") => &["busybox", "gunzip", "-c"],
        Some("zst") => &["zstd", "-dcq"],
        _ => return std::fs::read(file).map_err(|error| refused(file, &error.to_string())),
    };
    let output = Command::new(program[0]).args(&program[1..]).arg(file).output();
    let output = output.map_err(|error| refused(file, &format!("{} cannot be executed: {error}", program[0])))?;
    if !output.status.success() {
        return Err(refused(file, String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(output.stdout)
}

fn refused(file: &Path, why: &str) -> Refusal {
    Refusal::installation(format!("the guest's module cannot be read: {}: {why}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_modules_are_no_failure() {
        let folder = tempfile::tempdir().unwrap();
        assert!(needed(folder.path()).unwrap().is_empty());
    }

    #[test]
    fn what_is_no_module_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("drivers/virtio-blk.ko");
        std::fs::create_dir(folder.path().join("drivers")).unwrap();
        std::fs::write(&file, b"not ELF").unwrap();
        assert!(needed(folder.path()).unwrap_err().to_string().contains("virtio-blk.ko: it is damaged"));
        std::fs::write(&file, b"\x7fELF, but no more").unwrap();
        assert_eq!(needed(folder.path()).unwrap()[0].0, "virtio_blk");
        std::fs::write(folder.path().join("ext4.ko.xz"), b"not xz").unwrap();
        assert!(needed(folder.path()).unwrap_err().to_string().contains("ext4.ko.xz"));
    }
}
