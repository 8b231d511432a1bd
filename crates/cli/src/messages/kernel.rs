//! Messages of `predict --kernel`.

use std::fmt::Display;
use std::path::Path;

pub(crate) fn qemu_not_found(name: &str, oldest: u32, found: &str, looked: &str) -> String {
    format!(
        "no {name} of release {oldest} or later with plug-ins \
         ({found}looked in PATH and {looked}):\n  \
         run `make kernel` in unconvoy's sources to fetch one, or name one with --qemu PATH"
    )
}

pub(crate) fn qemu_not_executable(error: impl Display) -> String {
    format!("cannot execute it: {error}")
}

pub(crate) fn not_qemu() -> &'static str {
    "not QEMU, or a shared library is missing"
}

pub(crate) fn qemu_too_old(release: u32, oldest: u32) -> String {
    format!("release {release}, but plug-ins need {oldest} or later")
}

pub(crate) fn qemu_without_plugins() -> &'static str {
    "built without plug-ins"
}

pub(crate) fn kernel_not_found(looked: &str) -> String {
    format!(
        "no kernel (looked in {looked}):\n  \
         run `make kernel` in unconvoy's sources to fetch Debian's, or name one with --kernel IMAGE"
    )
}

pub(crate) fn not_a_kernel() -> &'static str {
    "neither a bzImage nor a vmlinux for x86-64"
}

pub(crate) fn no_such_directory() -> &'static str {
    "no such directory"
}

pub(crate) fn busybox_not_found() -> &'static str {
    "busybox not found: install a static one (apt-get install busybox-static)"
}

pub(crate) fn busybox_not_static(path: &Path) -> String {
    let path = path.display();
    format!("{path} is not static: install a static one (apt-get install busybox-static)")
}

pub(crate) fn mke2fs_not_found() -> &'static str {
    "mke2fs not found, which creates the guest's disk: apt-get install e2fsprogs"
}

pub(crate) fn cannot_create_disk(folder: &Path, why: &str) -> String {
    format!("cannot create the guest's disk in {} (no space left?): {why}", folder.display())
}

pub(crate) fn cannot_read_module(file: &Path, why: impl Display) -> String {
    format!("cannot read the guest's module {}: {why}", file.display())
}

pub(crate) fn damaged_module() -> &'static str {
    "the file is damaged or not a module"
}

pub(crate) fn cannot_execute_tool(name: &str, error: impl Display) -> String {
    format!("cannot execute {name}: {error}")
}

pub(crate) fn cannot_copy_to_guest(program: &Path) -> String {
    format!("cannot copy {} to the guest", program.display())
}

pub(crate) fn cannot_write_workload(directory: &Path) -> String {
    format!("cannot write the workload's files to {}", directory.display())
}

pub(crate) fn no_compiler(what: &str) -> String {
    format!("{what}, which --workload make copies to the guest: apt-get install gcc make")
}

pub(crate) fn symbols_missing(image: &Path, missing: &str) -> String {
    format!(
        "{} lacks the symbols {missing}:\n  use a kernel with CONFIG_SMP, CONFIG_KALLSYMS_ALL and \
         CONFIG_UNINLINE_SPIN_UNLOCK, such as Debian's (`make kernel`)",
        image.display()
    )
}

pub(crate) fn boot_failed(image: &Path, why: &str) -> String {
    format!("{}: {why}", image.display())
}

pub(crate) fn guest_rejected(why: &str) -> String {
    format!("the guest does not work: {why}")
}

pub(crate) fn kernel_panicked(when: &str, reason: &str) -> String {
    format!("the kernel panicked {when}: {reason}")
}

pub(crate) fn guest_stopped(what: &str, seconds: f64, console: &str) -> String {
    format!("{what} within {seconds:.0} s; {console}")
}

pub(crate) fn cannot_save_symbols() -> &'static str {
    "cannot save the kernel's symbols"
}

pub(crate) fn cannot_write_initramfs() -> &'static str {
    "cannot write the guest's initramfs"
}

pub(crate) fn cannot_create_results_disk() -> &'static str {
    "cannot create the disk for the guest's results"
}

pub(crate) fn cannot_read_results_disk() -> &'static str {
    "cannot read the guest's results"
}

#[cfg(test)]
pub(crate) fn samples() -> Vec<String> {
    let image = Path::new("target/kernel/vmlinuz");
    let looked = "/usr/lib/unconvoy/kernel, /usr/kernel";
    vec![
        qemu_not_found("qemu-system-x86_64", 10, "", looked),
        qemu_not_executable("Permission denied (os error 13)"),
        not_qemu().into(),
        qemu_too_old(7, 10),
        qemu_without_plugins().into(),
        kernel_not_found(looked),
        not_a_kernel().into(),
        no_such_directory().into(),
        busybox_not_found().into(),
        busybox_not_static(Path::new("/bin/busybox")),
        mke2fs_not_found().into(),
        cannot_create_disk(Path::new("/tmp/unconvoy"), "Could not allocate block"),
        cannot_read_module(Path::new("ext4.ko.xz"), damaged_module()),
        damaged_module().into(),
        cannot_execute_tool("zstd", "No such file or directory (os error 2)"),
        cannot_copy_to_guest(Path::new("/usr/bin/gcc")),
        cannot_write_workload(Path::new("/tmp/unconvoy/tree")),
        no_compiler("make not found"),
        symbols_missing(image, "_raw_spin_lock, _raw_spin_unlock"),
        boot_failed(image, "the kernel did not reach init within 300 s; nothing on its console"),
        guest_rejected("the kernel has no virtio disk"),
        kernel_panicked("before it reached init", "VFS: Unable to mount root fs"),
        guest_stopped("the guest's command did not end", 60.0, "nothing on its console"),
        cannot_save_symbols().into(),
        cannot_write_initramfs().into(),
        cannot_create_results_disk().into(),
        cannot_read_results_disk().into(),
    ]
}
