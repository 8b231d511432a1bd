//! Collection of address sets under QEMU's user mode with the plug-in.

use std::ffi::{OsStr, OsString};
use std::io::BufReader;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use unconvoy::catalogue::environment;
use unconvoy_measure::interrupt::Interrupts;
use unconvoy_measure::parts;
use unconvoy_syncchar::Analysis;
use unconvoy_trace_stream as stream;

use super::parquet::Keeper;
use super::pipe::Pipe;
use super::trace::Trace;
use crate::child::{self, Ended};
use crate::executable;
use crate::messages::predict as messages;
use crate::predict::options::PredictArgs;
use crate::refusal::Refusal;

const QEMU: &str = "qemu-x86_64";

/// The last release of QEMU whose plug-in interface is version 1, as the plug-in's; version 2 is
/// incompatible.
const NEWEST_RELEASE: u32 = 8;

/// The release in the output of QEMU's `--version`.
pub fn release(version: &str) -> Option<u32> {
    version.split("version ").nth(1)?.split('.').next()?.trim().parse().ok()
}

/// QEMU and the plug-in.
pub struct Emulator {
    pub qemu: PathBuf,
    plugin: PathBuf,
}

impl Emulator {
    /// Finds QEMU and checks that it supports plug-ins.
    ///
    /// # Errors
    ///
    /// The message says what to install (status 125).
    pub fn find(plugin: PathBuf) -> Result<Self, Refusal> {
        let Some(qemu) = executable::resolve(OsStr::new(QEMU)) else {
            return Err(Refusal::installation(messages::qemu_user_not_found(QEMU)));
        };
        let output = |option: &str| {
            let output = Command::new(&qemu).arg(option).output();
            let output =
                output.map_err(|error| Refusal::installation(messages::qemu_failed(&qemu, error)));
            Ok::<_, Refusal>(String::from_utf8_lossy(&output?.stdout).into_owned())
        };
        if !output("-help")?.contains("-plugin") {
            return Err(Refusal::installation(messages::qemu_user_without_plugins(&qemu)));
        }
        if let Some(release) = release(&output("--version")?).filter(|it| *it > NEWEST_RELEASE) {
            return Err(Refusal::installation(messages::qemu_user_too_new(&qemu, release)));
        }
        Ok(Self { qemu, plugin })
    }

    /// Runs the program and reads the plug-in's stream while it runs.
    ///
    /// # Errors
    ///
    /// QEMU cannot be started, or the pipe cannot be created.
    pub fn run(
        &self,
        args: &PredictArgs,
        path: &Path,
        folder: &Path,
        analysis: Analysis,
        keep: Option<&mut Keeper>,
        interrupts: &Interrupts,
    ) -> anyhow::Result<(Ended, Trace)> {
        let address_sets = folder.join("address-sets");
        let has_ended = AtomicBool::new(false);
        let pipe = Pipe::make(&address_sets, &has_ended)?;
        let mut command = self.command(args, path, &address_sets);
        std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                match stream::Reader::new(BufReader::with_capacity(1 << 16, pipe)) {
                    Ok(reader) => Trace::read(reader, analysis, keep),
                    Err(error) => Trace::without_a_start(error.to_string()),
                }
            });
            let ended = child::run(&mut command, args.timeout, interrupts);
            has_ended.store(true, Ordering::Release);
            let trace = reader.join().map_err(|_| anyhow::anyhow!(messages::analysis_failed()))?;
            let ended = ended
                .map_err(|error| Refusal::installation(messages::qemu_failed(&self.qemu, error)))?;
            Ok((ended, trace))
        })
    }

    fn command(&self, args: &PredictArgs, path: &Path, out: &Path) -> Command {
        let mut plugin = escaped(self.plugin.as_os_str());
        plugin.push(",out=");
        plugin.push(escaped(out.as_os_str()));
        let sampling = args.sampling.name();
        plugin.push(format!(",rate={},sampling={sampling},seed={}", args.rate, args.seed));
        let (file, before) = executable::executed(path);
        let name = if before.is_empty() { args.program[0].as_os_str() } else { file.as_os_str() };
        let mut command = Command::new(&self.qemu);
        command
            .arg("-plugin")
            .arg(plugin)
            .arg("-0")
            .arg(name)
            .arg(&file)
            .args(before)
            .args(&args.program[1..]);
        // Run without the interposer, so that the locks and functions are the program's own.
        command.env_remove(environment::STATS.name);
        if let Some(preload) = std::env::var_os(environment::PRELOAD.name) {
            match parts::without_preload(&preload) {
                Some(others) => command.env(environment::PRELOAD.name, others),
                None => command.env_remove(environment::PRELOAD.name),
            };
        }
        command
    }
}

/// Doubles commas, as QEMU's option syntax requires within a value.
pub fn escaped(path: &OsStr) -> OsString {
    let mut bytes = Vec::with_capacity(path.len());
    for byte in path.as_bytes() {
        bytes.push(*byte);
        if *byte == b',' {
            bytes.push(b',');
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_doubles_commas() {
        assert_eq!(escaped(OsStr::new("/a,b/c")), "/a,,b/c");
    }
}
