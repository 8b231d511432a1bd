//! The program of the tests: threads that wait for each other, under the library.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::stage::{LIMIT, Stage};

const SOURCE: &str = include_str!("cycle.c");

/// Compiles the program in the stage's directory.
pub fn compile(stage: &Stage) -> PathBuf {
    let source = stage.write("cycle.c", SOURCE);
    stage.compile("cycle", &source, &["-g", "-pthread"]).expect("a C compiler")
}

/// The program, killed when the test ends.
pub struct Program {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: Option<std::thread::JoinHandle<String>>,
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Program {
    /// Starts a command that becomes the program, and waits until its threads have their locks.
    pub fn start(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let (stdout, mut stderr) =
            (child.stdout.take().expect("a pipe"), child.stderr.take().expect("a pipe"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let errors = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        let input = child.stdin.take();
        let program = Program { child, input, lines, errors: Some(errors) };
        program.expect_line("ready");
        program
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the program's end.
    #[allow(dead_code, reason = "each test binary uses its part")]
    pub fn wait(mut self) {
        let end = Instant::now() + LIMIT;
        while self.child.try_wait().expect("a child").is_none() {
            assert!(Instant::now() < end, "the program does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn expect_line(&self, line: &str) {
        assert_eq!(self.lines.recv_timeout(LIMIT).as_deref(), Ok(line), "the program's line");
    }

    /// Sends a line, and waits until the program answers: it goes on.
    pub fn poke(&mut self) {
        writeln!(self.input.as_mut().expect("a pipe")).expect("the program reads");
        self.expect_line("alive");
    }

    /// Ends the program's input, waits for its end and for that of everything that has its standard
    /// error, and returns what was written there.
    pub fn finish(mut self) -> String {
        drop(self.input.take());
        let end = Instant::now() + LIMIT;
        loop {
            match self.child.try_wait().expect("a child") {
                Some(status) => {
                    assert!(status.success(), "{status}");
                    break;
                }
                None => assert!(Instant::now() < end, "the program does not end"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let errors = self.errors.take().expect("not yet joined");
        while !errors.is_finished() {
            assert!(Instant::now() < end, "a process keeps the program's standard error");
            std::thread::sleep(Duration::from_millis(10));
        }
        errors.join().expect("standard error is read")
    }
}

/// Repeats `attempt` until its result `is_expected`, or fails with the last result.
pub fn until(attempt: impl Fn() -> String, is_expected: impl Fn(&str) -> bool) -> String {
    let end = Instant::now() + LIMIT;
    loop {
        let text = attempt();
        if is_expected(&text) {
            return text;
        }
        assert!(Instant::now() < end, "not as expected:\n{text}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
