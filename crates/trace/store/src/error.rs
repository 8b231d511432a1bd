//! Errors of trace files; the enum is this crate's list of messages.

use parquet::errors::ParquetError;

/// Why a trace file cannot be read or written. Offsets are in bytes from the file's start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not a Parquet file.
    #[error("not a trace: no Parquet magic at byte 0")]
    Foreign,
    /// A Parquet file with other content.
    #[error("not a trace: the Parquet file ending at byte {offset} has other columns")]
    ForeignColumns {
        /// The end of the file, where its table of contents ends.
        offset: u64,
    },
    /// The file ends before its table of contents does.
    #[error("truncated: it ends at byte {offset}, without a Parquet footer")]
    Truncated {
        /// The length of the file.
        offset: u64,
    },
    /// The table of contents or the rows are damaged.
    #[error("damaged at or after byte {offset}: {what}")]
    Damaged {
        /// Start of the damaged row group, or the end of the file for the table of contents.
        offset: u64,
        /// The decoder's message.
        what: String,
    },
    /// The file cannot be written.
    #[error("cannot write the trace: {0}")]
    Write(ParquetError),
    /// The file cannot be read.
    #[error("cannot read the trace: {0}")]
    Read(ParquetError),
}

impl Error {
    /// Where the file becomes unusable; `None` if the system failed, not the file.
    pub fn offset(&self) -> Option<u64> {
        match self {
            Error::Foreign => Some(0),
            Error::ForeignColumns { offset }
            | Error::Truncated { offset }
            | Error::Damaged { offset, .. } => Some(*offset),
            Error::Write(_) | Error::Read(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message() {
        let offset = 123_456;
        let failed = || ParquetError::General("No space left on device".into());
        let messages = [
            Error::Foreign,
            Error::ForeignColumns { offset },
            Error::Truncated { offset },
            Error::Damaged { offset, what: "checksum mismatch in a row group".into() },
            Error::Write(failed()),
            Error::Read(failed()),
        ]
        .map(|error| error.to_string());
        for message in &messages {
            println!("{message}");
            assert!(message.len() <= 120 && !message.ends_with('.'), "{message}");
        }
        let variants = include_str!("error.rs").matches("\n    #[error(").count();
        assert_eq!(variants, messages.len(), "list each variant above");
    }
}
