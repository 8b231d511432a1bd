//! The parts that need no QEMU. The plug-in's library cannot be linked without one, so they are compiled again here.

#![cfg(target_arch = "x86_64")]
#![allow(dead_code, reason = "each part is used as far as it is tested")]

#[allow(unused_imports, unused_macros, reason = "its macro is for callbacks")]
#[path = "../src/guest.rs"]
mod guest;
#[path = "../src/heap.rs"]
mod heap;
#[path = "../src/locks.rs"]
mod locks;
#[path = "../src/log.rs"]
mod log;
#[path = "../src/options.rs"]
mod options;
#[path = "../src/set.rs"]
mod set;
#[path = "../src/shadow.rs"]
mod shadow;
#[path = "../src/system_calls.rs"]
mod system_calls;

use set::{Access, Set};
use std::collections::BTreeMap;

/// Numbers that look random, the same each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

#[test]
fn a_set_is_what_a_map_of_bytes_is() {
    let mut numbers = Numbers(1);
    let mut set = Set::new(100_000);
    for round in 0..50 {
        let mut bytes = BTreeMap::<u64, (bool, bool)>::new();
        set.clear();
        for _ in 0..round * 40 {
            let access = Access {
                address: 0x4000_0000 + numbers.below(1 + round * 300),
                size: 1 << numbers.below(6),
                read: numbers.below(2) == 0,
                written: numbers.below(2) == 0,
                place: numbers.below(9) as u32 + 1,
            };
            set.add(access);
            for byte in access.address..access.address + access.size {
                let seen = bytes.entry(byte).or_default();
                *seen = (seen.0 | access.read, seen.1 | access.written);
            }
        }
        let mut told = BTreeMap::new();
        for entry in set.entries_mut() {
            assert_eq!(entry.address % 8, 0);
            assert_eq!((entry.read == 0, entry.written == 0), (entry.read_place == 0, entry.written_place == 0));
            for byte in 0..8 {
                let seen = (entry.read >> byte & 1 != 0, entry.written >> byte & 1 != 0);
                assert!(told.insert(entry.address + byte, seen).is_none(), "each word once");
            }
        }
        bytes.retain(|_, seen| *seen != (false, false));
        told.retain(|_, seen| *seen != (false, false));
        assert_eq!(told, bytes);
        assert!(!set.cut_short());
    }
}

#[test]
fn the_first_place_counts() {
    let mut set = Set::new(10);
    for (place, read, written) in [(5, true, false), (6, true, true), (7, false, true)] {
        set.add(Access { address: 0x1008, size: 4, read, written, place });
    }
    let entry = set.entries_mut()[0];
    assert_eq!((entry.read_place, entry.written_place, entry.read, entry.written), (5, 6, 0x0f, 0x0f));
}

#[test]
fn bytes_of_locks_come_and_go() {
    static LOCKS: locks::Locks = locks::Locks::new();
    let mut told = 0;
    let first = LOCKS.of(0x5000_0ff0, locks::Kind::Mutex, 1, |_| told += 1);
    assert_eq!((first.number, first.incarnation), (0, 0));
    let word = |address| LOCKS.bytes_of_word(address);
    assert_eq!([0x5000_0fe8, 0x5000_0ff0, 0x5000_1010, 0x5000_1018].map(word), [0, 0xff, 0xff, 0], "across a page");
    let spin = LOCKS.of(0x5000_2004, locks::Kind::Spin, 1, |_| told += 1);
    assert_eq!(word(0x5000_2000), 0xf0, "four bytes");
    // Freed, with memory around it.
    LOCKS.retire_within(0x5000_0800, 0x1000);
    assert!(first.retired() && !spin.retired() && word(0x5000_0ff0) == 0 && word(0x5000_1010) == 0);
    let second = LOCKS.of(0x5000_0ff0, locks::Kind::Mutex, 1, |_| told += 1);
    assert_eq!((second.incarnation, second.retired(), told), (1, false, 3));
    LOCKS.retire(0x5000_2004, 4);
    assert!(spin.retired() && word(0x5000_2000) == 0);
    LOCKS.mark(0x5000_3002, 4);
    assert_eq!(word(0x5000_3000), 0x3c);
    let all: std::collections::BTreeSet<u32> = LOCKS.all().iter().map(|lock| lock.number).collect();
    assert_eq!(all, [0, 1, 2].into(), "the earlier lives, too");
    assert!(LOCKS.find(0x5000_0ff0).is_some_and(|lock| lock.number == 2) && LOCKS.find(0x5000_0ff8).is_none());
}

#[test]
fn pieces_of_heap_are_found_by_what_is_in_them() {
    static HEAP: heap::Heap = heap::Heap::new();
    let mut view = heap::View::default();
    let site = HEAP.site([7, 0, 0, 0]).expect("a site");
    assert_eq!(HEAP.site([7, 0, 0, 0]), Some(site));
    let pieces = [(0x6000_0010, 24), (0x6000_0030, 16_000), (0x6000_4010, 1), (0x6010_0000, 1 << 20)];
    for (address, size) in pieces {
        HEAP.add(address, size, 3, site);
    }
    let mut tell = |address| HEAP.tell(address, &mut view).map(|piece| (piece.address, piece.size));
    assert_eq!(tell(0x6000_0028), None, "past the end of the first");
    assert_eq!(tell(0x6000_0027), Some((0x6000_0010, 24)));
    assert_eq!(tell(0x6000_0010), None, "told before");
    assert_eq!(tell(0x6000_0030 + 15_999), Some((0x6000_0030, 16_000)));
    assert_eq!(tell(0x6000_4010), Some((0x6000_4010, 1)));
    assert_eq!((tell(0x6000_ffff), tell(0x6020_0000)), (None, None), "around the large one");
    assert_eq!(tell(0x601f_ffff), Some((0x6010_0000, 1 << 20)));
    assert_eq!(tell(0x6010_0000), None);
    assert_eq!((HEAP.remove(0x6010_0000), HEAP.remove(0x6000_0010)), (Some(1 << 20), Some(24)));
    assert_eq!((HEAP.remove(0x6010_0000), HEAP.remove(0x6000_0018)), (None, None));
    HEAP.add(0x6010_0000, 1 << 16, 3, site);
    assert_eq!(HEAP.tell(0x6010_0100, &mut view).map(|piece| piece.frames), Some([7, 0, 0, 0]), "another there");
}

#[test]
fn a_shadow_knows_no_address_that_no_program_has() {
    static SHADOW: shadow::Shadow<std::sync::atomic::AtomicU8> = shadow::Shadow::new();
    assert!(SHADOW.make(u64::MAX).is_none() && SHADOW.get(1 << 47).is_none());
    assert!(SHADOW.get((1 << 47) - 8).is_none() && SHADOW.make((1 << 47) - 8).is_some());
    assert!(SHADOW.get((1 << 47) - 4096).is_some() && SHADOW.get((1 << 47) - 4104).is_none());
}

/// More than a chunk from each of several threads at a time, with writes in between.
#[test]
fn a_log_is_whole_and_in_order() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let log = log::Log::new(file.reopen().expect("the file"));
    const THREADS: u64 = 4;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let log = &log;
            scope.spawn(move || {
                let mut numbers = Numbers(thread);
                for count in 0..20_000_u64 {
                    // Length, thread, count, place, filling.
                    let length = 32 + numbers.below(300);
                    let mut record = vec![thread as u8; length as usize];
                    for (at, value) in [(0, length), (8, thread), (16, count)] {
                        record[at..at + 8].copy_from_slice(&value.to_le_bytes());
                    }
                    log.append(&record, |copy, place| copy[24..32].copy_from_slice(&place.to_le_bytes()));
                    if count % 1000 == 0 {
                        log.write();
                    }
                }
            });
        }
    });
    log.write();
    assert_eq!(log.lost(), 0);
    let bytes = std::fs::read(file.path()).expect("what was written");
    let (mut at, mut counts) = (0, [0; THREADS as usize]);
    while at < bytes.len() {
        let word = |index: usize| u64::from_le_bytes(bytes[at + index * 8..][..8].try_into().expect("eight bytes"));
        let (length, thread) = (word(0) as usize, word(1) as usize);
        assert_eq!((word(2), word(3)), (counts[thread], at as u64), "in order, and where it says");
        assert!(bytes[at + 32..at + length].iter().all(|byte| *byte == thread as u8));
        counts[thread] += 1;
        at += length;
    }
    assert_eq!(counts, [20_000; THREADS as usize]);
}

/// Whatever other threads append and write meanwhile.
#[test]
fn nothing_comes_after_the_end_of_a_log() {
    for _ in 0..50 {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let log = log::Log::new(file.reopen().expect("the file"));
        std::thread::scope(|scope| {
            for thread in 1..4 {
                let log = &log;
                scope.spawn(move || {
                    while !log.is_closed() {
                        log.append(&[thread; 100], |_, _| {});
                        if thread == 1 {
                            log.write();
                        }
                    }
                    log.append(&[thread; 100], |_, _| {});
                    log.write();
                });
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
            log.end(b"the end");
        });
        assert_eq!(log.lost(), 0);
        let bytes = std::fs::read(file.path()).expect("what was written");
        assert!(bytes.ends_with(b"the end") && bytes.len() % 100 == 7, "{}", bytes.len());
        let records = bytes[..bytes.len() - 7].chunks(100);
        assert!(records.into_iter().all(|record| record.iter().all(|byte| *byte == record[0])));
    }
}

#[test]
fn what_a_log_cannot_hold_is_lost_and_said() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let log = log::Log::new(file.reopen().expect("the file"));
    log.append(&vec![0; log::CAPACITY + 1], |_, _| panic!("it has no place"));
    log.append(&vec![1; log::CAPACITY], |_, place| assert_eq!(place, 0));
    log.append(&[2], |_, place| assert_eq!(place, log::CAPACITY as u64));
    log.write();
    assert_eq!(log.lost(), 1);
    log.close();
    log.append(&[3], |_, _| panic!("it is closed"));
    assert_eq!(std::fs::metadata(file.path()).expect("written").len(), log::CAPACITY as u64 + 1);
}

#[test]
fn options_have_ranges() {
    let parse = |text: &str| options::parse(text.split(',').filter(|option| !option.is_empty()));
    let defaults = parse("out=x").expect("enough");
    assert_eq!((defaults.rate, defaults.seed, defaults.words, defaults.heap), (10, 1, 1 << 14, true));
    assert_eq!(
        parse("rate=64,heap=off,out=x,seed=3,words=9").map(|options| (options.rate, options.heap)),
        Ok((64, false))
    );
    for wrong in ["", "out", "out=x,rate=0", "out=x,rate=ten", "out=x,words=40001", "out=x,heap=1", "out=x,size=1"] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn io_is_what_leaves_the_process() {
    let file = [0, 4096, 3, 2];
    let memory = [0, 4096, 3, 0x22];
    assert!(system_calls::is_io(1, [0; 4]) && system_calls::is_io(9, file) && system_calls::is_io(9999, [0; 4]));
    assert!(!system_calls::is_io(202, [0; 4]) && !system_calls::is_io(9, memory));
}

/// What lies in rbp is believed if it looks like a processor's state, and the first access is where its stack pointer says.
#[test]
fn a_state_is_believed_after_it_was_seen() {
    use guest::{Calibration, Phase, State, register};
    let mut state = [0_u64; 18];
    (state[register::RSP], state[register::RDI], state[16], state[17]) = (0x7000, 5, 0x1234, 0x202);
    let address = state.as_mut_ptr();
    let tried = |pc: u64, address: u64, accessed: u64| {
        let calibration = Calibration::new();
        assert_eq!(calibration.phase(), Phase::Unseen);
        calibration.begins(pc, address);
        calibration.accessed(accessed);
        (calibration.phase(), calibration.initial_stack())
    };
    for accessed in [0x7000, 0x6ff8] {
        assert_eq!(tried(0x1234, address as u64, accessed), (Phase::Found, 0x7000));
    }
    assert_eq!(tried(0x1234, address as u64, 0x6ff0).0, Phase::Refuted, "another access");
    assert_eq!(tried(0x1235, address as u64, 0x7000).0, Phase::Refuted, "another rip");
    assert_eq!(tried(0x1234, address as u64 + 8, 0x7000).0, Phase::Refuted, "another place");
    assert_eq!(tried(0x1234, 16, 0x7000).0, Phase::Refuted, "no memory");
    // SAFETY: an array of its form.
    let found = unsafe { State::new(address) };
    assert!(!found.watching() && !State::NONE.watching() && found.register(register::RDI) == 5);
    found.watch(true);
    assert!(found.watching());
    found.watch(false);
    // SAFETY: the array still.
    assert_eq!(unsafe { address.add(17).read() }, 0x202);
}
