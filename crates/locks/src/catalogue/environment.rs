//! Every environment variable that code in this repository reads. Readers take the name from here,
//! and docs/reference/environment.md is generated from here.

use core::ffi::CStr;
use core::ops::RangeInclusive;

use super::{CONTENTION, Entry, LOAD, POLICY, SENSOR};
use crate::load::settings::{INTERVAL_MS, METRICS_PERIOD_MS, PROFILE_PERIOD_MS, SLEEP_MS};

/// An environment variable.
#[derive(Debug, Clone, PartialEq)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    name_with_zero: &'static CStr,
    /// The programs that read it.
    pub readers: &'static [Reader],
    /// The allowed values.
    pub values: Values,
    /// The default; empty if there is none.
    pub default: &'static str,
    /// One line on its purpose.
    pub meaning: &'static str,
}

impl Variable {
    /// The name, for `getenv`.
    pub const fn c_name(&self) -> &'static CStr {
        self.name_with_zero
    }
}

/// A program that reads a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// `libunconvoy.so`, in the program that loads it.
    Library,
    /// `unconvoy`.
    Command,
    /// `unconvoy-sched-ext`.
    Scheduler,
    /// The programs that `unconvoy bench` runs.
    Workloads,
    /// Tests, and tests that generate documentation.
    Tests,
    /// Build scripts.
    Build,
}

/// The form of a variable's value.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// The name of one of these entries.
    Entry(&'static [Entry]),
    /// A number of milliseconds in this range.
    Milliseconds(RangeInclusive<f64>),
    /// One of these words.
    Word(&'static [&'static str]),
    /// `0` is off, every other value is on.
    Switch,
    /// A path, or a list of paths.
    Path,
    /// Any non-empty value.
    Anything,
    /// A value of the form in the field.
    Form(&'static str),
}

macro_rules! variables {
    (
        $($id:ident: $name:literal, $readers:expr, $values:expr, $default:literal,
            $meaning:literal;)*
    ) => {
        $(
            #[doc = concat!("`", $name, "`")]
            pub const $id: Variable = Variable {
                name: $name,
                name_with_zero: match CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("a name has no zero"),
                },
                readers: &$readers,
                values: $values,
                default: $default,
                meaning: $meaning,
            };
        )*

        /// All variables.
        pub const VARIABLES: &[Variable] = &[$($id),*];
    };
}

/// The variables that `libunconvoy.so` reads. A command that measures a program removes them, so
/// that the program runs under the command's settings and not the user's.
pub fn of_library() -> impl Iterator<Item = &'static Variable> {
    VARIABLES.iter().filter(|variable| variable.readers.contains(&Reader::Library))
}

use Reader::{Build, Command, Library, Scheduler, Tests, Workloads};
use Values::{Anything, Form, Milliseconds, Path, Switch, Word};

variables! {
    LOCK: "UNCONVOY_LOCK", [Library], Values::Entry(CONTENTION), "`loiter`", "contention manager";
    LOAD_MANAGER: "UNCONVOY_LOAD", [Library], Values::Entry(LOAD), "`control`", "load manager";
    CONTROL_POLICY: "UNCONVOY_POLICY", [Library], Values::Entry(POLICY), "`direct`",
        "policy that computes the sleep target";
    LOAD_SENSOR: "UNCONVOY_SENSOR", [Library], Values::Entry(SENSOR), "`schedstat`",
        "source of the controller's load readings";
    INTERVAL: "UNCONVOY_INTERVAL_MS", [Library], Milliseconds(INTERVAL_MS), "7; 10 under `backoff`",
        "the controller's interval; longer if a reading takes more than a hundredth of it";
    SLEEP: "UNCONVOY_SLEEP_MS", [Library], Milliseconds(SLEEP_MS), "100", "longest sleep for load";
    BACKOFF: "UNCONVOY_BACKOFF_MS", [Library], Milliseconds(SLEEP_MS), "100",
        "mean sleep under `backoff`";
    NESTED: "UNCONVOY_NESTED", [Library], Switch, "1",
        "0: waiters neither wake a lock holder that sleeps for load nor keep it awake";
    RULES: "UNCONVOY_RULES", [Library], Form("`without-RULE`, `only-RULE` or `no-rules`"), "",
        "rules of `control` for an [ablation](../evaluation/ablation.md); needs a library with the \
         feature `ablation`";
    SPECIAL_SET: "UNCONVOY_SSC", [Library], Word(&["0", "1", "refined", "published"]), "0",
        "how to search for the size of the [special set of cores](confine.md); 0: no set, 1: \
         `refined`";
    STRATEGY: "UNCONVOY_STRATEGY", [Library], Form("text"), "",
        "set by `unconvoy run --strategy`: the locks that the [strategy file](strategy.md) names, \
         and their algorithms";
    STATS: "UNCONVOY_STATS", [Library], Path, "",
        "file for the statistics of each lock (JSON, written at exit); child programs write \
         `PATH.PID`";
    STATS_OWNER: "UNCONVOY_STATS_OWNER", [Library], Form("process id:namespace"), "",
        "set by the library: the process whose statistics and profile go to `PATH`, not `PATH.PID`";
    PROFILE: "UNCONVOY_PROFILE", [Library], Path, "",
        "file for the [profile](profile.md) of each lock; child programs write `PATH.PID`";
    PROFILE_PERIOD: "UNCONVOY_PROFILE_PERIOD_MS", [Library], Milliseconds(PROFILE_PERIOD_MS), "1",
        "length of a wait that the profile samples with certainty";
    METRICS: "UNCONVOY_METRICS", [Library], Path, "",
        "file for [metrics](metrics.md) in Prometheus's text format; child programs put their \
         process id before its extension";
    METRICS_PERIOD: "UNCONVOY_METRICS_MS", [Library], Milliseconds(METRICS_PERIOD_MS), "10000",
        "shortest time between two writings of the metrics while threads wait for locks";
    TOP: "UNCONVOY_TOP", [Library], Word(&["0", "1"]), "",
        "0: hide the process from `unconvoy top`; 1: show it even if a filter checks its system \
         calls, which must allow `shmget`, `shmat` and `shmctl`";
    REPLACE: "UNCONVOY_REPLACE", [Library], Switch, "1",
        "0: libc serves all locks, and the library only profiles them";
    WATCHDOG: "UNCONVOY_WATCHDOG", [Library], Form("process id"), "",
        "set by `unconvoy run --watchdog`: the process that records which locks its threads hold";
    CHILDREN: "UNCONVOY_CHILDREN", [Library], Switch, "1",
        "0: child programs run without the library";
    BPF: "UNCONVOY_BPF", [Library, Command], Form("three numbers, `PROCESS:FIRST:COUNT`"), "",
        "set by `unconvoy run --sensor bpf`: the counted process, the first descriptor for its \
         count, and the number of descriptors";
    LIBRARY: "UNCONVOY_LIBRARY", [Command, Tests], Path, "beside the command",
        "path of `libunconvoy.so`";
    PLUGIN: "UNCONVOY_PLUGIN", [Command], Path, "beside the command",
        "path of QEMU's user-mode plug-in, for `unconvoy predict`";
    PLUGIN_SYSTEM: "UNCONVOY_PLUGIN_SYSTEM", [Command], Path, "beside the command",
        "path of QEMU's system-mode plug-in, for `unconvoy predict --kernel`";
    SCHED_EXT: "UNCONVOY_SCHED_EXT", [Command], Path, "beside the command",
        "path of `unconvoy-sched-ext`, which `unconvoy sched` executes";
    TOP_SCREEN: "UNCONVOY_TOP_SCREEN", [Command], Path, "beside the command",
        "path of `unconvoy-top`, which `unconvoy top` executes on a terminal";
    STUDY: "UNCONVOY_STUDY", [Command], Path, "beside the command",
        "path of `unconvoy-study`, which `unconvoy bench`, `sim` and `papers` execute";
    KERNEL: "UNCONVOY_KERNEL", [Command, Tests], Path, "`kernel` beside the build or the plug-ins",
        "directory with `vmlinuz`, `modules` and `qemu`, built by `make kernel`";
    POWERCAP: "UNCONVOY_POWERCAP", [Command], Path, "`/sys/class/powercap`",
        "directory of the processors' energy counters, for `unconvoy bench`";
    WINDOW: "UNCONVOY_WINDOW", [Workloads], Anything, "",
        "set by `unconvoy bench`: print when the measured window opens and closes";
    BLESS: "UNCONVOY_BLESS", [Tests], Anything, "",
        "write generated files instead of comparing them (`make header`, `make docs`)";
    SUITE: "UNCONVOY_SUITE", [Tests],
        Form("`all` or `LOCK+LOAD`; C tests: a comma-separated list"), "all; C tests: a sample",
        "pairs that the suites run";
    SUITE_SEED: "UNCONVOY_SUITE_SEED", [Tests], Form("number"), "the time",
        "seed of the sample of pairs";
    SUITE_PROFILE: "UNCONVOY_SUITE_PROFILE", [Tests], Word(&["own", "libc"]), "",
        "run the interposer's tests with a lock profile: under the library's locks or libc's";
    SUITE_STRATEGY: "UNCONVOY_SUITE_STRATEGY", [Tests], Word(&["mixed"]), "",
        "run the interposer's tests with a different pair for each lock; the pairs of \
         `UNCONVOY_SUITE` serve the other locks";
    SUITE_GLIBC: "UNCONVOY_SUITE_GLIBC", [Tests], Path, "",
        "run the interposer's tests with the glibc in this directory";
    SUITE_SSC: "UNCONVOY_SUITE_SSC", [Tests], Word(&["1", "refined", "published"]), "",
        "run the library's tests with a special set of cores";
    FAULTS: "UNCONVOY_FAULTS", [Tests], Word(&["all"]), "a sample",
        "system calls and errors that the test of injected faults takes";
    DIFFERENTIAL_SECONDS: "UNCONVOY_DIFFERENTIAL_SECONDS", [Tests], Form("seconds"), "3",
        "time of the differential test for each pair";
    SOAK_SECONDS: "UNCONVOY_SOAK_SECONDS", [Tests], Form("seconds"), "5",
        "time of each program beside disturbances; the simulated longest wait: 20";
    FUZZ: "UNCONVOY_FUZZ", [Tests], Form("name"), "",
        "parser that the fuzzer runs (`scripts/fuzz.sh`)";
    STRESS: "UNCONVOY_STRESS", [Tests], Form("number"), "8",
        "number of runs of the user plug-in's stress test";
    SECTIONS: "UNCONVOY_SECTIONS", [Tests], Form("number"), "",
        "number of sections that the sampling test waits for";
    PROGRAM: "UNCONVOY_PROGRAM", [Tests], Form("command line"), "",
        "program that the sampling test runs";
    SAMPLING: "UNCONVOY_SAMPLING", [Tests], Word(&["bursts", "independent"]), "`bursts`",
        "how the sampling test draws sections";
    PYTHON: "UNCONVOY_PYTHON", [Tests], Form("command"), "`python3`",
        "Python interpreter that reads a Parquet trace";
    FIGURE: "UNCONVOY_FIGURE", [Tests], Form("name of a figure, or all"), "every second",
        "simulated figures that the papers' test checks";
    VALIDATE: "UNCONVOY_VALIDATE", [Tests], Anything, "",
        "compare predictions with hardware transactions (`make validate-elision`)";
    TEST_SCREEN: "UNCONVOY_TEST_SCREEN", [Tests], Form("name"), "",
        "set by a test of the scheduler's screen, for its own child process";
    PRELOAD: "LD_PRELOAD", [Library, Command], Path, "",
        "`unconvoy` prepends the library; the library detects valgrind's tools here, and removes \
         itself under `UNCONVOY_CHILDREN=0`";
    SEARCH_PATH: "PATH", [Command, Workloads], Path, "`/bin:/usr/bin`", "search path for programs";
    TEMPORARY: "TMPDIR", [Command, Workloads], Path, "`/tmp`", "directory for temporary files";
    HOME: "HOME", [Command], Path, "", "home directory, used by the defaults below";
    CONFIGURATION: "XDG_CONFIG_HOME", [Command], Path, "`$HOME/.config`",
        "directory of the host's machine file, written by `unconvoy sim --calibrate`";
    CACHE: "XDG_CACHE_HOME", [Command], Path, "`$HOME/.cache`",
        "directory of the guest of `unconvoy predict --kernel`, and of the default below";
    DEBUG_FILES: "DEBUGINFOD_CACHE_PATH", [Command], Path, "`$XDG_CACHE_HOME/debuginfod_client`",
        "cache of `debuginfod-find`, where reports look for debug files";
    TERMINAL: "TERM", [Command, Scheduler], Form("name of a terminal"), "",
        "unset or `dumb`: `unconvoy top` and `unconvoy sched --monitor` print lines instead of a \
         screen";
    COLUMNS: "COLUMNS", [Command], Form("number of columns, at most 100"), "100",
        "width of the help, if neither output is a terminal";
    NO_COLOUR: "NO_COLOR", [Command, Scheduler], Anything, "",
        "set: messages have no colours, and `unconvoy sched --monitor` prints lines instead of a \
         screen";
    CARGO: "CARGO", [Tests], Path, "`cargo`",
        "set by cargo; lists the packages for `make test-layers`";
    CLANG: "CLANG", [Build], Path, "`clang`", "compiler of the BPF programs";
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::load::LoadManager;
    use crate::load::backoff::Backoff;
    use crate::load::control::Control;
    use crate::load::settings;

    #[test]
    fn stated_defaults_match_the_code() {
        for variable in VARIABLES {
            if let Values::Entry(entries) = variable.values {
                assert_eq!(variable.default, format!("`{}`", entries[0].name), "{}", variable.name);
            }
        }
        let interval = |ns: u64| ns / 1_000_000;
        let control = interval(Control::INTERVAL_NS);
        let backed_off = interval(Backoff::INTERVAL_NS);
        assert_eq!(INTERVAL.default, format!("{control}; {backed_off} under `backoff`"));
        assert_eq!(SLEEP.default, interval(settings::SLEEP_NS).to_string());
        assert_eq!(BACKOFF.default, interval(settings::BACKOFF_NS).to_string());
    }
}
