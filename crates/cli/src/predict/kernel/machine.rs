//! The virtual machine: one boot under QEMU's system mode, with or without the plug-in.

use std::fs::File;
use std::io::BufReader;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use nix::sys::signal::Signal;
use unconvoy_measure::interrupt::Interrupts;
use unconvoy_syncchar::Analysis;
use unconvoy_trace_stream as stream;

use super::guest::{self, HandedBack, Mode};
use super::parts::Parts;
use crate::child::{self, Ended};
use crate::messages::kernel as messages;
use crate::messages::predict::{analysis_failed, qemu_failed};
use crate::predict::emulated::escaped;
use crate::predict::parquet::Keeper;
use crate::predict::pipe::Pipe;
use crate::predict::trace::Trace;
use crate::refusal::Refusal;
use unconvoy_trace_stream::sampling::Sampling;

/// Size of the results' disk, bytes. The file is sparse.
const DISK: u64 = 64 << 20;

/// `nokaslr` gives both boots the same addresses. Without `lpj`, each processor calibrates its
/// delay loop, which takes most of a boot with 32 processors; only drivers' delays depend on the
/// value. `mitigations=off` and the disabled processor features (`-smap` and so on) save time.
const KERNEL_OPTIONS: &str = "console=ttyS0 quiet nokaslr mitigations=off panic=-1 lpj=10000000 \
    tsc=reliable edd=off no_timer_check";
const PROCESSOR: &str = "max,-la57,-smap,-smep,-umip,-pku,-pks";

/// Console text before a panic's reason.
const PANIC: &str = "Kernel panic - not syncing: ";

/// A virtual machine that can be booted.
pub struct Machine<'a> {
    /// QEMU and the kernel.
    pub parts: &'a Parts,
    /// Virtual processors.
    pub processors: u32,
    /// Memory, MiB.
    pub memory: u32,
    /// Directory for its files.
    pub folder: &'a Path,
}

/// One finished boot.
pub struct Boot {
    /// How QEMU ended.
    pub ended: Ended,
    /// Results on the guest's disk.
    pub back: HandedBack,
    /// Output of the guest's serial port.
    pub console: String,
}

/// Options of the plug-in.
pub struct Plugin<'a> {
    pub symbols: &'a Path,
    pub offsets: &'a Path,
    /// Sample one section in this many.
    pub rate: u32,
    /// How these sections are drawn.
    pub sampling: Sampling,
    /// Seed of the sampling.
    pub seed: u64,
}

impl Machine<'_> {
    /// Returns QEMU's arguments that the kernel's addresses depend on, besides the kernel itself.
    pub fn shape(&self) -> String {
        format!(
            "{} {} {} {PROCESSOR} {KERNEL_OPTIONS}",
            self.parts.qemu.display(),
            self.processors,
            self.memory
        )
    }

    /// Boots to read the kernel's symbols.
    ///
    /// # Errors
    ///
    /// QEMU cannot be started, or no space is left.
    pub fn symbols(
        &self,
        initramfs: &[u8],
        timeout: Duration,
        interrupts: &Interrupts,
    ) -> anyhow::Result<Boot> {
        let mut command = self.command(Mode::Symbols, initramfs, None)?;
        let ended = child::run(&mut command, Some(timeout), interrupts)
            .map_err(|error| self.not_started(&error))?;
        self.boot(ended)
    }

    /// Boots to run the command with the plug-in, and reads the plug-in's stream while it runs.
    ///
    /// # Errors
    ///
    /// QEMU cannot be started, or no space is left.
    #[expect(clippy::too_many_arguments, reason = "one argument per aspect of a run")]
    pub fn run(
        &self,
        initramfs: &[u8],
        disk: &Path,
        plugin: &Plugin<'_>,
        timeout: Option<Duration>,
        analysis: Analysis,
        keep: Option<&mut Keeper>,
        interrupts: &Interrupts,
    ) -> anyhow::Result<(Boot, Trace)> {
        let address_sets = self.folder.join("address-sets");
        let has_ended = AtomicBool::new(false);
        let pipe = Pipe::make(&address_sets, &has_ended)?;
        let mut command = self.command(Mode::Run, initramfs, Some(disk))?;
        let mut option = escaped(self.parts.plugin.as_os_str());
        for (key, file) in [
            ("out", address_sets.as_path()),
            ("symbols", plugin.symbols),
            ("offsets", plugin.offsets),
        ] {
            option.push(format!(",{key}="));
            option.push(escaped(file.as_os_str()));
        }
        let Plugin { rate, sampling, seed, .. } = plugin;
        option.push(format!(",rate={rate},sampling={},seed={seed}", sampling.name()));
        command.arg("-plugin").arg(option);
        let (ended, trace) = std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                match stream::Reader::new(BufReader::with_capacity(1 << 16, pipe)) {
                    Ok(reader) => Trace::read(reader, analysis, keep),
                    Err(error) => Trace::without_a_start(error.to_string()),
                }
            });
            let ended = child::run(&mut command, timeout, interrupts);
            has_ended.store(true, Ordering::Release);
            let trace = reader.join().map_err(|_| anyhow::anyhow!(analysis_failed()))?;
            Ok::<_, anyhow::Error>((ended.map_err(|error| self.not_started(&error))?, trace))
        })?;
        // The next run creates its own pipe.
        std::fs::remove_file(&address_sets)?;
        Ok((self.boot(ended)?, trace))
    }

    fn not_started(&self, error: &std::io::Error) -> Refusal {
        Refusal::installation(qemu_failed(&self.parts.qemu, error))
    }

    fn console(&self) -> PathBuf {
        self.folder.join("console")
    }

    fn handed_back(&self) -> PathBuf {
        self.folder.join("handed-back")
    }

    fn command(
        &self,
        mode: Mode,
        initramfs: &[u8],
        disk: Option<&Path>,
    ) -> anyhow::Result<Command> {
        let file = self.folder.join("initramfs");
        std::fs::write(&file, initramfs).context(messages::cannot_write_initramfs())?;
        let handed_back = File::create(self.handed_back()).and_then(|file| file.set_len(DISK));
        handed_back.context(messages::cannot_create_results_disk())?;
        File::create(self.console())?;
        let mut command = Command::new(&self.parts.qemu);
        for directory in &self.parts.firmware {
            command.arg("-L").arg(directory);
        }
        // With plug-ins and several processors, `thread=single` of QEMU 10.0 reports wrong
        // processor numbers.
        command.args([
            "-machine",
            "q35",
            "-accel",
            "tcg,thread=multi,tb-size=512",
            "-cpu",
            PROCESSOR,
        ]);
        command.args(["-smp", &self.processors.to_string(), "-m", &format!("{}M", self.memory)]);
        command.args([
            "-nodefaults",
            "-no-user-config",
            "-no-reboot",
            "-display",
            "none",
            "-monitor",
            "none",
        ]);
        let mut serial = std::ffi::OsString::from("file:");
        serial.push(escaped(self.console().as_os_str()));
        command.arg("-serial").arg(serial);
        command.arg("-kernel").arg(&self.parts.image).arg("-initrd").arg(&file);
        command.args(["-append", &format!("{KERNEL_OPTIONS} {}", mode.word())]);
        for (name, path) in
            [("back", Some(self.handed_back())), ("work", disk.map(Path::to_path_buf))]
        {
            let Some(path) = path else { continue };
            // On a full disk the guest gets an error, instead of a pause until there is space.
            let mut drive = std::ffi::OsString::from(format!(
                "if=none,id={name},format=raw,cache=unsafe,werror=report,file="
            ));
            drive.push(escaped(path.as_os_str()));
            command
                .arg("-drive")
                .arg(drive)
                .args(["-device", &format!("virtio-blk-pci,drive={name}")]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        // QEMU reports wrong arguments and plug-in errors on standard error, which it inherits.
        let end_with_us = || Ok(nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?);
        // SAFETY: between fork and exec the closure makes one system call, which neither allocates
        // nor locks.
        unsafe { command.pre_exec(end_with_us) };
        Ok(command)
    }

    fn boot(&self, ended: Ended) -> anyhow::Result<Boot> {
        let console = std::fs::read(self.console()).unwrap_or_default();
        let disk =
            std::fs::read(self.handed_back()).context(messages::cannot_read_results_disk())?;
        let console = String::from_utf8_lossy(&console).into_owned();
        Ok(Boot { ended, back: HandedBack::read(&disk), console })
    }
}

impl Boot {
    /// Explains from the console why the guest did not finish, with the last line if there is no
    /// better reason.
    pub fn failure(&self) -> String {
        let reached = self.console.contains(guest::REACHED);
        if let Some(why) = self.after(guest::FAILED) {
            return messages::guest_rejected(&why);
        }
        if let Some(panic) = self.after(PANIC) {
            let when = if reached { "after init started" } else { "before it reached init" };
            return messages::kernel_panicked(when, &panic);
        }
        let last = self.console.lines().rev().map(readable).find(|line| !line.is_empty());
        let last: String = last.map_or_else(
            || "nothing on its console".into(),
            |line| format!("last line of its console: {line}"),
        );
        let what = match reached {
            true if self.console.contains(guest::BEGUN) => "the guest's command did not end",
            true => "the guest did not start its command",
            false => "the kernel did not reach init",
        };
        messages::guest_stopped(what, self.ended.wall.as_secs_f64(), &last)
    }

    /// Returns whether the kernel panicked before the command began. With many processors on a busy
    /// host, about one boot in thirty panics, because multi-threaded emulation executes an
    /// instruction that another processor is patching (a jump label).
    pub fn is_worth_retrying(&self) -> bool {
        self.ended.why.is_none()
            && !self.console.contains(guest::BEGUN)
            && self.after(PANIC).is_some()
    }

    fn after(&self, marker: &str) -> Option<String> {
        let line = self.console.lines().find_map(|line| Some(line.split_once(marker)?.1))?;
        Some(readable(line))
    }
}

/// Removes terminal escapes and control characters from a line of the console.
fn readable(line: &str) -> String {
    console::strip_ansi_codes(line)
        .chars()
        .filter(|sign| !sign.is_control())
        .collect::<String>()
        .trim()
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    fn boot(console: &str) -> Boot {
        let ended =
            Ended { status: ExitStatus::from_raw(0), wall: Duration::from_secs(7), why: None };
        Boot { ended, back: HandedBack::default(), console: console.into() }
    }

    fn failure(console: &str) -> String {
        boot(console).failure()
    }

    #[test]
    fn panic_before_the_command_is_worth_retrying() {
        let panic = "Kernel panic - not syncing: Fatal exception\n";
        assert!(boot(panic).is_worth_retrying());
        assert!(!boot(&format!("{}\n{panic}", guest::BEGUN)).is_worth_retrying());
        assert!(!boot("").is_worth_retrying());
    }

    #[test]
    fn failure_names_cause_from_console() {
        let panic = "[    3.8] Kernel panic - not syncing: VFS: Unable to mount root fs\r\n\
            [ 3.9] CPU: 3\r\n";
        assert_eq!(
            failure(panic),
            "the kernel panicked before it reached init: VFS: Unable to mount root fs"
        );
        let late = format!("{}\r\n{panic}", guest::REACHED);
        assert!(failure(&late).starts_with("the kernel panicked after init started"));
        let disk = format!("{}\n{}the kernel sees no virtio disk\n", guest::REACHED, guest::FAILED);
        assert_eq!(failure(&disk), "the guest does not work: the kernel sees no virtio disk");
        assert_eq!(failure(""), "the kernel did not reach init within 7 s; nothing on its console");
        assert!(
            failure("\x1bc\x1b[2JBooting from ROM..\r\n\r\n")
                .ends_with("last line of its console: Booting from ROM..")
        );
    }
}
