//! A simulated thread: a coroutine, and what the machine's parts do not know of it.

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, Yielder};
use unconvoy::load::ThreadState;

/// No thread, where a thread's number is expected.
pub(super) const NOBODY: u32 = u32::MAX;

/// Code runs on it, and a panic is formatted on it.
const STACK_BYTES: usize = 128 << 10;

pub(super) type Body = Coroutine<(), (), (), DefaultStack>;

pub(super) struct Thread {
    pub(super) name: String,
    pub(super) process: usize,
    /// Whether the process's sensor counts it.
    pub(super) is_load: bool,
    /// `None` while it runs, and once it has ended.
    pub(super) body: Option<Body>,
    /// With which it is suspended; null until it has run.
    pub(super) yielder: *const Yielder<(), ()>,
    /// What load control remembers of it.
    pub(super) state: ThreadState,
}

impl Thread {
    /// A thread that does `body`, which is told of its yielder.
    pub(super) fn new(
        name: String,
        process: usize,
        is_load: bool,
        body: impl FnOnce(*const Yielder<(), ()>) + 'static,
    ) -> std::io::Result<Self> {
        let stack = DefaultStack::new(STACK_BYTES)?;
        let body =
            Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| body(core::ptr::from_ref(yielder)));
        Ok(Thread {
            name,
            process,
            is_load,
            body: Some(body),
            yielder: core::ptr::null(),
            state: ThreadState::default(),
        })
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        if let Some(body) = &mut self.body {
            // A thread that has not ended is forgotten where it stands: to unwind it would run code
            // of locks that expect a machine. SAFETY: what is on its stack is never used again; it
            // is lost if it owns memory.
            unsafe { body.force_reset() };
        }
    }
}
