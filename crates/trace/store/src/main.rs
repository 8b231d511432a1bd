//! `unconvoy-parquet`: packs and unpacks traces for `unconvoy predict --keep-trace` and
//! `--analyse`.
//!
//! This is a program of its own because few users keep a trace, and the Parquet library is larger
//! than the rest of the analysis. Its exit status is 0 on success, 1 if the file or the stream is
//! rejected, and 2 for wrong usage.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, BufReader, BufWriter};
use std::os::fd::AsFd;
use std::process::ExitCode;

use unconvoy_trace_store::{Reader, Writer};
use unconvoy_trace_stream as stream;

const USAGE: &str = "\
usage: unconvoy-parquet pack < STREAM > TRACE.parquet
       unconvoy-parquet unpack < TRACE.parquet > STREAM";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["pack"] => pack(),
        ["unpack"] => unpack(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The caller prefixes the file's name.
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn pack() -> Result<(), Box<dyn std::error::Error>> {
    let mut from = stream::Reader::new(BufReader::with_capacity(1 << 16, file(io::stdin())?))?;
    let mut to = Writer::new(file(io::stdout())?)?;
    loop {
        match from.next_record() {
            Ok(Some(record)) => to.write(&record)?,
            // A truncated stream is packed without an end record.
            Ok(None) => break,
            Err(error) if error.is_cut_off() => break,
            Err(error) => return Err(error.into()),
        }
    }
    to.finish()?;
    Ok(())
}

fn unpack() -> Result<(), Box<dyn std::error::Error>> {
    let mut from = Reader::new(file(io::stdin())?)?;
    let mut to = stream::Writer::new(BufWriter::with_capacity(1 << 16, file(io::stdout())?))?;
    while let Some(record) = from.next_record()? {
        to.write(&record)?;
    }
    to.finish()?;
    Ok(())
}

/// Standard input or output without the standard library's buffer.
fn file(of: impl AsFd) -> io::Result<File> {
    Ok(File::from(of.as_fd().try_clone_to_owned()?))
}
