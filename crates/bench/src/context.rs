//! The machine and the moment: without them a figure means nothing.

use std::ffi::CStr;
use std::fs;

use serde::{Deserialize, Serialize};

/// The context block of a record.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Context {
    /// Processor model.
    pub cpu: String,
    /// Processors' worth of time that affinity mask and control-group quota allow, rounded down.
    pub processors: u32,
    /// Main memory, KiB.
    pub memory_kib: Option<u64>,
    /// Operating system and release of the kernel.
    pub kernel: String,
    /// The C library whose locks `libc` means.
    pub libc: String,
    /// Start of the benchmark, UTC.
    pub date: String,
    /// The whole command line.
    pub command: Vec<String>,
    /// One-minute load average of the machine before the first run.
    pub load_average_before: Option<f64>,
    /// The same after the last run; the benchmark itself is part of it.
    pub load_average_after: Option<f64>,
    /// Seed of the order of the runs.
    pub seed: u64,
    /// Version of this command.
    pub unconvoy: String,
}

impl Context {
    /// Looks at the machine now.
    pub fn capture(seed: u64) -> Self {
        Self {
            cpu: cpu_model(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
            processors: processors(),
            memory_kib: fs::read_to_string("/proc/meminfo").ok().and_then(|text| kib(&text, "MemTotal:")),
            kernel: kernel(),
            libc: libc_version(),
            date: jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
            command: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
            load_average_before: load_average(),
            load_average_after: None,
            seed,
            unconvoy: env!("CARGO_PKG_VERSION").to_string(),
        }
    }

    /// Notes that the last run has ended.
    pub fn close(&mut self) {
        self.load_average_after = load_average();
    }

    /// The line under a table.
    pub fn line(&self) -> String {
        let load = |load: Option<f64>| load.map_or_else(|| "unknown".to_string(), |load| format!("{load:.2}"));
        format!(
            "{}, {} processor(s), {}, {}, {}; load average {} before, {} after; seed {}",
            self.cpu,
            self.processors,
            self.kernel,
            self.libc,
            self.date,
            load(self.load_average_before),
            load(self.load_average_after),
            self.seed
        )
    }
}

/// Processors' worth of time that this process may use, at least 1.
pub fn processors() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX))
}

/// The number behind `name` in a file of `NAME: NUMBER kB` lines.
pub fn kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

fn load_average() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

/// `model name` on x86; other machines have `Hardware` or nothing.
fn cpu_model(cpuinfo: &str) -> String {
    let field = |name: &str| {
        let mut fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = fields.find(|(key, _)| key.trim() == name)?;
        Some(value.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let unknown = || format!("unknown {} processor", std::env::consts::ARCH);
    field("model name").or_else(|| field("Hardware")).unwrap_or_else(unknown)
}

fn kernel() -> String {
    let part = |name: &str| fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    format!("{} {}", part("ostype").trim(), part("osrelease").trim())
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
    fn fields_of_proc_files() {
        assert_eq!(kib("MemTotal:  2048 kB\nMemFree: 7 kB\n", "MemFree:"), Some(7));
        assert_eq!(kib("MemTotal:  x kB\n", "MemTotal:"), None);
        assert_eq!(cpu_model("processor : 0\nmodel name\t: A  B\n"), "A B");
        assert!(cpu_model("").starts_with("unknown "));
    }

    #[test]
    fn this_machine_has_a_context() {
        let context = Context::capture(3);
        assert!(context.processors >= 1 && context.seed == 3);
        assert!(context.kernel.starts_with("Linux ") && context.libc.starts_with("glibc 2."));
        assert!(context.line().contains("unknown after"));
    }
}
