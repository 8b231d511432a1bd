//! The guest: an initramfs of busybox and a script, built on the spot, that either reports the
//! kernel's symbols or runs a command.
//!
//! The kernel passes words of its command line that contain `=` to init as environment variables.
//! The word `unconvoy=symbols` or `unconvoy=run` selects the task. The guest writes its results as
//! an archive to its first disk when it is done. The serial port would be slow, and each character
//! that it sends is a critical section with I/O.

use super::archive::{self, Archive};
use super::modules::Module;

/// What a booted guest does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Report symbols and type information.
    Symbols,
    /// Run the command.
    Run,
}

impl Mode {
    /// Returns the word for the kernel's command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Symbols => "unconvoy=symbols",
            Self::Run => "unconvoy=run",
        }
    }
}

/// Shell scripts that run in the guest.
#[derive(Debug, Clone, Default)]
pub struct Scripts {
    /// Runs before the collection, in the root directory of the guest's second disk.
    pub prepare: String,
    /// The profiled command.
    pub command: String,
}

/// Console line: init was reached.
pub const REACHED: &str = "unconvoy: init";
/// Console line: prefix of an error in the guest itself.
pub const FAILED: &str = "unconvoy: failed: ";
/// Console line: the command begins.
pub const BEGUN: &str = "unconvoy: begin";

/// Longest part of the command's output that is returned, in bytes.
pub const MOST_OUTPUT: u32 = 4 << 20;

/// The plug-in starts at the first `sethostname` and stops at the second.
const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin:/usr/bin:/sbin:/usr/sbin HOME=/ TERM=dumb
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
# Only errors of the kernel go to the console, apart from this script's lines.
echo 3 > /proc/sys/kernel/printk
echo 'unconvoy: init'
failed() {
	echo "unconvoy: failed: $1"
	poweroff -f
}
while read module; do
	insmod "/modules/$module.ko" ||
		failed "the kernel rejected the module $module: name its own modules with --modules DIR"
done < /modules/order
missing="is missing, name its modules with --modules DIR"
[ -b /dev/vda ] ||
	failed "the kernel has no virtio disk: virtio_pci or virtio_blk $missing"
mkdir /tmp/out
hand_back() {
	(cd /tmp/out && find . -type f | cpio -o -H newc 2> /dev/null > /dev/vda) ||
		failed "cannot write the guest's disk"
	sync
	poweroff -f
}
if [ "$unconvoy" = symbols ]; then
	cp /proc/kallsyms /tmp/out/kallsyms ||
		failed "the kernel has no /proc/kallsyms: use a kernel with CONFIG_KALLSYMS"
	[ ! -f /sys/kernel/btf/vmlinux ] || cp /sys/kernel/btf/vmlinux /tmp/out/btf
	uname -r > /tmp/out/release
	hand_back
fi
mount -t ext4 -o noatime,noinit_itable /dev/vdb /scratch ||
	failed "the kernel cannot mount the guest's disk: ext4 $missing"
cd /scratch
. /prepare
sync
echo 'unconvoy: begin'
hostname unconvoy-begin
sh /command < /dev/null > /tmp/output 2>&1
status=$?
hostname unconvoy-end
echo $status > /tmp/out/status
head -c MOST_OUTPUT /tmp/output > /tmp/out/output
hand_back
"#;

/// Builds the initramfs.
pub fn initramfs(busybox: &[u8], modules: &[Module], scripts: &Scripts) -> Vec<u8> {
    let mut archive = Archive::default();
    for directory in ["bin", "dev", "modules", "proc", "sys", "tmp", "scratch"] {
        archive.directory(directory);
    }
    // Before devtmpfs is mounted, this is init's only console.
    archive.device("dev/console", (5, 1));
    archive.program("bin/busybox", busybox);
    archive.link("bin/sh", "busybox");
    archive.program("init", INIT.replace("MOST_OUTPUT", &MOST_OUTPUT.to_string()).as_bytes());
    archive.program("prepare", scripts.prepare.as_bytes());
    archive.program("command", scripts.command.as_bytes());
    let order: String = modules.iter().map(|(name, _)| format!("{name}\n")).collect();
    archive.program("modules/order", order.as_bytes());
    for (name, contents) in modules {
        archive.program(&format!("modules/{name}.ko"), contents);
    }
    archive.finish()
}

/// Results that a guest returned.
#[derive(Debug, Default)]
pub struct HandedBack {
    /// `/proc/kallsyms`.
    pub symbols: Vec<u8>,
    /// Type information; empty if the kernel has none.
    pub btf: Vec<u8>,
    /// The kernel's release.
    pub release: String,
    /// The command's exit status.
    pub status: Option<i32>,
    /// Output of the command.
    pub output: Vec<u8>,
}

impl HandedBack {
    /// Reads the results from the guest's first disk.
    pub fn read(disk: &[u8]) -> Self {
        let mut back = Self::default();
        let text = |contents: &[u8]| String::from_utf8_lossy(contents).trim().to_string();
        for (name, contents) in archive::files(disk) {
            match name.trim_start_matches("./") {
                "kallsyms" => back.symbols = contents.to_vec(),
                "btf" => back.btf = contents.to_vec(),
                "release" => back.release = text(contents),
                "status" => back.status = text(contents).parse().ok(),
                "output" => back.output = contents.to_vec(),
                _ => {}
            }
        }
        back
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initramfs_contains_scripts_and_modules() {
        let scripts = Scripts { prepare: "true".into(), command: "ls".into() };
        let made = initramfs(b"busybox", &[("a".into(), vec![1]), ("b".into(), vec![2])], &scripts);
        let files = archive::files(&made);
        let get = |name: &str| files.iter().find(|(path, _)| *path == name).unwrap().1;
        assert_eq!(get("modules/order"), b"a\nb\n");
        assert_eq!(get("modules/b.ko"), [2]);
        assert_eq!(get("command"), b"ls");
        let init = std::str::from_utf8(get("init")).unwrap();
        assert!(
            init.contains("head -c 4194304")
                && init.contains(REACHED)
                && init.contains(FAILED)
                && init.contains(BEGUN)
        );
    }

    #[test]
    fn read_returns_status_and_output() {
        let mut archive = Archive::default();
        archive.program("./status", b"3\n");
        archive.program("output", b"text");
        let back = HandedBack::read(&archive.finish());
        assert_eq!((back.status, &back.output[..]), (Some(3), &b"text"[..]));
        assert_eq!(HandedBack::read(&[0; 512]).status, None);
    }
}
