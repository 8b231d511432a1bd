//! The default sensor: run and run-queue times of every thread, from `/proc/self/task/*/schedstat`.
//!
//! It replaces the Solaris microstate accounting of the ASPLOS 2010 paper (section 3.2.1). The
//! growth of both times over an interval, divided by the interval, is the number of threads that
//! wanted a processor.
//!
//! The paper notes (sections 5.3 and 6.2.2) that a reading takes time linear in the number of
//! threads. Three things keep it short:
//!
//! - Descriptors stay open: a read costs a fifth of opening and closing a file.
//! - Threads are listed again only when the link count of the task directory shows that their
//!   number changed.
//! - A thread that slept in one slot through the whole interval is not read.
//!
//! *Not* visible: a thread in a run queue since before the interval shows its wait only once it
//! runs. The sum is right over several intervals, but noisy within one.
//!
//! Code here does not allocate, panic or use thread-local storage; see the runtime's bare thread.

use core::ptr;

use rustix::mm::{MapFlags, ProtFlags};

use super::capacity::Capacity;
use super::file::{File, decimal};
use super::threads;
use crate::load::sensor::{Reading, Sensor};

/// Greatest number of threads counted. Reading that many takes longer than an interval anyway.
const MAX_THREADS: usize = 32_768;

/// Number of readings between two listings while the number of threads is constant: a new thread
/// may have replaced an old one.
const LIST_EVERY: u32 = 16;

/// Greatest number of descriptors kept: half of the limit on open files, which the rest of the
/// sensor needs too, and no more than half of the usual one.
fn most_kept() -> usize {
    const MOST: u64 = 512;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(MOST, |limit| MOST.min(limit / 2)) as usize
}

/// Longest contents of a `schedstat` file: three numbers.
const LINE: usize = 80;

/// Nanoseconds on a processor and nanoseconds waiting for one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Times {
    run: u64,
    wait: u64,
}

/// State of one thread.
struct Entry {
    thread: u32,
    /// Sequence number of the sleep slot where it was last seen asleep.
    slot: Option<u32>,
    /// Whether it slept through the whole interval.
    slept_through: bool,
    listed: bool,
    /// Run and wait time at the last reading.
    total: Option<Times>,
    file: Option<File>,
}

/// The threads of the process, sorted by id, in a separate mapping.
struct Table {
    entries: *mut Entry,
    len: usize,
}

/// The sensor.
pub struct Schedstat {
    /// Whether descriptors stay open: no other thread shares the descriptor table.
    keep_open: bool,
    most_kept: usize,
    /// The controller's own thread, which is not part of the load.
    own_thread: u32,
    directory: Option<File>,
    table: Table,
    links: u32,
    readings: u32,
    last: u64,
    capacity: Capacity,
}

impl Table {
    /// An empty table, which stays empty if the mapping fails.
    fn new() -> Self {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh anonymous mapping; the kernel adds pages as entries are written.
        let mapped = unsafe {
            rustix::mm::mmap_anonymous(
                ptr::null_mut(),
                Self::BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
            )
        };
        Table { entries: mapped.map_or(ptr::null_mut(), <*mut _>::cast), len: 0 }
    }

    const BYTES: usize = MAX_THREADS * size_of::<Entry>();

    fn entries(&mut self) -> &mut [Entry] {
        if self.entries.is_null() {
            return &mut [];
        }
        // SAFETY: the first `len` entries are initialized, and borrowed through `self` only.
        unsafe { core::slice::from_raw_parts_mut(self.entries, self.len) }
    }

    fn find(&mut self, thread: u32) -> Result<&mut Entry, usize> {
        let index = self.entries().binary_search_by_key(&thread, |entry| entry.thread)?;
        self.entries().get_mut(index).ok_or(index)
    }

    /// Marks `thread` as existing, and adds it if new.
    fn list(&mut self, thread: u32) {
        let index = match self.find(thread) {
            Ok(entry) => {
                entry.listed = true;
                return;
            }
            Err(index) => index,
        };
        if self.entries.is_null() || self.len == MAX_THREADS {
            return;
        }
        let entry = Entry {
            thread,
            slot: None,
            slept_through: false,
            listed: true,
            total: None,
            file: None,
        };
        // SAFETY: there is room for one more entry, and `index <= len`.
        unsafe {
            let target = self.entries.add(index);
            ptr::copy(target, target.add(1), self.len - index);
            target.write(entry);
        }
        self.len += 1;
    }

    /// Drops the entries of threads that were not listed since the last call.
    fn forget_unlisted(&mut self) {
        let mut kept = 0;
        for index in 0..self.len {
            // SAFETY: `kept <= index < len`, and each entry is moved or dropped once.
            unsafe {
                let entry = self.entries.add(index);
                if (*entry).listed {
                    (*entry).listed = false;
                    ptr::copy(entry, self.entries.add(kept), 1);
                    kept += 1;
                } else {
                    ptr::drop_in_place(entry);
                }
            }
        }
        self.len = kept;
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        self.forget_unlisted();
        if !self.entries.is_null() {
            // SAFETY: mapped in `new`; all entries are dropped.
            let _ = unsafe { rustix::mm::munmap(self.entries.cast(), Self::BYTES) };
        }
    }
}

/// The path of a thread's file, below the task directory.
struct Path([u8; 32]);

impl Path {
    fn of(thread: u32) -> Self {
        let mut path = [0; 32];
        let mut digits = itoa::Buffer::new();
        let bytes = digits.format(thread).bytes().chain(*b"/schedstat");
        path.iter_mut().zip(bytes).for_each(|(target, byte)| *target = byte);
        Path(path)
    }

    fn as_cstr(&self) -> &core::ffi::CStr {
        core::ffi::CStr::from_bytes_until_nul(&self.0).unwrap_or_default()
    }
}

/// The first two numbers of `line`.
fn run_and_wait(line: &[u8]) -> Option<Times> {
    let mut numbers = line.split(|&byte| byte == b' ').map(decimal);
    Some(Times { run: numbers.next()??, wait: numbers.next()?? })
}

impl Schedstat {
    /// The sensor, for a controller of this process with thread id `own_thread`. Set `keep_open` to
    /// keep descriptors between readings, but only if no other thread shares the descriptor table.
    pub fn new(keep_open: bool, own_thread: u32) -> Self {
        Schedstat {
            most_kept: if keep_open { most_kept() } else { 0 },
            keep_open,
            own_thread,
            directory: None,
            table: Table::new(),
            links: 0,
            readings: 0,
            last: 0,
            capacity: Capacity::default(),
        }
    }

    fn open_directory(&mut self) {
        if self.directory.is_none() {
            self.directory = File::open_directory(c"/proc/self/task");
        }
    }

    /// Lists the threads if their number has changed, or every [`LIST_EVERY`] readings.
    fn list(&mut self) {
        let Some(directory) = &self.directory else { return };
        let links =
            rustix::fs::fstat(directory.borrow()).map_or(0, |status| status.st_nlink as u32);
        if links == self.links && !self.readings.is_multiple_of(LIST_EVERY) {
            return;
        }
        self.links = links;
        let (table, own) = (&mut self.table, self.own_thread);
        let is_listed = threads::for_each(directory, |thread| {
            if thread != own {
                table.list(thread);
            }
        });
        if is_listed {
            table.forget_unlisted();
        }
    }

    /// Nanoseconds that the thread of `entry` ran or waited since its last reading.
    fn growth(directory: &File, keep_open: bool, entry: &mut Entry) -> Times {
        if entry.file.is_none() {
            entry.file = directory.open_below(Path::of(entry.thread).as_cstr());
        }
        let mut line = [0u8; LINE];
        let total = entry.file.as_ref().and_then(|file| {
            let len = file.read_into(&mut line)?;
            run_and_wait(line.get(..len)?)
        });
        if !keep_open || total.is_none() {
            entry.file = None;
        }
        let growth = match (entry.total, total) {
            (Some(before), Some(now)) => Times {
                run: now.run.saturating_sub(before.run),
                wait: now.wait.saturating_sub(before.wait),
            },
            _ => Times::default(),
        };
        entry.total = total;
        growth
    }
}

impl Sensor for Schedstat {
    fn begin(&mut self, now: u64) {
        let _ = self.read(now);
    }

    fn read(&mut self, now: u64) -> Option<Reading> {
        self.open_directory();
        self.list();
        self.capacity
            .follow(now, |visit| self.table.entries().iter().for_each(|entry| visit(entry.thread)));
        self.readings = self.readings.wrapping_add(1);
        let (keep_open, most_kept) = (self.keep_open, self.most_kept);
        let mut total = Times::default();
        {
            let directory = self.directory.as_ref()?;
            for (index, entry) in self.table.entries().iter_mut().enumerate() {
                if !core::mem::take(&mut entry.slept_through) {
                    let growth = Self::growth(directory, index < most_kept, entry);
                    total.run += growth.run;
                    total.wait += growth.wait;
                }
            }
        }
        if !keep_open {
            self.directory = None;
        }
        let mut entries = self.table.entries().iter();
        // Where no file can be read, nothing is known of the load.
        let is_blind = entries.len() > 0 && entries.all(|entry| entry.total.is_none());
        let interval = now.saturating_sub(core::mem::replace(&mut self.last, now));
        let threads = |ns: u64| ns as f64 / interval as f64;
        (interval > 0 && self.readings > 1 && !is_blind).then(|| Reading {
            runnable: threads(total.run + total.wait),
            waiting: threads(total.wait),
            capacity: self.capacity.processors(),
        })
    }

    fn expect_asleep(&mut self, thread: u32, slot: u32) {
        if let Ok(entry) = self.table.find(thread) {
            entry.slept_through = entry.slot == Some(slot);
            entry.slot = Some(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedstat_line_yields_first_two_numbers() {
        assert_eq!(run_and_wait(b"1500 500 7\n"), Some(Times { run: 1500, wait: 500 }));
        assert_eq!(run_and_wait(b"0 0 0\n"), Some(Times::default()));
        assert_eq!(run_and_wait(b""), None);
        assert_eq!(run_and_wait(b"12"), None);
        assert_eq!(run_and_wait(b"x 1 2"), None);
    }

    #[test]
    fn path_of_thread_has_no_leading_zeroes() {
        assert_eq!(Path::of(1).as_cstr(), c"1/schedstat");
        assert_eq!(Path::of(4_194_304).as_cstr(), c"4194304/schedstat");
        assert_eq!(Path::of(100).as_cstr(), c"100/schedstat");
    }

    #[test]
    fn table_keeps_listed_threads_sorted() {
        let mut table = Table::new();
        [5, 3, 9, 7].into_iter().for_each(|thread| table.list(thread));
        assert_eq!(
            table.entries().iter().map(|entry| entry.thread).collect::<Vec<_>>(),
            [3, 5, 7, 9]
        );
        table.forget_unlisted();
        [9, 4].into_iter().for_each(|thread| table.list(thread));
        table.forget_unlisted();
        assert_eq!(table.entries().iter().map(|entry| entry.thread).collect::<Vec<_>>(), [4, 9]);
    }

    #[test]
    fn reading_with_a_spinning_thread_counts_it() {
        let stop = std::sync::atomic::AtomicBool::new(false);
        let ordering = std::sync::atomic::Ordering::Relaxed;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(ordering) {
                    std::hint::spin_loop();
                }
            });
            let mut sensor = Schedstat::new(true, 0);
            let start = std::time::Instant::now();
            sensor.begin(1);
            std::thread::sleep(std::time::Duration::from_millis(200));
            let reading = sensor.read(1 + start.elapsed().as_nanos() as u64);
            stop.store(true, ordering);
            match reading {
                Some(reading) => {
                    assert!(reading.runnable > 0.5 && reading.capacity > 0.0, "{reading:?}")
                }
                None => println!("skipped: /proc/self/task/*/schedstat cannot be read here"),
            }
        });
    }
}
