//! The visible readers of this process ([`visible`](crate::contention::visible)).
//!
//! Threads are given rows in the order in which they first read a biased lock. A thread keeps its
//! row in its thread-local state, which a `fork` copies, so the forking thread's holds are its own
//! in the child. A thread id would change.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::affinity;
use super::fork::PROCESS_STATE;
use super::thread_state;
use crate::contention::visible::{Row, VisibleReaders};
use crate::primitive::{Generation as _, Native};

/// Number of rows, more than most machines have processors. They have 16 KiB, of which untouched
/// pages take no memory. Threads beyond this number share rows.
const ROWS: usize = 256;

/// All zeroes, so that the table is in `.bss`.
// SAFETY: a row is an array of atomic integers, for which zeroes are valid.
static ROWS_OF_PROCESS: [Row<Native>; ROWS] = unsafe { core::mem::zeroed() };

/// Rows given so far, including those given to a second thread.
static GIVEN: AtomicU64 = AtomicU64::new(0);

#[cold]
fn give_row() -> &'static Row<Native> {
    Native::generation(); // from here on, the kernel clears the page in children
    PROCESS_STATE.has_given_row.store(true, Relaxed);
    let given = GIVEN.fetch_add(1, SeqCst);
    let row = &ROWS_OF_PROCESS[given as usize % ROWS];
    thread_state::set_row(row);
    row
}

impl VisibleReaders for Native {
    #[inline(always)]
    fn own_row() -> Option<&'static Row<Native>> {
        Some(thread_state::row().unwrap_or_else(give_row))
    }

    fn rows() -> &'static [Row<Native>] {
        &ROWS_OF_PROCESS[..ROWS.min(GIVEN.load(SeqCst) as usize)]
    }

    fn runs_in_parallel() -> bool {
        affinity::processors() > 1
    }

    fn is_crowded() -> bool {
        Self::rows().len() > affinity::processors()
    }
}

/// Drops the published holds of the parent's other threads. For a fork handler in the child, which
/// runs on the forking thread. If an earlier handler has started a thread that was given a row, or
/// if the forking thread shares its row, some of these holds remain.
pub fn forget_other_readers() {
    if PROCESS_STATE.has_given_row.load(Relaxed) {
        return;
    }
    let own = thread_state::row();
    let is_own = |row: &Row<Native>| own.is_some_and(|own| core::ptr::eq(own, row));
    Native::rows().iter().filter(|row| !is_own(row)).for_each(Row::clear);
}
