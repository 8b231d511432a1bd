//! The machine and the time of a measurement, without which its figures mean nothing.

use std::ffi::CStr;
use std::fs;

use serde::{Deserialize, Serialize};

use crate::arguments::processor_count;

/// The machine's properties, which a measurement does not change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Processor model.
    pub cpu: String,
    /// Online processors.
    #[serde(default)]
    pub processors_online: Option<u32>,
    /// Processors in the affinity mask.
    #[serde(default)]
    pub processors_allowed: Option<u32>,
    /// Processors that affinity mask and cgroup quota allow, rounded down.
    pub processors: u32,
    /// Quota of the process's own cgroup, `QUOTA PERIOD` in microseconds; `None` without a quota or
    /// if it cannot be read.
    #[serde(default)]
    pub quota: Option<String>,
    /// Frequency governor of the first processor, if known.
    #[serde(default)]
    pub governor: Option<String>,
    /// Main memory, KiB.
    pub memory_kib: Option<u64>,
    /// Operating system and kernel release.
    pub kernel: String,
    /// The C library that the name `libc` stands for.
    pub libc: String,
    /// Version of this command and of its library.
    pub unconvoy: String,
}

/// Context block of a benchmark's record.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Context {
    /// The machine.
    #[serde(flatten)]
    pub machine: Machine,
    /// Start of the benchmark, UTC.
    pub date: String,
    /// The whole command line.
    pub command: Vec<String>,
    /// One-minute load average before the first run.
    pub load_average_before: Option<f64>,
    /// One-minute load average after the last run, the benchmark's own load included.
    pub load_average_after: Option<f64>,
    /// Seed of the order of the runs.
    pub seed: u64,
}

impl Machine {
    /// Captures the machine's present state.
    pub fn capture() -> Self {
        Self {
            cpu: cpu_model(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
            processors_online: processors_online(),
            processors_allowed: processors_allowed(),
            processors: processors(),
            quota: quota(),
            governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            memory_kib: fs::read_to_string("/proc/meminfo")
                .ok()
                .and_then(|text| kib(&text, "MemTotal:")),
            kernel: kernel(),
            libc: libc_version(),
            unconvoy: env!("CARGO_PKG_VERSION").to_string(),
        }
    }

    /// Returns processor, number of processors, kernel and C library in one line.
    pub fn line(&self) -> String {
        format!(
            "{}, {}, {}, {}",
            self.cpu,
            processor_count(self.processors),
            self.kernel,
            self.libc
        )
    }
}

impl Context {
    /// Captures the machine's present state.
    pub fn capture(seed: u64) -> Self {
        Self {
            machine: Machine::capture(),
            date: now(),
            command: command_line(),
            load_average_before: load_average(),
            load_average_after: None,
            seed,
        }
    }

    /// Records the load average after the last run.
    pub fn close(&mut self) {
        self.load_average_after = load_average();
    }

    /// Returns one line for below a table.
    pub fn line(&self) -> String {
        let load = |load: Option<f64>| {
            load.map_or_else(|| "unknown".to_string(), |load| format!("{load:.2}"))
        };
        format!(
            "{}, {}; load average {} before, {} after; seed {}",
            self.machine.line(),
            self.date,
            load(self.load_average_before),
            load(self.load_average_after),
            self.seed
        )
    }
}

/// Returns the current time, UTC.
pub fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// Returns this process's command line.
pub fn command_line() -> Vec<String> {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Returns the number of processors that this process may use, at least 1.
pub fn processors() -> u32 {
    std::thread::available_parallelism()
        .map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX))
}

/// Returns the one-minute load average.
pub fn load_average() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

/// Returns the number of the line `NAME: NUMBER kB` in `text`.
pub fn kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

fn line(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_string()).filter(|text| !text.is_empty())
}

fn processors_allowed() -> Option<u32> {
    let set = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).ok()?;
    Some((0..nix::sched::CpuSet::count()).filter(|&cpu| set.is_set(cpu).unwrap_or(false)).count()
        as u32)
}

fn processors_online() -> Option<u32> {
    count_list(&line("/sys/devices/system/cpu/online")?)
}

/// Counts the members of a kernel list such as `0-3,8`.
fn count_list(list: &str) -> Option<u32> {
    let mut count = 0;
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        count += last.checked_sub(first)? + 1;
    }
    Some(count)
}

/// Reads the quota of this process's own cgroup, version 2 or 1. Parent groups may have tighter
/// quotas, which [`processors`] accounts for.
fn quota() -> Option<String> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    groups.lines().find_map(|group| {
        let mut fields = group.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        if controllers.is_empty() {
            line(&format!("/sys/fs/cgroup{path}/cpu.max")).filter(|limit| !limit.starts_with("max"))
        } else if controllers.split(',').any(|controller| controller == "cpu") {
            let of =
                |name: &str| line(&format!("/sys/fs/cgroup/{controllers}{path}/cpu.cfs_{name}_us"));
            Some(format!(
                "{} {}",
                of("quota").filter(|quota| !quota.starts_with('-'))?,
                of("period")?
            ))
        } else {
            None
        }
    })
}

/// Returns the processor's model: `model name` on x86, `cpu model` or `Hardware` elsewhere.
fn cpu_model(cpuinfo: &str) -> String {
    let field = |name: &str| {
        let mut fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = fields.find(|(key, _)| key.trim() == name)?;
        Some(value.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let unknown = || format!("unknown {} processor", std::env::consts::ARCH);
    field("model name")
        .or_else(|| field("cpu model"))
        .or_else(|| field("Hardware"))
        .unwrap_or_else(unknown)
}

fn kernel() -> String {
    let part =
        |name: &str| fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    format!("{} {}", part("ostype").trim(), part("osrelease").trim())
}

fn libc_version() -> String {
    // SAFETY: glibc returns a pointer to a static NUL-terminated string.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    format!("glibc {}", version.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_fields_are_parsed() {
        assert_eq!(kib("MemTotal:  2048 kB\nMemFree: 7 kB\n", "MemFree:"), Some(7));
        assert_eq!(kib("MemTotal:  x kB\n", "MemTotal:"), None);
        assert_eq!(cpu_model("processor : 0\nmodel name\t: A  B\n"), "A B");
        assert!(cpu_model("").starts_with("unknown "));
    }

    #[test]
    fn kernel_lists_are_counted() {
        assert_eq!(count_list("0"), Some(1));
        assert_eq!(count_list("0-3,8"), Some(5));
        assert_eq!(count_list(""), None);
        assert_eq!(count_list("3-0"), None);
    }

    #[test]
    fn capture_describes_this_machine() {
        let context = Context::capture(3);
        let machine = &context.machine;
        assert!(machine.processors >= 1 && context.seed == 3);
        assert!(machine.processors_online >= Some(1) && machine.processors_allowed >= Some(1));
        assert!(machine.kernel.starts_with("Linux ") && machine.libc.starts_with("glibc 2."));
        assert!(machine.memory_kib > Some(1024) && !machine.cpu.is_empty());
        assert!(context.date.ends_with(" UTC") && context.line().contains("unknown after"));
    }

    #[test]
    fn machine_round_trips_through_json() {
        let machine = Machine::capture();
        let text = serde_json::to_string(&machine).expect("JSON");
        assert_eq!(serde_json::from_str::<Machine>(&text).expect("a machine"), machine);
    }
}
