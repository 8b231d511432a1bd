//! Records which files are mapped at which addresses. The list comes from the kernel and not from
//! the dynamic linker, whose lock another thread may hold.
//!
//! The list grows: a line for a new mapping, and a line without a path for one that is gone. Its
//! length is a time, so the reader knows which file was at a stack's addresses when the stack was
//! recorded. An object may be loaded at the addresses of another that was unloaded, so the list is
//! brought up to date before and after each `dlclose` ([`stand_in`]).
//!
//! *Not guaranteed*: a thread that loads an object and waits in its code while another thread is
//! in `dlclose` may be recorded with the unloaded object's names.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};

use syscalls::{Sysno, syscall};
use unconvoy_locks::primitive::{Clock as _, Native};
use unconvoy_profile::{Profile, mix};

use super::section::Section;
use super::state;
use crate::real::stand_in;

/// Capacity of the table of known mappings. The list of a profile has room for fewer lines.
const KNOWN: usize = 1 << 12;

/// Shortest time between two readings of the list while the process runs. It doubles after each
/// reading that finds nothing new, as in a process with generated code.
const LOOK_EVERY_NS: u64 = 100_000_000;

/// A mapping that the profile lists.
struct Known {
    start: AtomicUsize,
    end: AtomicUsize,
    /// Hash of the rest of its line.
    hash: AtomicU64,
    /// Offset of its line in the list.
    at: AtomicU32,
}

/// All known mappings, in the order of their addresses.
struct Table {
    count: AtomicUsize,
    entries: [Known; KNOWN],
}

/// A reading fills the table that [`PRESENT`] does not select, and then selects it. A thread that
/// still searches the other table may miss a mapping, or find another time of it, which costs an
/// entry for a stack.
static TABLES: [Table; 2] = [const {
    Table {
        count: AtomicUsize::new(0),
        entries: [const {
            Known {
                start: AtomicUsize::new(0),
                end: AtomicUsize::new(0),
                hash: AtomicU64::new(0),
                at: AtomicU32::new(0),
            }
        }; KNOWN],
    }
}; 2];
static PRESENT: AtomicUsize = AtomicUsize::new(0);

/// The readings.
static READING: Section = Section::new();

/// Whether a mapping may be gone that the table contains.
static IS_STALE: AtomicBool = AtomicBool::new(false);

/// Lines of the kernel's list, for the thread in [`READING`]. A signal handler's stack may be too
/// short for them.
struct Buffer(UnsafeCell<[u8; 8192]>);

// SAFETY: only the thread in `READING` uses it.
unsafe impl Sync for Buffer {}

static BUFFER: Buffer = Buffer(UnsafeCell::new([0; 8192]));

static LOOK_AT: AtomicU64 = AtomicU64::new(0);
static PAUSE: AtomicU64 = AtomicU64::new(LOOK_EVERY_NS);

stand_in! {
    fn dlclose(object: *mut c_void) -> c_int = unload;
}

fn unload(call: &dyn Fn() -> c_int) -> c_int {
    let Some(profile) = state::get() else { return call() };
    refresh(profile);
    let result = call();
    if refresh(profile).is_none() {
        IS_STALE.store(true, Relaxed);
    }
    result
}

impl Table {
    fn entries(&self) -> &[Known] {
        &self.entries[..self.count.load(Acquire).min(KNOWN)]
    }

    fn at(&self, address: usize) -> Option<&Known> {
        let entries = self.entries();
        let after = entries.partition_point(|known| known.start.load(Relaxed) <= address);
        let known = &entries[after.checked_sub(1)?];
        (address < known.end.load(Relaxed)).then_some(known)
    }
}

/// A hash of the mappings that code is in, and whether all of them are in the profile's list. For
/// code in other mappings, it is a hash of the list's present length.
pub(super) fn of_code(profile: &Profile, addresses: &[u64]) -> (u64, bool) {
    let table = &TABLES[PRESENT.load(Acquire) % 2];
    let (mut hash, mut is_known) = (0, !IS_STALE.load(Relaxed));
    for &address in addresses {
        let known = table.at(address as usize);
        let at = known.map_or(&profile.header.modules_used, |known| &known.at);
        hash = mix(hash ^ u64::from(at.load(Relaxed)));
        is_known &= known.is_some();
    }
    (hash, is_known)
}

/// Stops the system calls of this module, and waits for a thread that makes them.
pub(super) fn stop() {
    READING.close();
}

/// Forgets the mappings, because the next file has to record them again.
pub(super) fn after_fork() {
    TABLES.iter().for_each(|table| table.count.store(0, Relaxed));
    READING.after_fork();
    LOOK_AT.store(0, Relaxed);
}

/// Records new mappings, if [`PAUSE`] has passed since the last reading or a mapping may be gone.
#[cold]
pub(super) fn refresh_sometimes(profile: &Profile) {
    let (now, due) = (Native::now(), LOOK_AT.load(Relaxed));
    let pause = PAUSE.load(Relaxed);
    let is_stale = IS_STALE.swap(false, Relaxed);
    if now < due && !is_stale
        || LOOK_AT.compare_exchange(due, now + pause, Relaxed, Relaxed).is_err()
    {
        IS_STALE.fetch_or(is_stale, Relaxed);
        return;
    }
    match refresh(profile) {
        Some(true) => PAUSE.store(LOOK_EVERY_NS, Relaxed),
        Some(false) => PAUSE.store(pause.saturating_mul(2), Relaxed),
        None => _ = IS_STALE.fetch_or(is_stale, Relaxed),
    }
}

/// Brings the list up to date. Returns whether it has changed; `None` if another thread reads the
/// kernel's list or the process may not.
pub(super) fn refresh(profile: &Profile) -> Option<bool> {
    READING.enter(|| {
        // /proc/self shows no mappings after the main thread's end.
        let path = c"/proc/thread-self/maps".as_ptr();
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let mut update = Update::new(profile);
        // SAFETY: the path ends in a zero. This function owns the descriptor, and the buffer while
        // it is in the section.
        unsafe {
            let file = syscall!(Sysno::openat, libc::AT_FDCWD, path, flags).ok()?;
            let is_complete =
                read_lines(file, &mut *BUFFER.0.get(), |line| update.add_line(line)).is_some();
            let _ = syscall!(Sysno::close, file);
            Some(update.end(is_complete))
        }
    })?
}

/// Passes each line of a file to `visit`, without its line break. `None` if the file cannot be read
/// to its end.
fn read_lines(file: usize, buffer: &mut [u8], mut visit: impl FnMut(&[u8])) -> Option<()> {
    let mut filled = 0;
    loop {
        let room = &mut buffer[filled..];
        if room.is_empty() {
            return None; // no path is that long
        }
        // SAFETY: the kernel writes at most that many bytes.
        let read = unsafe { syscall!(Sysno::read, file, room.as_mut_ptr(), room.len()) }.ok()?;
        if read == 0 {
            return Some(());
        }
        filled += read;
        let mut start = 0;
        while let Some(length) = buffer[start..filled].iter().position(|&byte| byte == b'\n') {
            visit(&buffer[start..start + length]);
            start += length + 1;
        }
        buffer.copy_within(start..filled, 0);
        filled -= start;
    }
}

/// One reading of the kernel's list, whose lines are in the order of their addresses.
struct Update<'a> {
    profile: &'a Profile,
    before: &'static [Known],
    /// Number of mappings of `before` that come before the last line, or were found again.
    passed: usize,
    after: &'static Table,
    count: usize,
    has_changed: bool,
}

impl<'a> Update<'a> {
    fn new(profile: &'a Profile) -> Self {
        let present = PRESENT.load(Relaxed) % 2;
        let (before, after) = (TABLES[present].entries(), &TABLES[1 - present]);
        after.count.store(0, Relaxed);
        Update { profile, before, passed: 0, after, count: 0, has_changed: false }
    }

    /// Records a line if its mapping is new and contains code or the start of a file.
    fn add_line(&mut self, line: &[u8]) {
        let Some((start, end)) = range(line) else { return };
        let mut fields = line.split(|&byte| byte == b' ');
        let length = fields.next().map_or(0, <[u8]>::len);
        let (Some(access), Some(offset)) = (fields.next(), fields.next()) else { return };
        let is_start = offset.iter().all(|&digit| digit == b'0');
        if !line.contains(&b'/') || !(access.contains(&b'x') || is_start) {
            return;
        }
        self.remove_until(start);
        let rest = line[length..].iter();
        let hash = rest.fold(0, |hash, &byte| mix(hash ^ u64::from(byte)));
        let known = self.before.get(self.passed).filter(|known| {
            (known.start.load(Relaxed), known.end.load(Relaxed)) == (start, end)
                && known.hash.load(Relaxed) == hash
        });
        let at = match known {
            Some(known) => {
                self.passed += 1;
                known.at.load(Relaxed)
            }
            None => {
                // For the reader, the new line ends the mappings whose addresses it has.
                self.passed += self.before[self.passed..]
                    .partition_point(|known| known.start.load(Relaxed) < end);
                self.append([line, b"\n"])
            }
        };
        self.keep((start, end), hash, at);
    }

    /// Removes the mappings that were at lower addresses and have not been found again.
    fn remove_until(&mut self, address: usize) {
        while let Some(known) = self.before.get(self.passed)
            && known.start.load(Relaxed) < address
        {
            let (start, end) = (known.start.load(Relaxed), known.end.load(Relaxed));
            let mut room = [0; 40];
            self.append([write_range(&mut room, start, end), b" ---p 00000000 00:00 0\n"]);
            self.passed += 1;
        }
    }

    /// Appends a line to the profile's list, if it has room. Returns its offset.
    fn append(&mut self, parts: [&[u8]; 2]) -> u32 {
        let header = &self.profile.header;
        let used = header.modules_used.load(Relaxed) as usize;
        let length = parts[0].len() + parts[1].len();
        let Some(room) = self.profile.modules.get(used..used + length) else { return u32::MAX };
        let bytes = parts[0].iter().chain(parts[1]);
        room.iter().zip(bytes).for_each(|(to, &byte)| to.store(byte, Relaxed));
        header.modules_used.store((used + length) as u32, Release);
        self.has_changed = true;
        used as u32
    }

    fn keep(&mut self, (start, end): (usize, usize), hash: u64, at: u32) {
        let Some(entry) = self.after.entries.get(self.count) else { return };
        entry.start.store(start, Relaxed);
        entry.end.store(end, Relaxed);
        entry.hash.store(hash, Relaxed);
        entry.at.store(at, Relaxed);
        self.count += 1;
    }

    /// Returns whether the list has changed. After an incomplete reading, the mappings that it did
    /// not reach stay.
    fn end(mut self, is_complete: bool) -> bool {
        if is_complete {
            self.remove_until(usize::MAX);
        }
        for known in self.before.get(self.passed..).unwrap_or_default() {
            let range = (known.start.load(Relaxed), known.end.load(Relaxed));
            self.keep(range, known.hash.load(Relaxed), known.at.load(Relaxed));
        }
        self.after.count.store(self.count, Release);
        PRESENT.store((PRESENT.load(Relaxed) + 1) % 2, Release);
        self.has_changed
    }
}

/// The addresses at the start of a line.
fn range(line: &[u8]) -> Option<(usize, usize)> {
    let text = core::str::from_utf8(line.split(|&byte| byte == b' ').next()?).ok()?;
    let (start, end) = text.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some((number(start)?, number(end)?))
}

/// Writes addresses as [`range`] reads them.
fn write_range(room: &mut [u8; 40], start: usize, end: usize) -> &[u8] {
    let mut length = 0;
    let mut write = |byte| {
        room[length] = byte;
        length += 1;
    };
    for (number, separator) in [(start, Some(b'-')), (end, None)] {
        for digit in (0..16).rev() {
            write(b"0123456789abcdef"[number >> (4 * digit) & 15]);
        }
        separator.into_iter().for_each(&mut write);
    }
    &room[..length]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use unconvoy_profile::layout::zeroed;

    /// The tests use the list of this process in turn.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    /// Reads one list after another, and returns the profile's list.
    fn listed(readings: &[&str]) -> String {
        after_fork();
        let profile = zeroed();
        for reading in readings {
            let mut update = Update::new(&profile);
            reading.lines().for_each(|line| update.add_line(line.as_bytes()));
            update.end(true);
        }
        let used = profile.header.modules_used.load(Relaxed) as usize;
        let bytes = profile.modules[..used].iter().map(|byte| byte.load(Relaxed));
        String::from_utf8(bytes.collect()).unwrap()
    }

    const A: &str =
        "1000-2000 r--p 00000000 08:01 5 /a.so\n2000-3000 r-xp 00001000 08:01 5 /a.so\n";
    const B: &str =
        "1000-2000 r--p 00000000 08:01 6 /b.so\n2000-3000 r-xp 00001000 08:01 6 /b.so\n";

    #[test]
    fn mapping_is_listed_once_until_another_takes_its_addresses() {
        let _guard = ONE_AT_A_TIME.lock();
        assert_eq!(listed(&[A, A]), A);
        assert_eq!(listed(&[A, B, B]), format!("{A}{B}"));
        let gone = |range: &str| format!("{range} ---p 00000000 00:00 0\n");
        let (low, high) =
            (gone("0000000000001000-0000000000002000"), gone("0000000000002000-0000000000003000"));
        assert_eq!(listed(&[A, "", A]), format!("{A}{low}{high}{A}"));
        // The dynamic linker maps the whole object first.
        let whole = "1000-3000 r--p 00000000 08:01 5 /a.so\n";
        assert_eq!(listed(&[A, whole, A]), format!("{A}{whole}{A}"));
    }

    #[test]
    fn thousands_of_mappings_are_listed_once() {
        let _guard = ONE_AT_A_TIME.lock();
        let line = |at: usize| format!("{:x}-{:x} r--p 0 1:1 1 /f\n", at << 12, (at + 1) << 12);
        let many: String = (1..=3000).map(line).collect();
        assert_eq!(listed(&[&many, &many, &many]), many);
        let profile = zeroed();
        assert!(of_code(&profile, &[3000 << 12, (3000 << 12) + 4095]).1);
        assert!(!of_code(&profile, &[3001 << 12]).1);
    }
}
