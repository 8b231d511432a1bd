//! Every environment variable that code of this repository reads. A reader takes the name from
//! here, and docs/reference/environment.md is generated from here.

use core::ffi::CStr;
use core::ops::RangeInclusive;

use super::{CONTENTION, Entry, LOAD, POLICY, SENSOR};
use crate::load::settings::{INTERVAL_MS, SLEEP_MS};

/// An environment variable.
#[derive(Debug, Clone, PartialEq)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    name_with_zero: &'static CStr,
    /// The programs that read it.
    pub readers: &'static [Reader],
    /// The values that it may have.
    pub values: Values,
    /// What holds without it; empty if nothing does.
    pub default: &'static str,
    /// What it is for.
    pub meaning: &'static str,
}

impl Variable {
    /// The name, for `getenv`.
    pub const fn c_name(&self) -> &'static CStr {
        self.name_with_zero
    }
}

/// Who reads a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// `libunconvoy.so`, in the program that it serves.
    Library,
    /// `unconvoy`.
    Command,
    /// `unconvoy-sched-ext`.
    Scheduler,
    /// The programs that `unconvoy bench` runs.
    Workloads,
    /// Tests, and the checks that generate documentation.
    Tests,
    /// Build scripts.
    Build,
}

/// What a variable may hold.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// The name of one of these entries.
    Entry(&'static [Entry]),
    /// A number of milliseconds in this range.
    Milliseconds(RangeInclusive<f64>),
    /// One of these words.
    Word(&'static [&'static str]),
    /// `0` switches off what every other value leaves on.
    Switch,
    /// A path, or a list of paths.
    Path,
    /// Whatever is not empty.
    Anything,
    /// A value of this form.
    Form(&'static str),
}

macro_rules! variables {
    ($($id:ident: $name:literal, $readers:expr, $values:expr, $default:literal, $meaning:literal;)*) => {
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

        /// All of them.
        pub const VARIABLES: &[Variable] = &[$($id),*];
    };
}

use Reader::{Build, Command, Library, Scheduler, Tests, Workloads};
use Values::{Anything, Form, Milliseconds, Path, Switch, Word};

variables! {
    LOCK: "UNCONVOY_LOCK", [Library], Values::Entry(CONTENTION), "`loiter`", "contention manager";
    LOAD_MANAGER: "UNCONVOY_LOAD", [Library], Values::Entry(LOAD), "`control`", "load manager";
    CONTROL_POLICY: "UNCONVOY_POLICY", [Library], Values::Entry(POLICY), "`direct`",
        "how the controller sets the sleep target";
    LOAD_SENSOR: "UNCONVOY_SENSOR", [Library], Values::Entry(SENSOR), "`schedstat`",
        "what the controller reads the load from";
    INTERVAL: "UNCONVOY_INTERVAL_MS", [Library], Milliseconds(INTERVAL_MS), "7; 10 under `backoff`",
        "the controller's interval; the controller rests longer where a reading takes more than a hundredth of it";
    SLEEP: "UNCONVOY_SLEEP_MS", [Library], Milliseconds(SLEEP_MS), "100", "longest sleep in a slot";
    BACKOFF: "UNCONVOY_BACKOFF_MS", [Library], Milliseconds(SLEEP_MS), "100",
        "mean of the sleeps under `backoff`";
    NESTED: "UNCONVOY_NESTED", [Library], Switch, "1",
        "0: a waiter neither wakes its lock's holder that sleeps for load, nor keeps it awake";
    SPECIAL_SET: "UNCONVOY_SSC", [Library], Word(&["0", "1", "refined", "published"]), "0",
        "a [special set of cores](confine.md) for threads that wait too much for locks, and how its \
         size is searched; 1 is `refined`";
    STATS: "UNCONVOY_STATS", [Library], Path, "",
        "the file for what each lock did, as JSON, written at exit; programs that this one starts write \
         `PATH.PID`";
    STATS_OWNER: "UNCONVOY_STATS_OWNER", [Library], Form("process id"), "",
        "set by the library: the process whose statistics have the plain path";
    CHILDREN: "UNCONVOY_CHILDREN", [Library], Switch, "1", "0: programs that this one starts run without the library";
    BPF: "UNCONVOY_BPF", [Library, Command], Form("three numbers, `PROCESS:FIRST:COUNT`"), "",
        "set by `unconvoy run --sensor bpf`: the process that the kernel counts for, the first \
         descriptor, how many; `unconvoy bench sensor` reads it too";
    LIBRARY: "UNCONVOY_LIBRARY", [Command, Tests], Path, "beside the command",
        "the file `libunconvoy.so`";
    PLUGIN: "UNCONVOY_PLUGIN", [Command], Path, "beside the command",
        "the plug-in of QEMU's user mode, for `unconvoy predict`";
    PLUGIN_SYSTEM: "UNCONVOY_PLUGIN_SYSTEM", [Command], Path, "beside the command",
        "the plug-in of QEMU's system mode, for `unconvoy predict --kernel`";
    SCHED_EXT: "UNCONVOY_SCHED_EXT", [Command], Path, "beside the command",
        "the program `unconvoy-sched-ext`, which `unconvoy sched` executes";
    STUDY: "UNCONVOY_STUDY", [Command], Path, "beside the command",
        "the program `unconvoy-study`, which `unconvoy bench`, `sim` and `papers` execute";
    KERNEL: "UNCONVOY_KERNEL", [Command, Tests], Path, "`kernel` beside the build or the plug-ins",
        "the directory of `vmlinuz`, `modules` and `qemu` that `make kernel` makes";
    POWERCAP: "UNCONVOY_POWERCAP", [Command], Path, "`/sys/class/powercap`",
        "where `unconvoy bench` finds the processors' energy counters";
    WINDOW: "UNCONVOY_WINDOW", [Workloads], Anything, "",
        "set by `unconvoy bench`: the program prints when its measured window opens and closes";
    BLESS: "UNCONVOY_BLESS", [Tests], Anything, "",
        "write generated files instead of comparing them (`make header`, `make docs`)";
    SUITE: "UNCONVOY_SUITE", [Tests], Form("`all` or `LOCK+LOAD`; C tests: a list, by commas"), "all; C tests: a sample",
        "the pairs that the suites run";
    SUITE_SEED: "UNCONVOY_SUITE_SEED", [Tests], Form("number"), "the time", "draws the sample of pairs";
    SUITE_SSC: "UNCONVOY_SUITE_SSC", [Tests], Word(&["1", "refined", "published"]), "",
        "run the tests of the library with a special set";
    STRESS: "UNCONVOY_STRESS", [Tests], Form("number"), "8", "runs of the user plug-in's stress test";
    SECTIONS: "UNCONVOY_SECTIONS", [Tests], Form("number"), "", "sections that the sampling test waits for";
    PROGRAM: "UNCONVOY_PROGRAM", [Tests], Form("command line"), "", "the program that the sampling test runs";
    PYTHON: "UNCONVOY_PYTHON", [Tests], Form("command"), "`python3`", "the Python that reads a Parquet trace";
    FIGURE: "UNCONVOY_FIGURE", [Tests], Form("name of a figure"), "all",
        "the simulated figures that the papers' test checks";
    VALIDATE: "UNCONVOY_VALIDATE", [Tests], Anything, "",
        "compare predictions with hardware transactions (`make validate-elision`)";
    TEST_SCREEN: "UNCONVOY_TEST_SCREEN", [Tests], Form("name"), "",
        "set by a test of the scheduler's screen for the copy of itself that it runs";
    PRELOAD: "LD_PRELOAD", [Library, Command], Path, "",
        "`unconvoy` puts the library in front; the library looks for valgrind's tools in it, and takes \
         itself out under `UNCONVOY_CHILDREN=0`";
    SEARCH_PATH: "PATH", [Command, Workloads], Path, "`/bin:/usr/bin`", "where programs are looked for";
    TEMPORARY: "TMPDIR", [Command, Workloads], Path, "`/tmp`", "where temporary files go";
    HOME: "HOME", [Command], Path, "", "stands in for the next two: `.config` and `.cache` in it";
    CONFIGURATION: "XDG_CONFIG_HOME", [Command], Path, "`$HOME/.config`",
        "where `unconvoy sim --calibrate` keeps the host's machine file";
    CACHE: "XDG_CACHE_HOME", [Command], Path, "`$HOME/.cache`",
        "where `unconvoy predict --kernel` keeps its guest";
    TERMINAL: "TERM", [Scheduler], Form("name of a terminal"), "",
        "without it, or `dumb`: `unconvoy sched --monitor` prints lines instead of a screen";
    NO_COLOUR: "NO_COLOR", [Scheduler], Anything, "",
        "`unconvoy sched --monitor` prints lines instead of a screen";
    CARGO: "CARGO", [Tests], Path, "`cargo`", "set by cargo: lists the packages for `make test-layers`";
    CLANG: "CLANG", [Build], Path, "`clang`", "the compiler of the BPF programs";
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::load::LoadManager;
    use crate::load::backoff::Backoff;
    use crate::load::control::Control;
    use crate::load::settings;

    #[test]
    fn stated_defaults_are_the_ones_in_the_code() {
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
