//! Records which files are mapped at which addresses. The list comes from the kernel and not from
//! the dynamic linker, whose lock another thread may hold.

use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use syscalls::{Sysno, syscall};
use unconvoy_locks::primitive::{Clock as _, Native};
use unconvoy_profile::Profile;

/// Capacity of the table of known mappings.
const KNOWN: usize = 512;

/// Shortest time between two readings of the list while the process runs. It doubles after each
/// reading that finds nothing new, as in a process with generated code.
const LOOK_EVERY_NS: u64 = 100_000_000;

static STARTS: [AtomicUsize; KNOWN] = [const { AtomicUsize::new(0) }; KNOWN];
static ENDS: [AtomicUsize; KNOWN] = [const { AtomicUsize::new(0) }; KNOWN];
static COUNT: AtomicUsize = AtomicUsize::new(0);
static IS_BUSY: AtomicBool = AtomicBool::new(false);
static IS_STOPPED: AtomicBool = AtomicBool::new(false);

/// Lines of the kernel's list, for the thread that has set [`IS_BUSY`]. A signal handler's stack
/// may be too short for them.
struct Buffer(UnsafeCell<[u8; 8192]>);

// SAFETY: only the thread that has set `IS_BUSY` uses it.
unsafe impl Sync for Buffer {}

static BUFFER: Buffer = Buffer(UnsafeCell::new([0; 8192]));

static LOOK_AT: AtomicU64 = AtomicU64::new(0);
static PAUSE: AtomicU64 = AtomicU64::new(LOOK_EVERY_NS);

fn known() -> impl Iterator<Item = (usize, usize)> {
    let count = COUNT.load(Acquire).min(KNOWN);
    (0..count).map(|index| (STARTS[index].load(Relaxed), ENDS[index].load(Relaxed)))
}

/// Whether an address is in a mapping that has been recorded.
pub(super) fn is_known(pc: u64) -> bool {
    known().any(|(start, end)| (start..end).contains(&(pc as usize)))
}

/// Stops the system calls of this module.
pub(super) fn stop() {
    IS_STOPPED.store(true, Relaxed);
}

/// Forgets the mappings, because the next file has to record them again.
pub(super) fn reset() {
    COUNT.store(0, Relaxed);
    IS_BUSY.store(false, Relaxed);
    LOOK_AT.store(0, Relaxed);
}

/// Records new mappings, if [`PAUSE`] has passed since the last reading.
#[cold]
pub(super) fn refresh_sometimes(profile: &Profile) {
    let (now, due) = (Native::now(), LOOK_AT.load(Relaxed));
    let pause = PAUSE.load(Relaxed);
    if now < due || LOOK_AT.compare_exchange(due, now + pause, Relaxed, Relaxed).is_err() {
        return;
    }
    let before = COUNT.load(Relaxed);
    refresh(profile);
    let is_same = COUNT.load(Relaxed) == before;
    PAUSE.store(if is_same { pause.saturating_mul(2) } else { LOOK_EVERY_NS }, Relaxed);
}

/// Records new mappings.
pub(super) fn refresh(profile: &Profile) {
    if IS_STOPPED.load(Relaxed) || IS_BUSY.swap(true, Acquire) {
        return;
    }
    let path = c"/proc/self/maps".as_ptr();
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: the path ends in a zero, and this function owns the descriptor, and the buffer until
    // it clears `IS_BUSY`.
    unsafe {
        if let Ok(file) = syscall!(Sysno::openat, libc::AT_FDCWD, path, flags) {
            read_lines(file, &mut *BUFFER.0.get(), |line| record_line(profile, line));
            let _ = syscall!(Sysno::close, file);
        }
    }
    IS_BUSY.store(false, Release);
}

/// Passes each line of a file to `visit`, without its line break.
fn read_lines(file: usize, buffer: &mut [u8], mut visit: impl FnMut(&[u8])) {
    let mut filled = 0;
    loop {
        let room = &mut buffer[filled..];
        // SAFETY: the kernel writes at most that many bytes.
        let read = unsafe { syscall!(Sysno::read, file, room.as_mut_ptr(), room.len()) };
        let Ok(read @ 1..) = read else { return };
        filled += read;
        let mut start = 0;
        while let Some(length) = buffer[start..filled].iter().position(|&byte| byte == b'\n') {
            visit(&buffer[start..start + length]);
            start += length + 1;
        }
        buffer.copy_within(start..filled, 0);
        filled -= start;
        if filled == buffer.len() {
            return; // no path is that long
        }
    }
}

/// Records a line of `/proc/self/maps` if its mapping is new and contains code or the start of a
/// file.
fn record_line(profile: &Profile, line: &[u8]) {
    let Some((start, end)) = range(line) else { return };
    let mut fields = line.split(|&byte| byte == b' ').skip(1);
    let (Some(access), Some(offset)) = (fields.next(), fields.next()) else { return };
    let is_start = offset.iter().all(|&digit| digit == b'0');
    if !line.contains(&b'/') || !(access.contains(&b'x') || is_start) {
        return;
    }
    if known().any(|known| known == (start, end)) {
        return;
    }
    let header = &profile.header;
    let used = header.modules_used.load(Relaxed) as usize;
    let Some(room) = profile.modules.get(used..used + line.len() + 1) else { return };
    room.iter().zip(line.iter().chain(b"\n")).for_each(|(to, &byte)| to.store(byte, Relaxed));
    header.modules_used.store((used + room.len()) as u32, Release);
    let index = COUNT.load(Relaxed);
    if index < KNOWN {
        STARTS[index].store(start, Relaxed);
        ENDS[index].store(end, Relaxed);
        COUNT.store(index + 1, Release);
    }
}

/// The addresses at the start of a line.
fn range(line: &[u8]) -> Option<(usize, usize)> {
    let text = core::str::from_utf8(line.split(|&byte| byte == b' ').next()?).ok()?;
    let (start, end) = text.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some((number(start)?, number(end)?))
}
