//! Writes one stream from many threads, in one order, without a mutex on the path of a section.
//!
//! A thread reserves space for a record with one addition to the current chunk's fill. The record's
//! position in the stream is its order, so sections lie in the order of their numbers. A thread
//! that appends before it releases a lock keeps that lock's sections in the order of their unlocks.
//! The thread whose reservation crosses the chunk's end seals the chunk: it makes the other chunk
//! current, waits until all reserved records are copied, and writes the chunk. Sealing takes a
//! mutex, once per chunk.
//!
//! **Invariants**
//! 1. The fill of a chunk that is not current exceeds its capacity. A late reservation therefore
//!    fails, and the thread reserves again in the current chunk.
//! 2. Exactly one reservation of a chunk starts within the chunk and ends beyond it. That thread
//!    seals the chunk.
//! 3. A chunk becomes current again only after it was written: the sealer holds `writer` from
//!    before it changes `current` until it has written the chunk.

use std::cell::UnsafeCell;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use unconvoy_trace_stream::{Access, Record, Section, append, append_section};

/// Size of a chunk in bytes, and of the longest record.
pub const CAPACITY: usize = 1 << 20;

/// The interval between writes. A crash of the program loses at most the records of this time.
pub const WRITE_EVERY: Duration = Duration::from_millis(100);

/// How long the sealer waits for a descheduled thread to copy its record before it ends the stream.
const COPY_TIMEOUT: Duration = Duration::from_secs(2);

struct Chunk {
    fill: AtomicUsize,
    copied: AtomicUsize,
    /// The chunk's start in the stream.
    base: AtomicU64,
    bytes: UnsafeCell<Box<[u8]>>,
}

/// See the [module](self).
pub struct Log {
    chunks: [Chunk; 2],
    current: AtomicUsize,
    writer: Mutex<File>,
    /// Device and inode of the file. The program has the same descriptors as the collector, and may
    /// close this one or give its number to another file.
    identity: Option<(u64, u64)>,
    started: Instant,
    /// Time of the last write, in milliseconds after `started`.
    written: AtomicU64,
    lost: AtomicU64,
    phase: Phase,
}

/// Every callback reads this field, so it has a cache line to itself that no section writes.
#[repr(align(128))]
struct Phase(AtomicU8);

/// Accepts records.
const OPEN: u8 = 0;
/// Accepts no more records, and writes those already appended.
const ENDING: u8 = 1;
/// Writes nothing: the stream has ended, the program has called exec, or this is a forked child.
const CLOSED: u8 = 2;

// SAFETY: each thread writes only the bytes of the chunk that it reserved. The sealer reads them
// after all were copied (`copied`, acquire).
unsafe impl Sync for Log {}

impl Log {
    /// A stream into `file`. The caller appends the magic first.
    pub fn new(file: File) -> Self {
        let file = with_high_number(file);
        let chunk = |fill| Chunk {
            fill: AtomicUsize::new(fill),
            copied: AtomicUsize::new(0),
            base: AtomicU64::new(0),
            bytes: UnsafeCell::new(vec![0; CAPACITY].into_boxed_slice()),
        };
        Log {
            chunks: [chunk(0), chunk(CAPACITY + 1)],
            current: AtomicUsize::new(0),
            identity: identity(&file),
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

    /// Like [`append`](Log::append). `place` receives the copy and its position in the stream,
    /// before the sealer reads the copy.
    pub fn append_and(&self, records: &[u8], place: impl FnOnce(&mut [u8], u64)) {
        if records.len() > CAPACITY {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        while !self.is_closed() {
            let index = self.current.load(Ordering::Acquire);
            let chunk = &self.chunks[index];
            // Acquire: pairs with the release in `seal`. A chunk that became current again is empty
            // and has its base.
            let start = chunk.fill.fetch_add(records.len(), Ordering::Acquire);
            let end = start + records.len();
            if end <= CAPACITY {
                // SAFETY: this thread alone reserved these bytes, and the sealer does not read them
                // before `copied` includes them.
                let copy = unsafe {
                    let to = (*chunk.bytes.get()).as_mut_ptr().add(start);
                    std::slice::from_raw_parts_mut(to, records.len())
                };
                copy.copy_from_slice(records);
                place(copy, chunk.base.load(Ordering::Relaxed) + start as u64);
                // Release: pairs with the acquire in `seal`, which then reads the bytes.
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

    /// Appends the complete records in `out`, then the section. The section's order is set to its
    /// position in the stream. Empties `out`.
    pub fn append_section(&self, out: &mut Vec<u8>, section: &Section, entries: &[Access]) {
        let start = out.len();
        append_section(out, section, entries);
        self.append_and(out, |copy, base| {
            // The order is stored after the record's head and the numbers of lock and thread.
            let order = base + start as u64;
            copy[start + 16..start + 24].copy_from_slice(&order.to_le_bytes());
        });
        out.clear();
    }

    /// Writes the pending records, unless a write happened within [`WRITE_EVERY`].
    pub fn write_if_due(&self) {
        let now = self.started.elapsed().as_millis() as u64;
        let last = self.written.load(Ordering::Relaxed);
        let due = now - last.min(now) >= WRITE_EVERY.as_millis() as u64;
        if due
            && self
                .written
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            self.write();
        }
    }

    /// Writes the pending records.
    pub fn write(&self) {
        let index = self.current.load(Ordering::Acquire);
        let start = self.chunks[index].fill.fetch_add(CAPACITY + 1, Ordering::Acquire);
        if start <= CAPACITY {
            self.seal(index, start, &[]);
        }
    }

    /// Writes the pending records, then `records`, and ends the stream. Records that other threads
    /// append later are dropped.
    pub fn end(&self, records: &[u8]) {
        if self
            .phase
            .0
            .compare_exchange(OPEN, ENDING, Ordering::Relaxed, Ordering::Relaxed)
            .is_err()
        {
            return;
        }
        let waiting = Instant::now();
        while waiting.elapsed() < COPY_TIMEOUT {
            let index = self.current.load(Ordering::Acquire);
            let start = self.chunks[index].fill.fetch_add(CAPACITY + 1, Ordering::Acquire);
            if start <= CAPACITY {
                self.seal(index, start, records);
                break;
            }
            // Another thread is sealing this chunk.
            std::thread::yield_now();
        }
        // Close the stream even if the timeout has passed.
        self.close();
    }

    /// Stops writing. Pending records are dropped.
    pub fn close(&self) {
        self.phase.0.store(CLOSED, Ordering::Relaxed);
    }

    /// Whether the stream was [closed](Log::close) or is [ending](Log::end).
    pub fn is_closed(&self) -> bool {
        self.phase.0.load(Ordering::Relaxed) != OPEN
    }

    /// Number of records missing from the stream, because the disk was full or a time limit passed.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Seals chunk `index`, which the calling thread found full at `filled` (Invariant 2). If it is
    /// the last chunk, writes `after` as well.
    #[cold]
    fn seal(&self, index: usize, filled: usize, after: &[u8]) {
        let file = self.writer.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (chunk, next) = (&self.chunks[index], &self.chunks[1 - index]);
        next.base.store(chunk.base.load(Ordering::Relaxed) + filled as u64, Ordering::Relaxed);
        next.copied.store(0, Ordering::Relaxed);
        // Release: pairs with the acquire in `append`; a thread that reserves in the chunk sees its
        // base.
        next.fill.store(0, Ordering::Release);
        self.current.store(1 - index, Ordering::Release);

        let waiting = Instant::now();
        // Acquire: pairs with the release in `append`.
        while chunk.copied.load(Ordering::Acquire) < filled {
            if waiting.elapsed() > COPY_TIMEOUT {
                // Some record is incomplete. It is not known which one, and its thread may still
                // copy it, so the stream ends here.
                self.lost.fetch_add(1, Ordering::Relaxed);
                self.close();
                return;
            }
            std::thread::yield_now();
        }
        // SAFETY: all reservations below `filled` were copied, and Invariant 1 excludes others.
        let bytes = unsafe { &(&(*chunk.bytes.get()))[..filled] };
        let closed = self.phase.0.load(Ordering::Relaxed) == CLOSED;
        let write = |mut file: &File| -> io::Result<()> {
            if identity(file) != self.identity {
                return Err(io::ErrorKind::NotFound.into());
            }
            file.write_all(bytes)?;
            file.write_all(after)
        };
        if !closed && write(&file).is_err() {
            // The disk is full, the pipe is closed, or the program has closed the file. Part of the
            // chunk may have been written, so no other chunk can follow.
            self.lost.fetch_add(1, Ordering::Relaxed);
            self.close();
        }
        if !after.is_empty() {
            // Close the stream before the mutex is released: a thread that waits to seal the next
            // chunk then finds the stream ended.
            self.close();
        }
        self.written.store(self.started.elapsed().as_millis() as u64, Ordering::Relaxed);
    }
}

/// The same open file under a number that programs hardly use: shells and daemons close or reuse
/// the lowest numbers.
fn with_high_number(file: File) -> File {
    const NUMBERS: [i32; 3] = [100_000, 1_000, 200];
    let duplicate = |number: i32| {
        // SAFETY: the descriptor is open; the result is checked.
        let copy = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, number) };
        // SAFETY: a new descriptor, which nothing else owns.
        (copy >= 0).then(|| unsafe { OwnedFd::from_raw_fd(copy) })
    };
    NUMBERS.into_iter().find_map(duplicate).map_or(file, File::from)
}

fn identity(file: &File) -> Option<(u64, u64)> {
    let found = file.metadata().ok()?;
    Some((found.dev(), found.ino()))
}
