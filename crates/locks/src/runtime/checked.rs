//! The process under the model checker: load control without a controller.

use core::cell::Cell;

use crate::load::{Context, LoadControl, ThreadState};
use crate::lock::Process;
use crate::primitive::Checked;

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

impl Process for Checked {
    type Context = Execution;

    fn context() -> Execution {
        Execution
    }
}
