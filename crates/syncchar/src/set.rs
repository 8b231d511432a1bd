//! The address set of one critical section, and when two of them conflict (section 2 of the paper).

use unconvoy_trace_stream::{Access, WORD};

/// Bytes of a cache line, the unit in which hardware transactions conflict (section 5: 64-byte
/// lines).
pub const LINE: u64 = 64;

/// The unit in which accesses conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granularity {
    /// The same byte: conflicts inherent in the program's data.
    Byte,
    /// The same line of [`LINE`] bytes, as hardware detects conflicts. A conflict by line but not
    /// by byte is false sharing.
    Line,
}

/// The read set and write set of one section. Collectors leave out lock words and the thread's own
/// stack (section 4.1).
#[derive(Clone, Debug, Default)]
pub struct AddressSet {
    /// Ordered by address, each word once.
    accesses: Vec<Access>,
    io: bool,
}

impl AddressSet {
    /// The set of these accesses, in any order. The lowest three address bits are ignored. A word
    /// may occur several times; its first places count.
    pub fn new(accesses: impl IntoIterator<Item = Access>) -> Self {
        let mut accesses: Vec<Access> = accesses.into_iter().collect();
        for access in &mut accesses {
            access.address &= !(WORD - 1);
        }
        // Stable, so that a word's first place stays first.
        accesses.sort_by_key(|access| access.address);
        accesses.dedup_by(|later, first| {
            let same = later.address == first.address;
            if same {
                first.merge(later);
            }
            same
        });
        AddressSet { accesses, io: false }
    }

    /// Sets whether the section did I/O. Such a section conflicts with every other: device
    /// operations are in no address set and cannot be undone (section 4.1).
    pub fn with_io(self, io: bool) -> Self {
        AddressSet { io, ..self }
    }

    /// The words, ordered by address, each once.
    pub fn accesses(&self) -> &[Access] {
        &self.accesses
    }

    /// Whether the section did I/O.
    pub fn io(&self) -> bool {
        self.io
    }

    /// Whether the section wrote nothing.
    pub fn is_read_only(&self) -> bool {
        self.accesses.iter().all(|access| access.written == 0)
    }

    /// Whether the two sections cannot run concurrently: one writes what the other touches, or one
    /// did I/O. Symmetric.
    ///
    /// This is the definition. [`compare`](crate::compare()) compares a whole sample faster, with
    /// the same result.
    pub fn conflicts(&self, other: &AddressSet, granularity: Granularity) -> bool {
        let unit = match granularity {
            Granularity::Byte => WORD,
            Granularity::Line => LINE,
        };
        let meet = |a: &Access, b: &Access| match granularity {
            Granularity::Byte => a.written & b.touched() | b.written & a.touched() != 0,
            Granularity::Line => {
                (a.written != 0 && b.touched() != 0) || (b.written != 0 && a.touched() != 0)
            }
        };
        let (mut mine, mut others) = (&self.accesses[..], &other.accesses[..]);
        while let (Some(a), Some(b)) = (mine.first(), others.first()) {
            let (a_unit, b_unit) = (a.address / unit, b.address / unit);
            if a_unit == b_unit {
                let same = |accesses: &[Access]| {
                    accesses.partition_point(|access| access.address / unit == a_unit)
                };
                let (mine_here, others_here) = (&mine[..same(mine)], &others[..same(others)]);
                if mine_here.iter().any(|a| others_here.iter().any(|b| meet(a, b))) {
                    return true;
                }
                (mine, others) = (&mine[mine_here.len()..], &others[others_here.len()..]);
            } else if a_unit < b_unit {
                mine = &mine[1..];
            } else {
                others = &others[1..];
            }
        }
        self.io || other.io
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An access to one byte.
    pub(crate) fn byte(address: u64, written: bool) -> Access {
        let mask = 1 << (address % WORD);
        Access {
            address,
            read: if written { 0 } else { mask },
            written: if written { mask } else { 0 },
            read_place: 0,
            written_place: 0,
        }
    }

    /// The critical sections of Table 1, with the addresses that each reads and the one that it
    /// writes.
    pub(crate) fn table_1() -> [AddressSet; 3] {
        let set = |read: &[u64], written: u64| {
            AddressSet::new(
                read.iter()
                    .map(|address| byte(*address, false))
                    .chain(std::iter::once(byte(written, true))),
            )
        };
        [
            set(&[0x1000, 0x1032, 0x1064, 0x2000, 0x2064, 0x3000, 0x3064], 0x3032),
            set(&[0x1000, 0x1032, 0x1064, 0x2000, 0x2064, 0x3000, 0x3064], 0x2032),
            set(&[0x1000, 0x1064], 0x1032),
        ]
    }

    #[test]
    fn table_1_conflicts_by_byte() {
        let [first, second, third] = table_1();
        assert!(!first.conflicts(&second, Granularity::Byte), "1 and 2 are data independent");
        assert!(
            third.conflicts(&first, Granularity::Byte)
                && first.conflicts(&third, Granularity::Byte)
        );
        assert!(
            third.conflicts(&second, Granularity::Byte)
                && second.conflicts(&third, Granularity::Byte)
        );
    }

    /// By line, sections 1 and 2 share falsely: section 1 writes 0x3032, section 2 reads 0x3000.
    #[test]
    fn table_1_conflicts_by_line() {
        let [first, second, third] = table_1();
        assert!(first.conflicts(&second, Granularity::Line));
        assert!(
            third.conflicts(&first, Granularity::Line)
                && third.conflicts(&second, Granularity::Line)
        );
    }

    #[test]
    fn readers_do_not_conflict() {
        let reader = AddressSet::new([byte(0x1000, false)]);
        assert!(!reader.conflicts(&reader.clone(), Granularity::Line));
        assert!(reader.is_read_only() && !AddressSet::new([byte(0x1000, true)]).is_read_only());
    }

    #[test]
    fn io_conflicts_with_everything() {
        let nothing = AddressSet::default();
        let io = AddressSet::default().with_io(true);
        for granularity in [Granularity::Byte, Granularity::Line] {
            assert!(io.conflicts(&nothing, granularity) && nothing.conflicts(&io, granularity));
            assert!(!nothing.conflicts(&nothing.clone(), granularity));
        }
    }

    #[test]
    fn repeated_word_is_merged() {
        let twice = AddressSet::new([
            Access { address: 0x1000, read: 1, read_place: 3, ..Access::default() },
            Access {
                address: 0x1004,
                written: 2,
                read_place: 4,
                written_place: 5,
                ..Access::default()
            },
        ]);
        let once = Access { address: 0x1000, read: 1, written: 2, read_place: 3, written_place: 5 };
        assert_eq!(twice.accesses(), [once]);
    }
}
