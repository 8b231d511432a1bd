//! The records and the layout of their payloads.

use crate::access::{Access, Region};

/// The first bytes of a stream.
pub const MAGIC: [u8; 8] = *b"UNCVSET1";

/// The longest payload of a record, in bytes. A section of [`MAX_ENTRIES`] entries fits.
pub const MAX_PAYLOAD: usize = 64 << 20;

/// The most entries of a section. Larger sections are cut short and flagged [`flag::CUT_SHORT`].
pub const MAX_ENTRIES: usize = (MAX_PAYLOAD - SECTION_HEAD) / ENTRY;

/// The most return addresses of an allocation record.
pub const MAX_FRAMES: usize = 8;

/// Bytes of an entry, and of a section's payload before its entries.
pub(crate) const ENTRY: usize = 24;
pub(crate) const SECTION_HEAD: usize = 24;

pub(crate) mod kind {
    pub const CONTEXT: u32 = 1;
    pub const MODULE: u32 = 2;
    pub const LOCK: u32 = 3;
    pub const SECTION: u32 = 4;
    pub const PLACE: u32 = 5;
    pub const ALLOCATION: u32 = 6;
    pub const COUNTS: u32 = 7;
    pub const END: u32 = 8;
    pub const OBJECT: u32 = 9;
    pub const HELD: u32 = 10;
}

/// Flags of a section.
pub mod flag {
    /// The section made a system call or accessed a device. Optimistic concurrency cannot undo
    /// that, so the section is never independent (section 4.1).
    pub const IO: u32 = 1;
    /// The section touched more words than were recorded.
    pub const CUT_SHORT: u32 = 2;
    /// The section ended in a condition wait, which released the lock.
    pub const WAITED: u32 = 4;
}

/// One record; see the [crate]'s table. JSON stays text, for the caller's own parser.
#[derive(Clone, Debug, PartialEq)]
pub enum Record<'a> {
    /// What ran, and how it was sampled: JSON, see [`Context::json`](crate::Context::json).
    Context(&'a str),
    /// Mapped code or data.
    Module(Module<'a>),
    /// A lock, before its first section.
    Lock(Lock<'a>),
    /// A sampled section and its address set.
    Section(Section, Entries<'a>),
    /// A place in the code, before the first section that refers to it.
    Place(Place),
    /// A heap allocation.
    Allocation(Allocation<'a>),
    /// A lock's totals.
    Counts(Counts),
    /// The last record: JSON, see [`End::json`](crate::End::json).
    End(&'a str),
    /// A kernel heap object.
    Object(Object<'a>),
    /// How long a lock was held and waited for.
    Held(Held),
}

/// Mapped code or data of a file, for symbol names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Module<'a> {
    /// The mapping.
    pub region: Region,
    /// Offset of the mapping in the file, in bytes.
    pub offset: u64,
    /// The file's path; not necessarily UTF-8.
    pub path: &'a [u8],
}

/// One incarnation of a lock: a lock that is destroyed and initialised again is another lock
/// (section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock<'a> {
    /// The lock's number, from 0, in order of first acquisition.
    pub number: u32,
    /// Its bytes: fewer than 2^32.
    pub region: Region,
    /// Number of earlier locks at this address.
    pub incarnation: u32,
    /// Return address of the first acquisition.
    pub pc: u64,
    /// The lock's name if the collector knows it, else empty.
    pub name: &'a [u8],
}

/// A sampled critical section, without its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// The lock's number.
    pub lock: u32,
    /// The thread's number, unique in the run.
    pub thread: u32,
    /// The section's position in the order of unlocks, over all sections of all locks. The sections
    /// of one lock are written in this order. Sections of different locks may be written in another
    /// order.
    pub order: u64,
    /// Bits of [`flag`].
    pub flags: u32,
}

impl Section {
    /// Whether the section did I/O.
    pub fn does_io(&self) -> bool {
        self.flags & flag::IO != 0
    }

    /// Whether the section touched more words than were recorded.
    pub fn is_cut_short(&self) -> bool {
        self.flags & flag::CUT_SHORT != 0
    }
}

/// A place in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The place's number, from 1.
    pub number: u32,
    /// The instruction's address.
    pub pc: u64,
}

/// A heap allocation. Only allocations that a sampled section touches need a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation<'a> {
    /// The bytes asked for.
    pub region: Region,
    /// The allocating thread.
    pub thread: u32,
    /// Return addresses, the allocator's caller first; at most [`MAX_FRAMES`].
    frames: Items<'a, u64>,
}

impl<'a> Allocation<'a> {
    /// Keeps the first [`MAX_FRAMES`] of `frames`.
    pub fn new(region: Region, thread: u32, frames: &'a [u64]) -> Self {
        Allocation { region, thread, frames: Items::from(&frames[..frames.len().min(MAX_FRAMES)]) }
    }

    pub(crate) fn read(region: Region, thread: u32, frames: &'a [u8]) -> Self {
        Allocation { region, thread, frames: Items::read(frames) }
    }

    /// Return addresses, the allocator's caller first.
    pub fn frames(&self) -> impl ExactSizeIterator<Item = u64> + use<'a> {
        self.frames.iter()
    }
}

/// A lock's totals so far, over all sections. Collectors write them for each lock at the end, and
/// earlier at their discretion; a later record replaces an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// The lock's number.
    pub lock: u32,
    /// Number of acquisitions.
    pub acquisitions: u64,
    /// Number of sampled sections.
    pub sampled: u64,
    /// Acquisitions that had to wait.
    pub contended: u64,
}

/// A kernel heap object that a sampled section touched or a lock lies in. It may come before or
/// after the section. A later object at the same address replaces the earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object<'a> {
    /// Its bytes; size 0 if unknown.
    pub region: Region,
    /// The slab cache it was allocated from.
    pub name: &'a [u8],
}

/// A lock's times, in instructions summed over all holders and waiters. Collectors that count
/// instructions write this record for each lock at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The lock's number.
    pub lock: u32,
    /// Between acquisition and release.
    pub held: u64,
    /// Spent waiting.
    pub waited: u64,
}

/// The entries of a section, in the order written.
pub type Entries<'a> = Items<'a, Access>;

/// A list in a record: a slice given to the writer, or the undecoded bytes of a reader.
#[derive(Clone, Copy, Debug)]
pub struct Items<'a, T>(Source<'a, T>);

#[derive(Clone, Copy, Debug)]
enum Source<'a, T> {
    Given(&'a [T]),
    Read(&'a [u8]),
}

/// An element of [`Items`].
pub trait Item: Copy {
    /// Encoded size in bytes.
    const BYTES: usize;
    /// Decodes [`BYTES`](Item::BYTES) bytes.
    fn decode(bytes: &[u8]) -> Self;
}

impl Item for u64 {
    const BYTES: usize = 8;

    fn decode(bytes: &[u8]) -> Self {
        u64_at(bytes, 0)
    }
}

impl<'a, T: Item> Items<'a, T> {
    pub(crate) fn read(bytes: &'a [u8]) -> Self {
        debug_assert_eq!(bytes.len() % T::BYTES, 0);
        Items(Source::Read(bytes))
    }

    pub fn len(&self) -> usize {
        match self.0 {
            Source::Given(items) => items.len(),
            Source::Read(bytes) => bytes.len() / T::BYTES,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = T> + Clone + use<'a, T> {
        let source = self.0;
        (0..self.len()).map(move |index| match source {
            Source::Given(items) => items[index],
            Source::Read(bytes) => T::decode(&bytes[index * T::BYTES..][..T::BYTES]),
        })
    }
}

impl<'a, T> From<&'a [T]> for Items<'a, T> {
    fn from(items: &'a [T]) -> Self {
        Items(Source::Given(items))
    }
}

impl<T: Item + PartialEq> PartialEq for Items<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<T: Item + Eq> Eq for Items<'_, T> {}

pub(crate) fn encode(access: &Access) -> [u8; ENTRY] {
    let mut bytes = [0; ENTRY];
    bytes[0..8].copy_from_slice(&access.address.to_le_bytes());
    bytes[8] = access.read;
    bytes[9] = access.written;
    bytes[12..16].copy_from_slice(&access.read_place.to_le_bytes());
    bytes[16..20].copy_from_slice(&access.written_place.to_le_bytes());
    bytes
}

impl Item for Access {
    const BYTES: usize = ENTRY;

    fn decode(bytes: &[u8]) -> Self {
        Access {
            address: u64_at(bytes, 0),
            read: bytes[8],
            written: bytes[9],
            read_place: u32_at(bytes, 12),
            written_place: u32_at(bytes, 16),
        }
    }
}

/// The u32 at `offset`. The caller has checked the bounds.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(bytes[offset..offset + 4].try_into().expect("four bytes"))
}

/// The u64 at `offset`. The caller has checked the bounds.
pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(bytes[offset..offset + 8].try_into().expect("eight bytes"))
}
