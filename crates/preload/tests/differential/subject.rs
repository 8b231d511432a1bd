//! A process that makes the calls (`c/differential.c`), and the states that explain its results.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::calls::result::CANCELLED;
use super::calls::{Call, Line, THREADS, kind};
use super::defined::{is_defined, states_for_child};
use super::model::{Health, State, closure};
use super::support::room::spawn;

/// A thread that has used this much processor time in a call waits there: what a call does first
/// takes microseconds.
const SPUN: Duration = Duration::from_millis(1);

/// A deadline passes by then: [`Deadline::Soon`](super::calls::Deadline) is 2 ms.
const DEADLINE: Duration = Duration::from_millis(4);

/// A waiter under load-triggered backoff may sleep beside a free lock, for at most eight times the
/// mean, which is 1 ms in this test.
const BACKOFF: Duration = Duration::from_millis(10);

/// How long the states may go without an expected result: longer than the program waits for room
/// for a thread (`c/room.h`).
const LIMIT: Duration = Duration::from_secs(90);

/// With more possible states than this, the test waits until all threads rest.
const MANY: usize = 2000;

const BEGUN: i32 = -1;
const STARTED: i32 = -1000;

/// What is wrong with a run.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Equal for failures with probably the same cause.
    pub kind: &'static str,
    pub text: String,
}

pub struct Subject {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
    buffer: Vec<u8>,
    threads: [Thread; THREADS + 1],
    /// Cancelled threads, not joined yet.
    ended: Vec<usize>,
    states: Vec<State>,
    /// How long a thread that waits sleeps at least.
    rest: Duration,
}

#[derive(Debug, Clone, Copy, Default)]
struct Thread {
    id: i32,
    is_busy: bool,
    /// Processor time when its call began, or at the last result of another thread.
    since: Option<Duration>,
    /// Number of looks at which it slept, and the time of the first.
    sleeps: usize,
    asleep: Option<Instant>,
    /// When the deadline of its call will have passed.
    until: Option<Instant>,
}

impl Subject {
    pub fn start(mut command: Command) -> Result<Self, Failure> {
        let is_preloaded = command.get_envs().any(|it| it.0 == "LD_PRELOAD" && it.1.is_some());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let backs_off = command.get_envs().any(|it| it.1 == Some("backoff".as_ref()));
        let rest = if backs_off { BACKOFF } else { Duration::ZERO };
        let mut child = spawn(command.env("UNCONVOY_BACKOFF_MS", "1")).expect("a process");
        let input = child.stdin.take().expect("a pipe");
        let output = child.stdout.take().expect("a pipe");
        let threads = [Thread::default(); THREADS + 1];
        let states = vec![State::default()];
        let (buffer, ended) = (Vec::new(), Vec::new());
        let mut subject = Self { child, input, output, buffer, threads, ended, states, rest };
        let deadline = Instant::now() + LIMIT;
        while subject.threads[1..].iter().any(|thread| thread.id == 0) {
            subject.read(Duration::from_millis(1))?;
            if Instant::now() > deadline {
                return Err(subject.hang("threads do not start"));
            }
        }
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", subject.child.id()));
        let has_library = maps.is_ok_and(|maps| maps.contains("libunconvoy"));
        assert_eq!(has_library, is_preloaded, "the library in the program");
        Ok(subject)
    }

    pub fn states(&self) -> &[State] {
        &self.states
    }

    /// The threads without a call.
    pub fn idle(&self) -> impl Iterator<Item = usize> {
        (1..=THREADS).filter(|&it| !self.threads[it].is_busy && self.threads[it].id != 0)
    }

    /// Whether the call is defined in every possible state.
    pub fn may_call(&self, thread: usize, call: Call) -> bool {
        let is_idle =
            !self.threads[thread].is_busy && (thread == 0 || self.threads[thread].id != 0);
        let rests = |state: &State| state.is_at_rest() && !state.has_results();
        let is_known = !self.is_exclusive(call) || self.states.iter().all(rests);
        is_idle && is_known && self.states.iter().all(|state| is_defined(call, thread, state))
    }

    /// Whether no other call may be under way: the call needs to know the states of all objects, or
    /// meets a fault of glibc. A call on an unrecoverable mutex holds the mutex for a moment, so
    /// that a concurrent call may wait for ever (2.36), and so may a concurrent waiter when a mutex
    /// becomes unrecoverable.
    fn is_exclusive(&self, call: Call) -> bool {
        let is_faulty = |state: &State| match call {
            Call::TryLock(mutex) => kind::is_robust(state.mutexes[mutex].kind),
            Call::Unlock(mutex) => state.mutexes[mutex].health == Health::Inconsistent,
            _ => call.mutex().is_some_and(|mutex| {
                matches!(state.mutexes[mutex].health, Health::Inconsistent | Health::Unrecoverable)
            }),
        };
        call.needs_rest() || self.states.iter().any(is_faulty)
    }

    /// Makes a call, and with `settles` waits until all threads rest.
    pub fn make(&mut self, line: Line) -> Result<(), Failure> {
        self.send(line.thread, line.call)?;
        let is_alone = line.thread == 0 || line.call == Call::Exit || self.is_exclusive(line.call);
        if is_alone || line.settles || self.states.len() > MANY {
            self.settle()?;
        } else {
            self.read(Duration::ZERO)?;
        }
        Ok(())
    }

    fn send(&mut self, thread: usize, call: Call) -> Result<(), Failure> {
        let (letter, [a, b, c]) = call.command(states_for_child(thread, &self.states[0]));
        let line = format!("{thread} {letter} {a} {b} {c}\n");
        if self.input.write_all(line.as_bytes()).is_err() {
            return Err(self.death());
        }
        let called = self.states.iter().map(|state| state.with_call(thread, call));
        self.states = closure(called).into_iter().collect();
        let busy = &mut self.threads[thread];
        (busy.is_busy, busy.since, busy.sleeps, busy.asleep) = (true, None, 0, None);
        busy.until = call.is_short().then(|| Instant::now() + DEADLINE);
        if call == Call::Exit {
            busy.id = 0;
        }
        Ok(())
    }

    /// Waits until every thread has returned or waits.
    pub fn settle(&mut self) -> Result<(), Failure> {
        let mut deadline = Instant::now() + LIMIT;
        loop {
            if self.read(Duration::from_micros(50))? > 0 {
                deadline = Instant::now() + LIMIT;
            }
            let rests = |state: &&State| state.is_at_rest() && !state.has_results();
            let is_explained = self.states.iter().any(|state| rests(&state));
            if is_explained && self.threads_rest() {
                // A thread that may still return, in one of the states, is looked for later.
                self.states.retain(State::is_at_rest);
                return Ok(());
            }
            if Instant::now() > deadline {
                let what = if is_explained { "threads do not rest" } else { "no result" };
                return Err(self.hang(what));
            }
        }
    }

    /// Whether each thread with a call sleeps or spins in it.
    fn threads_rest(&mut self) -> bool {
        if self.threads[0].is_busy
            || !self.ended.is_empty()
            || self.threads[1..].iter().any(|thread| thread.id == 0)
        {
            return false;
        }
        let process = self.child.id();
        let mut all = true;
        for thread in self.threads.iter_mut().filter(|thread| thread.is_busy) {
            let Some(since) = thread.since else { return false };
            if thread.until.is_some_and(|until| Instant::now() < until) {
                return false;
            }
            if thread.sleeps < 2 {
                if state_of(process, thread.id) != Some('S') {
                    (thread.sleeps, thread.asleep) = (0, None);
                } else if thread.asleep.get_or_insert_with(Instant::now).elapsed() >= self.rest {
                    thread.sleeps += 1;
                }
            }
            let ran = time_of(process, thread.id).saturating_sub(since);
            all &= thread.sleeps >= 2 || ran >= SPUN;
        }
        all
    }

    /// Reads reports that arrive within `limit`; returns the number of results.
    fn read(&mut self, limit: Duration) -> Result<usize, Failure> {
        let timeout = Timespec::try_from(limit).expect("a short time");
        let mut set = [PollFd::new(&self.output, PollFlags::IN)];
        match poll(&mut set, Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(0),
            Ok(_) => {}
            Err(error) => panic!("poll: {error}"),
        }
        let mut bytes = [0; 4096];
        match self.output.read(&mut bytes) {
            Ok(0) => return Err(self.death()),
            Ok(length) => self.buffer.extend_from_slice(&bytes[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("a pipe: {error}"),
        }
        let mut results = 0;
        while self.buffer.len() >= 8 {
            let number = |at: usize| {
                i32::from_le_bytes(self.buffer[at..at + 4].try_into().expect("four bytes"))
            };
            let [thread, code] = [number(0), number(4)];
            self.buffer.drain(..8);
            results += 1;
            self.report(usize::try_from(thread).expect("a thread's number"), code)?;
        }
        Ok(results)
    }

    fn report(&mut self, thread: usize, code: i32) -> Result<(), Failure> {
        let it = &mut self.threads[thread];
        match code {
            ..=STARTED => it.id = STARTED - code,
            BEGUN => {
                it.since = Some(time_of(self.child.id(), it.id));
                it.until = it.until.map(|_| Instant::now() + DEADLINE);
            }
            _ => {
                it.is_busy = false;
                if code == CANCELLED {
                    it.id = 0;
                }
                let with: Vec<State> =
                    self.states.iter().filter_map(|it| it.without_result(thread, code)).collect();
                if with.is_empty() {
                    return Err(self.wrong(thread, code));
                }
                self.states = closure(with).into_iter().collect();
                // Other threads may run now: look at them again.
                for other in self.threads.iter_mut().filter(|other| other.since.is_some()) {
                    (other.sleeps, other.asleep) = (0, None);
                    other.since = Some(time_of(self.child.id(), other.id));
                }
                if code == CANCELLED {
                    self.ended.push(thread);
                }
                if !self.threads[0].is_busy
                    && let Some(ended) = self.ended.pop()
                {
                    self.send(0, Call::Join(ended))?;
                }
            }
        }
        Ok(())
    }

    fn wrong(&self, thread: usize, code: i32) -> Failure {
        let mut allowed: Vec<String> =
            self.states.iter().map(|state| format!("{:?}", state.threads[thread])).collect();
        allowed.sort_unstable();
        allowed.dedup();
        let text = format!("thread {thread} returned {code}; allowed: {}", allowed.join(", "));
        Failure { kind: "wrong result", text }
    }

    fn hang(&self, what: &str) -> Failure {
        let mut text = format!("{what} for {LIMIT:?}\n");
        for state in self.states.iter().filter(|state| state.is_at_rest()).take(3) {
            text += &format!("expected: {:?}\n", state.threads);
        }
        let mut debugger = Command::new("gdb");
        let process = self.child.id().to_string();
        debugger.args(["-p", &process, "-batch", "-ex", "thread apply all bt 12"]);
        if let Ok(output) = debugger.env_remove("LD_PRELOAD").output() {
            text += &String::from_utf8_lossy(&output.stdout);
        }
        Failure { kind: "hang", text }
    }

    fn death(&mut self) -> Failure {
        let status = self.child.wait().expect("our child");
        let mut text = status.to_string();
        if let Some(mut stderr) = self.child.stderr.take() {
            let _ = stderr.read_to_string(&mut text);
        }
        Failure { kind: if status.signal().is_some() { "signal" } else { "exit" }, text }
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The state of a thread, such as `S` while it sleeps.
fn state_of(process: u32, thread: i32) -> Option<char> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{thread}/stat")).ok()?;
    text.rsplit_once(") ")?.1.chars().next()
}

/// The processor time of a thread.
fn time_of(process: u32, thread: i32) -> Duration {
    let text = fs::read_to_string(format!("/proc/{process}/task/{thread}/schedstat"));
    let first = text.ok().and_then(|text| text.split(' ').next()?.parse().ok());
    Duration::from_nanos(first.unwrap_or(0))
}
