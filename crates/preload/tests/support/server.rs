//! A service under test. It starts in the foreground, the test polls it until it answers, and it
//! stops as its init script would stop it, with all its processes.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, test_kill_process};

use super::{Finished, LIMIT, Running, library};

/// A running service. If a test fails, the drop prints the stacks of the service's threads, since a
/// client that waits in vain does not show why, and kills the service.
pub struct Service {
    running: Option<Running>,
}

impl Service {
    /// Starts `command`; returns once `answers` is true.
    #[track_caller]
    pub fn start(command: &mut Command, answers: impl FnMut() -> bool) -> Self {
        let preloaded =
            command.get_envs().any(|(name, value)| name == "LD_PRELOAD" && value.is_some());
        let mut service = Service { running: Some(Running::start(command)) };
        service.wait_until("the service answers", answers);
        // The loader continues without a library that it cannot load. Check that it is there.
        let maps = fs::read_to_string(format!("/proc/{}/maps", service.id()))
            .expect("the service's mappings");
        let name = library().file_name().expect("a file").to_str().expect("a UTF-8 name");
        assert_eq!(maps.contains(name), preloaded, "the library in the service:\n{maps}");
        service
    }

    fn running(&mut self) -> &mut Running {
        self.running.as_mut().expect("only stop() takes it away")
    }

    /// Waits until `holds` is true, while the service runs.
    #[track_caller]
    pub fn wait_until(&mut self, what: &str, mut holds: impl FnMut() -> bool) {
        let deadline = Instant::now() + LIMIT;
        while !holds() {
            if let Some(status) = self.running().poll() {
                panic!("the service ended before {what}: {status}");
            }
            assert!(Instant::now() < deadline, "not within {LIMIT:?}: {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn id(&self) -> i32 {
        self.running.as_ref().expect("only stop() takes it away").id().as_raw_nonzero().get()
    }

    /// The process and all its descendants.
    pub fn members(&self) -> Vec<Pid> {
        self.running.as_ref().expect("only stop() takes it away").members()
    }

    /// Sends `signal` to the service's first process.
    pub fn signal(&mut self, signal: Signal) {
        self.running().signal_leader(signal);
    }

    /// Stops the service by sending `signal` to its first process, and waits until all its
    /// processes have ended.
    #[track_caller]
    pub fn stop(mut self, signal: Signal) -> Finished {
        let running = self.running.take().expect("only stop() takes it away");
        let members = running.members();
        running.signal_leader(signal);
        let finished = running.finish(LIMIT);
        let deadline = Instant::now() + LIMIT;
        while let Some(left) = members.iter().find(|pid| test_kill_process(**pid).is_ok()) {
            assert!(
                Instant::now() < deadline,
                "{left:?} of the service is still there\n{}",
                finished.both()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
        finished
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(mut running) = self.running.take()
            && std::thread::panicking()
        {
            eprintln!(
                "the service when the test failed\n{}\n--- output\n{}",
                running.stacks(),
                running.all_printed()
            );
        }
    }
}

/// Arguments for programs that refuse to serve as root, or that change to another user; empty for
/// other users.
pub fn when_root<'a>(arguments: &'a [&'a str]) -> &'a [&'a str] {
    if geteuid().is_root() { arguments } else { &[] }
}

/// A connection to a Unix socket with a line-based protocol.
pub struct Lines {
    reader: BufReader<UnixStream>,
    stream: UnixStream,
}

impl Lines {
    #[track_caller]
    pub fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).expect("the service listens");
        stream.set_read_timeout(Some(LIMIT)).expect("a time-out");
        stream.set_write_timeout(Some(LIMIT)).expect("a time-out");
        Lines { reader: BufReader::new(stream.try_clone().expect("a descriptor")), stream }
    }

    pub fn send(&mut self, words: &str) {
        self.stream.write_all(words.as_bytes()).expect("the service reads");
    }

    /// The next line, without its end.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        let length = self.reader.read_line(&mut line).expect("the service answers");
        assert_ne!(length, 0, "the service hung up");
        line.trim_end().to_owned()
    }

    /// The next `length` bytes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.reader.read_exact(&mut bytes).expect("the service answers");
        bytes
    }

    /// All bytes until the service closes the connection.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.reader.read_to_end(&mut bytes).expect("the service answers");
        bytes
    }
}
