//! The stream of address sets from a collector (an emulator's plug-in, the simulator) to Syncchar's
//! analysis. The collector writes it while a program runs. The crate has no dependency that would
//! conflict with a plug-in's licence.
//!
//! A stream is a file or a pipe, little-endian: the 8 bytes [`MAGIC`], then records. A record is a
//! u32 kind, the u32 length of its payload in bytes, and the payload.
//!
//! | kind | record | payload |
//! | --- | --- | --- |
//! | 1 | context | JSON object with the fields of [`Context`] |
//! | 2 | [module](Module) | u64 base, u64 end, u64 file offset, path |
//! | 3 | [lock](Lock) | u32 number, u64 address, u32 size in bytes, u32 incarnation, u64 pc, optional name |
//! | 4 | [section](Section) | u32 lock, u32 thread, u64 order, u32 flags, u32 number of entries, the entries |
//! | 5 | [place](Place) | u32 number, u64 pc |
//! | 6 | [allocation](Allocation) | u64 address, u64 size, u32 thread, u32 number of return addresses, u64 each |
//! | 7 | [counts](Counts) | u32 lock, u64 acquisitions, u64 sampled, u64 contended |
//! | 8 | end | JSON object with the fields of [`End`], and the collector's own keys |
//! | 9 | [object](Object) | u64 address, u64 size (0: unknown), name |
//! | 10 | [held](Held) | u32 lock, u32 zero, u64 instructions held, u64 instructions waited |
//!
//! An entry has 24 bytes: u64 address of an aligned 8-byte word, u8 mask of the bytes read, u8 mask
//! of the bytes written, u16 zero, u32 number of the place that first read the word (0: none), u32
//! number of the place that first wrote it, u32 zero. A section's entries name each word once. They
//! leave out the words of all known locks and the accessing thread's own stack (section 4.1 of the
//! paper).
//!
//! Readers skip records of unknown kinds. A complete stream ends with its end record. A stream
//! without one was truncated, within a record or between two: the reader hands out every complete
//! record and then fails with the offset of the truncation. A record has at most [`MAX_PAYLOAD`]
//! bytes, so a corrupted length is rejected before it fills memory.
//!
//! The paper is "Predicting and Tuning the Performance of Multicore Systems", Porter, Hofmann and
//! Witchel, University of Texas at Austin, 2008.
//!
//! ```
//! use unconvoy_trace_stream::{Access, Context, End, Reader, Record, Section, Writer};
//!
//! let mut stream = Vec::new();
//! let mut writer = Writer::new(&mut stream)?;
//! let context = Context { source: "sim", rate: 10, processors: 2, ..Context::default() }.json();
//! writer.write(&Record::Context(&context))?;
//! let entries = [Access { address: 0x1000, read: 0x0f, read_place: 1, ..Access::default() }];
//! writer.section(&Section { lock: 0, thread: 7, order: 1, flags: 0 }, &entries)?;
//! writer.write(&Record::End(&End { sections: 1, ..End::default() }.json()))?;
//!
//! let mut reader = Reader::new(&stream[..])?;
//! while let Some(record) = reader.next_record()? {
//!     if let Record::Section(section, entries) = record {
//!         assert_eq!((section.thread, entries.len()), (7, 1));
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod access;
mod error;
mod json;
mod reader;
mod record;
pub mod sampling;
mod writer;

pub use access::{Access, Region, WORD};
pub use error::Error;
pub use json::{Context, End, Json};
pub use reader::Reader;
pub use record::{
    Allocation, Counts, Entries, Held, Lock, MAGIC, MAX_ENTRIES, MAX_FRAMES, MAX_PAYLOAD, Module,
    Object, Place, Record, Section, flag,
};
pub use writer::{Writer, append, append_section};
