//! The records and how their payloads are laid out.

use crate::access::{Access, Region};

/// The first bytes of a stream.
pub const MAGIC: [u8; 8] = *b"UNCVSET1";

/// The longest payload of a record, in bytes; that of a section of [`MAX_ENTRIES`] entries fits.
pub const MAX_PAYLOAD: usize = 64 << 20;

/// The most entries that a section may have. One that touched more is written cut short, with
/// [`flag::CUT_SHORT`].
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
    /// It made a system call, or accessed a device: optimistic concurrency cannot undo it, so it is
    /// never independent (section 4.1).
    pub const IO: u32 = 1;
    /// It touched more than was recorded.
    pub const CUT_SHORT: u32 = 2;
    /// It ended by waiting for a condition, which released the lock.
    pub const WAITED: u32 = 4;
}

/// One record; see the [crate]'s table. JSON is text here, for the caller's own parser.
#[derive(Clone, Debug, PartialEq)]
pub enum Record<'a> {
    /// What ran, and how it was sampled: JSON as by [`Context::json`](crate::Context::json).
    Context(&'a str),
    /// Mapped code or data.
    Module(Module<'a>),
    /// A lock, before its first section.
    Lock(Lock<'a>),
    /// A sampled section and its address set.
    Section(Section, Entries<'a>),
    /// A place in the code, before the first section that names it.
    Place(Place),
    /// A piece of heap.
    Allocation(Allocation<'a>),
    /// A lock's totals.
    Counts(Counts),
    /// The last record: JSON as by [`End::json`](crate::End::json).
    End(&'a str),
    /// An object of a kernel's heap.
    Object(Object<'a>),
    /// For how long a lock was held and waited for.
    Held(Held),
}

/// Code or data of a file, mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Module<'a> {
    /// Where it is mapped.
    pub region: Region,
    /// The file's offset that is mapped there, in bytes.
    pub offset: u64,
    /// The file; not always UTF-8.
    pub path: &'a [u8],
}

/// A lock in one of its lives: destroyed and initialised again, it is another lock (section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock<'a> {
    /// From 0, in the order of first acquisitions.
    pub number: u32,
    /// Its bytes: fewer than 2^32.
    pub region: Region,
    /// How many locks were at this address before.
    pub incarnation: u32,
    /// Where the caller of its first acquisition goes on.
    pub pc: u64,
    /// Its name if the collector knows one, else empty.
    pub name: &'a [u8],
}

/// A sampled critical section, less its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// The lock's number.
    pub lock: u32,
    /// The thread's number, any that no other thread of the run has.
    pub thread: u32,
    /// When it unlocked: increasing over all sections of all locks. A lock's sections come in this
    /// order; those of different locks need not.
    pub order: u64,
    /// Of [`flag`].
    pub flags: u32,
}

impl Section {
    /// Whether it did I/O.
    pub fn does_io(&self) -> bool {
        self.flags & flag::IO != 0
    }

    /// Whether it touched more than was recorded.
    pub fn is_cut_short(&self) -> bool {
        self.flags & flag::CUT_SHORT != 0
    }
}

/// A place in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// From 1.
    pub number: u32,
    /// The instruction's address.
    pub pc: u64,
}

/// A piece of heap. Only those that live while a sampled section touches them need be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation<'a> {
    /// The bytes asked for.
    pub region: Region,
    /// Who allocated it.
    pub thread: u32,
    /// Return addresses, the allocator's caller first; at most [`MAX_FRAMES`].
    frames: Items<'a, u64>,
}

impl<'a> Allocation<'a> {
    /// An allocation; of `frames`, the first [`MAX_FRAMES`] are kept.
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

/// A lock's totals so far, sampled or not; later ones replace earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// The lock's number.
    pub lock: u32,
    /// Times it was acquired.
    pub acquisitions: u64,
    /// Sections of it that were sampled.
    pub sampled: u64,
    /// Acquisitions that had to wait.
    pub contended: u64,
}

/// An object of a kernel's heap, which a sampled section touched or a lock lies in. Told before
/// that or after; a later one at the same address replaces the earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object<'a> {
    /// Its bytes; none if it is not known how many.
    pub region: Region,
    /// Where it was allocated from: the name of a slab cache.
    pub name: &'a [u8],
}

/// A lock's times, in instructions executed by all of its holders and waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The lock's number.
    pub lock: u32,
    /// From acquisitions to releases.
    pub held: u64,
    /// Spent on waiting.
    pub waited: u64,
}

/// The entries of a section, in the order in which they were written.
pub type Entries<'a> = Items<'a, Access>;

/// What a record has several of: a writer's, or still as the bytes that a reader read.
#[derive(Clone, Copy, Debug)]
pub struct Items<'a, T>(Source<'a, T>);

#[derive(Clone, Copy, Debug)]
enum Source<'a, T> {
    Given(&'a [T]),
    Read(&'a [u8]),
}

/// One of [`Items`].
pub trait Item: Copy {
    /// The bytes of one.
    const BYTES: usize;
    /// The one of these bytes.
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

    /// How many there are.
    pub fn len(&self) -> usize {
        match self.0 {
            Source::Given(items) => items.len(),
            Source::Read(bytes) => bytes.len() / T::BYTES,
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Each of them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = T> + use<'a, T> {
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

/// The u32 at `offset`, which the caller has checked to be within `bytes`.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(bytes[offset..offset + 4].try_into().expect("four bytes"))
}

/// Likewise a u64.
pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(bytes[offset..offset + 8].try_into().expect("eight bytes"))
}
