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
use crate::predict::child::{self, Ended};
use crate::predict::emulated::escaped;
use crate::predict::parquet::Keeper;
use crate::predict::pipe::Pipe;
use crate::predict::trace::Trace;
use crate::refusal::Refusal;

/// Bytes that the guest may hand back; the file has only as many as it writes.
const DISK: u64 = 64 << 20;

/// `nokaslr`: both boots have the same addresses. `lpj`: else each processor finds out by waiting, which takes most of a boot of 32; the value matters to delays of drivers only.
/// `mitigations=off` is for speed, as is what the machine's processor lacks (`-smap` and so on).
const KERNEL_OPTIONS: &str =
    "console=ttyS0 quiet nokaslr mitigations=off panic=-1 lpj=10000000 tsc=reliable edd=off no_timer_check";
const PROCESSOR: &str = "max,-la57,-smap,-smep,-umip,-pku,-pks";

/// On the console, before the reason.
const PANIC: &str = "Kernel panic - not syncing: ";

/// A machine that can be booted.
pub struct Machine<'a> {
    /// QEMU, the kernel.
    pub parts: &'a Parts,
    /// Virtual processors.
    pub processors: u32,
    /// MiB.
    pub memory: u32,
    /// Where its files are.
    pub folder: &'a Path,
}

/// One boot.
pub struct Boot {
    /// How QEMU ended.
    pub ended: Ended,
    /// What the guest left on its disk.
    pub back: HandedBack,
    /// What the guest wrote to its serial port.
    pub console: String,
}

/// What collects.
pub struct Plugin<'a> {
    /// The file of symbols.
    pub symbols: &'a Path,
    /// The file of offsets.
    pub offsets: &'a Path,
    /// One section in so many.
    pub rate: u32,
    /// Of what is drawn.
    pub seed: u64,
}

impl Machine<'_> {
    /// QEMU's arguments without files of this run: what the kernel's addresses depend on, besides the kernel.
    pub fn shape(&self) -> String {
        format!("{} {} {} {PROCESSOR} {KERNEL_OPTIONS}", self.parts.qemu.display(), self.processors, self.memory)
    }

    /// Boots for symbols.
    ///
    /// # Errors
    ///
    /// QEMU cannot be started, or there is no space.
    pub fn symbols(&self, initramfs: &[u8], timeout: Duration, interrupts: &Interrupts) -> anyhow::Result<Boot> {
        let mut command = self.command(Mode::Symbols, initramfs, None)?;
        let ended = child::run(&mut command, Some(timeout), interrupts).map_err(|error| self.not_started(&error))?;
        self.boot(ended)
    }

    /// Boots for the command, with the plug-in, reading what it tells as it tells it.
    ///
    /// # Errors
    ///
    /// QEMU cannot be started, or there is no space.
    #[expect(clippy::too_many_arguments, reason = "a run has that many sides")]
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
        for (key, file) in [("out", address_sets.as_path()), ("symbols", plugin.symbols), ("offsets", plugin.offsets)] {
            option.push(format!(",{key}="));
            option.push(escaped(file.as_os_str()));
        }
        option.push(format!(",rate={},seed={}", plugin.rate, plugin.seed));
        command.arg("-plugin").arg(option);
        let (ended, trace) = std::thread::scope(|scope| {
            let reader = scope.spawn(move || match stream::Reader::new(BufReader::with_capacity(1 << 16, pipe)) {
                Ok(reader) => Trace::read(reader, analysis, keep),
                Err(error) => Trace::without_a_start(error.to_string()),
            });
            let ended = child::run(&mut command, timeout, interrupts);
            has_ended.store(true, Ordering::Release);
            let trace = reader.join().map_err(|_| anyhow::anyhow!("the analysis failed"))?;
            Ok::<_, anyhow::Error>((ended.map_err(|error| self.not_started(&error))?, trace))
        })?;
        // Another run makes another one.
        std::fs::remove_file(&address_sets)?;
        Ok((self.boot(ended)?, trace))
    }

    fn not_started(&self, error: &std::io::Error) -> Refusal {
        Refusal::installation(format!("{}: {error}", self.parts.qemu.display()))
    }

    fn console(&self) -> PathBuf {
        self.folder.join("console")
    }

    fn handed_back(&self) -> PathBuf {
        self.folder.join("handed-back")
    }

    fn command(&self, mode: Mode, initramfs: &[u8], disk: Option<&Path>) -> anyhow::Result<Command> {
        let file = self.folder.join("initramfs");
        std::fs::write(&file, initramfs).context("no place for the guest's initramfs")?;
        let handed_back = File::create(self.handed_back()).and_then(|file| file.set_len(DISK));
        handed_back.context("no place for the guest's disk")?;
        File::create(self.console())?;
        let mut command = Command::new(&self.parts.qemu);
        for directory in &self.parts.firmware {
            command.arg("-L").arg(directory);
        }
        // With plug-ins and several processors, `thread=single` of QEMU 10.0 gives them wrong processor numbers.
        command.args(["-machine", "q35", "-accel", "tcg,thread=multi,tb-size=512", "-cpu", PROCESSOR]);
        command.args(["-smp", &self.processors.to_string(), "-m", &format!("{}M", self.memory)]);
        command.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-monitor", "none"]);
        let mut serial = std::ffi::OsString::from("file:");
        serial.push(escaped(self.console().as_os_str()));
        command.arg("-serial").arg(serial);
        command.arg("-kernel").arg(&self.parts.image).arg("-initrd").arg(&file);
        command.args(["-append", &format!("{KERNEL_OPTIONS} {}", mode.word())]);
        for (name, path) in [("back", Some(self.handed_back())), ("work", disk.map(Path::to_path_buf))] {
            let Some(path) = path else { continue };
            // On a full disk the guest shall see an error, and not be stopped until there is space.
            let mut drive =
                std::ffi::OsString::from(format!("if=none,id={name},format=raw,cache=unsafe,werror=report,file="));
            drive.push(escaped(path.as_os_str()));
            command.arg("-drive").arg(drive).args(["-device", &format!("virtio-blk-pci,drive={name}")]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        // What is wrong with its arguments or the plug-in is on standard error, where it stays.
        let end_with_us = || Ok(nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?);
        // SAFETY: between fork and exec this makes one system call, and neither allocates nor locks.
        unsafe { command.pre_exec(end_with_us) };
        Ok(command)
    }

    fn boot(&self, ended: Ended) -> anyhow::Result<Boot> {
        let console = std::fs::read(self.console()).unwrap_or_default();
        let disk = std::fs::read(self.handed_back()).context("the guest's disk cannot be read")?;
        let console = String::from_utf8_lossy(&console).into_owned();
        Ok(Boot { ended, back: HandedBack::read(&disk), console })
    }
}

impl Boot {
    /// Why the guest did not do what it was booted for, from what it wrote to its console; the last line if there is nothing better.
    pub fn failure(&self) -> String {
        let reached = self.console.contains(guest::REACHED);
        if let Some(why) = self.after(guest::FAILED) {
            return format!("the guest cannot be used: {why}");
        }
        if let Some(panic) = self.after(PANIC) {
            let when = if reached { "while the guest ran" } else { "before it reached init" };
            return format!("the kernel panicked {when}: {panic}");
        }
        let last = self.console.lines().rev().map(readable).find(|line| !line.is_empty());
        let last =
            last.map_or_else(|| "it wrote nothing to its console".into(), |line| format!("its last words: {line}"));
        let what = match reached {
            true if self.console.contains(guest::BEGUN) => "the guest's command did not come to its end",
            true => "the guest did not begin with its command",
            false => "the kernel did not reach init",
        };
        format!("{what} in {:.0} s; {last}", self.ended.wall.as_secs_f64())
    }

    /// Whether the kernel panicked before there was anything of ours in it. One boot in some thirty does with many processors on a busy host: multi-threaded emulation executes an
    /// instruction that another processor is just patching (a jump label).
    pub fn is_worth_another(&self) -> bool {
        self.ended.why.is_none() && !self.console.contains(guest::BEGUN) && self.after(PANIC).is_some()
    }

    fn after(&self, mark: &str) -> Option<String> {
        let line = self.console.lines().find_map(|line| Some(line.split_once(mark)?.1))?;
        Some(readable(line))
    }
}

/// A line of the console without what only a terminal understands.
fn readable(line: &str) -> String {
    console::strip_ansi_codes(line).chars().filter(|sign| !sign.is_control()).collect::<String>().trim().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    fn boot(console: &str) -> Boot {
        let ended = Ended { status: ExitStatus::from_raw(0), wall: Duration::from_secs(7), why: None };
        Boot { ended, back: HandedBack::default(), console: console.into() }
    }

    fn failure(console: &str) -> String {
        boot(console).failure()
    }

    #[test]
    fn a_panic_of_the_boot_is_worth_another() {
        let panic = "Kernel panic - not syncing: Fatal exception\n";
        assert!(boot(panic).is_worth_another());
        assert!(!boot(&format!("{}\n{panic}", guest::BEGUN)).is_worth_another());
        assert!(!boot("").is_worth_another());
    }

    #[test]
    fn failures_are_named() {
        let panic = "[    3.8] Kernel panic - not syncing: VFS: Unable to mount root fs\r\n[ 3.9] CPU: 3\r\n";
        assert_eq!(failure(panic), "the kernel panicked before it reached init: VFS: Unable to mount root fs");
        let late = format!("{}\r\n{panic}", guest::REACHED);
        assert!(failure(&late).starts_with("the kernel panicked while the guest ran"));
        let disk = format!("{}\n{}the kernel sees no virtio disk\n", guest::REACHED, guest::FAILED);
        assert_eq!(failure(&disk), "the guest cannot be used: the kernel sees no virtio disk");
        assert_eq!(failure(""), "the kernel did not reach init in 7 s; it wrote nothing to its console");
        assert!(failure("\x1bc\x1b[2JBooting from ROM..\r\n\r\n").ends_with("its last words: Booting from ROM.."));
    }
}
