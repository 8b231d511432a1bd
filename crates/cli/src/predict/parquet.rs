//! Kept traces: Parquet files, which `unconvoy-parquet` converts from and to a collector's stream.

use std::fs::File;
use std::io::{self, BufWriter, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use unconvoy_measure::parts::Part;
use unconvoy_trace_stream::{MAX_PAYLOAD, Record, Writer};

use crate::messages::predict as messages;

/// Returns the path of `unconvoy-parquet`.
///
/// # Errors
///
/// The message says where it was looked for, and the remedy.
pub fn find() -> Result<PathBuf, String> {
    Part { name: "unconvoy-parquet", variable: None, package: "unconvoy-trace-store" }.find()
}

/// A trace being kept. Without [`finish`](Self::finish) its file stays incomplete.
pub struct Keeper {
    program: Program,
    records: Writer<BufWriter<ChildStdin>>,
}

impl Keeper {
    /// Starts to write a trace to `file`.
    ///
    /// # Errors
    ///
    /// The program cannot be started.
    pub fn begin(program: &Path, file: File) -> io::Result<Self> {
        let mut program = Program::start(program, "pack", Stdio::piped(), file.into())?;
        let input = program.child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Self { program, records: Writer::new(BufWriter::with_capacity(1 << 16, input))? })
    }

    /// Adds a record.
    ///
    /// # Errors
    ///
    /// The file cannot be written, or the record is too long.
    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        if let Record::End(json) = record
            && json.len() > MAX_PAYLOAD
        {
            return Err(io::Error::other(messages::names_too_long(json.len(), MAX_PAYLOAD)));
        }
        let written = self.records.write(record);
        // The pipe breaks if the program failed. Its message is more specific.
        written.map_err(|error| self.program.reason().unwrap_or(error))
    }

    /// Completes the file.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn finish(self) -> io::Result<()> {
        let Self { mut program, records } = self;
        let closed = records.finish().map(drop);
        program.reason().map_or(closed, Err)
    }
}

/// A reader of a kept trace's stream.
pub struct Unpacked {
    program: Program,
    output: ChildStdout,
}

impl Unpacked {
    /// Starts to read the trace in `file`.
    ///
    /// # Errors
    ///
    /// The program cannot be started.
    pub fn begin(program: &Path, file: File) -> io::Result<Self> {
        let mut program = Program::start(program, "unpack", file.into(), Stdio::piped())?;
        let output = program.child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Self { program, output })
    }
}

impl Read for Unpacked {
    /// Reads from the program. If the program rejects the file, the stream ends with its message as
    /// the error.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.output.read(into)? {
            0 if !into.is_empty() => self.program.reason().map_or(Ok(0), Err),
            read => Ok(read),
        }
    }
}

/// A running `unconvoy-parquet`, killed when dropped.
struct Program {
    child: Child,
    refusal: Option<String>,
}

impl Program {
    fn start(program: &Path, direction: &str, from: Stdio, to: Stdio) -> io::Result<Self> {
        let mut command = Command::new(program);
        // A process group of its own: Ctrl-C ends the measured program, and the trace so far is
        // kept.
        command.arg(direction).stdin(from).stdout(to).stderr(Stdio::piped()).process_group(0);
        Ok(Self { child: command.spawn()?, refusal: None })
    }

    /// Waits for the program and returns its error if it failed.
    fn reason(&mut self) -> Option<io::Error> {
        if self.refusal.is_none() {
            let mut words = String::new();
            let said = self
                .child
                .stderr
                .take()
                .map_or(Ok(0), |mut stderr| stderr.read_to_string(&mut words));
            match (said, self.child.wait()) {
                (Ok(_), Ok(status)) if status.success() => {}
                (Ok(_), Ok(_)) if !words.trim().is_empty() => {
                    self.refusal = Some(words.trim_end().to_string())
                }
                (_, Ok(status)) => {
                    self.refusal = Some(format!("unconvoy-parquet failed: {status}"))
                }
                (_, Err(error)) => self.refusal = Some(format!("unconvoy-parquet: {error}")),
            }
        }
        self.refusal.clone().map(io::Error::other)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Both calls fail if the program was waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
