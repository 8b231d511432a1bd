//! The machine and the moment: without them a figure means nothing.

use std::ffi::CStr;

use serde::Serialize;

/// The context block of a record.
#[derive(Debug, Clone, Serialize)]
pub struct Context {
    /// Processor model.
    pub cpu: String,
    /// Processors that are switched on.
    pub processors_online: u32,
    /// Processors that the affinity mask allows.
    pub processors_allowed: u32,
    /// Processors' worth of time that mask and cgroup quota together allow, rounded down.
    pub processors: u32,
    /// Main memory, KiB.
    pub memory_kib: Option<u64>,
    /// Operating system and kernel release.
    pub kernel: String,
    /// The C library whose locks `libc` means.
    pub libc: String,
    /// Start of the comparison, UTC.
    pub date: String,
    /// One-minute load average at the start.
    pub load_average: Option<f64>,
    /// Version of this command.
    pub unconvoy: &'static str,
    /// The whole command line.
    pub command: Vec<String>,
}

impl Context {
    /// Looks at the machine now.
    pub fn capture() -> Self {
        Self {
            cpu: cpu_model(),
            processors_online: processors_online(),
            processors_allowed: processors_allowed(),
            processors: processors(),
            memory_kib: memory_kib(),
            kernel: kernel(),
            libc: libc_version(),
            date: jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
            load_average: load_average(),
            unconvoy: env!("CARGO_PKG_VERSION"),
            command: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
        }
    }

    /// The line under a table and a figure.
    pub fn line(&self) -> String {
        let processors = match self.processors {
            1 => "1 processor".to_string(),
            count => format!("{count} processors"),
        };
        format!("{}, {processors}, {}, {}, {}", self.cpu, self.kernel, self.libc, self.date)
    }

    /// Neighbours on the machine at the start, and what to do about them.
    pub fn warning(&self) -> Option<String> {
        let load = self.load_average.filter(|load| *load > f64::from(self.processors_online))?;
        Some(format!(
            "the load average is {load:.1} on {} processors: other programs are running; \
             stop them, or expect a wide spread",
            self.processors_online
        ))
    }
}

/// Processors' worth of time that this process may use: affinity mask and cgroup quota.
pub fn processors() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u32)
}

/// One-minute load average.
pub fn load_average() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

fn processors_allowed() -> u32 {
    let Ok(set) = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)) else {
        return processors();
    };
    (0..nix::sched::CpuSet::count()).filter(|&cpu| set.is_set(cpu).unwrap_or(false)).count() as u32
}

fn processors_online() -> u32 {
    std::fs::read_to_string("/sys/devices/system/cpu/online")
        .ok()
        .and_then(|text| count_list(text.trim()))
        .unwrap_or_else(processors)
}

/// Members of a kernel list such as `0-3,8`.
fn count_list(list: &str) -> Option<u32> {
    let mut count = 0;
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        count += last.checked_sub(first)? + 1;
    }
    Some(count)
}

/// `model name` on x86; other machines have `Hardware`, `cpu model` or nothing.
fn cpu_model() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        text.lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(key, _)| key.trim() == name)
            .map(|(_, value)| value.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    field("model name")
        .or_else(|| field("cpu model"))
        .or_else(|| field("Hardware"))
        .unwrap_or_else(|| format!("unknown {} processor", std::env::consts::ARCH))
}

fn memory_kib() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn kernel() -> String {
    nix::sys::utsname::uname().map_or_else(
        |_| "unknown kernel".to_string(),
        |name| format!("{} {}", name.sysname().to_string_lossy(), name.release().to_string_lossy()),
    )
}

fn libc_version() -> String {
    // SAFETY: glibc returns a pointer to a static, NUL-terminated string.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    format!("glibc {}", version.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_lists() {
        assert_eq!(count_list("0"), Some(1));
        assert_eq!(count_list("0-3,8"), Some(5));
        assert_eq!(count_list(""), None);
        assert_eq!(count_list("3-0"), None);
    }

    #[test]
    fn this_machine_has_a_context() {
        let context = Context::capture();
        assert!(context.processors >= 1 && context.processors_allowed >= 1);
        assert!(context.processors_online >= 1);
        assert!(context.kernel.starts_with("Linux ") && context.libc.starts_with("glibc 2."));
        assert!(context.date.ends_with(" UTC") && !context.cpu.is_empty());
        assert!(context.memory_kib.unwrap() > 1024);
    }

    #[test]
    fn neighbours_are_named_with_a_remedy() {
        let mut context = Context::capture();
        context.processors_online = 2;
        context.load_average = Some(1.9);
        assert_eq!(context.warning(), None);
        context.load_average = Some(2.5);
        assert!(context.warning().unwrap().contains("stop them"));
    }
}
