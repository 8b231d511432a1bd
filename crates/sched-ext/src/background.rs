//! A thread that writes to a terminal or pipe, which may block it. The scheduler does not wait for
//! it, and a blocked one does not delay the end of the process.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crate::messages;

/// Time limit for the end of the thread. A thread that exceeds it is blocked.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Background {
    thread: Option<JoinHandle<io::Result<()>>>,
    /// Disconnects when the thread ends.
    ended: Receiver<()>,
}

impl Background {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// The thread cannot be created.
    pub fn start(
        name: &str,
        body: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let (end, ended) = sync_channel(0);
        let thread = Builder::new().name(name.into()).spawn(move || {
            let _end = end;
            body()
        })?;
        Ok(Background { thread: Some(thread), ended })
    }

    /// Checks that the thread runs.
    ///
    /// # Errors
    ///
    /// The thread has ended, because a write failed.
    pub fn check(&mut self) -> io::Result<()> {
        let Some(thread) = self.thread.take_if(|thread| thread.is_finished()) else {
            return Ok(());
        };
        Err(match thread.join() {
            Ok(Err(error)) => error,
            _ => io::Error::other(messages::MONITOR_ENDED),
        })
    }

    /// Waits for the end of the thread, unless the thread is blocked.
    pub fn wait(&mut self) {
        if let (Err(RecvTimeoutError::Disconnected), Some(thread)) =
            (self.ended.recv_timeout(EXIT_TIMEOUT), self.thread.take())
        {
            let _ = thread.join();
        }
    }
}
