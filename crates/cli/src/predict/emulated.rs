//! The run under QEMU's user mode with the plug-in, for address sets.

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

use super::child::{self, Ended};
use super::parquet::Keeper;
use super::pipe::Pipe;
use super::trace::Trace;
use crate::inspect;
use crate::predict::options::PredictArgs;
use crate::refusal::Refusal;

const QEMU: &str = "qemu-x86_64";

/// QEMU and what it loads.
pub struct Emulator {
    qemu: PathBuf,
    plugin: PathBuf,
}

impl Emulator {
    /// Looks for QEMU, and whether it takes plug-ins.
    ///
    /// # Errors
    ///
    /// Says what to install (125).
    pub fn find(plugin: PathBuf) -> Result<Self, Refusal> {
        let remedy = "apt-get install qemu-user, of Debian 12 (7.2)";
        let Some(qemu) = inspect::resolve(OsStr::new(QEMU)) else {
            return Err(Refusal::installation(format!(
                "{QEMU} is missing, under which the program is to run: {remedy}"
            )));
        };
        let help = Command::new(&qemu).arg("-help").output();
        let help =
            help.map_err(|error| Refusal::installation(format!("{} cannot be executed: {error}", qemu.display())))?;
        if !String::from_utf8_lossy(&help.stdout).contains("-plugin") {
            return Err(Refusal::installation(format!("{} was built without plug-ins: {remedy}", qemu.display())));
        }
        Ok(Self { qemu, plugin })
    }

    /// Runs the program, reading what the plug-in tells as it tells it.
    ///
    /// # Errors
    ///
    /// QEMU cannot be started, or the pipe not made.
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
            let reader = scope.spawn(move || match stream::Reader::new(BufReader::with_capacity(1 << 16, pipe)) {
                Ok(reader) => Trace::read(reader, analysis, keep),
                Err(error) => Trace::without_a_start(error.to_string()),
            });
            let ended = child::run(&mut command, args.timeout, interrupts);
            has_ended.store(true, Ordering::Release);
            let trace = reader.join().map_err(|_| anyhow::anyhow!("the analysis failed"))?;
            let ended = ended.map_err(|error| Refusal::installation(format!("{}: {error}", self.qemu.display())))?;
            Ok((ended, trace))
        })
    }

    fn command(&self, args: &PredictArgs, path: &Path, out: &Path) -> Command {
        let mut plugin = escaped(self.plugin.as_os_str());
        plugin.push(",out=");
        plugin.push(escaped(out.as_os_str()));
        plugin.push(format!(",rate={},seed={}", args.rate, args.seed));
        let (file, before) = inspect::executed(path);
        let name = if before.is_empty() { args.program[0].as_os_str() } else { file.as_os_str() };
        let mut command = Command::new(&self.qemu);
        command.arg("-plugin").arg(plugin).arg("-0").arg(name).arg(&file).args(before).args(&args.program[1..]);
        // The program's own locks are to be seen, under their own names.
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

/// As QEMU wants it: commas within a value are doubled.
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
    fn commas_are_doubled() {
        assert_eq!(escaped(OsStr::new("/a,b/c")), "/a,,b/c");
    }
}
