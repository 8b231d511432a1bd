//! The stream of address sets: what a collector (a plug-in of an emulator, the simulator) writes
//! while a program runs, and what Syncchar's analysis reads. It has no dependency that a plug-in
//! under another licence would mind.
//!
//! A file or a pipe, little-endian: the 8 bytes [`MAGIC`], then records. A record is a u32 kind, a
//! u32 length of its payload in bytes, and the payload.
//!
//! | kind | record | payload |
//! | --- | --- | --- |
//! | 1 | context | JSON: `source` (`qemu-user`, `qemu-system` or `sim`), `program` (strings), `rate` (one in how many sections is sampled, at random), `processors`, `page_size`, `seed`, `version` |
//! | 2 | module | u64 base, u64 end, u64 file offset, the path: code and data mapped, for names |
//! | 3 | lock | u32 number (from 0, in the order of first acquisitions), u64 address, u32 size in bytes, u32 incarnation, u64 pc of the first acquisition's caller, a name or nothing |
//! | 4 | section | u32 lock, u32 thread, u64 order of its unlock (global, increasing), u32 flags, u32 number of entries, then so many entries |
//! | 5 | place | u32 number (from 1), u64 pc |
//! | 6 | allocation | u64 address, u64 size, u32 thread, u32 number n <= 8 of return addresses, n times u64 |
//! | 7 | counts | u32 lock, u64 acquisitions, u64 sampled, u64 contended: for each lock at the end, and as often before as the collector likes; the last of a lock counts |
//! | 8 | end | JSON: totals, `lost` (records), `exit_status` if known |
//! | 9 | object | u64 address, u64 size (0: unknown), a name: an object of a kernel's heap that sampled sections touch or locks lie in |
//! | 10 | held | u32 lock, u32 zero, u64 instructions held, u64 instructions waited: at the end, for each lock, where they are counted |
//!
//! An entry has 24 bytes: u64 address of an aligned 8-byte word, u8 mask of its bytes read, u8 mask
//! of its bytes written, u16 zero, u32 number of the place that first read it (0: none), u32
//! likewise written, u32 zero. A section's entries name each word once. Lock words (of all known
//! locks) and the accessing thread's own stack are not among them (section 4.1 of the paper).
//!
//! A kind that a reader does not know is skipped. A stream ends with its end record; one that ends
//! before, within a record or between two, was cut off, and reading it fails with the offset, after
//! every record before that offset was handed out. A record is at most [`MAX_PAYLOAD`] bytes long,
//! so that a corrupted length is refused instead of filling memory.
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
//! let entries = [Access { address: 0x1000, read: 0x0f, written: 0, read_place: 1, written_place: 0 }];
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
mod writer;

pub use access::{Access, Region, WORD};
pub use error::Error;
pub use json::{Context, End, Json};
pub use reader::Reader;
pub use record::{
    Allocation, Counts, Entries, Held, Lock, MAGIC, MAX_ENTRIES, MAX_FRAMES, MAX_PAYLOAD, Module, Object, Place,
    Record, Section, flag,
};
pub use writer::{Writer, append, append_section};
