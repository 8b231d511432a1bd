//! The programs and files that a kernel's profile needs: QEMU's system mode, a kernel and its
//! modules, busybox, mke2fs. `make kernel` fetches the first three to `target/kernel`; an
//! installation has them beside the plug-ins.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use unconvoy::catalogue::environment;
use unconvoy_measure::parts::{self, Part};

use crate::executable;
use crate::messages::kernel as messages;
use crate::messages::predict::option_rejected;
use crate::predict::emulated;
use crate::refusal::Refusal;

/// Variable that names another directory of kernel and QEMU.
const VARIABLE: &str = environment::KERNEL.name;
/// QEMU's plug-in that samples the address sets of a whole machine.
const PLUGIN: Part = Part {
    name: "libunconvoy_plugin_system.so",
    variable: Some(environment::PLUGIN_SYSTEM.name),
    package: "unconvoy-plugin-system",
};
const QEMU: &str = "qemu-system-x86_64";
/// First release whose plug-ins can read registers (interface version 4).
const OLDEST: u32 = 10;
/// Directories of mke2fs, which are not in every user's PATH.
const SBIN: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Paths of all parts.
#[derive(Debug, Clone)]
pub struct Parts {
    pub qemu: PathBuf,
    /// Firmware directories of a QEMU that is not installed.
    pub firmware: Vec<PathBuf>,
    /// The plug-in.
    pub plugin: PathBuf,
    /// A bzImage, or a vmlinux that QEMU can boot.
    pub image: PathBuf,
    /// Directory of its modules, if it has any.
    pub modules: Option<PathBuf>,
    /// A static busybox.
    pub busybox: PathBuf,
    /// Creates the guest's file system.
    pub mke2fs: PathBuf,
}

impl Parts {
    /// Finds all parts. The arguments choose another QEMU, kernel image or directory of modules
    /// than the installed ones.
    ///
    /// # Errors
    ///
    /// The first missing part, with its remedy (125); a file that is not a kernel image (2).
    pub fn find(
        chosen_qemu: Option<&Path>,
        chosen_image: Option<&Path>,
        chosen_modules: Option<&Path>,
    ) -> Result<Self, Refusal> {
        let beside = parts::kernel_directories(VARIABLE);
        let (qemu, firmware) = qemu(chosen_qemu, &beside)?;
        let (image, modules) = kernel(chosen_image, chosen_modules, &beside)?;
        let plugin = PLUGIN.find().map_err(Refusal::installation)?;
        Ok(Self { qemu, firmware, plugin, image, modules, busybox: busybox()?, mke2fs: mke2fs()? })
    }
}

fn missing(message: impl Into<String>) -> Refusal {
    Refusal::installation(message.into())
}

fn qemu(chosen: Option<&Path>, beside: &[PathBuf]) -> Result<(PathBuf, Vec<PathBuf>), Refusal> {
    if let Some(chosen) = chosen {
        suits(chosen)
            .map_err(|why| Refusal::usage(option_rejected("--qemu", chosen.display(), why)))?;
        return Ok((chosen.to_path_buf(), Vec::new()));
    }
    let installed = executable::resolve(OsStr::new(QEMU));
    if let Some(installed) = installed.as_ref().filter(|qemu| suits(qemu).is_ok()) {
        return Ok((installed.clone(), Vec::new()));
    }
    for root in beside.iter().map(|directory| directory.join("qemu/usr")) {
        let qemu = root.join("bin").join(QEMU);
        if suits(&qemu).is_ok() {
            return Ok((qemu, vec![root.join("share/qemu"), root.join("share/seabios")]));
        }
    }
    let found =
        installed.and_then(|qemu| Some(format!("{}: {}; ", qemu.display(), suits(&qemu).err()?)));
    Err(missing(messages::qemu_not_found(
        QEMU,
        OLDEST,
        &found.unwrap_or_default(),
        &listed(beside),
    )))
}

/// Checks that QEMU can load plug-ins of our interface version.
fn suits(qemu: &Path) -> Result<(), String> {
    let output = |option: &str| {
        let output =
            Command::new(qemu).arg(option).output().map_err(messages::qemu_not_executable)?;
        Ok::<_, String>(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let version = output("--version")?;
    let release = emulated::release(&version);
    match release {
        None => Err(messages::not_qemu().into()),
        Some(release) if release < OLDEST => Err(messages::qemu_too_old(release, OLDEST)),
        Some(_) if !output("-help")?.contains("-plugin") => {
            Err(messages::qemu_without_plugins().into())
        }
        Some(_) => Ok(()),
    }
}

fn kernel(
    chosen_image: Option<&Path>,
    chosen_modules: Option<&Path>,
    beside: &[PathBuf],
) -> Result<(PathBuf, Option<PathBuf>), Refusal> {
    let image = match chosen_image {
        Some(image) => image.to_path_buf(),
        None => beside
            .iter()
            .map(|directory| directory.join("vmlinuz"))
            .find(|image| image.is_file())
            .ok_or_else(|| missing(messages::kernel_not_found(&listed(beside))))?,
    };
    let release = release(&image)
        .map_err(|why| Refusal::usage(option_rejected("--kernel", image.display(), why)))?;
    let modules = match chosen_modules {
        Some(chosen) if !chosen.is_dir() => {
            return Err(Refusal::usage(option_rejected(
                "--modules",
                chosen.display(),
                messages::no_such_directory(),
            )));
        }
        Some(chosen) => Some(chosen.to_path_buf()),
        None => {
            let sibling = image.parent().map(|directory| directory.join("modules"));
            let installed = release.map(|release| Path::new("/lib/modules").join(release));
            sibling.into_iter().chain(installed).find(|directory| directory.is_dir())
        }
    };
    Ok((image, modules))
}

/// Returns the release in a kernel image, or `None` for an ELF file. Any other file is an error.
/// The boot protocol (Documentation/arch/x86/boot.rst in the kernel's source) has the magic at
/// 0x202, and at 0x20e the offset of the release's text minus 0x200.
fn release(image: &Path) -> Result<Option<String>, String> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let opened =
        std::fs::File::open(image).and_then(|file| file.take(1 << 16).read_to_end(&mut bytes));
    opened.map_err(|error| error.to_string())?;
    if bytes.starts_with(b"\x7fELF") {
        return Ok(None);
    }
    if bytes.get(0x202..0x206) != Some(b"HdrS") {
        return Err(messages::not_a_kernel().into());
    }
    let Some(&[low, high]) = bytes.get(0x20e..0x210) else { return Ok(None) };
    let at = 0x200 + usize::from(u16::from_le_bytes([low, high]));
    let text = bytes.get(at..).unwrap_or_default();
    let end = text.iter().position(|byte| byte.is_ascii_whitespace() || *byte == 0).unwrap_or(0);
    Ok(Some(String::from_utf8_lossy(&text[..end]).into_owned())
        .filter(|release| !release.is_empty()))
}

fn busybox() -> Result<PathBuf, Refusal> {
    let found = executable::resolve(OsStr::new("busybox"))
        .ok_or_else(|| missing(messages::busybox_not_found()))?;
    if executable::interpreter(&found).is_some() {
        return Err(missing(messages::busybox_not_static(&found)));
    }
    Ok(found)
}

fn mke2fs() -> Result<PathBuf, Refusal> {
    let name = OsString::from("mke2fs");
    let found = executable::resolve(&name);
    let elsewhere =
        || SBIN.iter().map(|place| Path::new(place).join(&name)).find(|path| path.is_file());
    found.or_else(elsewhere).ok_or_else(|| missing(messages::mke2fs_not_found()))
}

fn listed(directories: &[PathBuf]) -> String {
    let directories: Vec<String> =
        directories.iter().map(|directory| directory.display().to_string()).collect();
    directories.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_reads_boot_header_or_rejects() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("image");
        let check = |bytes: &[u8]| {
            std::fs::write(&file, bytes).unwrap();
            release(&file)
        };
        assert!(check(b"").unwrap_err().contains("neither"));
        assert!(check(&[0; 4096]).unwrap_err().contains("neither"));
        assert_eq!(check(b"\x7fELF..."), Ok(None));
        let mut image = vec![0; 4096];
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x20e..0x210].copy_from_slice(&0x300_u16.to_le_bytes());
        image[0x500..0x510].copy_from_slice(b"6.12-cloud (deb)");
        assert_eq!(check(&image), Ok(Some("6.12-cloud".to_string())));
        image[0x20e..0x210].copy_from_slice(&0xffff_u16.to_le_bytes());
        assert_eq!(check(&image), Ok(None));
    }

    #[test]
    fn suits_rejects_other_programs() {
        assert!(suits(Path::new("/nowhere/qemu")).unwrap_err().contains("cannot execute"));
        assert!(suits(Path::new("/bin/true")).unwrap_err().contains("not QEMU"));
    }
}
