//! Shows this process to `unconvoy top`, by a page of shared memory ([`Page`]).
//!
//! The first wait for a lock creates the page, so a process without contention has none. While
//! nobody looks, a wait reads one word of the page. Once a reader asks, waits are recorded as in a
//! profile, into a table that is shared memory too, until the reader is gone.
//!
//! | state | `ASKED` points to |
//! | --- | --- |
//! | metrics are written, so waits are always recorded | [`METRICS`] |
//! | no page | [`NOBODY`] |
//! | page | [`Page::asked`] |
//!
//! The child of a `fork` replaces the mappings by memory of its own before it uses a lock
//! ([`after_fork`]), and creates its own page.

use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64};

use syscalls::Errno;
use unconvoy_locks::catalogue::environment;
use unconvoy_locks::primitive::{Clock as _, Native};
use unconvoy_locks::runtime::{self, load_control};
use unconvoy_profile::Profile;
use unconvoy_profile::page::{MAGIC, PATIENCE_NS, Page, SIZE, VERSION};

use super::{file, metrics, shared, stack, state};
use crate::chosen::pair;
use crate::variables::variable;

const TABLE_SIZE: usize = size_of::<Profile>();

/// Whether the next wait creates the page.
static IS_DUE: AtomicBool = AtomicBool::new(false);

/// Whether the user vouches that a filter of system calls allows those that create the page.
static IS_VOUCHED_FOR: AtomicBool = AtomicBool::new(false);

/// Always 0.
static NOBODY: AtomicU32 = AtomicU32::new(0);

/// Always 1.
static METRICS: AtomicU32 = AtomicU32::new(1);

static ASKED: AtomicPtr<AtomicU32> = AtomicPtr::new((&raw const NOBODY).cast_mut());

/// The page, once there is one.
static PAGE: AtomicPtr<Page> = AtomicPtr::new(ptr::null_mut());

/// The table in shared memory, once there is one. It stays for the next reader.
static TABLE: AtomicPtr<Profile> = AtomicPtr::new(ptr::null_mut());

/// Whether waits are recorded into [`TABLE`].
static IS_RECORDING: AtomicBool = AtomicBool::new(false);

/// The last value of [`Page::asked`], and when it was first seen.
static SEEN: AtomicU32 = AtomicU32::new(0);
static SEEN_AT: AtomicU64 = AtomicU64::new(0);

/// Lets the first wait create the page, unless the environment forbids it. Called from the
/// constructor.
pub(super) fn begin() {
    metrics::begin();
    ASKED.store(without_page(), Relaxed);
    let choice = variable(&environment::TOP);
    IS_VOUCHED_FOR.store(choice == Some("1"), Relaxed);
    IS_DUE.store(choice != Some("0"), Relaxed);
}

/// What `ASKED` points to while there is no page.
fn without_page() -> *mut AtomicU32 {
    ptr::from_ref(if metrics::is_on() { &METRICS } else { &NOBODY }).cast_mut()
}

#[inline]
pub(super) fn is_due() -> bool {
    IS_DUE.load(Relaxed)
}

/// Whether a reader wants the waits to be recorded.
#[inline]
pub(super) fn is_asked() -> bool {
    // SAFETY: a static, or a word in a page, which stays mapped.
    unsafe { &*ASKED.load(Acquire) }.load(Relaxed) != 0
}

/// Whether waits are recorded for a reader, and not for a file.
#[inline]
pub(super) fn is_recording() -> bool {
    IS_RECORDING.load(Relaxed)
}

fn page() -> Option<&'static Page> {
    // SAFETY: null or a mapping that stays.
    unsafe { PAGE.load(Acquire).as_ref() }
}

/// Creates the page. One thread at a time calls this, inside a lock operation.
#[cold]
pub(super) fn create_page() {
    if !IS_DUE.swap(false, Relaxed) {
        return;
    }
    // A filter may kill the process for a call that it does not know, unless the user vouches.
    if !IS_VOUCHED_FOR.load(Relaxed) && runtime::is_filtered() {
        return;
    }
    let Ok(at) = shared::create(SIZE) else { return };
    // SAFETY: a new mapping of a page's size, which stays; zeroes are an empty page.
    let page: &'static Page = unsafe { &*ptr::with_exposed_provenance(at) };
    let text = |to: &[AtomicU8], from: &str| {
        to.iter().zip(from.bytes()).for_each(|(to, byte)| to.store(byte, Relaxed));
    };
    text(&page.lock, pair().lock);
    text(&page.load, pair().load);
    text(&page.sensor, runtime::controller_report().sensor);
    page.version.store(VERSION, Relaxed);
    if let Some(profile) = state::get() {
        page.table.store(ptr::from_ref(profile).addr() as u64, Relaxed);
    }
    page.magic.store(MAGIC, Release);
    PAGE.store(ptr::from_ref(page).cast_mut(), Release);
    if !metrics::is_on() {
        ASKED.store((&raw const page.asked).cast_mut(), Release);
    }
}

/// The table to record into, if a reader asks for it. One thread at a time calls this, inside a
/// lock operation.
#[cold]
pub(super) fn table() -> Option<&'static Profile> {
    let page = page().filter(|page| page.asked.load(Relaxed) != 0);
    if page.is_none() && !metrics::is_on() {
        return None;
    }
    SEEN_AT.store(Native::now(), Relaxed);
    if page.is_some_and(|page| page.unwinds.load(Relaxed) != 0) {
        stack::allow();
    }
    // SAFETY: null or a mapping that stays.
    if let Some(table) = unsafe { TABLE.load(Acquire).as_ref() } {
        // The holds that were being measured when the last reader left count no more.
        table.header.begin_ns.store(Native::now(), Relaxed);
        return Some(table);
    }
    // A page shows that the kernel grants shared memory. Metrics work with any memory, and may
    // begin before the first wait.
    create_page();
    let shared =
        if PAGE.load(Relaxed).is_null() { Err(Errno::ENOMEM) } else { shared::create(TABLE_SIZE) };
    let at = match shared {
        Err(_) if metrics::is_on() => shared::create_private(TABLE_SIZE),
        shared => shared,
    };
    match at {
        Ok(at) => {
            // SAFETY: a new mapping of a profile's size, which stays; zeroes are an empty profile.
            let table: &'static Profile = unsafe { &*ptr::with_exposed_provenance(at) };
            // SAFETY: as the caller promises, one thread at a time calls this.
            unsafe { file::describe(table, false) };
            TABLE.store(ptr::from_ref(table).cast_mut(), Release);
            Some(table)
        }
        Err(error) => {
            if let Some(page) = page {
                page.error.store(error.into_raw().cast_unsigned(), Relaxed);
            }
            ASKED.store((&raw const NOBODY).cast_mut(), Release);
            None
        }
    }
}

/// Announces that waits are recorded into [`TABLE`].
pub(super) fn begin_recording() {
    IS_RECORDING.store(true, Relaxed);
}

/// Shows the table that waits are recorded into.
pub(super) fn show(table: &'static Profile) {
    if let Some(page) = page() {
        page.table.store(ptr::from_ref(table).addr() as u64, Release);
    }
}

/// Stops the recording if the reader has not renewed its request for [`PATIENCE_NS`]. Returns
/// whether it has stopped.
pub(super) fn stop_if_abandoned(now: u64) -> bool {
    let Some(page) = page().filter(|_| !metrics::is_on()) else { return false };
    let asked = page.asked.load(Relaxed);
    if asked != SEEN.load(Relaxed) {
        SEEN.store(asked, Relaxed);
        SEEN_AT.store(now, Relaxed);
        return false;
    }
    if now.saturating_sub(SEEN_AT.load(Relaxed)) < PATIENCE_NS
        || page.asked.compare_exchange(asked, 0, Relaxed, Relaxed).is_err()
    {
        return false;
    }
    IS_RECORDING.store(false, Relaxed);
    state::remove();
    true
}

/// Replaces the parent's page and table, and returns whether there were any. `may_call`: whether
/// the process may make system calls of its own.
pub(super) fn after_fork(may_call: bool) -> bool {
    let page = PAGE.swap(ptr::null_mut(), Relaxed);
    let table = TABLE.swap(ptr::null_mut(), Relaxed);
    ASKED.store(without_page(), Relaxed);
    IS_RECORDING.store(false, Relaxed);
    if !page.is_null() && may_call {
        shared::detach(page.expose_provenance(), SIZE);
        IS_DUE.store(true, Relaxed);
    }
    if !table.is_null() && may_call {
        shared::detach(table.expose_provenance(), TABLE_SIZE);
    }
    !page.is_null() || !table.is_null()
}

/// Creates no page from now on.
pub(super) fn confine() {
    IS_DUE.store(false, Relaxed);
}

/// Writes metrics, and shows the load and its control. `confined` returns the number of cores of
/// the special set and of the threads on it. Runs on the controller's thread.
pub(crate) fn interval(now: u64, confined: fn() -> Option<(u32, u32)>) {
    metrics::interval(now);
    let Some(page) = page().filter(|page| page.asked.load(Relaxed) != 0) else { return };
    let report = runtime::controller_report();
    let control = load_control();
    let (cores, confined) = confined().unwrap_or((0, 0));
    page.runnable.store(report.runnable, Relaxed);
    page.capacity.store(report.capacity, Relaxed);
    page.sleeping.store(control.slots.sleeping(), Relaxed);
    page.target.store(control.slots.target(), Relaxed);
    page.intervals.store(report.ticks.into(), Relaxed);
    page.busy_ns.store(report.busy_ns, Relaxed);
    page.confined.store(confined, Relaxed);
    page.cores.store(cores, Relaxed);
    page.interval_at.store(now, Relaxed);
    page.controller.store(report.thread.cast_unsigned(), Relaxed);
    if is_recording() {
        stop_if_abandoned(now);
    }
}

/// Shows that no controller runs. Runs on the controller's thread, as its last action.
pub(crate) fn controller_ended() {
    metrics::write_if_new(false);
    let Some(page) = page() else { return };
    page.controller.store(0, Relaxed);
    page.sleeping.store(0, Relaxed);
    page.target.store(0, Relaxed);
    page.confined.store(0, Relaxed);
    page.cores.store(0, Relaxed);
}
