//! Errors of reading a stream; the enum is this crate's list of messages.

use std::io;

/// Why a stream cannot be read further. Offsets are in bytes from the stream's start. The reader
/// has returned all records before the offset.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The stream does not start with the magic.
    #[error("not a trace of `unconvoy predict --keep-trace`, nor a stream of address sets")]
    Foreign,
    /// The stream ends within a record, or within the magic (offset 0).
    #[error("truncated: the record at byte {offset} is incomplete")]
    Truncated {
        /// Start of the incomplete record.
        offset: u64,
    },
    /// The stream ends between two records, without an end record.
    #[error("truncated: the stream ends at byte {offset} without an end record")]
    Unended {
        /// The length of the stream.
        offset: u64,
    },
    /// A record that no writer produces.
    #[error("malformed record at byte {offset}: {what}")]
    Malformed {
        /// Start of the record.
        offset: u64,
        /// What is wrong with the record.
        what: &'static str,
    },
    /// The underlying reader failed.
    #[error("cannot read past byte {offset}: {error}")]
    Read {
        /// Bytes read before the failure.
        offset: u64,
        /// The system's error.
        error: io::Error,
    },
}

impl Error {
    /// Where the stream becomes unusable, in bytes from its start.
    pub fn offset(&self) -> u64 {
        match self {
            Error::Foreign => 0,
            Error::Truncated { offset }
            | Error::Unended { offset }
            | Error::Malformed { offset, .. }
            | Error::Read { offset, .. } => *offset,
        }
    }

    /// Whether the stream was truncated. Its records up to [`offset`](Error::offset) are valid; the
    /// final counts are missing.
    pub fn is_cut_off(&self) -> bool {
        matches!(self, Error::Truncated { .. } | Error::Unended { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message() {
        let offset = 123_456;
        let error = io::Error::from(io::ErrorKind::UnexpectedEof);
        let messages = [
            Error::Foreign,
            Error::Truncated { offset },
            Error::Unended { offset },
            Error::Malformed { offset, what: "wrong payload length for its kind" },
            Error::Read { offset, error },
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
