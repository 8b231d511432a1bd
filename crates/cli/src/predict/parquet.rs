//! Kept traces: Parquet files, which `unconvoy-parquet` makes of a collector's stream and back.

use std::fs::File;
use std::io::{self, BufWriter, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use unconvoy_measure::parts::Part;
use unconvoy_trace_stream::{MAX_PAYLOAD, Record, Writer};

/// The program's path.
///
/// # Errors
///
/// Says where it looked and what to do.
pub fn find() -> Result<PathBuf, String> {
    Part { name: "unconvoy-parquet", variable: None, package: "unconvoy-trace-store" }.find()
}

/// A trace that is being kept. Dropped before [`finish`](Self::finish), it leaves part of a file.
pub struct Keeper {
    program: Program,
    records: Writer<BufWriter<ChildStdin>>,
}

impl Keeper {
    /// Starts to keep a trace in `file`.
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
    /// The file cannot be written, or the record is longer than a record may be.
    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        if let Record::End(json) = record
            && json.len() > MAX_PAYLOAD
        {
            return Err(io::Error::other(format!(
                "its names take {} bytes, and {MAX_PAYLOAD} at most fit",
                json.len()
            )));
        }
        let written = self.records.write(record);
        // A pipe breaks because the program failed: its reason says more.
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

/// The stream of a kept trace.
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
    /// As of a file, but where the file is refused the stream ends with the reason.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.output.read(into)? {
            0 if !into.is_empty() => self.program.reason().map_or(Ok(0), Err),
            read => Ok(read),
        }
    }
}

/// The program, which ends with its owner.
struct Program {
    child: Child,
    refusal: Option<String>,
}

impl Program {
    fn start(program: &Path, direction: &str, from: Stdio, to: Stdio) -> io::Result<Self> {
        let mut command = Command::new(program);
        // Ctrl-C ends what is measured; the trace so far is kept.
        command.arg(direction).stdin(from).stdout(to).stderr(Stdio::piped()).process_group(0);
        Ok(Self { child: command.spawn()?, refusal: None })
    }

    /// Waits for its end, and returns why it failed if it did.
    fn reason(&mut self) -> Option<io::Error> {
        if self.refusal.is_none() {
            let mut words = String::new();
            let said = self.child.stderr.take().map_or(Ok(0), |mut stderr| stderr.read_to_string(&mut words));
            match (said, self.child.wait()) {
                (Ok(_), Ok(status)) if status.success() => {}
                (Ok(_), Ok(_)) if !words.trim().is_empty() => self.refusal = Some(words.trim_end().to_string()),
                (_, Ok(status)) => self.refusal = Some(format!("unconvoy-parquet failed: {status}")),
                (_, Err(error)) => self.refusal = Some(format!("unconvoy-parquet: {error}")),
            }
        }
        self.refusal.clone().map(io::Error::other)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Both fail for a program that has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
