//! A trace of address sets in one Parquet file: the records of [`unconvoy_trace_stream`], readable
//! by DuckDB, Polars and others.
//!
//! Each record and each entry of a section is one row, in stream order. Columns that a kind of row
//! does not use are null, which costs next to nothing. `docs/reference/trace.md` documents them.
//! Writer and reader work in pieces of [`GROUP`] and [`BATCH`] rows and never hold a whole trace.
//! The file of a truncated stream has no end record.
//!
//! A truncated Parquet file is rejected as a whole: its table of contents is at its end.

#![forbid(unsafe_code)]

mod bounds;
mod checksum;
mod error;
mod reader;
mod row;
mod writer;

pub use error::Error;
pub use reader::{BATCH, Reader};
pub use writer::{GROUP, Writer};
