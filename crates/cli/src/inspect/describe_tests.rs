//! Reports on a subject that changes while it is read.

use std::cell::Cell;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use unconvoy_profile::Kind;
use unconvoy_profile::live::{Descriptor, MAGIC, NAME, VERSION, WAITS, Wait as Entry};

use super::describe;
use super::subject::{Region, Subject, Thread};
use crate::profile::outside::unwind::Registers;

const SECOND: u64 = 1_000_000_000;
const THREAD: u32 = 7;

/// Indices of the mutex's words.
const OWNER: usize = 2;
const TAKEN: usize = 3;

/// The memory of the subject, which is at its own addresses.
#[repr(C)]
struct Memory {
    descriptor: Descriptor,
    waits: [Entry; WAITS],
    mutex: [AtomicU32; 10],
}

/// A process with one thread, which has waited for a mutex for five seconds.
struct Fake {
    memory: Box<Memory>,
    regions: [Region; 1],
    threads: [Thread; 1],
    now: Cell<u64>,
    /// Whether the thread begins another wait once its stack was read.
    moves_on: bool,
}

impl Fake {
    fn new(owner: u32, moves_on: bool) -> Self {
        let zero = || AtomicU64::new(0);
        let descriptor = Descriptor {
            magic: MAGIC,
            version: VERSION,
            size: size_of::<Descriptor>() as u32,
            address: zero(),
            waits: zero(),
            held: zero(),
            slots: zero(),
            keys: zero(),
            slot_count: zero(),
            target: zero(),
            controller: zero(),
            runnable: zero(),
            capacity: zero(),
            is_libcs: AtomicU32::new(0),
            lock: [const { AtomicU8::new(0) }; NAME],
            load: [const { AtomicU8::new(0) }; NAME],
        };
        let waits = [const { Entry::free() }; WAITS];
        let memory =
            Box::new(Memory { descriptor, waits, mutex: [const { AtomicU32::new(0) }; 10] });
        let at = |part: *const ()| part.addr() as u64;
        let (start, mutex) = (at((&raw const *memory).cast()), at(memory.mutex.as_ptr().cast()));
        memory.descriptor.address.store(start, Relaxed);
        memory.descriptor.waits.store(at(memory.waits.as_ptr().cast()), Relaxed);
        memory.mutex[OWNER].store(owner, Relaxed);
        let entry = &memory.waits[1];
        entry.thread.store(THREAD, Relaxed);
        entry.what.store(Kind::Mutex as u32, Relaxed);
        entry.lock.store(mutex, Relaxed);
        entry.begin.store(SECOND, Relaxed);
        entry.ip.store(0x1000, Relaxed);
        entry.sp.store(mutex, Relaxed);
        let region = Region {
            start,
            end: start + size_of::<Memory>() as u64,
            offset: 0,
            is_code: false,
            is_writable: true,
            path: PathBuf::from("/usr/lib/libunconvoy.so"),
        };
        let (name, futex, registers) = (String::new(), None, None);
        let thread = Thread { id: THREAD, outer: THREAD, name, futex, registers };
        Fake { memory, regions: [region], threads: [thread], now: Cell::new(6 * SECOND), moves_on }
    }

    fn report(&self) -> String {
        describe(self).expect("its memory can be read")
    }
}

impl Subject for Fake {
    fn title(&self) -> String {
        "process 7 (server)".into()
    }

    fn read(&self, address: u64, to: &mut [u8]) -> usize {
        let start = &raw const *self.memory;
        let size = size_of::<Memory>();
        let at = address.checked_sub(start.addr() as u64).map(|at| at as usize);
        let Some(at) = at.filter(|&at| at < size) else { return 0 };
        let is_entry = to.len() == size_of::<Entry>();
        if is_entry && self.moves_on {
            self.memory.waits[1].begin.fetch_add(1, Relaxed);
        }
        let length = to.len().min(size - at);
        // SAFETY: within the memory, which no other thread writes.
        unsafe { start.cast::<u8>().add(at).copy_to_nonoverlapping(to.as_mut_ptr(), length) };
        length
    }

    fn regions(&self) -> &[Region] {
        &self.regions
    }

    fn file(&self, _: &Region) -> Option<PathBuf> {
        None
    }

    fn open(&self, _: &Region) -> Option<File> {
        None
    }

    fn threads(&self) -> &[Thread] {
        &self.threads
    }

    /// The mutex is acquired once a second.
    fn now(&self) -> Option<u64> {
        let now = self.now.replace(self.now.get() + SECOND);
        if self.memory.mutex[OWNER].load(Relaxed) == 0 {
            self.memory.mutex[TAKEN].fetch_add(1, Relaxed);
        }
        Some(now)
    }

    fn stop_and_read(&self, _: &Thread) -> Option<(Registers, Vec<u8>)> {
        None
    }

    fn sleeps(&self, _: &Thread) -> Option<u64> {
        None
    }

    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }
}

#[test]
fn waits_have_their_length_at_the_first_reading() {
    let report = Fake::new(0, false).report();
    assert!(report.contains("thread 7 for 5.00 s"), "{report}");
}

#[test]
fn wait_that_ended_during_the_reading_has_no_stack() {
    for (moves_on, said) in [(true, "the wait ended while it was read"), (false, "generated code")]
    {
        let report = Fake::new(0, moves_on).report();
        assert!(report.contains(said), "{report}");
        assert_eq!(report.contains("generated code"), !moves_on, "{report}");
    }
}

#[test]
fn only_waits_of_both_readings_lasted_while_the_lock_was_acquired() {
    for moves_on in [true, false] {
        let report = Fake::new(0, moves_on).report();
        assert!(report.contains("no deadlock: acquired 1 time in "), "{report}");
        assert_eq!(report.contains("while these threads waited"), !moves_on, "{report}");
    }
}

#[test]
fn holder_waits_for_its_own_lock_only_in_both_readings() {
    for moves_on in [true, false] {
        let report = Fake::new(THREAD, moves_on).report();
        for said in ["Deadlock: a thread waits for a lock that it holds", ", which waits for "] {
            assert_eq!(report.contains(said), !moves_on, "{report}");
        }
        let free = "no deadlock: thread 7 holds it and waits for no lock";
        assert_eq!(report.contains(free), moves_on, "{report}");
    }
}
