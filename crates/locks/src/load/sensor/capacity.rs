//! How many processors the process may use: its affinity mask, and the quota of its control groups.
//!
//! A quota of 150 ms in a period of 100 ms is 1.5 processors. Every ancestor's quota counts, the
//! smallest wins. Version 2 keeps it in `cpu.max`, version 1 in `cpu.cfs_quota_us` and
//! `cpu.cfs_period_us`. Control groups are looked for where distributions mount them, below
//! `/sys/fs/cgroup`.
//!
//! As the sensor that uses it: no allocation, no panic, no thread-local storage.

use core::ffi::CStr;

use rustix::thread::{CpuSet, sched_getaffinity};

use super::file::File;

const PATH: usize = 1024;

/// The capacity, as last looked at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Capacity {
    affinity: u32,
    quota: Option<f64>,
}

impl Default for Capacity {
    fn default() -> Self {
        Capacity { affinity: 1, quota: None }
    }
}

impl Capacity {
    /// Looks at the masks of the process's threads and at its quota.
    pub fn look(&mut self, threads: impl Iterator<Item = u32>) {
        self.affinity = affinity(threads);
        self.quota = quota();
    }

    /// The processors that the process may use, as a number above 0.
    pub fn processors(&self) -> f64 {
        let affinity = f64::from(self.affinity.max(1));
        self.quota.map_or(affinity, |quota| quota.min(affinity).max(0.01))
    }
}

/// Processors in the union of the threads' masks: programs pin their threads one by one.
fn affinity(threads: impl Iterator<Item = u32>) -> u32 {
    let mut union = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    for thread in threads.take(256) {
        let mask = rustix::thread::Pid::from_raw(thread.cast_signed()).map(|id| sched_getaffinity(Some(id)));
        if let Some(Ok(mask)) = mask {
            (0..CpuSet::MAX_CPU).filter(|&cpu| mask.is_set(cpu)).for_each(|cpu| union.set(cpu));
        }
    }
    union.count()
}

/// Text in a buffer of its own.
struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    fn new() -> Self {
        Text { bytes: [0; N], len: 0 }
    }

    fn read(path: &CStr) -> Option<Self> {
        let mut text = Text::new();
        text.len = File::open(path)?.read_into(&mut text.bytes)?;
        Some(text)
    }

    fn get(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Appends, or says that it does not fit (with the terminating zero).
    fn push(&mut self, more: &[u8]) -> Option<()> {
        let end = self.len + more.len();
        self.bytes.get_mut(self.len..end)?.copy_from_slice(more);
        self.len = end;
        (end < N).then_some(())
    }

    fn as_cstr(&self) -> Option<&CStr> {
        CStr::from_bytes_until_nul(&self.bytes).ok()
    }
}

fn number(text: &[u8]) -> Option<f64> {
    let digits = text.split(|byte| !byte.is_ascii_digit()).next().filter(|digits| !digits.is_empty())?;
    Some(digits.iter().fold(0.0, |number, byte| number * 10.0 + f64::from(byte - b'0')))
}

/// The quota in processors that `cpu.max` states: `QUOTA PERIOD`, or `max PERIOD` for none.
fn parse_cpu_max(text: &[u8]) -> Option<f64> {
    let mut fields = text.split(|&byte| byte == b' ');
    let (quota, period) = (number(fields.next()?)?, number(fields.next()?)?);
    (period > 0.0).then(|| quota / period)
}

/// The smallest quota of the process's groups, in processors.
fn quota() -> Option<f64> {
    let groups = Text::<4096>::read(c"/proc/self/cgroup")?;
    groups.get().split(|&byte| byte == b'\n').filter_map(group_quota).reduce(f64::min)
}

/// The quota that one line of `/proc/self/cgroup`, `ID:CONTROLLERS:PATH`, comes to.
fn group_quota(line: &[u8]) -> Option<f64> {
    let mut fields = line.splitn(3, |&byte| byte == b':');
    let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let mounts: &[&[u8]] = if controllers.is_empty() {
        &[b"/sys/fs/cgroup", b"/sys/fs/cgroup/unified"]
    } else if controllers.split(|&byte| byte == b',').any(|name| name == b"cpu") {
        &[b"/sys/fs/cgroup/cpu", b"/sys/fs/cgroup/cpu,cpuacct"]
    } else {
        return None;
    };
    mounts.iter().filter_map(|mount| path_quota(mount, path, controllers.is_empty())).reduce(f64::min)
}

/// The smallest quota from `path` up to the root of `mount`.
fn path_quota(mount: &[u8], path: &[u8], unified: bool) -> Option<f64> {
    let mut smallest: Option<f64> = None;
    let mut path = path.strip_suffix(b"/").unwrap_or(path);
    loop {
        let quota = if unified { v2_quota(mount, path) } else { v1_quota(mount, path) };
        smallest = [smallest, quota].into_iter().flatten().reduce(f64::min);
        let Some(parent) = path.iter().rposition(|&byte| byte == b'/') else {
            return smallest;
        };
        path = path.get(..parent)?;
    }
}

fn read_in(mount: &[u8], path: &[u8], name: &[u8]) -> Option<Text<64>> {
    let mut full = Text::<PATH>::new();
    [mount, path, b"/", name].into_iter().try_for_each(|part| full.push(part))?;
    Text::read(full.as_cstr()?)
}

fn v2_quota(mount: &[u8], path: &[u8]) -> Option<f64> {
    parse_cpu_max(read_in(mount, path, b"cpu.max")?.get())
}

fn v1_quota(mount: &[u8], path: &[u8]) -> Option<f64> {
    let quota = number(read_in(mount, path, b"cpu.cfs_quota_us")?.get())?; // -1, which is no number here, for none
    let period = number(read_in(mount, path, b"cpu.cfs_period_us")?.get())?;
    (period > 0.0).then(|| quota / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_max_is_a_ratio_or_nothing() {
        assert_eq!(parse_cpu_max(b"150000 100000\n"), Some(1.5));
        assert_eq!(parse_cpu_max(b"max 100000\n"), None);
        assert_eq!(parse_cpu_max(b""), None);
        assert_eq!(parse_cpu_max(b"5 0"), None);
    }

    #[test]
    fn the_smaller_of_mask_and_quota_counts() {
        assert_eq!(Capacity { affinity: 4, quota: Some(1.5) }.processors(), 1.5);
        assert_eq!(Capacity { affinity: 1, quota: Some(1.5) }.processors(), 1.0);
        assert_eq!(Capacity { affinity: 4, quota: None }.processors(), 4.0);
    }

    #[test]
    fn paths_are_walked_to_the_root() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let group = root.path().join("a/b");
        std::fs::create_dir_all(&group).expect("directories");
        std::fs::write(group.join("cpu.max"), "max 100000\n").expect("a file");
        std::fs::write(root.path().join("a/cpu.max"), "50000 100000\n").expect("a file");
        let mount = root.path().to_str().expect("UTF-8").as_bytes();
        assert_eq!(path_quota(mount, b"/a/b", true), Some(0.5));
        assert_eq!(path_quota(mount, b"/", true), None);
        std::fs::write(group.join("cpu.cfs_quota_us"), "-1\n").expect("a file");
        std::fs::write(group.join("cpu.cfs_period_us"), "100000\n").expect("a file");
        assert_eq!(path_quota(mount, b"/a/b", false), None);
        std::fs::write(group.join("cpu.cfs_quota_us"), "200000\n").expect("a file");
        assert_eq!(path_quota(mount, b"/a/b", false), Some(2.0));
    }

    #[test]
    fn this_machine_has_a_processor() {
        let mut capacity = Capacity::default();
        capacity.look(core::iter::empty());
        assert!(capacity.processors() > 0.0);
    }
}
