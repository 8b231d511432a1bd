//! Processes and threads of the tests themselves, and what C programs say of a machine that has no room
//! for theirs (`c/room.h`). Other processes may hold most of what the system can have; that is no
//! difference of the library.

use std::io::{Error, Result};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use super::finished::Finished;

/// `NO_ROOM_STATUS` of `c/room.h`.
const STATUS: i32 = 75;

/// How long the system is asked again, as in `c/room.h`.
const PATIENCE: Duration = Duration::from_secs(60);

/// Fails the test in the machine's name if that is why the program ended.
#[track_caller]
pub fn judge(finished: &Finished, name: &str) {
    let refused = finished.stderr.lines().any(|line| line.starts_with("the machine has no room: "));
    if refused && finished.status.code() == Some(STATUS) {
        panic!(
            "the machine has no room for the threads of this test, which says nothing of the library\n{name}:\n{}",
            finished.stderr
        );
    }
}

/// What `call` answers once the system has room for it, or is out of patience.
fn patiently<T>(mut call: impl FnMut() -> Result<T>) -> Result<T> {
    let end = Instant::now() + PATIENCE;
    let mut pause = Duration::from_millis(1);
    loop {
        match call() {
            Err(error) if is_refusal(&error) && Instant::now() < end => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_secs(1));
            }
            Err(error) if is_refusal(&error) => {
                return Err(Error::other(format!("the machine has no room, for {PATIENCE:?}: {error}")));
            }
            answer => return answer,
        }
    }
}

fn is_refusal(error: &Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOMEM))
}

/// As [`Command::spawn`].
pub fn spawn(command: &mut Command) -> Result<Child> {
    patiently(|| command.spawn())
}

/// As [`Command::output`] of a command without standard input.
pub fn output(command: &mut Command) -> Result<Output> {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    spawn(command)?.wait_with_output()
}

/// As [`Scope::spawn`].
#[track_caller]
pub fn thread<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    body: impl FnOnce() -> T + Send + 'scope,
) -> ScopedJoinHandle<'scope, T> {
    // A refused thread takes the closure that it was given with it, so that one only borrows the body.
    let body = std::sync::Arc::new(Mutex::new(Some(body)));
    let started = patiently(|| {
        let body = body.clone();
        let run = move || {
            let body = body.lock().unwrap_or_else(PoisonError::into_inner).take();
            body.expect("one thread runs it")()
        };
        Builder::new().spawn_scoped(scope, run)
    });
    started.unwrap_or_else(|error| panic!("a thread of the test: {error}"))
}
