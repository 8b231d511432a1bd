//! The screen on a pseudo-terminal, watching a program that runs under the real interposer.

use std::fs::File;
use std::io::Write;
use std::num::NonZeroU16;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

/// Time limit of a test, far above what any test needs on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);

/// A process that is killed when the test ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program with known locks, and the interposer.
struct Scene {
    directory: tempfile::TempDir,
    library: PathBuf,
}

impl Scene {
    /// `None` if the interposer is not built.
    fn new() -> Option<Self> {
        let named = std::env::var_os("UNCONVOY_LIBRARY").map(PathBuf::from);
        let beside = Path::new(env!("CARGO_BIN_EXE_unconvoy-top")).with_file_name("libunconvoy.so");
        let library = named.unwrap_or(beside);
        if !library.is_file() {
            println!("missing: {} is not built (cargo build --workspace)", library.display());
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/top/locks.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-g", "-O1", "-pthread", "-o"]).arg(directory.path().join("locks"));
        assert!(compiler.arg(source).status().unwrap().success());
        Some(Scene { directory, library })
    }

    /// Starts the program, and waits until it shows itself.
    fn start(&self) -> Running {
        let mut command = Command::new(self.directory.path().join("locks"));
        command.arg("2000").env("LD_PRELOAD", &self.library).env_remove("UNCONVOY_TOP");
        let running = Running(command.stdout(Stdio::null()).spawn().unwrap());
        let maps = format!("/proc/{}/maps", running.0.id());
        let start = Instant::now();
        while !std::fs::read_to_string(&maps).unwrap().contains("/SYSV") {
            assert!(start.elapsed() < LIMIT, "the program shows no page");
            std::thread::sleep(Duration::from_millis(5));
        }
        running
    }
}

/// A pseudo-terminal with the screen on it.
struct Session {
    master: Arc<OwnedFd>,
    slave: OwnedFd,
    before: Termios,
    child: Running,
    terminal: Arc<Mutex<vt100::Parser>>,
}

fn cells(count: u16) -> NonZeroU16 {
    NonZeroU16::new(count).unwrap()
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

impl Session {
    fn begin(pid: Option<u32>) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = open(name, flags, Mode::empty()).unwrap();
        tcsetwinsize(&master, size(24, 80)).unwrap();
        let before = tcgetattr(&slave).unwrap();
        let end = || Stdio::from(slave.try_clone().unwrap());
        let mut command = Command::new(env!("CARGO_BIN_EXE_unconvoy-top"));
        command.args(["--interval", "0.2"]).args(pid.map(|pid| pid.to_string()));
        command.env("TERM", "xterm").stdin(end()).stdout(end()).stderr(end());
        // SAFETY: between fork and exec, the closure makes two system calls and does not allocate.
        unsafe {
            command.pre_exec(|| {
                rustix::process::setsid()?;
                Ok(rustix::process::ioctl_tiocsctty(std::io::stdin())?)
            });
        }
        let child = Running(command.spawn().unwrap());
        let terminal = Arc::new(Mutex::new(vt100::Parser::new(cells(24), cells(80), 0)));
        let master = Arc::new(master);
        let (reader, shown) = (Arc::clone(&master), Arc::clone(&terminal));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = rustix::io::read(&reader, &mut bytes) {
                shown.lock().unwrap().process(&bytes[..length]);
            }
        });
        Session { master, slave, before, child, terminal }
    }

    fn text(&self) -> String {
        self.terminal.lock().unwrap().screen().contents()
    }

    fn wait_for(&self, parts: &[&str]) {
        let start = Instant::now();
        while !parts.iter().all(|part| self.text().contains(part)) {
            assert!(start.elapsed() < LIMIT, "not seen: {parts:?}\n{}", self.text());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn press(&self, keys: &[u8]) {
        rustix::io::write(&self.master, keys).unwrap();
    }

    /// Waits for the end, and asserts that the terminal is restored.
    fn ends(&mut self) -> ExitStatus {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.0.try_wait().unwrap() {
                break status;
            }
            assert!(start.elapsed() < LIMIT, "the screen does not end:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(5));
        };
        // The terminal delivers this mark after all output of the screen.
        File::from(self.slave.try_clone().unwrap()).write_all(b"@the end").unwrap();
        self.wait_for(&["@the end"]);
        let terminal = self.terminal.lock().unwrap();
        assert!(!terminal.screen().alternate_screen() && !terminal.screen().hide_cursor());
        let modes = tcgetattr(&self.slave).unwrap();
        assert_eq!(modes.local_modes, self.before.local_modes);
        assert_eq!(modes.input_modes, self.before.input_modes);
        status
    }
}

#[test]
fn keys_open_filter_and_quit() {
    let Some(scene) = Scene::new() else { return };
    let program = scene.start();
    let mut session = Session::begin(Some(program.0.id()));
    session.wait_for(&["locks (process", ">waited", "queue_lock", "ring_lock", "q:quit"]);
    session.press(b"ss");
    session.wait_for(&[">held"]);
    session.press(b"/queue\r");
    session.wait_for(&["filter: queue ", "queue_lock"]);
    assert!(!session.text().contains("ring_lock"), "{}", session.text());
    session.press(b"\r");
    session.wait_for(&["mutex:", "waits", "use_queue (locks.c"]);
    session.press(b"\x1b");
    session.wait_for(&[">held"]);
    session.press(b"q");
    assert_eq!(session.ends().code(), Some(0));
}

#[test]
fn signals_restore_the_terminal() {
    let Some(scene) = Scene::new() else { return };
    let program = scene.start();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut session = Session::begin(Some(program.0.id()));
        session.wait_for(&["locks (process"]);
        kill_process(Pid::from_child(&session.child.0), signal).unwrap();
        assert_eq!(session.ends().code(), Some(0));
    }
}

#[test]
fn end_of_watched_process_is_shown() {
    let Some(scene) = Scene::new() else { return };
    let program = scene.start();
    let mut session = Session::begin(Some(program.0.id()));
    session.wait_for(&["queue_lock"]);
    drop(program);
    session.wait_for(&[", ended"]);
    session.press(b"q");
    assert_eq!(session.ends().code(), Some(0));
}

#[test]
fn small_terminal_says_what_it_needs() {
    let Some(scene) = Scene::new() else { return };
    let program = scene.start();
    let mut session = Session::begin(Some(program.0.id()));
    session.wait_for(&["queue_lock"]);
    for (rows, columns) in [(24, 30), (4, 80)] {
        session.terminal.lock().unwrap().screen_mut().set_size(cells(rows), cells(columns));
        tcsetwinsize(&session.master, size(rows, columns)).unwrap();
        session.wait_for(&["needs 40 x 6"]);
    }
    session.terminal.lock().unwrap().screen_mut().set_size(cells(24), cells(80));
    tcsetwinsize(&session.master, size(24, 80)).unwrap();
    session.wait_for(&["queue_lock", "q:quit"]);
    session.press(b"q");
    assert_eq!(session.ends().code(), Some(0));
}

#[test]
fn process_is_chosen_from_a_list() {
    let Some(scene) = Scene::new() else { return };
    let programs = [scene.start(), scene.start()];
    let mut session = Session::begin(None);
    let ids = programs.each_ref().map(|program| program.0.id().to_string());
    session.wait_for(&["PID", "THREADS", "loiter+control", &ids[0], &ids[1]]);
    // Other processes of this machine may come before.
    let text = session.text();
    let line = |part: &str| text.lines().position(|line| line.contains(part)).unwrap();
    (line("PID") + 1..line(&ids[0])).for_each(|_| session.press(b"\x1b[B"));
    session.press(b"\r");
    session.wait_for(&["(process", "queue_lock"]);
    session.press(b"p");
    session.wait_for(&["PID", &ids[0], &ids[1]]);
    session.press(b"q");
    assert_eq!(session.ends().code(), Some(0));
}

#[test]
fn unsuitable_process_is_refused_before_the_screen() {
    let sleeping = Running(Command::new("sleep").arg("1000").spawn().unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_unconvoy-top"));
    let output = command.arg(sleeping.0.id().to_string()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("does not run under unconvoy"), "{said}");
    assert!(output.status.code() == Some(1) && output.stdout.is_empty());
}
