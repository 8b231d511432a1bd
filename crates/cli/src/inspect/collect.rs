//! Builds the graph of waits from the subject's memory: from the library's tables, and, for libc's
//! own locks, from the futexes at which threads sleep.

use std::collections::BTreeSet;
use std::ops::Range;

use unconvoy_profile::Kind;

use super::graph::{Graph, Holder, Holders, Lock, Manner, Unknown, Wait};
use super::subject::{Files, Futex, Subject, Thread};
use super::table::{self, Tables, Waiting};
use crate::images::Images;
use crate::kinds;
use crate::profile::outside::unwind::{Registers, Unwinder};

// Offsets in a `pthread_mutex_t`: the first two are glibc's, and so is the owner's, which this
// library uses too.
const MUTEX_OWNER: u64 = 8;
const MUTEX_TAKEN: u64 = 12;
const MUTEX_KIND: u64 = 16;
const MUTEX_EVENTCOUNT: u64 = 20;
/// Bits of a mutex's kind that the library serves itself.
const OWN_KINDS: u32 = 3 | 256 | 512;
/// Bits of a mutex's kind with its number in a strategy; all of them if the strategy hands it to
/// libc.
const NUMBER: u32 = 0xff << 10;
/// Bits of robust and priority-inheriting mutexes, which have their holder in the first word.
const HOLDER_IN_WORD: u32 = 16 | 32;

// Offsets in a `pthread_rwlock_t`.
const RWLOCK_EVENTCOUNT: u64 = 16;
const RWLOCK_OWNER: u64 = 24;
const RWLOCK_SHARED: u64 = 28;
/// The lock's number in a strategy and the mode of its bias; the number of locks that the strategy
/// hands to libc. With a bias, there may be readers that the lock's word does not count.
const RWLOCK_NUMBER: u64 = 20;
const RWLOCK_OF_LIBC: u32 = 255;
const RWLOCK_BIAS: u32 = 3 << 8;
/// glibc's futexes, of readers and of writers.
const RWLOCK_FUTEXES: [u64; 2] = [8, 12];

/// The writer bit and the bits of the number of readers in the library's reader-writer lock.
const OWN_WRITER: u32 = 1 << 31;
const OWN_READERS: u32 = (1 << 28) - 1;
/// In glibc's: the bit of a writer, and the position of the number of readers.
const LIBC_WRITER: u32 = 2;
const LIBC_READERS: u32 = 3;

/// The futex operations of glibc's mutexes: plain, priority-inheriting.
const MUTEX_COMMANDS: [u32; 3] = [0, 6, 13];

/// Collects all waits and the locks in them, and those that threads are known to hold.
///
/// `library` has the addresses of libunconvoy.so.
pub fn collect(
    subject: &dyn Subject,
    tables: &Tables,
    library: &[Range<u64>],
    images: &Images,
) -> Graph {
    let mut collection = Collection {
        subject,
        tables,
        library,
        images,
        unwinder: Unwinder::new(&Files(subject)),
        graph: Graph::default(),
    };
    let mut listed = BTreeSet::new();
    for waiting in &tables.waits {
        listed.insert(waiting.thread);
        collection.add_listed(waiting);
    }
    for thread in subject.threads().iter().filter(|thread| !listed.contains(&thread.id)) {
        if let Some(futex) = thread.futex {
            collection.add_futex_wait(thread, futex);
        }
    }
    for holding in &tables.held {
        if let Some(kind) = kind_of(holding.kind) {
            collection.add_lock(holding.lock, kind);
        }
    }
    collection.add_holders();
    collection.graph
}

fn kind_of(number: u32) -> Option<Kind> {
    [Kind::Mutex, Kind::RwLock, Kind::Spin].into_iter().find(|kind| *kind as u32 == number)
}

/// The words of a lock that change with each acquisition.
pub struct Words {
    pub acquisitions: Option<u32>,
    /// The holder that the object names, if it names one.
    pub holder: Option<u32>,
}

/// Reads a lock again.
pub fn reread(subject: &dyn Subject, lock: &Lock) -> Words {
    let holder = match (&lock.holders, lock.kind) {
        (Holders::Known(holders), Kind::Mutex) if !has_holder_in_word(subject, lock.address) => {
            let owner = subject.read_u32(lock.address + MUTEX_OWNER);
            owner.filter(|&owner| owner != 0 && !holders.is_empty())
        }
        (Holders::Known(holders), Kind::RwLock) => {
            let word = subject.read_u32(lock.address);
            let (writer, readers) = match lock.is_libcs {
                true => (LIBC_WRITER, !0 << LIBC_READERS),
                false => (OWN_WRITER, OWN_READERS),
            };
            match word {
                Some(word) if word & writer != 0 => subject
                    .read_u32(lock.address + RWLOCK_OWNER)
                    .filter(|&owner| owner != 0)
                    .or(holders.first().map(|holder| holder.thread)),
                // Readers may be published elsewhere.
                Some(word) if word & readers == 0 && !lock.is_biased => None,
                _ => holders.first().map(|holder| holder.thread),
            }
        }
        // Other objects name no holder: those of the first reading stand.
        (Holders::Known(holders), _) => holders.first().map(|holder| holder.thread),
        _ => None,
    };
    let taken = lock.acquisitions.and_then(|_| subject.read_u32(lock.address + MUTEX_TAKEN));
    Words { acquisitions: taken, holder }
}

fn has_holder_in_word(subject: &dyn Subject, mutex: u64) -> bool {
    let kind = subject.read_u32(mutex + MUTEX_KIND).unwrap_or(0);
    kind & HOLDER_IN_WORD != 0
}

struct Collection<'a> {
    subject: &'a dyn Subject,
    tables: &'a Tables,
    library: &'a [Range<u64>],
    images: &'a Images,
    unwinder: Unwinder,
    graph: Graph,
}

impl Collection<'_> {
    /// Adds a wait from the library's table.
    fn add_listed(&mut self, waiting: &Waiting) {
        let Some(kind) = kind_of(waiting.kind) else { return };
        let eventcount = match kind {
            Kind::Mutex => MUTEX_EVENTCOUNT,
            _ => RWLOCK_EVENTCOUNT,
        };
        self.add_lock(waiting.lock, kind);
        let is_libcs = self.graph.locks.get(&waiting.lock).is_some_and(|lock| lock.is_libcs);
        let thread = self.subject.threads().iter().find(|thread| thread.id == waiting.thread);
        let futex = thread.and_then(|thread| thread.futex).map(|futex| futex.address);
        let (first, end) = self.tables.control.slots;
        let manner = match futex {
            Some(address) if (first..end).contains(&address) => Manner::SleepsForLoad,
            Some(address) if address == waiting.lock + eventcount => Manner::Parked,
            // Where libc serves the lock, the wait's futex is libc's.
            Some(_) if is_libcs => Manner::Parked,
            // A writer sleeps where a reader of a biased lock has published its hold.
            Some(_) if kind == Kind::RwLock && !waiting.is_shared => Manner::Parked,
            _ => Manner::Polls,
        };
        let registers = Registers { ip: waiting.ip, sp: waiting.sp, bp: waiting.bp };
        let stack = match registers.sp {
            0 => Vec::new(),
            sp => self.unwind(registers, &self.subject.read_stack(sp)),
        };
        // The thread may have used its stack for other calls before that was read.
        let has_ended = !table::lasts(self.subject, waiting);
        self.graph.waits.push(Wait {
            thread: waiting.thread,
            lock: waiting.lock,
            is_shared: waiting.is_shared,
            begin: Some(waiting.begin),
            sleeps: None,
            manner,
            has_ended,
            stack: if has_ended { Vec::new() } else { stack },
        });
    }

    /// Adds a wait at a futex, if it is a lock of libc's.
    fn add_futex_wait(&mut self, thread: &Thread, futex: Futex) {
        let stopped = self.subject.stop_and_read(thread);
        let files = Files(self.subject);
        let frames = stopped.map(|(at, stack)| self.unwinder.unwind(&files, at, &stack));
        let frames = frames.unwrap_or_default();
        // It may have acquired the lock since its futex was read. After this point, the second
        // reading notices that.
        let Some(sleeps) = self.subject.sleeps(thread) else { return };
        let Some((kind, lock)) = self.recognise(futex, &frames) else { return };
        let without_libc = self.unwinder.without_libc(&frames).to_vec();
        let stack = self.without_library(without_libc);
        self.add_lock(lock, kind);
        self.graph.waits.push(Wait {
            thread: thread.id,
            lock,
            is_shared: false,
            begin: None,
            sleeps: Some(sleeps),
            manner: Manner::Parked,
            has_ended: false,
            stack,
        });
    }

    /// Adds the stacks of holders that wait for no lock.
    fn add_holders(&mut self) {
        for id in self.graph.other_holders() {
            let thread = self.subject.threads().iter().find(|thread| thread.id == id);
            if let Some(registers) = thread.and_then(|thread| thread.registers) {
                let stack = self.subject.read_stack(registers.sp);
                let frames = self.unwinder.unwind(&Files(self.subject), registers, &stack);
                self.graph.holders.insert(id, frames);
            }
        }
    }

    /// The lock of libc's that has this futex: by the function of libc that waits, or by a
    /// plausible owner if the stack is unknown.
    fn recognise(&self, futex: Futex, frames: &[u64]) -> Option<(Kind, u64)> {
        let of_libc = frames.iter().take_while(|&&pc| !self.is_librarys(pc));
        let names = of_libc.flat_map(|&pc| self.images.calls(pc)).map(|(name, _)| name);
        let of_libc: Vec<String> = names.collect();
        let address = futex.address;
        let has_names = of_libc.iter().any(|name| name.contains("pthread") || name.contains("lll"));
        if !has_names {
            let owner = self.subject.read_u32(address + MUTEX_OWNER).unwrap_or(0);
            let is_thread = self.subject.threads().iter().any(|thread| thread.id == owner);
            let is_mutex = MUTEX_COMMANDS.contains(&futex.command) && is_thread;
            return is_mutex.then_some((Kind::Mutex, address));
        }
        match kinds::object(&of_libc).kind {
            Kind::Mutex => Some((Kind::Mutex, address)),
            // The mutex of a wait for a signal, which the thread takes again.
            Kind::Cond if futex.command == 0 => Some((Kind::Mutex, address)),
            Kind::RwLock => {
                let [readers, writers] = RWLOCK_FUTEXES;
                let distance = if address.is_multiple_of(8) { readers } else { writers };
                Some((Kind::RwLock, address - distance))
            }
            _ => None,
        }
    }

    /// The return addresses from the caller of the library on.
    fn unwind(&mut self, registers: Registers, stack: &[u8]) -> Vec<u64> {
        let frames = self.unwinder.unwind(&Files(self.subject), registers, stack);
        self.without_library(frames)
    }

    fn without_library(&self, mut frames: Vec<u64>) -> Vec<u64> {
        let own = frames.iter().take_while(|&&pc| self.is_librarys(pc)).count();
        frames.drain(..own);
        frames
    }

    fn is_librarys(&self, pc: u64) -> bool {
        self.library.iter().any(|range| range.contains(&pc))
    }

    fn add_lock(&mut self, address: u64, kind: Kind) {
        if self.graph.locks.contains_key(&address) {
            return;
        }
        let lock = match kind {
            Kind::Mutex => self.mutex(address),
            Kind::RwLock => self.rwlock(address),
            _ => Lock {
                address,
                kind,
                is_libcs: self.tables.is_libcs,
                holders: self.listed_holders(address, Unknown::Spin),
                is_biased: false,
                acquisitions: None,
            },
        };
        self.graph.locks.insert(address, lock);
    }

    fn word(&self, address: u64) -> Option<u32> {
        self.subject.read_u32(address)
    }

    /// The return address of the call with which a thread took a lock; 0 if unknown.
    fn place(&self, thread: u32, lock: u64) -> u64 {
        let held = self.tables.held.iter();
        let mut held = held.filter(|held| (held.thread, held.lock) == (thread, lock));
        held.next().map_or(0, |held| held.place)
    }

    fn by(&self, thread: u32, lock: u64) -> Holders {
        Holders::Known(vec![Holder { thread, place: self.place(thread, lock) }])
    }

    /// The holders that the library keeps, for a lock that does not name them.
    fn listed_holders(&self, address: u64, otherwise: Unknown) -> Holders {
        let held = self.tables.held.iter().filter(|held| held.lock == address);
        let holders: Vec<_> =
            held.map(|held| Holder { thread: held.thread, place: held.place }).collect();
        if holders.is_empty() { Holders::Unknown(otherwise) } else { Holders::Known(holders) }
    }

    fn mutex(&self, address: u64) -> Lock {
        let kind = self.word(address + MUTEX_KIND);
        let is_handed_over = |kind| kind & !(OWN_KINDS | NUMBER) != 0 || kind & NUMBER == NUMBER;
        let is_libcs = self.tables.is_libcs || kind.is_some_and(is_handed_over);
        let holder = match kind {
            Some(kind) if is_libcs && kind & HOLDER_IN_WORD != 0 => {
                self.word(address).map(|word| word & libc::FUTEX_TID_MASK)
            }
            _ => self.word(address + MUTEX_OWNER),
        };
        let holders = match holder {
            None => Holders::Unknown(Unknown::Unreadable),
            Some(0) => Holders::Free,
            Some(thread) => self.by(thread, address),
        };
        let taken = self.word(address + MUTEX_TAKEN).filter(|_| !is_libcs);
        Lock {
            address,
            kind: Kind::Mutex,
            is_libcs,
            is_biased: false,
            holders,
            acquisitions: taken,
        }
    }

    fn rwlock(&self, address: u64) -> Lock {
        let number = self.word(address + RWLOCK_NUMBER).unwrap_or(0);
        let is_libcs = self.tables.is_libcs
            || self.word(address + RWLOCK_SHARED) != Some(0)
            || number & RWLOCK_OF_LIBC == RWLOCK_OF_LIBC;
        let writer = self.word(address + RWLOCK_OWNER).unwrap_or(0);
        let holders = match self.word(address) {
            None => Holders::Unknown(Unknown::Unreadable),
            Some(word) => {
                let (is_written, readers) = match is_libcs {
                    true => (word & LIBC_WRITER != 0 && writer != 0, word >> LIBC_READERS),
                    false => (word & OWN_WRITER != 0, word & OWN_READERS),
                };
                match (is_written, readers) {
                    (true, _) if writer == 0 => Holders::Unknown(Unknown::Writer),
                    (true, _) => self.by(writer, address),
                    (false, 0) if !is_libcs && number & RWLOCK_BIAS != 0 => {
                        self.listed_holders(address, Unknown::Published)
                    }
                    (false, 0) => Holders::Free,
                    (false, readers) => self.listed_holders(address, Unknown::Readers(readers)),
                }
            }
        };
        let is_biased = !is_libcs && number & RWLOCK_BIAS != 0;
        Lock { address, kind: Kind::RwLock, is_libcs, is_biased, holders, acquisitions: None }
    }
}
