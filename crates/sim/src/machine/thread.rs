//! A simulated thread: its coroutine, and the state that no other part of the machine keeps.

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, Yielder};
use unconvoy::load::ThreadState;

/// Stands for "no thread" where a thread number is expected.
pub(super) const NO_THREAD: u32 = u32::MAX;

/// Enough to run program code and to format a panic message.
const STACK_BYTES: usize = 128 << 10;

pub(super) type Body = Coroutine<(), (), (), DefaultStack>;

pub(super) struct Thread {
    pub(super) name: String,
    pub(super) process: usize,
    /// Whether the load sensor of its process counts it.
    pub(super) is_load: bool,
    /// `None` while the thread runs and after it has ended.
    pub(super) body: Option<Body>,
    /// Suspends the thread; null until its first run.
    pub(super) yielder: *const Yielder<(), ()>,
    pub(super) state: ThreadState,
    /// Its row in the table of its process's visible readers.
    pub(super) row: Option<usize>,
}

impl Thread {
    /// Creates a thread that runs `body`, which receives its yielder.
    pub(super) fn new(
        name: String,
        process: usize,
        is_load: bool,
        body: impl FnOnce(*const Yielder<(), ()>) + 'static,
    ) -> std::io::Result<Self> {
        let stack = DefaultStack::new(STACK_BYTES)?;
        let body = Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
            body(core::ptr::from_ref(yielder))
        });
        Ok(Thread {
            name,
            process,
            is_load,
            body: Some(body),
            yielder: core::ptr::null(),
            state: ThreadState::default(),
            row: None,
        })
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        if let Some(body) = &mut self.body {
            // Discard the stack of an unfinished thread without unwinding: its
            // destructors would run lock code that needs a machine. SAFETY: no code
            // uses the stack's values again. Memory that they own leaks.
            unsafe { body.force_reset() };
        }
    }
}
