//! What the scheduler needs of the machine, each with what to do where it is missing.

use std::fmt::Write;
use std::path::Path;

/// The first release with sched_ext.
const RELEASE: (u32, u32) = (6, 12);

/// Capabilities, by their numbers in `include/uapi/linux/capability.h`.
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// The machine as it presents itself.
#[derive(Debug)]
pub struct Machine {
    /// `uname -r`.
    pub release: String,
    /// Effective capabilities, as in `/proc/self/status`.
    pub capabilities: u64,
    /// Whether there is `/sys/kernel/sched_ext`.
    pub has_sched_ext: bool,
    /// Whether there is `/sys/kernel/btf/vmlinux`.
    pub has_types: bool,
    /// Whether this process is in the first PID namespace.
    pub is_in_first_namespace: bool,
    /// The scheduler that is loaded already.
    pub other: Option<String>,
}

impl Machine {
    /// This one.
    pub fn this() -> Self {
        use std::os::unix::fs::MetadataExt;
        const FIRST: u64 = 0xEFFF_FFFC; // PROC_PID_INIT_INO of include/linux/proc_ns.h
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let state = read("/sys/kernel/sched_ext/state");
        Machine {
            release: read("/proc/sys/kernel/osrelease").trim().into(),
            capabilities: effective(&read("/proc/self/status")),
            has_sched_ext: Path::new("/sys/kernel/sched_ext").is_dir(),
            has_types: Path::new("/sys/kernel/btf/vmlinux").exists(),
            is_in_first_namespace: std::fs::metadata("/proc/self/ns/pid").is_ok_and(|space| space.ino() == FIRST),
            other: (state.trim() == "enabled").then(|| read("/sys/kernel/sched_ext/root/ops").trim().into()),
        }
    }

    /// What is missing, one line each: what and what to do.
    pub fn lacks(&self) -> Vec<String> {
        let mut lacks = Vec::new();
        let has = |capability: u32| self.capabilities & (1 << CAP_SYS_ADMIN | 1 << capability) != 0;
        if !has(CAP_BPF) || !has(CAP_PERFMON) {
            lacks.push("privilege: run it as root (sudo), or with CAP_SYS_ADMIN, or CAP_BPF and CAP_PERFMON".into());
        }
        if release(&self.release).is_some_and(|release| release < RELEASE) {
            let (major, minor) = RELEASE;
            let old = &self.release;
            lacks.push(format!("a kernel of release {major}.{minor} or later (this is {old}): boot a newer one"));
        }
        if !self.has_sched_ext {
            let remedy =
                "boot a kernel that was built with it; distributions' kernels of release 6.12 and later mostly are";
            lacks.push(format!("CONFIG_SCHED_CLASS_EXT (there is no /sys/kernel/sched_ext): {remedy}"));
        }
        if !self.has_types {
            let remedy = "boot a kernel that was built with it";
            lacks.push(format!("CONFIG_DEBUG_INFO_BTF (there is no /sys/kernel/btf/vmlinux): {remedy}"));
        }
        if !self.is_in_first_namespace {
            lacks.push("the machine's own process ids: run it outside of a container (PID namespace)".into());
        }
        if let Some(other) = &self.other {
            lacks.push(format!("room for a scheduler: {other} is loaded, and there can be one only: end it first"));
        }
        lacks
    }
}

/// All that is missing, as one text.
pub fn explain(lacks: &[String]) -> String {
    let mut text = String::from("this machine cannot run the scheduler; it lacks");
    for lack in lacks {
        let _ = write!(text, "\n  - {lack}");
    }
    text
}

fn release(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|byte: char| !byte.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// `CapEff:` of `/proc/self/status`.
fn effective(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete() -> Machine {
        Machine {
            release: "6.12.9-cloud-amd64".into(),
            capabilities: 1 << CAP_BPF | 1 << CAP_PERFMON,
            has_sched_ext: true,
            has_types: true,
            is_in_first_namespace: true,
            other: None,
        }
    }

    #[test]
    fn nothing_is_missing_where_all_is_there() {
        assert_eq!(complete().lacks(), [""; 0]);
        assert_eq!(Machine { capabilities: 1 << CAP_SYS_ADMIN, ..complete() }.lacks(), [""; 0]);
        assert_eq!(Machine { release: "7.3.4".into(), ..complete() }.lacks(), [""; 0]);
    }

    #[test]
    fn each_thing_that_is_missing_is_named() {
        let bare = Machine {
            release: "6.1.0-31".into(),
            capabilities: 0,
            has_sched_ext: false,
            has_types: false,
            is_in_first_namespace: false,
            other: Some("scx_lavd".into()),
        };
        let lacks = bare.lacks();
        let named = ["root", "6.12", "CONFIG_SCHED_CLASS_EXT", "CONFIG_DEBUG_INFO_BTF", "container", "scx_lavd"];
        assert_eq!(lacks.len(), named.len());
        for (lack, name) in lacks.iter().zip(named) {
            assert!(lack.contains(name), "{lack}");
        }
        assert_eq!(explain(&lacks).lines().count(), 1 + named.len());
    }

    #[test]
    fn releases_and_capabilities_are_read_as_the_kernel_writes_them() {
        assert_eq!(release("6.1.0-31-amd64"), Some((6, 1)));
        assert_eq!(release("7.3.4+deb13-cloud-amd64"), Some((7, 3)));
        assert_eq!(release("strange"), None);
        assert_eq!(effective("Name:\tx\nCapEff:\t000001ffffffffff\n"), 0x1ff_ffff_ffff);
        assert_eq!(effective(""), 0);
    }
}
