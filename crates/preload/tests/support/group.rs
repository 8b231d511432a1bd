//! A control group of one test, and the places where tests may make one.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::Pid;

/// The parent of version 2 groups, which can be frozen, or why there is none.
pub fn version_2_parent() -> Result<PathBuf, String> {
    let root = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(PathBuf::from);
    root.into_iter()
        .find(|path| path.join("cgroup.controllers").is_file())
        .ok_or("no version 2 control groups are mounted".to_owned())
}

/// The parent of groups with a quota of processor time, by version 1's controller.
pub fn version_1_quota_parent() -> Result<PathBuf, String> {
    let parents = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"].map(PathBuf::from);
    parents
        .into_iter()
        .find(|path| path.join("cpu.cfs_quota_us").is_file())
        .ok_or("no version 1 controller of processor time is mounted".to_owned())
}

/// The parent of groups with a quota of processor time, by version 2's controller.
pub fn version_2_quota_parent() -> Result<PathBuf, String> {
    let root = version_2_parent()?;
    let has_cpu = |name: &str| {
        fs::read_to_string(root.join(name))
            .is_ok_and(|text| text.split_whitespace().any(|word| word == "cpu"))
    };
    if !has_cpu("cgroup.controllers") {
        return Err(
            "version 2 control groups have no cpu controller here (it is version 1's)".to_owned()
        );
    }
    if !has_cpu("cgroup.subtree_control") {
        return Err(
            "the cpu controller is not enabled below the root of the version 2 groups".to_owned()
        );
    }
    Ok(root)
}

/// A control group; removed on drop.
pub struct Group(PathBuf);

impl Group {
    /// Makes a group below `parent`, or says why not.
    pub fn make(parent: &Path) -> Result<Self, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("unconvoy-test-{}-{number}", std::process::id()));
        fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Group(path))
    }

    /// Moves a process into the group.
    pub fn add(&self, pid: Pid) -> std::io::Result<()> {
        fs::write(self.0.join("cgroup.procs"), pid.as_raw_nonzero().to_string())
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A killed process leaves its group a moment later.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            sleep(Duration::from_millis(20));
        }
        println!("{} is still there", self.0.display());
    }
}
