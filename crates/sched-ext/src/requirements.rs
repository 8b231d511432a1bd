//! The scheduler's requirements on the machine.

use std::path::Path;

use crate::messages;

/// The first release with sched_ext.
const RELEASE: (u32, u32) = (6, 12);

/// Numbers of capabilities, from `include/uapi/linux/capability.h`.
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// The properties of a machine that matter here.
#[derive(Debug)]
pub struct Machine {
    /// Kernel release, as `uname -r` prints it.
    pub release: String,
    /// Effective capabilities, from `/proc/self/status`.
    pub capabilities: u64,
    /// Whether `/sys/kernel/sched_ext` exists.
    pub has_sched_ext: bool,
    /// Whether `/sys/kernel/btf/vmlinux` exists.
    pub has_types: bool,
    /// Whether this process is in the initial PID namespace.
    pub is_in_first_namespace: bool,
    /// Name of a sched_ext scheduler that is already loaded.
    pub other: Option<String>,
}

impl Machine {
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
            is_in_first_namespace: std::fs::metadata("/proc/self/ns/pid")
                .is_ok_and(|space| space.ino() == FIRST),
            other: (state.trim() == "enabled")
                .then(|| read("/sys/kernel/sched_ext/root/ops").trim().into()),
        }
    }

    /// The missing requirements, each with its remedy.
    pub fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        let has = |capability: u32| self.capabilities & (1 << CAP_SYS_ADMIN | 1 << capability) != 0;
        if !has(CAP_BPF) || !has(CAP_PERFMON) {
            missing.push(messages::PRIVILEGE_REQUIRED.into());
        }
        if release(&self.release).is_some_and(|release| release < RELEASE) {
            missing.push(messages::release_required(RELEASE, &self.release));
        }
        if !self.has_sched_ext {
            missing.push(messages::SCHED_EXT_REQUIRED.into());
        }
        if !self.has_types {
            missing.push(messages::BTF_REQUIRED.into());
        }
        if !self.is_in_first_namespace {
            missing.push(messages::NAMESPACE_REQUIRED.into());
        }
        if let Some(other) = &self.other {
            missing.push(messages::other_scheduler(other));
        }
        missing
    }
}

fn release(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|byte: char| !byte.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

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
    fn complete_machine_misses_nothing() {
        assert_eq!(complete().missing(), [""; 0]);
        assert_eq!(Machine { capabilities: 1 << CAP_SYS_ADMIN, ..complete() }.missing(), [""; 0]);
        assert_eq!(Machine { release: "7.3.4".into(), ..complete() }.missing(), [""; 0]);
    }

    #[test]
    fn bare_machine_misses_every_requirement() {
        let bare = Machine {
            release: "6.1.0-31".into(),
            capabilities: 0,
            has_sched_ext: false,
            has_types: false,
            is_in_first_namespace: false,
            other: Some("scx_lavd".into()),
        };
        let missing = bare.missing();
        let named = [
            "root",
            "6.12",
            "CONFIG_SCHED_CLASS_EXT",
            "CONFIG_DEBUG_INFO_BTF",
            "container",
            "scx_lavd",
        ];
        assert_eq!(missing.len(), named.len());
        for (requirement, name) in missing.iter().zip(named) {
            assert!(requirement.contains(name), "{requirement}");
        }
        assert_eq!(messages::requirements_missing(&missing).lines().count(), 1 + named.len());
    }

    #[test]
    fn release_and_capabilities_are_parsed() {
        assert_eq!(release("6.1.0-31-amd64"), Some((6, 1)));
        assert_eq!(release("7.3.4+deb13-cloud-amd64"), Some((7, 3)));
        assert_eq!(release("strange"), None);
        assert_eq!(effective("Name:\tx\nCapEff:\t000001ffffffffff\n"), 0x1ff_ffff_ffff);
        assert_eq!(effective(""), 0);
    }
}
