//! The guest: an initramfs of busybox and a script, made on the spot, that either tells the kernel's symbols or runs a command.
//!
//! The kernel hands words of its command line with `=` to init as variables; `unconvoy=symbols` or `unconvoy=run` is one of them. What the guest has to say besides its console is an archive on its
//! first disk, written when all is over: the serial port is slow, and each character on it a section with I/O.

use super::archive::{self, Archive};
use super::modules::Module;

/// What a booted guest does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Tells its symbols and type information.
    Symbols,
    /// Runs the command.
    Run,
}

impl Mode {
    /// As the kernel's command line has it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Symbols => "unconvoy=symbols",
            Self::Run => "unconvoy=run",
        }
    }
}

/// What runs in the guest.
#[derive(Debug, Clone, Default)]
pub struct Scripts {
    /// Before anything is collected, in the directory of the guest's second disk.
    pub prepare: String,
    /// What is profiled.
    pub command: String,
}

/// On the console: init was reached.
pub const REACHED: &str = "unconvoy: init";
/// On the console: what is wrong with the guest itself, after this.
pub const FAILED: &str = "unconvoy: failed: ";
/// On the console: the command begins.
pub const BEGUN: &str = "unconvoy: begin";

/// Bytes of the command's output that are handed back.
pub const MOST_OUTPUT: u32 = 4 << 20;

/// First `sethostname` with this, then the command, then the other: what the plug-in listens for.
const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin:/usr/bin:/sbin:/usr/sbin HOME=/ TERM=dumb
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
# The kernel's own messages stay apart from ours; those that matter still come.
echo 3 > /proc/sys/kernel/printk
echo 'unconvoy: init'
failed() {
	echo "unconvoy: failed: $1"
	poweroff -f
}
while read module; do
	insmod "/modules/$module.ko" || failed "the kernel does not take its module $module: --modules names another kernel's"
done < /modules/order
[ -b /dev/vda ] || failed "the kernel sees no virtio disk: virtio_pci and virtio_blk are neither built in nor among its modules (--modules DIR)"
mkdir /tmp/out
hand_back() {
	(cd /tmp/out && find . -type f | cpio -o -H newc 2> /dev/null > /dev/vda) || failed "the guest's disk cannot be written"
	sync
	poweroff -f
}
if [ "$unconvoy" = symbols ]; then
	cp /proc/kallsyms /tmp/out/kallsyms || failed "the kernel has no /proc/kallsyms: it was built without CONFIG_KALLSYMS"
	[ ! -f /sys/kernel/btf/vmlinux ] || cp /sys/kernel/btf/vmlinux /tmp/out/btf
	uname -r > /tmp/out/release
	hand_back
fi
mount -t ext4 -o noatime,noinit_itable /dev/vdb /scratch || failed "the kernel cannot mount the guest's disk: ext4 is neither built in nor among its modules (--modules DIR)"
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

/// The initramfs.
pub fn initramfs(busybox: &[u8], modules: &[Module], scripts: &Scripts) -> Vec<u8> {
    let mut archive = Archive::default();
    for directory in ["bin", "dev", "modules", "proc", "sys", "tmp", "scratch"] {
        archive.directory(directory);
    }
    // Before devtmpfs is mounted, init has nowhere else to write.
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

/// What a guest handed back.
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
    /// What the command printed.
    pub output: Vec<u8>,
}

impl HandedBack {
    /// Reads the guest's first disk.
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
    fn the_initramfs_has_all_parts() {
        let scripts = Scripts { prepare: "true".into(), command: "ls".into() };
        let made = initramfs(b"busybox", &[("a".into(), vec![1]), ("b".into(), vec![2])], &scripts);
        let files = archive::files(&made);
        let get = |name: &str| files.iter().find(|(path, _)| *path == name).unwrap().1;
        assert_eq!(get("modules/order"), b"a\nb\n");
        assert_eq!(get("modules/b.ko"), [2]);
        assert_eq!(get("command"), b"ls");
        let init = std::str::from_utf8(get("init")).unwrap();
        assert!(
            init.contains("head -c 4194304") && init.contains(REACHED) && init.contains(FAILED) && init.contains(BEGUN)
        );
    }

    #[test]
    fn what_is_handed_back() {
        let mut archive = Archive::default();
        archive.program("./status", b"3\n");
        archive.program("output", b"text");
        let back = HandedBack::read(&archive.finish());
        assert_eq!((back.status, &back.output[..]), (Some(3), &b"text"[..]));
        assert_eq!(HandedBack::read(&[0; 512]).status, None);
    }
}
