//! The plain lines: a thread that prints the newest report.
//!
//! A terminal or pipe without room blocks the thread in the middle of a report. Of the reports that
//! arrive meanwhile, the thread prints the last one and drops the others.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::event::{PollFd, PollFlags, poll};

use crate::background::Background;
use crate::report::Report;

/// The plain lines. Prints the last report when dropped, unless the output blocks.
#[derive(Debug)]
pub struct Lines {
    newest: Arc<Newest>,
    thread: Background,
}

impl Lines {
    /// Starts the thread, which prints to `output`.
    ///
    /// # Errors
    ///
    /// The thread cannot be created.
    pub fn open(output: File) -> io::Result<Self> {
        let newest = Arc::<Newest>::default();
        let reports = Arc::clone(&newest);
        let thread = Background::start("lines", move || print_each(&reports, &output))?;
        Ok(Lines { newest, thread })
    }

    /// Prints a report.
    ///
    /// # Errors
    ///
    /// The thread has ended, because writing failed.
    pub fn show(&mut self, report: Report) -> io::Result<()> {
        self.thread.check()?;
        self.newest.put(report);
        Ok(())
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.newest.close();
        self.thread.wait();
    }
}

/// The newest report that the thread has not taken.
#[derive(Debug, Default)]
struct Newest {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    report: Option<Report>,
    /// Whether no report follows.
    is_closed: bool,
}

impl Newest {
    fn put(&self, report: Report) {
        self.state().report = Some(report);
        self.changed.notify_one();
    }

    fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_one();
    }

    /// Waits for a report and takes it; `None` after the last one.
    fn take(&self) -> Option<Report> {
        let is_missing = |state: &mut State| state.report.is_none() && !state.is_closed;
        let state = self.changed.wait_while(self.state(), is_missing);
        state.unwrap_or_else(PoisonError::into_inner).report.take()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Body of the thread; returns after the last report. Rates are relative to the last report
/// printed. A closed pipe does not end the scheduler.
fn print_each(reports: &Newest, output: &File) -> io::Result<()> {
    let mut last = Report::default();
    while let Some(report) = reports.take() {
        match print(output, report.lines(&last).as_bytes()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(error),
            _ => last = report,
        }
    }
    Ok(())
}

/// Writes all of `text`, also to an output that another process has made nonblocking.
fn print(mut output: &File, mut text: &[u8]) -> io::Result<()> {
    while !text.is_empty() {
        match output.write(text) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(length) => text = &text[length..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                // An error of poll is one of the next write, too.
                let _ = poll(&mut [PollFd::new(output, PollFlags::OUT)], None);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, Read};
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    use super::*;
    use crate::report::Named;

    /// Number of named tasks of a report that no pipe has room for: at 40 bytes or more each.
    const MANY: u32 = 1 << 16;

    fn report(second: u64, tasks: u32) -> Report {
        let task = |tid| Named { tid, name: "task".into(), share: 0.5, core: 0, is_in_set: true };
        Report {
            since_start: Duration::from_secs(second),
            named: (0..tasks).map(task).collect(),
            ..Report::default()
        }
    }

    fn pipe() -> (PipeReader, File) {
        let (reader, writer) = io::pipe().unwrap();
        (reader, File::from(OwnedFd::from(writer)))
    }

    #[test]
    fn full_pipe_delays_no_report_and_gets_the_newest() {
        let (mut reader, writer) = pipe();
        let mut lines = Lines::open(writer).unwrap();
        lines.show(report(1, MANY)).unwrap();
        // The thread has begun to print.
        reader.read_exact(&mut [0]).unwrap();
        for second in 2..=9 {
            lines.show(report(second, 0)).unwrap();
        }
        let reading = std::thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).map(|_| text)
        });
        drop(lines);
        let text = reading.join().unwrap().unwrap();
        let headings = text.lines().filter_map(|line| line.split_once(" s  bound "));
        let seconds: Vec<&str> = headings.map(|(second, _)| second.trim()).collect();
        assert_eq!(seconds, ["1", "9"]);
        assert_eq!(text.matches(" on core ").count(), MANY as usize);
    }

    #[test]
    fn full_pipe_does_not_delay_the_end() {
        let (reader, writer) = pipe();
        let mut lines = Lines::open(writer).unwrap();
        lines.show(report(1, MANY)).unwrap();
        drop(lines);
        drop(reader);
    }

    #[test]
    fn closed_pipe_is_no_error_but_a_full_disk_is() {
        let printed = |output: &File| {
            let newest = Newest::default();
            newest.put(report(1, 0));
            newest.close();
            print_each(&newest, output)
        };
        let (reader, writer) = pipe();
        drop(reader);
        printed(&writer).unwrap();
        let full = File::options().write(true).open("/dev/full").unwrap();
        assert_eq!(printed(&full).unwrap_err().kind(), ErrorKind::StorageFull);
    }
}
