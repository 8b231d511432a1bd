//! Starts the tests' own processes and threads, and recognises C programs that report a machine
//! without room for theirs (`c/room.h`). Other processes may use up the system's limits; that is
//! not a fault of the library.

use std::io::{Error, Result};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use super::finished::Finished;

/// `NO_ROOM_STATUS` of `c/room.h`.
const STATUS: i32 = 75;

/// How long a refused call is repeated, as in `c/room.h`.
const LIMIT: Duration = Duration::from_secs(60);

/// If the program ended for lack of room, fails the test with a message that blames the machine.
#[track_caller]
pub fn judge(finished: &Finished, name: &str) {
    let refused = finished.stderr.lines().any(|line| line.starts_with("the machine has no room: "));
    if refused && finished.status.code() == Some(STATUS) {
        panic!(
            "the machine has no room for the threads of this test; \
             this is not a fault of the library\n{name}:\n{}",
            finished.stderr
        );
    }
}

/// Repeats `call` until the system has room for it, or until the limit has passed.
fn retry<T>(mut call: impl FnMut() -> Result<T>) -> Result<T> {
    let end = Instant::now() + LIMIT;
    let mut pause = Duration::from_millis(1);
    loop {
        match call() {
            Err(error) if is_refusal(&error) && Instant::now() < end => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_secs(1));
            }
            Err(error) if is_refusal(&error) => {
                return Err(Error::other(format!(
                    "the machine has had no room for {LIMIT:?}: {error}"
                )));
            }
            answer => return answer,
        }
    }
}

fn is_refusal(error: &Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOMEM))
}

/// Like [`Command::spawn`].
pub fn spawn(command: &mut Command) -> Result<Child> {
    retry(|| command.spawn())
}

/// Like [`Command::output`], without standard input.
pub fn output(command: &mut Command) -> Result<Output> {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    spawn(command)?.wait_with_output()
}

/// Like [`Scope::spawn`].
#[track_caller]
pub fn thread<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    body: impl FnOnce() -> T + Send + 'scope,
) -> ScopedJoinHandle<'scope, T> {
    // A refused spawn consumes its closure, so the closure only holds a reference to the body.
    let body = std::sync::Arc::new(Mutex::new(Some(body)));
    let started = retry(|| {
        let body = body.clone();
        let run = move || {
            let body = body.lock().unwrap_or_else(PoisonError::into_inner).take();
            body.expect("one thread runs it")()
        };
        Builder::new().spawn_scoped(scope, run)
    });
    started.unwrap_or_else(|error| panic!("a thread of the test: {error}"))
}
