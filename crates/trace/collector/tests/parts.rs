//! Each part, against a simple model and at its limits.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd as _;
use unconvoy_trace_collector::counts::Counts;
use unconvoy_trace_collector::set::Set;
use unconvoy_trace_collector::{locks, log, notes, shadow};
use unconvoy_trace_stream::{Access, Json, Region};

/// Adds one instruction's access.
fn add(set: &mut Set, region: Region, read: bool, written: bool, place: u32) {
    region.words().for_each(|word| set.add(&Access::new(word, read, written, place)));
}

/// A reproducible pseudo-random sequence.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

#[test]
fn set_equals_map_of_bytes() {
    static NO_LOCKS: locks::Locks = locks::Locks::new();
    let mut numbers = Numbers(1);
    let mut set = Set::new(100_000);
    for round in 0..50 {
        let mut bytes = BTreeMap::<u64, (bool, bool)>::new();
        set.clear();
        for _ in 0..round * 40 {
            let region =
                Region::new(0x4000_0000 + numbers.below(1 + round * 300), 1 << numbers.below(6));
            let (read, written) = (numbers.below(2) == 0, numbers.below(2) == 0);
            add(&mut set, region, read, written, numbers.below(9) as u32 + 1);
            for byte in region.address..region.end() {
                let seen = bytes.entry(byte).or_default();
                *seen = (seen.0 | read, seen.1 | written);
            }
        }
        let mut recorded = BTreeMap::new();
        let (entries, flags) = set.finish(&NO_LOCKS);
        assert_eq!(flags, 0, "not cut short");
        for entry in entries {
            assert_eq!(entry.address % 8, 0);
            assert_eq!(
                (entry.read == 0, entry.written == 0),
                (entry.read_place == 0, entry.written_place == 0)
            );
            for byte in 0..8 {
                let seen = (entry.read >> byte & 1 != 0, entry.written >> byte & 1 != 0);
                assert!(recorded.insert(entry.address + byte, seen).is_none(), "each word once");
            }
        }
        bytes.retain(|_, seen| *seen != (false, false));
        recorded.retain(|_, seen| *seen != (false, false));
        assert_eq!(recorded, bytes);
    }
}

#[test]
fn set_keeps_first_place() {
    static NO_LOCKS: locks::Locks = locks::Locks::new();
    let mut set = Set::new(10);
    for (place, read, written) in [(5, true, false), (6, true, true), (7, false, true)] {
        add(&mut set, Region::new(0x1008, 4), read, written, place);
    }
    let entry = set.finish(&NO_LOCKS).0[0];
    assert_eq!(
        (entry.read_place, entry.written_place, entry.read, entry.written),
        (5, 6, 0x0f, 0x0f)
    );
}

/// Other bytes of a lock's word stay in the set.
#[test]
fn set_excludes_bytes_of_locks() {
    static LOCKS: locks::Locks = locks::Locks::new();
    LOCKS.find_or_make(Region::new(0x5000_1004, 4), 1, |_| {});
    let mut set = Set::new(2);
    for address in [0x5000_1004, 0x5000_1002, 0x5000_1008] {
        add(&mut set, Region::new(address, 4), true, false, 1);
    }
    let (entries, flags) = set.finish(&LOCKS);
    let recorded: Vec<_> = entries.iter().map(|entry| (entry.address, entry.read)).collect();
    assert_eq!((recorded, flags), (vec![(0x5000_1000, 0x0c), (0x5000_1008, 0x0f)], 0));
    add(&mut set, Region::new(0x5000_2000, 1), true, false, 1);
    assert_eq!(
        set.finish(&LOCKS).1,
        unconvoy_trace_stream::flag::CUT_SHORT,
        "the third word exceeds the limit"
    );
}

#[test]
fn retired_lock_releases_its_bytes() {
    static LOCKS: locks::Locks = locks::Locks::new();
    let mut announced = 0;
    let first = LOCKS.find_or_make(Region::new(0x5000_0ff0, 40), 1, |_| announced += 1);
    assert_eq!((first.number, first.incarnation), (0, 0));
    let word = |address| LOCKS.bytes_of_word(address);
    assert_eq!(
        [0x5000_0fe8, 0x5000_0ff0, 0x5000_1010, 0x5000_1018].map(word),
        [0, 0xff, 0xff, 0],
        "a lock across two pages"
    );
    let spin = LOCKS.find_or_make(Region::new(0x5000_2004, 4), 1, |_| announced += 1);
    assert_eq!(word(0x5000_2000), 0xf0, "four bytes");
    // Frees memory around the lock.
    LOCKS.retire_within(Region::new(0x5000_0800, 0x1000));
    assert!(
        first.is_retired()
            && !spin.is_retired()
            && word(0x5000_0ff0) == 0
            && word(0x5000_1010) == 0
    );
    let second = LOCKS.find_or_make(Region::new(0x5000_0ff0, 40), 1, |_| announced += 1);
    assert_eq!((second.incarnation, second.is_retired(), announced), (1, false, 3));
    LOCKS.retire(Region::new(0x5000_2004, 4));
    assert!(spin.is_retired() && word(0x5000_2000) == 0);
    LOCKS.mark(Region::new(0x5000_3002, 4));
    assert_eq!(word(0x5000_3000), 0x3c);
    let all: std::collections::BTreeSet<u32> = LOCKS.all().iter().map(|lock| lock.number).collect();
    assert_eq!(all, [0, 1, 2].into(), "earlier incarnations included");
    assert!(
        LOCKS.find(0x5000_0ff0).is_some_and(|lock| lock.number == 2)
            && LOCKS.find(0x5000_0ff8).is_none()
    );
}

/// The test includes the counts of a lock that another lock evicts.
#[test]
fn published_counts_reach_totals_once() {
    static LOCKS: locks::Locks = locks::Locks::new();
    let make = |address| LOCKS.find_or_make(Region::new(address, 40), 1, |_| {});
    let (first, second) = (make(0x5000_1000), make(0x5000_2000));
    let acquisitions = || (first.counts().acquisitions, second.counts().acquisitions);
    let mut counts = Counts::new(1);
    for (lock, times) in [(first, 2), (first, 1), (second, 2), (first, 1)] {
        let found =
            counts.of(lock.region.address, |counted| counted.number == lock.number, || Some(lock));
        found.expect("a lock").1.acquisitions += times;
    }
    assert_eq!(acquisitions(), (3, 2), "the last acquisition is not published yet");
    (0..2).for_each(|_| counts.publish());
    assert_eq!(acquisitions(), (4, 2));
    assert!(
        counts.of(0x5000_1000, |_| false, || None).is_none(),
        "the cached lock does not fit and none is found"
    );
    assert_eq!(
        counts.of(0x5000_1000, |_| true, || None).map(|(lock, _)| lock.number),
        Some(first.number)
    );
}

#[test]
fn shadow_rejects_non_canonical_addresses() {
    static SHADOW: shadow::Shadow<std::sync::atomic::AtomicU8> = shadow::Shadow::new();
    assert!(
        SHADOW.make(1 << 63).is_none()
            && SHADOW.make(1 << 47).is_none()
            && SHADOW.make(u64::MAX << 48).is_none()
    );
    assert!(
        SHADOW.make(u64::MAX << 47).is_some()
            && SHADOW.get(u64::MAX).is_none()
            && SHADOW.get(0).is_none(),
        "kernel addresses"
    );
    assert!(SHADOW.get((1 << 47) - 8).is_none() && SHADOW.make((1 << 47) - 8).is_some());
    assert!(SHADOW.get((1 << 47) - 4096).is_some() && SHADOW.get((1 << 47) - 4104).is_none());
}

/// Each thread writes several chunks, with forced writes in between.
#[test]
fn log_from_many_threads_is_complete_and_ordered() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let log = log::Log::new(file.reopen().expect("the file"));
    const THREADS: u64 = 4;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let log = &log;
            scope.spawn(move || {
                let mut numbers = Numbers(thread);
                for count in 0..20_000_u64 {
                    // Length, thread, count, position, filling.
                    let length = 32 + numbers.below(300);
                    let mut record = vec![thread as u8; length as usize];
                    for (at, value) in [(0, length), (8, thread), (16, count)] {
                        record[at..at + 8].copy_from_slice(&value.to_le_bytes());
                    }
                    log.append_and(&record, |copy, place| {
                        copy[24..32].copy_from_slice(&place.to_le_bytes())
                    });
                    if count % 1000 == 0 {
                        log.write();
                    }
                }
            });
        }
    });
    log.write();
    assert_eq!(log.lost(), 0);
    let bytes = std::fs::read(file.path()).expect("the written file");
    let (mut at, mut counts) = (0, [0; THREADS as usize]);
    while at < bytes.len() {
        let word = |index: usize| {
            u64::from_le_bytes(bytes[at + index * 8..][..8].try_into().expect("eight bytes"))
        };
        let (length, thread) = (word(0) as usize, word(1) as usize);
        assert_eq!(
            (word(2), word(3)),
            (counts[thread], at as u64),
            "in order, at its own position"
        );
        assert!(bytes[at + 32..at + length].iter().all(|byte| *byte == thread as u8));
        counts[thread] += 1;
        at += length;
    }
    assert_eq!(counts, [20_000; THREADS as usize]);
}

/// The stream went into files that the program had opened under the log's number.
#[test]
fn log_writes_into_no_other_file() {
    let [ours, programs] = [(), ()].map(|()| tempfile::NamedTempFile::new().expect("a file"));
    let log = log::Log::new(ours.reopen().expect("the file"));
    let is_ours = |entry: &std::fs::DirEntry| {
        std::fs::read_link(entry.path()).is_ok_and(|target| target == ours.path())
    };
    let numbers = std::fs::read_dir("/proc/self/fd").expect("the open files");
    let numbers = numbers.flatten().filter(is_ours).map(|entry| entry.file_name());
    let numbers = numbers.map(|name| name.to_str().expect("a number").parse().expect("a number"));
    let number: i32 = numbers.max().expect("the log's file");
    assert!(number >= 200, "{number}");
    // SAFETY: the log alone uses the number, and checks what it stands for.
    let taken = unsafe { libc::dup2(programs.as_raw_fd(), number) };
    assert_eq!(taken, number);
    log.append(&[1; 1000]);
    log.write();
    assert!(log.is_closed() && log.lost() > 0);
    assert_eq!(programs.as_file().metadata().expect("its size").len(), 0);
}

/// Other threads append and write at the same time.
#[test]
fn log_end_is_last() {
    for _ in 0..50 {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let log = log::Log::new(file.reopen().expect("the file"));
        std::thread::scope(|scope| {
            for thread in 1..4 {
                let log = &log;
                scope.spawn(move || {
                    while !log.is_closed() {
                        log.append(&[thread; 100]);
                        if thread == 1 {
                            log.write();
                        }
                    }
                    log.append(&[thread; 100]);
                    log.write();
                });
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
            log.end(b"the end");
        });
        assert_eq!(log.lost(), 0);
        let bytes = std::fs::read(file.path()).expect("the written file");
        assert!(bytes.ends_with(b"the end") && bytes.len() % 100 == 7, "{}", bytes.len());
        let records = bytes[..bytes.len() - 7].chunks(100);
        assert!(records.into_iter().all(|record| record.iter().all(|byte| *byte == record[0])));
    }
}

#[test]
fn log_counts_oversized_record_as_lost() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let log = log::Log::new(file.reopen().expect("the file"));
    log.append_and(&vec![0; log::CAPACITY + 1], |_, _| panic!("placed an oversized record"));
    log.append_and(&vec![1; log::CAPACITY], |_, place| assert_eq!(place, 0));
    log.append_and(&[2], |_, place| assert_eq!(place, log::CAPACITY as u64));
    log.write();
    assert_eq!(log.lost(), 1);
    log.close();
    log.append_and(&[3], |_, _| panic!("placed a record in a closed log"));
    assert_eq!(std::fs::metadata(file.path()).expect("written").len(), log::CAPACITY as u64 + 1);
}

#[test]
fn requests_of_a_lock_are_numbered() {
    // Not on the stack: the table has two megabytes.
    static LOCKS: locks::Locks = locks::Locks::new();
    let [first, second] =
        [0x1000, 0x2000].map(|address| LOCKS.find_or_make(Region::new(address, 40), 1, |_| {}));
    let numbers = [first, first, second, first].map(|lock| lock.next_request());
    assert_eq!(numbers, [0, 1, 0, 2]);
}

#[test]
fn end_with_collector_keys_is_json() {
    let notes = notes::Notes::new();
    (0..3).for_each(|_| notes.add("a \"note\"\n".to_string()));
    let json = unconvoy_trace_stream::End { sections: 1, ..Default::default() }
        .open_json()
        .value("n", 2)
        .value("of", Json::default().value("a", 1).value("b", 2).finish())
        .list("notes", notes.all())
        .finish();
    assert_eq!(
        json,
        r#"{"sections":1,"seen":0,"lost":0,"n":2,"of":{"a":1,"b":2},"notes":["a \"note\"\u000a"]}"#
    );
}
