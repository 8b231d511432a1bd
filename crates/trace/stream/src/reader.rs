//! Decodes records one at a time; the reader never holds a whole stream.

use crate::access::Region;
use crate::error::Error;
use crate::record::{
    Allocation, Counts, ENTRY, Entries, Held, Lock, MAGIC, MAX_FRAMES, MAX_PAYLOAD, Module, Object,
    Place, Record, SECTION_HEAD, Section, kind, u32_at, u64_at,
};
use std::io::{ErrorKind, Read};

/// Reads a stream. Each record takes at least two reads of the underlying reader: give it a
/// buffered one.
#[derive(Debug)]
pub struct Reader<R: Read> {
    from: R,
    /// Where the next record starts.
    offset: u64,
    payload: Vec<u8>,
    ended: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the magic.
    ///
    /// # Errors
    ///
    /// [`Error::Foreign`] if the first bytes differ from the magic; [`Error::Truncated`] at offset
    /// 0 if the stream ends within the magic.
    pub fn new(mut from: R) -> Result<Self, Error> {
        let mut magic = [0; MAGIC.len()];
        let got = fill(&mut from, &mut magic, 0)?;
        if magic[..got] != MAGIC[..got] {
            return Err(Error::Foreign);
        }
        if got < MAGIC.len() {
            return Err(Error::Truncated { offset: 0 });
        }
        Ok(Reader { from, offset: MAGIC.len() as u64, payload: Vec::new(), ended: false })
    }

    /// The next record, or `None` after the end record. Skips records of unknown kinds.
    ///
    /// # Errors
    ///
    /// The stream is truncated or malformed, at the error's offset. Do not read on after an error.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, Error> {
        loop {
            let mut head = [0; 8];
            let got = fill(&mut self.from, &mut head, self.offset)?;
            let offset = self.offset;
            match (got, self.ended) {
                (0, true) => return Ok(None),
                (0, false) => return Err(Error::Unended { offset }),
                (_, true) => {
                    return Err(Error::Malformed { offset, what: "data follows the end record" });
                }
                (1..8, false) => return Err(Error::Truncated { offset }),
                _ => {}
            }
            let (kind, length) = (u32_at(&head, 0), u32_at(&head, 4) as usize);
            if length > MAX_PAYLOAD {
                return Err(Error::Malformed { offset, what: "its length exceeds 64 MiB" });
            }
            self.payload.clear();
            // No `reserve(length)`: a wrong length must not cost more memory than the stream has
            // bytes.
            let read = (&mut self.from).take(length as u64).read_to_end(&mut self.payload);
            let got = read.map_err(|error| Error::Read { offset, error })?;
            if got < length {
                return Err(Error::Truncated { offset });
            }
            self.offset += (head.len() + length) as u64;
            if (kind::CONTEXT..=kind::HELD).contains(&kind) {
                self.ended = kind == kind::END;
                return decode(kind, &self.payload)
                    .map(Some)
                    .map_err(|what| Error::Malformed { offset, what });
            }
        }
    }

    /// Where the next record starts, in bytes from the stream's start.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

/// Reads until `into` is full or the input ends. Returns the number of bytes read.
fn fill(from: &mut impl Read, into: &mut [u8], offset: u64) -> Result<usize, Error> {
    let mut got = 0;
    while got < into.len() {
        match from.read(&mut into[got..]) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::Read { offset: offset + got as u64, error }),
        }
    }
    Ok(got)
}

fn decode(kind: u32, payload: &[u8]) -> Result<Record<'_>, &'static str> {
    let (shortest, exact) = match kind {
        kind::MODULE => (24, false),
        kind::LOCK => (28, false),
        kind::SECTION => (SECTION_HEAD, false),
        kind::PLACE => (12, true),
        kind::ALLOCATION => (24, false),
        kind::COUNTS => (28, true),
        kind::OBJECT => (16, false),
        kind::HELD => (24, true),
        _ => (0, false),
    };
    if payload.len() < shortest || (exact && payload.len() > shortest) {
        return Err("wrong payload length for its kind");
    }
    Ok(match kind {
        kind::CONTEXT => Record::Context(text(payload)?),
        kind::END => Record::End(text(payload)?),
        kind::MODULE => Record::Module(Module {
            region: Region::between(u64_at(payload, 0), u64_at(payload, 8)),
            offset: u64_at(payload, 16),
            path: &payload[24..],
        }),
        kind::LOCK => Record::Lock(Lock {
            number: u32_at(payload, 0),
            region: Region::new(u64_at(payload, 4), u32_at(payload, 12).into()),
            incarnation: u32_at(payload, 16),
            pc: u64_at(payload, 20),
            name: &payload[28..],
        }),
        kind::SECTION => {
            let section = Section {
                lock: u32_at(payload, 0),
                thread: u32_at(payload, 4),
                order: u64_at(payload, 8),
                flags: u32_at(payload, 16),
            };
            let entries = &payload[SECTION_HEAD..];
            if u32_at(payload, 20) as usize * ENTRY != entries.len() {
                return Err("payload length does not match its number of entries");
            }
            let entries = Entries::read(entries);
            for entry in entries.iter() {
                if entry.address % 8 != 0 {
                    return Err("the address of an entry is not a multiple of 8");
                }
                if entry.touched() == 0 {
                    return Err("an entry has no byte read or written");
                }
            }
            Record::Section(section, entries)
        }
        kind::PLACE => Record::Place(Place { number: u32_at(payload, 0), pc: u64_at(payload, 4) }),
        kind::ALLOCATION => {
            let (region, frames) =
                (Region::new(u64_at(payload, 0), u64_at(payload, 8)), &payload[24..]);
            if u32_at(payload, 20) as usize > MAX_FRAMES
                || u32_at(payload, 20) as usize * 8 != frames.len()
            {
                return Err("payload length does not match its number of return addresses");
            }
            Record::Allocation(Allocation::read(region, u32_at(payload, 16), frames))
        }
        kind::OBJECT => Record::Object(Object {
            region: Region::new(u64_at(payload, 0), u64_at(payload, 8)),
            name: &payload[16..],
        }),
        kind::HELD => Record::Held(Held {
            lock: u32_at(payload, 0),
            held: u64_at(payload, 8),
            waited: u64_at(payload, 16),
        }),
        _ => Record::Counts(Counts {
            lock: u32_at(payload, 0),
            acquisitions: u64_at(payload, 4),
            sampled: u64_at(payload, 12),
            contended: u64_at(payload, 20),
        }),
    })
}

fn text(payload: &[u8]) -> Result<&str, &'static str> {
    std::str::from_utf8(payload).map_err(|_| "text is not UTF-8")
}
