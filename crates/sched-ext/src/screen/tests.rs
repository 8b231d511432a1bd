//! Tests of the screen on a pseudo-terminal. This test program executes itself there as a
//! *stand-in* for the scheduler and shows made-up reports.

use std::fs::File;
use std::io::Write;
use std::num::NonZeroU16;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};
use rustix::process::Pid;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};

use super::*;
use crate::monitor::Monitor;
use crate::report::Named;

/// Environment variable that selects how the stand-in ends; if empty, on request.
const END: &str = "UNCONVOY_TEST_SCREEN";
/// Several times as long as any step takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// The stand-in, which uses the monitor as the scheduler would. The other tests execute it.
#[test]
#[ignore = "the other tests execute it under a terminal"]
fn stand_in() {
    let Ok(end) = std::env::var(END) else { return };
    let status = match stand_in_until(&end) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("unconvoy: {error:#}");
            1
        }
    };
    // The test harness would write to the terminal, which may be blocked.
    // SAFETY: _exit ends this process; no destructor of this process matters.
    unsafe { libc::_exit(status) }
}

fn stand_in_until(end: &str) -> anyhow::Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let mut monitor = Monitor::open()?;
    for second in 1_u32.. {
        if stop.load(Relaxed) {
            break;
        }
        let name = if second % 2 == 0 { "tick" } else { "tock" };
        let task =
            |tid| Named { tid, name: name.into(), share: 0.5, core: tid % 8, is_in_set: false };
        monitor.show(Report {
            since_start: Duration::from_secs(second.into()),
            cores: 8,
            bound: 1 + second % 8,
            tasks: 100,
            votes: 1,
            waiting: 0.25,
            named: (0..100).take(monitor.room()).map(task).collect(),
            ..Report::default()
        })?;
        match end {
            "error" if second == 20 => anyhow::bail!("the kernel is gone"),
            "panic" if second == 20 => panic!("the stand-in panics"),
            _ => {}
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// A pseudo-terminal with the stand-in running on it.
struct Session {
    master: Arc<OwnedFd>,
    slave: OwnedFd,
    before: Termios,
    child: Child,
    seen: Arc<Mutex<Seen>>,
}

/// The stand-in's output: as bytes, and as a terminal interprets it.
struct Seen {
    bytes: Vec<u8>,
    terminal: vt100::Parser,
}

impl Session {
    fn begin(end: &str) -> Self {
        let session = Self::begin_unread(end, "xterm");
        session.read();
        session
    }

    fn begin_unread(end: &str, term: &str) -> Self {
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave =
            open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        tcsetwinsize(&master, size(24, 80)).unwrap();
        let before = tcgetattr(&slave).unwrap();
        let end_of_it = || Stdio::from(slave.try_clone().unwrap());
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args([
                "--exact",
                "screen::tests::stand_in",
                "--ignored",
                "--nocapture",
                "--test-threads=1",
                "--quiet",
            ])
            .env(END, end)
            .env("TERM", term)
            .env_remove("NO_COLOR")
            .stdin(end_of_it())
            .stdout(end_of_it())
            .stderr(end_of_it());
        // SAFETY: between fork and exec, the closure makes two system calls and does not allocate.
        unsafe {
            command.pre_exec(|| {
                rustix::process::setsid()?;
                Ok(rustix::process::ioctl_tiocsctty(io::stdin())?)
            });
        }
        let child = command.spawn().unwrap();
        let seen =
            Seen { bytes: Vec::new(), terminal: vt100::Parser::new(cells(24), cells(80), 0) };
        Session { master: Arc::new(master), slave, before, child, seen: Arc::new(Mutex::new(seen)) }
    }

    /// Starts reading the stand-in's output.
    fn read(&self) {
        let (master, seen) = (Arc::clone(&self.master), Arc::clone(&self.seen));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = rustix::io::read(&master, &mut bytes) {
                let mut seen = seen.lock().unwrap();
                seen.bytes.extend(&bytes[..length]);
                seen.terminal.process(&bytes[..length]);
            }
        });
    }

    fn text(&self) -> String {
        self.seen.lock().unwrap().terminal.screen().contents()
    }

    fn wait_for(&self, what: &str, is_so: impl Fn(&Seen) -> bool) {
        let start = Instant::now();
        while !is_so(&self.seen.lock().unwrap()) {
            assert!(start.elapsed() < LONG, "not seen: {what}\n{}", self.text());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn wait_for_the_screen(&self) {
        self.wait_for("the screen", |seen| {
            let screen = seen.terminal.screen();
            screen.alternate_screen() && screen.contents().contains("q or Ctrl-C ends")
        });
    }

    fn press(&self, key: u8) {
        rustix::io::write(&self.master, &[key]).unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn status(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < LONG, "the stand-in does not end:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Asserts that the terminal is restored. Returns the output after the screen.
    fn restored(&self) -> String {
        // The terminal delivers this mark after all output of the stand-in.
        File::from(self.slave.try_clone().unwrap()).write_all(b"@the end").unwrap();
        self.wait_for("the end", |seen| seen.bytes.ends_with(b"@the end"));
        let seen = self.seen.lock().unwrap();
        let screen = seen.terminal.screen();
        assert!(!screen.alternate_screen() && !screen.hide_cursor());
        assert_eq!(tcgetattr(&self.slave).unwrap().local_modes, self.before.local_modes);
        assert_eq!(tcgetattr(&self.slave).unwrap().input_modes, self.before.input_modes);
        assert_eq!(
            format!("{:?}", tcgetattr(&self.slave).unwrap().special_codes),
            format!("{:?}", self.before.special_codes)
        );
        let text = String::from_utf8_lossy(&seen.bytes);
        assert_eq!(text.matches("\x1b[?1049h").count(), 1, "{text:?}");
        let (_, after) = text
            .split_once("\x1b[?1049l")
            .unwrap_or_else(|| panic!("the screen was not left: {text:?}"));
        after.trim_end_matches("@the end").to_owned()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn cells(count: u16) -> NonZeroU16 {
    NonZeroU16::new(count).unwrap()
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

#[test]
fn quit_keys_end_the_screen() {
    for key in [b'q', CTRL_C] {
        let mut session = Session::begin("");
        session.wait_for_the_screen();
        let modes = tcgetattr(&session.slave).unwrap().local_modes;
        assert!(!modes.intersects(LocalModes::ECHO | LocalModes::ICANON), "{modes:?}");
        // Keys without effect: Ctrl-Z, Ctrl-S, Ctrl-\ and letters.
        for key in *b"\x1a\x13\x1cxyz" {
            session.press(key);
        }
        session
            .wait_for("another report", |seen| seen.terminal.screen().contents().contains("tick"));
        session
            .wait_for("another report", |seen| seen.terminal.screen().contents().contains("tock"));
        session.press(key);
        assert_eq!(session.status().code(), Some(0));
        assert_eq!(session.restored(), "");
    }
}

#[test]
fn signals_end_the_screen() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut session = Session::begin("");
        session.wait_for_the_screen();
        session.signal(signal);
        assert_eq!(session.status().code(), Some(0));
        assert_eq!(session.restored(), "");
    }
}

#[test]
fn error_or_panic_is_printed_on_the_restored_terminal() {
    for (end, said) in
        [("error", "unconvoy: the kernel is gone\r\n"), ("panic", "the stand-in panics")]
    {
        let mut session = Session::begin(end);
        assert!(!session.status().success());
        let after = session.restored();
        assert!(after.contains(said), "{after}");
    }
}

#[test]
fn screen_follows_the_size_of_the_terminal() {
    let mut session = Session::begin("");
    session.wait_for_the_screen();
    for (rows, columns) in [(10, 40), (1, 30), (50, 120)] {
        session.seen.lock().unwrap().terminal.screen_mut().set_size(cells(rows), cells(columns));
        tcsetwinsize(&session.master, size(rows, columns)).unwrap();
        session.wait_for("the bound at the new size", |seen| {
            let text = seen.terminal.screen().contents();
            let lines: Vec<_> = text.lines().collect();
            let is_filled = rows == 1
                || lines.len() == usize::from(rows) && lines[lines.len() - 1].starts_with("q or");
            lines
                .first()
                .is_some_and(|line| line.starts_with("bound ") && line.contains("(searching)"))
                && is_filled
        });
    }
    // The taller screen shows more tasks.
    session.wait_for("more tasks", |seen| {
        seen.terminal.screen().contents().matches("50.0 %").count() > 24
    });
    session.press(b'q');
    assert_eq!(session.status().code(), Some(0));
    session.restored();
}

#[test]
fn blocked_terminal_does_not_delay_the_end() {
    for term in ["xterm", "dumb"] {
        let mut session = Session::begin_unread("", term);
        // A hundred reports a second, each of several hundred bytes, fill the terminal's buffer.
        std::thread::sleep(Duration::from_secs(2));
        session.signal(Signal::TERM);
        assert_eq!(session.status().code(), Some(0));
        assert_eq!(tcgetattr(&session.slave).unwrap().local_modes, session.before.local_modes);
    }
}

#[test]
fn dumb_terminal_gets_plain_lines() {
    let mut session = Session::begin_unread("", "dumb");
    session.read();
    let is_report = |line: &str| {
        let Some((second, rest)) = line.split_once(" s  bound ") else { return false };
        let Ok(second) = second.trim().parse::<u32>() else { return false };
        let bound = 1 + second % 8;
        rest == format!(
            "{bound} of 8 (searching), 100 lock-intensive tasks, \
             1 votes: 25.0 % waited, 0 changes\r"
        )
    };
    session
        .wait_for("a line", |seen| String::from_utf8_lossy(&seen.bytes).split('\n').any(is_report));
    session.press(CTRL_C);
    assert_eq!(session.status().code(), Some(0));
    assert!(!session.seen.lock().unwrap().bytes.contains(&ESCAPE));
}

#[test]
fn escape_sequence_with_a_quit_letter_does_not_quit() {
    assert!(ends(b"q") && ends(b"Q") && ends(b"xq") && ends(&[CTRL_C]));
    assert!(!ends(b"\x1bq") && !ends(b"\x1bOq") && !ends(b"x") && !ends(b""));
}
