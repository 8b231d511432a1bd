//! Round trips, and the error and offset for truncated, foreign and damaged streams.

use proptest::collection::vec;
use proptest::prelude::*;
use unconvoy_trace_stream::*;

/// A record that owns its data.
#[derive(Clone, Debug)]
enum Owned {
    Context(String),
    Module(u64, u64, u64, Vec<u8>),
    Lock([u32; 3], [u64; 2], Vec<u8>),
    Section(Section, Vec<Access>),
    Place(u32, u64),
    Allocation(u64, u64, u32, Vec<u64>),
    Counts(u32, [u64; 3]),
    Object(u64, u64, Vec<u8>),
    Held(u32, u64, u64),
}

impl Owned {
    fn record(&self) -> Record<'_> {
        match self {
            Owned::Context(json) => Record::Context(json),
            Owned::Module(base, end, offset, path) => Record::Module(Module {
                region: Region::between(*base, *end),
                offset: *offset,
                path,
            }),
            Owned::Lock([number, size, incarnation], [address, pc], name) => Record::Lock(Lock {
                number: *number,
                region: Region::new(*address, (*size).into()),
                incarnation: *incarnation,
                pc: *pc,
                name,
            }),
            Owned::Section(section, entries) => {
                Record::Section(*section, Entries::from(&entries[..]))
            }
            Owned::Place(number, pc) => Record::Place(Place { number: *number, pc: *pc }),
            Owned::Allocation(address, size, thread, frames) => {
                Record::Allocation(Allocation::new(Region::new(*address, *size), *thread, frames))
            }
            Owned::Counts(lock, [acquisitions, sampled, contended]) => Record::Counts(Counts {
                lock: *lock,
                acquisitions: *acquisitions,
                sampled: *sampled,
                contended: *contended,
            }),
            Owned::Object(address, size, name) => {
                Record::Object(Object { region: Region::new(*address, *size), name })
            }
            Owned::Held(lock, held, waited) => {
                Record::Held(Held { lock: *lock, held: *held, waited: *waited })
            }
        }
    }
}

fn entry() -> impl Strategy<Value = Access> {
    (any::<u64>(), any::<u8>(), any::<u8>(), any::<u32>(), any::<u32>()).prop_map(
        |(address, read, written, read_place, written_place)| Access {
            address: address & !7,
            read: if written == 0 { read | 1 } else { read },
            written,
            read_place,
            written_place,
        },
    )
}

fn record() -> impl Strategy<Value = Owned> {
    let bytes = || vec(any::<u8>(), 0..20);
    prop_oneof![
        any::<String>().prop_map(Owned::Context),
        (any::<[u64; 3]>(), bytes())
            .prop_map(|([base, end, offset], path)| Owned::Module(base, end, offset, path)),
        (any::<[u32; 3]>(), any::<[u64; 2]>(), bytes())
            .prop_map(|(numbers, addresses, name)| Owned::Lock(numbers, addresses, name)),
        (any::<[u32; 3]>(), any::<u64>(), vec(entry(), 0..9)).prop_map(
            |([lock, thread, flags], order, entries)| {
                Owned::Section(Section { lock, thread, order, flags }, entries)
            }
        ),
        any::<(u32, u64)>().prop_map(|(number, pc)| Owned::Place(number, pc)),
        (any::<(u64, u64, u32)>(), vec(any::<u64>(), 0..=MAX_FRAMES)).prop_map(
            |((address, size, thread), frames)| Owned::Allocation(address, size, thread, frames)
        ),
        (any::<u32>(), any::<[u64; 3]>()).prop_map(|(lock, counts)| Owned::Counts(lock, counts)),
        (any::<[u64; 2]>(), bytes())
            .prop_map(|([address, size], name)| Owned::Object(address, size, name)),
        any::<(u32, u64, u64)>().prop_map(|(lock, held, waited)| Owned::Held(lock, held, waited)),
    ]
}

/// The stream of `records` and an end record. The offsets are the starts of all records, the start
/// of the end record and the length.
fn stream(records: &[Owned]) -> (Vec<u8>, Vec<usize>) {
    let mut bytes = MAGIC.to_vec();
    let mut starts = Vec::new();
    for record in records {
        starts.push(bytes.len());
        append(&mut bytes, &record.record());
    }
    starts.push(bytes.len());
    append(&mut bytes, &Record::End("{}"));
    starts.push(bytes.len());
    (bytes, starts)
}

/// Reads to the end or to an error. Returns the number of records and the error.
fn read(bytes: &[u8]) -> (usize, Option<Error>) {
    let mut reader = match Reader::new(bytes) {
        Ok(reader) => reader,
        Err(error) => return (0, Some(error)),
    };
    let mut records = 0;
    loop {
        match reader.next_record() {
            Ok(Some(_)) => records += 1,
            Ok(None) => return (records, None),
            Err(error) => return (records, Some(error)),
        }
    }
}

proptest! {
    #[test]
    fn written_records_read_back_equal(records in vec(record(), 0..12)) {
        let (bytes, starts) = stream(&records);
        let mut reader = Reader::new(&bytes[..]).unwrap();
        for (record, start) in records.iter().zip(&starts) {
            prop_assert_eq!(reader.offset(), *start as u64);
            prop_assert_eq!(reader.next_record().unwrap().unwrap(), record.record());
        }
        prop_assert_eq!(reader.next_record().unwrap(), Some(Record::End("{}")));
        prop_assert_eq!(reader.next_record().unwrap(), None);
    }

    #[test]
    fn stream_truncated_anywhere_fails_at_offset(records in vec(record(), 0..5)) {
        let (bytes, starts) = stream(&records);
        for length in 0..bytes.len() {
            let (got, error) = read(&bytes[..length]);
            let error = error.expect("truncated");
            prop_assert!(error.is_cut_off(), "{length}: {error}");
            // Complete records come out; the offset is the start of the first incomplete one.
            let whole = starts[1..].iter().filter(|end| **end <= length).count();
            prop_assert_eq!(got, whole);
            let expected = if length < MAGIC.len() { 0 } else { starts[whole] };
            prop_assert_eq!(error.offset(), expected as u64);
        }
    }

    #[test]
    fn stream_without_magic_is_rejected(bytes in vec(any::<u8>(), 0..200)) {
        prop_assume!(!bytes.starts_with(&MAGIC) && !MAGIC.starts_with(&bytes));
        prop_assert!(matches!(Reader::new(&bytes[..]), Err(Error::Foreign)));
    }

    #[test]
    fn random_records_never_panic(noise in vec(any::<u8>(), 0..400)) {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&noise);
        let (_, error) = read(&bytes);
        prop_assert!(error.is_none_or(|error| error.offset() as usize <= bytes.len()));
    }

    /// A damaged byte yields other records or an error at a valid offset: no panic, no large
    /// allocation.
    #[test]
    fn damaged_byte_never_panics(
        records in vec(record(), 1..5),
        at in any::<prop::sample::Index>(),
        value in any::<u8>(),
    ) {
        let (mut bytes, _) = stream(&records);
        let at = at.index(bytes.len());
        bytes[at] = value;
        let (_, error) = read(&bytes);
        prop_assert!(error.is_none_or(|error| error.offset() as usize <= bytes.len()));
    }
}

#[test]
fn record_of_unknown_kind_is_skipped() {
    let mut bytes = MAGIC.to_vec();
    for kind in [0u32, 11, 77, u32::MAX] {
        bytes.extend_from_slice(&kind.to_le_bytes());
        bytes.extend_from_slice(&3u32.to_le_bytes());
        bytes.extend_from_slice(b"xyz");
    }
    append(&mut bytes, &Record::End("{}"));
    let mut reader = Reader::new(&bytes[..]).unwrap();
    assert_eq!(reader.next_record().unwrap(), Some(Record::End("{}")));
    assert_eq!(reader.next_record().unwrap(), None);
}

#[test]
fn record_after_end_is_malformed() {
    let (mut bytes, _) = stream(&[]);
    let length = bytes.len() as u64;
    append(&mut bytes, &Record::Place(Place { number: 1, pc: 1 }));
    let (records, error) = read(&bytes);
    assert_eq!(records, 1);
    assert!(matches!(error, Some(Error::Malformed { offset, .. }) if offset == length));
}

#[test]
fn record_of_impossible_length_is_malformed() {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&4u32.to_le_bytes());
    bytes.extend_from_slice(&u32::MAX.to_le_bytes());
    assert!(matches!(read(&bytes).1, Some(Error::Malformed { offset: 8, .. })));
}

#[test]
fn malformed_payload_is_rejected() {
    // A place of 11 bytes; a section with one entry that claims two; an unaligned word; a word
    // without bytes; nine return addresses.
    let section = |entries: u32, address: u64, mask: u8| {
        let mut payload = vec![0; 20];
        payload.extend_from_slice(&entries.to_le_bytes());
        payload.extend_from_slice(&address.to_le_bytes());
        payload.push(mask);
        payload.resize(48, 0);
        payload
    };
    let mut frames = vec![0; 20];
    frames.extend_from_slice(&9u32.to_le_bytes());
    frames.resize(24 + 72, 0);
    let cases = [
        (5u32, vec![0; 11]),
        (4, section(2, 8, 1)),
        (4, section(1, 9, 1)),
        (4, section(1, 8, 0)),
        (6, frames),
        (1, vec![0xff]),
    ];
    for (kind, payload) in cases {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&kind.to_le_bytes());
        bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&payload);
        assert!(matches!(read(&bytes).1, Some(Error::Malformed { offset: 8, .. })), "kind {kind}");
    }
    let mut whole = MAGIC.to_vec();
    whole.extend_from_slice(&4u32.to_le_bytes());
    let payload = section(1, 8, 1);
    whole.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    whole.extend_from_slice(&payload);
    assert!(matches!(read(&whole), (1, Some(Error::Unended { .. }))));
}
