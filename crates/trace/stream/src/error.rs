//! What a stream is refused for.

use std::io;

/// Why a stream cannot be read on. Offsets are in bytes from the stream's start; what came before
/// them was handed out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The first bytes are not the magic: a foreign file.
    #[error("not a stream of address sets: it does not start with \"UNCVSET1\" (at byte 0)")]
    Foreign,
    /// The stream ends within a record, or within the magic at offset 0.
    #[error("truncated: the record at byte {offset} is not whole")]
    Truncated {
        /// Where the record starts that is not whole.
        offset: u64,
    },
    /// The stream ends between two records, but no end record came.
    #[error("truncated: it ends at byte {offset}, before its end record")]
    Unended {
        /// The length of the stream.
        offset: u64,
    },
    /// A record has a form that no writer gives it.
    #[error("the record at byte {offset} is malformed: {what}")]
    Malformed {
        /// Where the record starts.
        offset: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Reading itself failed.
    #[error("cannot read on after byte {offset}: {error}")]
    Read {
        /// How far reading got.
        offset: u64,
        /// What the system said.
        error: io::Error,
    },
}

impl Error {
    /// Where the stream stops being usable, in bytes from its start.
    pub fn offset(&self) -> u64 {
        match self {
            Error::Foreign => 0,
            Error::Truncated { offset }
            | Error::Unended { offset }
            | Error::Malformed { offset, .. }
            | Error::Read { offset, .. } => *offset,
        }
    }

    /// Whether the stream was only cut off: what came before is as good as that of a whole one, and
    /// its counts are missing.
    pub fn is_cut_off(&self) -> bool {
        matches!(self, Error::Truncated { .. } | Error::Unended { .. })
    }
}
