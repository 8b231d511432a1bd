//! A trace of address sets, kept: the records of [`unconvoy_trace_stream`] in one Parquet file, which DuckDB, Polars and others read.
//!
//! One row per record and per entry of a section, in the order of the stream; columns that a kind of row has no use for are null, which costs
//! next to nothing. `docs/reference/trace.md` documents them. Files are written and read in pieces of [`GROUP`] and [`BATCH`] rows: no trace
//! is ever held whole. A stream that was cut off can be kept too; it then has no end record.
//!
//! A Parquet file ends with its table of contents, so one that was cut off has none, and is refused whole.

#![forbid(unsafe_code)]

mod checksum;
mod error;
mod reader;
mod row;
mod writer;

pub use error::Error;
pub use reader::{BATCH, Reader};
pub use writer::{GROUP, Writer};
