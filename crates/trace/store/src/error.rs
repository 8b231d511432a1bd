//! What a kept trace is refused for.

use parquet::errors::ParquetError;

/// Why a kept trace cannot be read or written. Offsets are in bytes from the file's start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not a Parquet file.
    #[error("not a kept trace: no Parquet file (at byte 0)")]
    Foreign,
    /// A Parquet file of something else.
    #[error("not a kept trace: a Parquet file with other columns (at byte {offset})")]
    ForeignColumns {
        /// Where its table of contents ends, at the end of the file.
        offset: u64,
    },
    /// The file ends before its table of contents does.
    #[error("truncated: it ends at byte {offset}, without the table of contents of a Parquet file")]
    Truncated {
        /// The length of the file.
        offset: u64,
    },
    /// The table of contents or the rows are damaged.
    #[error("damaged at or after byte {offset}: {what}")]
    Damaged {
        /// Where the part starts that is damaged: a row group, or the end of the file for the table of contents.
        offset: u64,
        /// What the decoder said.
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
    /// Where the file stops being usable, if it is the file's fault.
    pub fn offset(&self) -> Option<u64> {
        match self {
            Error::Foreign => Some(0),
            Error::ForeignColumns { offset } | Error::Truncated { offset } | Error::Damaged { offset, .. } => {
                Some(*offset)
            }
            Error::Write(_) | Error::Read(_) => None,
        }
    }
}
