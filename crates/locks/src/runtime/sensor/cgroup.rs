//! The processor quota of the process's control groups, and files of its own group.
//!
//! A quota of 150 ms in a period of 100 ms is 1.5 processors. The smallest quota of a group and its
//! ancestors applies. Version 2 keeps it in `cpu.max`, version 1 in `cpu.cfs_quota_us` and
//! `cpu.cfs_period_us`. Control groups are searched below `/sys/fs/cgroup`, where distributions
//! mount them. If both versions are mounted (the hybrid layout), the groups of both apply.
//!
//! As in the sensors, code here does not allocate, panic or use thread-local storage.

use core::ffi::CStr;

use super::file::File;

const PATH: usize = 1024;

/// Mount points of version 2: alone, and beside version 1.
const UNIFIED: &[&[u8]] = &[b"/sys/fs/cgroup", b"/sys/fs/cgroup/unified"];
/// Mount points of version 1's cpu controller.
const VERSION_1: &[&[u8]] = &[b"/sys/fs/cgroup/cpu", b"/sys/fs/cgroup/cpu,cpuacct"];

/// Text in a fixed buffer.
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

    /// Appends `more`; `None` if it does not fit with a terminating zero.
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
    let digits =
        text.split(|byte| !byte.is_ascii_digit()).next().filter(|digits| !digits.is_empty())?;
    Some(digits.iter().fold(0.0, |number, byte| number * 10.0 + f64::from(byte - b'0')))
}

/// The quota in processors that `cpu.max` states as `QUOTA PERIOD`; `None` for `max PERIOD`.
fn parse_cpu_max(text: &[u8]) -> Option<f64> {
    let mut fields = text.split(|&byte| byte == b' ');
    let (quota, period) = (number(fields.next()?)?, number(fields.next()?)?);
    (period > 0.0).then(|| quota / period)
}

/// The groups of the main thread, or of the calling one, which in version 1 may be in others, if
/// the main thread has ended: version 1 then reports it in the root.
fn groups() -> Option<Text<4096>> {
    let stat = Text::<PATH>::read(c"/proc/self/stat");
    let main_has_ended = stat.is_some_and(|stat| is_zombie(stat.get()));
    Text::read(if main_has_ended { c"/proc/thread-self/cgroup" } else { c"/proc/self/cgroup" })
}

/// Whether `/proc/self/stat` has the state `Z`, behind the name in brackets.
fn is_zombie(stat: &[u8]) -> bool {
    let end = stat.iter().rposition(|&byte| byte == b')');
    end.is_some_and(|end| stat.get(end + 2) == Some(&b'Z'))
}

/// The smallest quota of the process's groups in processors, if they have one; `None` if the groups
/// cannot be read.
pub(super) fn quota() -> Option<Option<f64>> {
    let groups = groups()?;
    Some(groups.get().split(|&byte| byte == b'\n').filter_map(group_quota).reduce(f64::min))
}

/// The controllers and the path in a line of `/proc/self/cgroup`, `ID:CONTROLLERS:PATH`. The line
/// of version 2 names no controllers.
fn controllers_and_path(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut fields = line.splitn(3, |&byte| byte == b':');
    let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    Some((controllers, path))
}

/// The smallest quota for one line of `/proc/self/cgroup`.
fn group_quota(line: &[u8]) -> Option<f64> {
    let (controllers, path) = controllers_and_path(line)?;
    let mounts = if controllers.is_empty() {
        UNIFIED
    } else if controllers.split(|&byte| byte == b',').any(|name| name == b"cpu") {
        VERSION_1
    } else {
        return None;
    };
    mounts
        .iter()
        .filter_map(|mount| path_quota(mount, path, controllers.is_empty()))
        .reduce(f64::min)
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

/// The path of the file `name` of a group.
fn path_in(mount: &[u8], path: &[u8], name: &[u8]) -> Option<Text<PATH>> {
    let mut full = Text::new();
    [mount, path, b"/", name].into_iter().try_for_each(|part| full.push(part))?;
    Some(full)
}

fn read_in(mount: &[u8], path: &[u8], name: &[u8]) -> Option<Text<64>> {
    Text::read(path_in(mount, path, name)?.as_cstr()?)
}

fn v2_quota(mount: &[u8], path: &[u8]) -> Option<f64> {
    parse_cpu_max(read_in(mount, path, b"cpu.max")?.get())
}

fn v1_quota(mount: &[u8], path: &[u8]) -> Option<f64> {
    // -1 means no quota; `number` rejects it.
    let quota = number(read_in(mount, path, b"cpu.cfs_quota_us")?.get())?;
    let period = number(read_in(mount, path, b"cpu.cfs_period_us")?.get())?;
    (period > 0.0).then(|| quota / period)
}

/// Opens the file `name` of the process's version 2 group; `None` in the root group.
pub(super) fn open_own(name: &[u8]) -> Option<File> {
    let groups = groups()?;
    let lines = groups.get().split(|&byte| byte == b'\n').filter_map(controllers_and_path);
    let (_, path) = lines.into_iter().find(|(controllers, _)| controllers.is_empty())?;
    let path = path.strip_suffix(b"/").unwrap_or(path);
    if path.is_empty() {
        return None;
    }
    UNIFIED.iter().find_map(|mount| File::open(path_in(mount, path, name)?.as_cstr()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_max_without_quota_is_none() {
        assert_eq!(parse_cpu_max(b"150000 100000\n"), Some(1.5));
        assert_eq!(parse_cpu_max(b"max 100000\n"), None);
        assert_eq!(parse_cpu_max(b""), None);
        assert_eq!(parse_cpu_max(b"5 0"), None);
    }

    #[test]
    fn state_of_a_process_stands_behind_its_name() {
        assert!(is_zombie(b"7 (a) S) Z 1 7"));
        assert!(!is_zombie(b"7 (a) Z) S 1 7"));
        assert!(!is_zombie(b"7 (a)"));
    }

    #[test]
    fn cgroup_line_of_either_version_is_split() {
        assert_eq!(
            controllers_and_path(b"3:cpu,cpuacct:/a:b"),
            Some((&b"cpu,cpuacct"[..], &b"/a:b"[..]))
        );
        assert_eq!(controllers_and_path(b"0::/"), Some((&b""[..], &b"/"[..])));
        assert_eq!(controllers_and_path(b""), None);
    }

    #[test]
    fn path_quota_is_smallest_up_to_root() {
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
}
