//! The process under the model checker: load control without a controller.

use core::cell::Cell;

use crate::contention::visible::{Row, VisibleReaders};
use crate::load::{Context, LoadControl, ThreadState};
use crate::lock::Process;
use crate::primitive::{Checked, Threads as _};

loom::lazy_static! {
    static ref LOAD_CONTROL: LoadControl<Checked> = LoadControl::new();
}

loom::thread_local! {
    static THREAD: Cell<ThreadState> = Cell::new(ThreadState::default());
}

/// The execution that the checker explores.
#[derive(Debug, Clone, Copy)]
pub struct Execution;

impl Context for Execution {
    type Machine = Checked;

    fn control(self) -> &'static LoadControl<Checked> {
        // SAFETY: loom drops statics between executions, and no reference outlives its model's
        // closure.
        unsafe { &*core::ptr::from_ref::<LoadControl<Checked>>(&*LOAD_CONTROL) }
    }

    fn thread_state(self) -> ThreadState {
        THREAD.with(Cell::get)
    }

    fn set_thread_state(self, state: ThreadState) {
        THREAD.with(|cell| cell.set(state));
    }

    fn ensure_controller(self) {}
}

/// Two rows, so that every other thread shares a row.
struct Rows([Row<Checked>; 2]);

loom::lazy_static! {
    static ref ROWS: Rows = Rows([Row::empty(), Row::empty()]);
}

impl VisibleReaders for Checked {
    fn own_row() -> Option<&'static Row<Checked>> {
        Some(&Self::rows()[Self::thread_id() as usize % 2])
    }

    fn rows() -> &'static [Row<Checked>] {
        // SAFETY: as for the load control.
        unsafe { &*core::ptr::from_ref(&ROWS.0) }
    }

    fn runs_in_parallel() -> bool {
        true
    }

    fn is_crowded() -> bool {
        true
    }
}

impl Process for Checked {
    type Context = Execution;

    fn context() -> Execution {
        Execution
    }
}
