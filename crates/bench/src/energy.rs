//! Energy in joules, from the processors' counters (RAPL) in the kernel's powercap interface.
//!
//! The sum covers the packages and, if counted separately, their memory: the consumption of all
//! processors and memory, whichever program causes it. `core` and `uncore` are parts of a package,
//! `psys` contains the packages, and the `mmio` zones repeat the packages, so all of them are
//! ignored. A counter wraps around at a limit, after minutes at full power. Between two readings it
//! must not wrap twice.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use unconvoy::catalogue::environment;

use crate::messages;

/// Variable that overrides [`POWERCAP`].
const VARIABLE: &str = environment::POWERCAP.name;
/// Directory of the kernel's counters.
const POWERCAP: &str = "/sys/class/powercap";
/// Variable that makes a workload program print when its measured window opens and closes; see
/// `window_mark` of workloads/measure.h.
pub const WINDOW: &str = environment::WINDOW.name;
/// Lines that the program prints.
const OPEN: &[u8] = b"window open\n";
const CLOSED: &[u8] = b"window closed\n";

/// Measured value: energy per operation, joules.
pub const PER_OPERATION: &str = "joules_per_op";
/// Measured value: energy during the measured window, joules.
const IN_WINDOW: &str = "joules";
/// Measured value: energy of the whole run, joules, for programs with a fixed amount of work.
pub const IN_RUN: &str = "process_joules";

/// The energy counters of a machine.
#[derive(Debug)]
pub struct Counters {
    domains: Vec<Domain>,
}

#[derive(Debug)]
struct Domain {
    name: String,
    /// File with the counter in microjoules.
    path: PathBuf,
    /// Largest value before the counter wraps around, microjoules.
    range: u64,
}

impl Counters {
    /// Finds the counters below `directory`.
    ///
    /// # Errors
    ///
    /// There are no counters, or this process may not read one.
    pub fn below(directory: &Path) -> Result<Self, String> {
        let entries = fs::read_dir(directory).map_err(|error| match error.kind() {
            ErrorKind::NotFound => messages::no_such_directory(directory),
            _ => messages::unreadable(directory, error),
        })?;
        let mut paths: Vec<PathBuf> =
            entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.sort();
        let mut domains = Vec::new();
        for path in paths {
            let text = |name: &str| {
                fs::read_to_string(path.join(name)).unwrap_or_default().trim().to_string()
            };
            let is_copy =
                path.file_name().is_none_or(|name| name.to_string_lossy().contains("mmio"));
            let name = text("name");
            if is_copy || !(name.starts_with("package") || name == "dram") {
                continue;
            }
            let domain = Domain {
                name,
                path: path.join("energy_uj"),
                range: text("max_energy_range_uj").parse().unwrap_or(0),
            };
            domain.read()?;
            domains.push(domain);
        }
        if domains.is_empty() {
            return Err(messages::no_energy_counter(directory));
        }
        Ok(Self { domains })
    }

    /// Returns the names of the domains: `package-0, dram`.
    pub fn names(&self) -> String {
        self.domains.iter().map(|domain| domain.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    fn read(&self) -> Option<Vec<u64>> {
        self.domains.iter().map(|domain| domain.read().ok()).collect()
    }

    fn joules(&self, from: &[u64], to: &[u64]) -> f64 {
        let domains = self.domains.iter().zip(from.iter().zip(to));
        let microjoules: u64 = domains.map(|(domain, (&from, &to))| domain.between(from, to)).sum();
        microjoules as f64 / 1e6
    }
}

impl Domain {
    fn read(&self) -> Result<u64, String> {
        let text = fs::read_to_string(&self.path)
            .map_err(|error| messages::unreadable(&self.path, error))?;
        text.trim().parse().map_err(|_| messages::not_a_number(&self.path))
    }

    /// Returns the microjoules between two readings.
    fn between(&self, from: u64, to: u64) -> u64 {
        if to >= from { to - from } else { (self.range.saturating_sub(from)).saturating_add(to) }
    }
}

/// Returns this machine's counters, or why there are none.
pub fn counters() -> Result<&'static Counters, &'static str> {
    static FOUND: OnceLock<Result<Counters, String>> = OnceLock::new();
    let find = || {
        let named = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
        Counters::below(&named.map_or_else(|| PathBuf::from(POWERCAP), PathBuf::from))
    };
    FOUND.get_or_init(find).as_ref().map_err(String::as_str)
}

/// Returns a note for the record: the energy's source, or its substitute.
pub fn note() -> String {
    match counters() {
        Ok(counters) => format!(
            "Energy: the processors' own counters (RAPL: {}), for the whole machine with idle \
             processors and other programs, during the measured window.",
            counters.names()
        ),
        Err(why) => {
            format!(
                "Energy: no counter can be read ({why}); see processor time per operation instead."
            )
        }
    }
}

/// Measures the energy of one run and of its measured window.
#[derive(Debug, Default)]
pub struct Meter {
    began: Option<Vec<u64>>,
    open: Option<Vec<u64>>,
    joules: Option<f64>,
}

impl Meter {
    /// Starts at the beginning of a run.
    pub fn begin() -> Self {
        Self { began: counters().ok().and_then(Counters::read), ..Self::default() }
    }

    /// Searches the program's output so far for the window's marks, and reads the counters when the
    /// window opens and closes.
    pub fn see(&mut self, printed: &[u8]) {
        let Ok(counters) = counters() else { return };
        self.see_with(printed, || counters.read(), |from, to| counters.joules(from, to));
    }

    fn see_with(
        &mut self,
        printed: &[u8],
        read: impl Fn() -> Option<Vec<u64>>,
        joules: impl Fn(&[u64], &[u64]) -> f64,
    ) {
        let has = |marker: &[u8]| printed.windows(marker.len()).any(|part| part == marker);
        if self.joules.is_some() {
            return;
        }
        if self.open.is_none() && has(OPEN) {
            self.open = read();
        }
        if let Some(open) = &self.open
            && has(CLOSED)
        {
            self.joules = read().map(|now| joules(open, &now));
        }
    }

    /// Returns the energy of the run, which ends now.
    pub fn end(&self) -> Option<f64> {
        let counters = counters().ok()?;
        Some(counters.joules(self.began.as_ref()?, &counters.read()?))
    }

    /// Returns the window's values for the record; none without a counter or without marks of the
    /// window.
    pub fn values(&self, operations: Option<f64>) -> impl Iterator<Item = (&'static str, f64)> {
        let each = self
            .joules
            .zip(operations.filter(|&count| count > 0.0))
            .map(|(joules, count)| joules / count);
        self.joules
            .map(|joules| (IN_WINDOW, joules))
            .into_iter()
            .chain(each.map(|each| (PER_OPERATION, each)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(directory: &Path, zone: &str, files: &[(&str, &str)]) {
        let path = directory.join(zone);
        fs::create_dir(&path).expect("a zone");
        for (name, text) in files {
            fs::write(path.join(name), format!("{text}\n")).expect("a file");
        }
    }

    fn two_packages() -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a directory");
        let domain = |place: &str, name: &str, energy: &str| {
            zone(
                directory.path(),
                place,
                &[("name", name), ("energy_uj", energy), ("max_energy_range_uj", "1000000")],
            );
        };
        zone(directory.path(), "intel-rapl", &[("enabled", "1")]);
        domain("intel-rapl:0", "package-0", "900000");
        domain("intel-rapl:0:0", "core", "5");
        domain("intel-rapl:0:1", "dram", "100");
        domain("intel-rapl:1", "package-1", "7");
        domain("intel-rapl:2", "psys", "8");
        domain("intel-rapl-mmio:0", "package-0", "9");
        directory
    }

    #[test]
    fn counters_below_ignores_parts_and_copies() {
        let directory = two_packages();
        let counters = Counters::below(directory.path()).expect("counters");
        assert_eq!(counters.names(), "package-0, dram, package-1");
        assert_eq!(counters.read(), Some(vec![900_000, 100, 7]));
    }

    #[test]
    fn counter_wraps_around_at_its_limit() {
        let directory = two_packages();
        let counters = Counters::below(directory.path()).expect("counters");
        let before = counters.read().expect("readings");
        fs::write(directory.path().join("intel-rapl:0/energy_uj"), "50000\n").expect("written");
        fs::write(directory.path().join("intel-rapl:1/energy_uj"), "1007\n").expect("written");
        let joules = counters.joules(&before, &counters.read().expect("readings"));
        assert!((joules - 0.151).abs() < 1e-9, "{joules}");
    }

    #[test]
    fn counters_below_names_missing_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let none = Counters::below(directory.path()).expect_err("empty");
        assert!(none.contains("no energy counter"), "{none}");
        let none = Counters::below(&directory.path().join("nosuch")).expect_err("not there");
        assert!(none.contains("nosuch"), "{none}");
        zone(directory.path(), "intel-rapl:0", &[("name", "package-0")]);
        let none = Counters::below(directory.path()).expect_err("no number");
        assert!(none.contains("intel-rapl:0/energy_uj"), "{none}");
    }

    #[test]
    fn meter_measures_between_window_marks() {
        let reading = std::cell::Cell::new(0);
        let read = || {
            reading.set(reading.get() + 5);
            Some(vec![reading.get()])
        };
        let joules = |from: &[u64], to: &[u64]| (to[0] - from[0]) as f64;
        let mut meter = Meter::default();
        let see = |meter: &mut Meter, text: &str| meter.see_with(text.as_bytes(), read, joules);
        see(&mut meter, "window op");
        assert_eq!(reading.get(), 0);
        see(&mut meter, "window open\n");
        see(&mut meter, "window open\nwindow clo");
        see(&mut meter, "window open\nwindow closed\nops 10\n");
        see(&mut meter, "window open\nwindow closed\nops 10\n");
        assert_eq!(reading.get(), 10);
        let values: Vec<_> = meter.values(Some(10.0)).collect();
        assert_eq!(values, [("joules", 5.0), ("joules_per_op", 0.5)]);
        assert_eq!(meter.values(Some(0.0)).count(), 1);
        assert_eq!(Meter::default().values(Some(1.0)).count(), 0);
    }
}
