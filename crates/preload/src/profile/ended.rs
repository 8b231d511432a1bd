//! The calling thread's last wait for a lock of libc's, until it is recorded.
//!
//! A waiter returns from libc with the lock held, and to record the wait takes longer than many
//! critical sections. The thread therefore keeps the wait in thread-local words, and records it
//! after the release or before the next wait. Before some releases it reads the clock, to measure
//! the hold.
//!
//! *Not guaranteed*: a thread that is killed, or that leaves the release to another thread, loses
//! its last short wait. If a signal handler waits for a lock while the interrupted thread changes
//! these words, one of the two waits may be counted for the other's lock.

use core::sync::atomic::Ordering::Relaxed;

use unconvoy_locks::primitive::{Clock as _, Native};
use unconvoy_locks::runtime::{EndedWait, ended_wait, ended_wait_address, set_ended_wait};
use unconvoy_profile::{Kind, Profile, mix};

use super::state::{HOLDS_PER_PERIOD, Waited, get, period};

/// A wait is *eligible* for a sample if it begins at least this long after the thread's last one
/// began. Of the other waits, one in [`ONE_OF`] is eligible: a wait with a deadline takes longer to
/// fall asleep, and threads that wait often would then take turns at the lock. Eight threads that
/// took one lock without pause ran at .6 of their rate with all waits eligible, and at .7 to .9
/// with these two constants. Measurements of the same constants differed by more than those of
/// other choices.
const RARE_NS: u64 = 1_000_000;

/// See [`RARE_NS`].
const ONE_OF: u64 = 16;

// Bits of a kept wait's description: the lock's kind, and flags.
const KIND: u64 = 0xf;
/// No wait is kept, and the next one is eligible for a sample.
const DRAWN: u64 = 0x80;
/// The wait is recorded already; its hold is not.
const RECORDED: u64 = 0x10;
/// The thread waited to read.
const READ: u64 = 0x20;
/// The hold is to be measured.
const MEASURED: u64 = 0x40;

/// Keeps the wait from `begin` to `end`, or only its hold if the wait `is_recorded` already. The
/// thread must not keep another wait.
#[inline]
pub(super) fn keep(waited: &Waited<'_>, (begin, end): (u64, u64), is_recorded: bool) {
    let mut next_hold = ended_wait().word;
    let mut description = waited.kind as u64;
    if is_recorded {
        description |= RECORDED;
    }
    if waited.is_read {
        description |= READ;
    } else if end >= next_hold {
        description |= MEASURED;
        next_hold = end + period().load(Relaxed) / HOLDS_PER_PERIOD;
    }
    let address = waited.address;
    set_ended_wait(EndedWait { address, description, begin, end, word: next_hold });
}

/// Whether the wait that begins now is eligible for a sample. `Some(n)`: it is, and stands for n
/// waits.
///
/// The draw must neither depend on the wait itself nor delay the waiter. [`take`] has therefore
/// made it in advance. After a pause of [`RARE_NS`] no draw is needed.
#[inline]
pub(super) fn draw(begin: u64) -> Option<u64> {
    let last = ended_wait();
    if begin.saturating_sub(last.begin) >= RARE_NS {
        Some(1)
    } else if last.description & DRAWN != 0 {
        Some(ONE_OF)
    } else {
        None
    }
}

/// Records the wait that the calling thread keeps, if there is one.
#[inline]
pub(super) fn record_kept() {
    if ended_wait_address() != 0 {
        record(take(), None);
    }
}

/// Forgets the kept wait, in the child of a `fork`.
pub(super) fn forget() {
    take();
}

fn take() -> EndedWait {
    let wait = ended_wait();
    let is_drawn = mix(wait.end).is_multiple_of(ONE_OF);
    let description = if is_drawn { DRAWN } else { 0 };
    set_ended_wait(EndedWait { address: 0, description, ..wait });
    wait
}

/// Whether the calling thread keeps a wait.
#[inline]
pub(super) fn is_any_kept() -> bool {
    ended_wait_address() != 0
}

/// Whether the calling thread keeps a wait for the lock at `address`.
#[inline]
pub(super) fn is_kept(address: usize) -> bool {
    ended_wait_address() == address
}

/// The present time, if the hold that is about to end is to be measured. The thread keeps the wait
/// for this lock.
#[inline]
pub(super) fn hold_end() -> Option<u64> {
    (ended_wait().description & MEASURED != 0).then(Native::now)
}

/// Records the kept wait, and its hold up to `hold_end`.
#[cold]
#[inline(never)]
pub(super) fn record_with_hold(hold_end: Option<u64>) {
    record(take(), hold_end);
}

fn record(wait: EndedWait, hold_end: Option<u64>) {
    let EndedWait { address, description, begin, end, .. } = wait;
    let Some(profile) = get() else { return };
    let Some(kind) = Kind::of((description & KIND) as u32) else { return };
    let Some((_, lock)) = profile.lock(kind, address) else {
        return lose(profile);
    };
    if description & RECORDED == 0 {
        profile.record_wait(lock, end.saturating_sub(begin), end, description & READ != 0);
    }
    if let Some(hold_end) = hold_end {
        profile.record_hold(lock, hold_end.saturating_sub(end));
    }
}

/// Counts a wait that timed out.
#[cold]
pub(super) fn record_timed_out(profile: &Profile, waited: &Waited<'_>, (begin, end): (u64, u64)) {
    let Some((_, lock)) = profile.lock(waited.kind, waited.address) else { return lose(profile) };
    profile.record_wait(lock, end.saturating_sub(begin), end, waited.is_read);
    lock.timed_out.fetch_add(1, Relaxed);
}

/// Counts a wait for a lock that does not fit in the table.
#[cold]
pub(super) fn lose(profile: &Profile) {
    profile.header.lost_waits.fetch_add(1, Relaxed);
}
