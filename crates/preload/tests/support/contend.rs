//! A program whose threads contend, so that it has a controller, and the controller's readings.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::{Finished, LIMIT, Running, compile, preloaded};

/// The compiled `contend` program in a temporary directory.
pub struct Contend {
    pub directory: TempDir,
    pub program: PathBuf,
}

/// The result of one run.
pub struct Saw {
    pub finished: Finished,
    pub sensor: String,
    pub capacity: f64,
    pub runnable: f64,
    pub ticks: u64,
}

impl Contend {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let program = compile(directory.path(), "contend.c", &[]);
        Contend { directory, program }
    }

    pub fn statistics(&self) -> PathBuf {
        self.directory.path().join("statistics.json")
    }

    /// The program with the library, which writes statistics.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = preloaded(&self.program);
        command.args(arguments).env("UNCONVOY_STATS", self.statistics());
        command
    }

    /// Runs `command` to its end, and calls `meanwhile` once the threads have started.
    #[track_caller]
    pub fn run(&self, command: &mut Command, meanwhile: impl FnOnce(&Running)) -> Saw {
        let mut running = Running::start(command);
        wait_for_begin(&mut running);
        meanwhile(&running);
        saw(running.finish(LIMIT).success("contend"), &self.statistics())
    }
}

/// Waits until the threads have started.
#[track_caller]
pub fn wait_for_begin(running: &mut Running) {
    let deadline = Instant::now() + LIMIT;
    while !running.printed().contains("begun") {
        assert!(
            Instant::now() < deadline && running.poll().is_none(),
            "the threads did not start: {}",
            running.all_printed()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[track_caller]
fn saw(finished: Finished, statistics: &Path) -> Saw {
    let text = std::fs::read_to_string(statistics).expect("statistics are written");
    let value: serde_json::Value = serde_json::from_str(&text).expect("statistics are JSON");
    let controller = &value["controller"];
    let number = |name: &str| {
        controller[name].as_f64().unwrap_or_else(|| panic!("no {name} in {controller}"))
    };
    Saw {
        finished,
        sensor: controller["sensor"].as_str().expect("the sensor has a name").to_owned(),
        capacity: number("capacity"),
        runnable: number("runnable"),
        ticks: number("ticks") as u64,
    }
}

/// Held by tests that change or count resources of the whole machine.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
