//! Encodes records. [`append`] needs no stream: each thread of a collector can fill its own buffer
//! with whole records and write it in one piece, under a lock of its choice.

use crate::access::Access;
use crate::record::{
    ENTRY, Entries, MAGIC, MAX_ENTRIES, MAX_PAYLOAD, Record, SECTION_HEAD, Section, encode, flag,
    kind,
};
use std::io::{self, Write};

/// Writes a stream. Each record is one write to the underlying writer: give it a buffered one.
#[derive(Debug)]
pub struct Writer<W: Write> {
    to: W,
    record: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Writes the magic.
    pub fn new(mut to: W) -> io::Result<Self> {
        to.write_all(&MAGIC)?;
        Ok(Writer { to, record: Vec::new() })
    }

    /// Writes one record.
    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        self.record.clear();
        append(&mut self.record, record);
        self.to.write_all(&self.record)
    }

    /// Writes a section like [`append_section`].
    pub fn section(&mut self, section: &Section, entries: &[Access]) -> io::Result<()> {
        self.record.clear();
        append_section(&mut self.record, section, entries);
        self.to.write_all(&self.record)
    }

    /// Writes records encoded by [`append`] or [`append_section`].
    pub fn records(&mut self, records: &[u8]) -> io::Result<()> {
        self.to.write_all(records)
    }

    /// Flushes and returns the underlying writer.
    pub fn finish(mut self) -> io::Result<W> {
        self.to.flush()?;
        Ok(self.to)
    }
}

/// Appends a record to `out`. A section of more than [`MAX_ENTRIES`] entries is cut short and
/// flagged [`flag::CUT_SHORT`].
///
/// # Panics
///
/// If a record other than a section exceeds [`MAX_PAYLOAD`].
pub fn append(out: &mut Vec<u8>, record: &Record) {
    match record {
        Record::Context(json) => {
            framed(out, kind::CONTEXT, |out| out.extend_from_slice(json.as_bytes()))
        }
        Record::End(json) => framed(out, kind::END, |out| out.extend_from_slice(json.as_bytes())),
        Record::Module(module) => framed(out, kind::MODULE, |out| {
            let (base, size) = (module.region.address, module.region.size);
            // Wrapping, as in `Region::between`.
            u64s(out, &[base, base.wrapping_add(size), module.offset]);
            out.extend_from_slice(module.path);
        }),
        Record::Lock(lock) => framed(out, kind::LOCK, |out| {
            u32s(out, &[lock.number]);
            u64s(out, &[lock.region.address]);
            u32s(out, &[lock.region.size as u32, lock.incarnation]);
            u64s(out, &[lock.pc]);
            out.extend_from_slice(lock.name);
        }),
        Record::Section(section, entries) => append_entries(out, section, *entries),
        Record::Place(place) => framed(out, kind::PLACE, |out| {
            u32s(out, &[place.number]);
            u64s(out, &[place.pc]);
        }),
        Record::Allocation(allocation) => framed(out, kind::ALLOCATION, |out| {
            u64s(out, &[allocation.region.address, allocation.region.size]);
            u32s(out, &[allocation.thread, allocation.frames().len() as u32]);
            for frame in allocation.frames() {
                u64s(out, &[frame]);
            }
        }),
        Record::Counts(counts) => framed(out, kind::COUNTS, |out| {
            u32s(out, &[counts.lock]);
            u64s(out, &[counts.acquisitions, counts.sampled, counts.contended]);
        }),
        Record::Object(object) => framed(out, kind::OBJECT, |out| {
            u64s(out, &[object.region.address, object.region.size]);
            out.extend_from_slice(object.name);
        }),
        Record::Held(held) => framed(out, kind::HELD, |out| {
            u32s(out, &[held.lock, 0]);
            u64s(out, &[held.held, held.waited]);
        }),
    }
}

/// Appends a section to `out`. Entries have aligned, distinct addresses; their places must have
/// been written before. Entries beyond [`MAX_ENTRIES`] are dropped and the section is flagged
/// [`flag::CUT_SHORT`].
pub fn append_section(out: &mut Vec<u8>, section: &Section, entries: &[Access]) {
    append_entries(out, section, Entries::from(entries));
}

fn append_entries(out: &mut Vec<u8>, section: &Section, entries: Entries) {
    let kept = entries.len().min(MAX_ENTRIES);
    let flags = section.flags | if kept < entries.len() { flag::CUT_SHORT } else { 0 };
    out.reserve(8 + SECTION_HEAD + kept * ENTRY);
    framed(out, kind::SECTION, |out| {
        u32s(out, &[section.lock, section.thread]);
        u64s(out, &[section.order]);
        u32s(out, &[flags, kept as u32]);
        for entry in entries.iter().take(kept) {
            out.extend_from_slice(&encode(&entry));
        }
    });
}

/// Writes the head with length 0, then the payload, then the length into the head.
fn framed(out: &mut Vec<u8>, kind: u32, payload: impl FnOnce(&mut Vec<u8>)) {
    u32s(out, &[kind, 0]);
    let start = out.len();
    payload(out);
    let length = out.len() - start;
    assert!(length <= MAX_PAYLOAD, "a record of {length} bytes");
    out[start - 4..start].copy_from_slice(&(length as u32).to_le_bytes());
}

fn u32s(out: &mut Vec<u8>, values: &[u32]) {
    values.iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
}

fn u64s(out: &mut Vec<u8>, values: &[u64]) {
    values.iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
}
