//! The stream, as many threads write it: in one order, without a lock on a section's path.
//!
//! A record's place is reserved by one addition to the current chunk's fill; its order is its place
//! in the stream. So sections lie in the order of their numbers, and whoever still holds a lock
//! while it appends keeps that lock's sections in the order of their unlocks. Whose reservation
//! crosses the chunk's end seals it, makes the other chunk current, waits for those who are still
//! copying, and writes: once per chunk, under a mutex.
//!
//! **Invariants**
//! 1. A chunk that is not current has a fill beyond its capacity: a late reservation fails, and is
//!    made anew.
//! 2. Of a chunk's reservations, exactly one starts within it and ends beyond it: that thread
//!    seals.
//! 3. A chunk becomes current again only after it was written, since the sealer holds `writer` from
//!    before it changes `current` until it has written.

use std::cell::UnsafeCell;
use std::fs::File;
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use unconvoy_trace_stream::{Access, Record, Section, append, append_section};

/// Bytes of a chunk; the longest record.
pub const CAPACITY: usize = 1 << 20;

/// A crash of the program takes with it what was not written yet: at most that of this time.
pub const WRITE_EVERY: Duration = Duration::from_millis(100);

/// How long copying a record may take a thread that is not scheduled, before the stream is given
/// up.
const PATIENCE: Duration = Duration::from_secs(2);

struct Chunk {
    fill: AtomicUsize,
    copied: AtomicUsize,
    /// Where it starts in the stream.
    base: AtomicU64,
    bytes: UnsafeCell<Box<[u8]>>,
}

/// See the [module](self).
pub struct Log {
    chunks: [Chunk; 2],
    current: AtomicUsize,
    writer: Mutex<File>,
    started: Instant,
    /// Milliseconds after `started` when something was last written.
    written: AtomicU64,
    lost: AtomicU64,
    phase: Phase,
}

/// Every callback reads it: apart from what sections write.
#[repr(align(128))]
struct Phase(AtomicU8);

/// Records are appended.
const OPEN: u8 = 0;
/// What was appended is still written.
const ENDING: u8 = 1;
/// Nothing is written any more: the stream has ended, or the program became another, or this is a
/// forked child.
const CLOSED: u8 = 2;

// SAFETY: a chunk's bytes are written by whoever reserved them, each apart, and read by the sealer
// after all were copied (`copied`, acquire).
unsafe impl Sync for Log {}

impl Log {
    /// A stream into `file`, empty so far: not even its magic is there.
    pub fn new(file: File) -> Self {
        let chunk = |fill| Chunk {
            fill: AtomicUsize::new(fill),
            copied: AtomicUsize::new(0),
            base: AtomicU64::new(0),
            bytes: UnsafeCell::new(vec![0; CAPACITY].into_boxed_slice()),
        };
        Log {
            chunks: [chunk(0), chunk(CAPACITY + 1)],
            current: AtomicUsize::new(0),
            writer: Mutex::new(file),
            started: Instant::now(),
            written: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            phase: Phase(AtomicU8::new(OPEN)),
        }
    }

    /// Appends whole records of at most [`CAPACITY`] bytes.
    pub fn append(&self, records: &[u8]) {
        self.append_and(records, |_, _| {});
    }

    /// Likewise; `place` is given the copy and where it starts in the stream, before anybody reads
    /// it.
    pub fn append_and(&self, records: &[u8], place: impl FnOnce(&mut [u8], u64)) {
        if records.len() > CAPACITY {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        while !self.is_closed() {
            let index = self.current.load(Ordering::Acquire);
            let chunk = &self.chunks[index];
            // Acquire: a chunk that became current again is empty, and its base is set (`seal`).
            let start = chunk.fill.fetch_add(records.len(), Ordering::Acquire);
            let end = start + records.len();
            if end <= CAPACITY {
                // SAFETY: these bytes were reserved by this thread alone, and the chunk is not
                // written before `copied` has them.
                let copy = unsafe {
                    let to = (*chunk.bytes.get()).as_mut_ptr().add(start);
                    std::slice::from_raw_parts_mut(to, records.len())
                };
                copy.copy_from_slice(records);
                place(copy, chunk.base.load(Ordering::Relaxed) + start as u64);
                // Release: for the sealer, which reads these bytes.
                chunk.copied.fetch_add(records.len(), Ordering::Release);
                return;
            }
            if start <= CAPACITY {
                self.seal(index, start, &[]);
            } else {
                std::hint::spin_loop();
                std::thread::yield_now();
            }
        }
    }

    /// Appends one record.
    pub fn append_record(&self, record: &Record) {
        let mut out = Vec::new();
        append(&mut out, record);
        self.append(&out);
    }

    /// Appends the whole records in `out` and then a section, whose order becomes its place in the
    /// stream; empties `out`.
    pub fn append_section(&self, out: &mut Vec<u8>, section: &Section, entries: &[Access]) {
        let start = out.len();
        append_section(out, section, entries);
        self.append_and(out, |copy, base| {
            // After the record's head, the lock's and the thread's number.
            let order = base + start as u64;
            copy[start + 16..start + 24].copy_from_slice(&order.to_le_bytes());
        });
        out.clear();
    }

    /// Writes what is there, if nothing was written for a while.
    pub fn write_if_due(&self) {
        let now = self.started.elapsed().as_millis() as u64;
        let last = self.written.load(Ordering::Relaxed);
        let due = now - last.min(now) >= WRITE_EVERY.as_millis() as u64;
        if due && self.written.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.write();
        }
    }

    /// Writes what is there.
    pub fn write(&self) {
        let index = self.current.load(Ordering::Acquire);
        let start = self.chunks[index].fill.fetch_add(CAPACITY + 1, Ordering::Acquire);
        if start <= CAPACITY {
            self.seal(index, start, &[]);
        }
    }

    /// Writes what is there and, after it, these records; nothing comes after them, although other
    /// threads may go on appending.
    pub fn end(&self, records: &[u8]) {
        if self.phase.0.compare_exchange(OPEN, ENDING, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        let patience = Instant::now();
        while patience.elapsed() < PATIENCE {
            let index = self.current.load(Ordering::Acquire);
            let start = self.chunks[index].fill.fetch_add(CAPACITY + 1, Ordering::Acquire);
            if start <= CAPACITY {
                self.seal(index, start, records);
                break;
            }
            // Another thread seals this chunk.
            std::thread::yield_now();
        }
        // Also if patience ran out.
        self.close();
    }

    /// Nothing is written from now on; what has not been is dropped.
    pub fn close(&self) {
        self.phase.0.store(CLOSED, Ordering::Relaxed);
    }

    /// Whether it was [closed](Log::close), or [ends](Log::end).
    pub fn is_closed(&self) -> bool {
        self.phase.0.load(Ordering::Relaxed) != OPEN
    }

    /// Records that are not in the stream, for want of space or of time.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// By the one thread that found chunk `index` full at `filled` (Invariant 2). `after` is
    /// written with it, if it is the last.
    #[cold]
    fn seal(&self, index: usize, filled: usize, after: &[u8]) {
        let mut file = self.writer.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (chunk, next) = (&self.chunks[index], &self.chunks[1 - index]);
        next.base.store(chunk.base.load(Ordering::Relaxed) + filled as u64, Ordering::Relaxed);
        next.copied.store(0, Ordering::Relaxed);
        // Release: whoever reserves in it sees its base (`append`).
        next.fill.store(0, Ordering::Release);
        self.current.store(1 - index, Ordering::Release);

        let patience = Instant::now();
        // Acquire: with the release in `append`.
        while chunk.copied.load(Ordering::Acquire) < filled {
            if patience.elapsed() > PATIENCE {
                // Which record is incomplete is not known, and its thread may yet copy it: the
                // stream ends here.
                self.lost.fetch_add(1, Ordering::Relaxed);
                self.close();
                return;
            }
            std::thread::yield_now();
        }
        // SAFETY: all reservations below `filled` were copied, and by Invariant 1 there are no
        // others.
        let bytes = unsafe { &(&(*chunk.bytes.get()))[..filled] };
        let closed = self.phase.0.load(Ordering::Relaxed) == CLOSED;
        if !closed && file.write_all(bytes).and_then(|()| file.write_all(after)).is_err() {
            // A full disk, or a reader that is gone: a part may have been written, so that nothing
            // can follow.
            self.lost.fetch_add(1, Ordering::Relaxed);
            self.close();
        }
        if !after.is_empty() {
            // Still under the mutex: whoever waits to seal the next chunk finds the stream ended.
            self.close();
        }
        self.written.store(self.started.elapsed().as_millis() as u64, Ordering::Relaxed);
    }
}
