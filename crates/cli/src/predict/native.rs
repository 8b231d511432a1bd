//! The native run, for the times of locks, under the interposer as in `unconvoy run --stats`.

use std::io::{Seek, SeekFrom};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use unconvoy::catalogue::{CONTENTION, LOAD, environment};
use unconvoy_measure::child::describe;
use unconvoy_measure::interrupt::Interrupts;
use unconvoy_measure::parts;

use crate::child::{self, Ended, Why};
use crate::predict::options::PredictArgs;
use crate::refusal::Refusal;
use crate::{executable, stats};

/// Results of the native run.
pub struct Native {
    /// How the run ended.
    pub ended: Ended,
    /// The interposer's record, if it could write one.
    pub record: Option<stats::Record>,
    /// Remarks about what is missing or distorts the times.
    pub remarks: Vec<String>,
}

impl Native {
    /// Runs the program.
    ///
    /// # Errors
    ///
    /// The program cannot be started.
    pub fn run(
        args: &PredictArgs,
        path: &Path,
        interposer: &Path,
        folder: &Path,
        interrupts: &Interrupts,
    ) -> anyhow::Result<Self> {
        let statistics = folder.join("native.json");
        let preload =
            parts::preload(interposer, std::env::var_os(environment::PRELOAD.name).as_deref());
        let mut command = executable::command(&args.program);
        command
            .env(environment::STATS.name, &statistics)
            .env_remove(environment::STATS_OWNER.name)
            .env(environment::PRELOAD.name, preload);
        let ended = child::run(&mut command, args.timeout, interrupts)
            .map_err(|error| Refusal::not_started(&args.program[0], &error))?;
        let mut remarks = Vec::new();
        match ended.why {
            Some(Why::TimedOut) => remarks.push("The time-out ended the native run.".into()),
            None if !ended.status.success() => {
                remarks.push(format!("The native run: {}.", describe(ended.status)))
            }
            _ => {}
        }
        let record = match stats::read(&statistics) {
            Ok(record) => {
                if (record.lock.as_str(), record.load.as_str())
                    != (CONTENTION[0].name, LOAD[0].name)
                {
                    remarks.push(format!(
                        "The native run's locks were {}+{}, as the environment demands.",
                        record.lock, record.load
                    ));
                }
                Some(record)
            }
            Err(error) => {
                remarks.push(match executable::obstacle(path) {
                    Some(obstacle) => {
                        format!(
                            "No lock times: nothing can be replaced in the program, because \
                             {obstacle}."
                        )
                    }
                    None if !ended.status.success() => {
                        "No lock times: the program ended before the library could write \
                         them."
                            .into()
                    }
                    None => format!("No lock times: the library wrote none ({error:#})."),
                });
                None
            }
        };
        Ok(Self { ended, record, remarks })
    }

    /// Returns the run time in seconds, unless the run was cut short.
    pub fn seconds(&self) -> Option<f64> {
        let measured = self.record.as_ref().map(|record| Duration::from_nanos(record.wall_ns));
        let wall = measured.filter(|wall| !wall.is_zero()).unwrap_or(self.ended.wall);
        (self.ended.why.is_none() || self.record.is_some()).then_some(wall.as_secs_f64())
    }
}

/// Position of standard input, so that both runs read the same input.
pub struct Input(Option<(std::fs::File, u64)>);

impl Input {
    /// Saves the position if standard input is a file. A pipe or a terminal can be read only once.
    pub fn remember() -> Self {
        let remember = || {
            let mut file = std::fs::File::from(std::io::stdin().as_fd().try_clone_to_owned().ok()?);
            let position = file
                .stream_position()
                .ok()
                .filter(|_| file.metadata().is_ok_and(|data| data.is_file()))?;
            Some((file, position))
        };
        Self(remember())
    }

    /// Seeks to the saved position.
    pub fn rewind(self) {
        if let Some((mut file, position)) = self.0 {
            let _ = file.seek(SeekFrom::Start(position));
        }
    }
}
