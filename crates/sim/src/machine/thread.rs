//! A simulated thread: a coroutine, and what the scheduler knows of it.

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, Yielder};
use unconvoy::platform::ThreadNote;

use super::account::Account;
use super::address_set::AddressSet;
use super::polling::Polling;
use super::retry::Restart;
use super::special::Sliced;
use super::stores::Stores;
use super::transaction::Transaction;

/// Code runs on it, and a panic is formatted on it.
const STACK_BYTES: usize = 128 << 10;

pub(super) type Body = Coroutine<(), (), (), DefaultStack>;

/// Where a thread is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// In a run queue.
    Ready,
    /// On a context.
    Running,
    Blocked,
    Done,
}

/// What a thread does until its next event, which says what is left of it when it is preempted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flight {
    /// So many nanoseconds of work were left when it was taken from its context.
    Work(u64),
    /// It waits for the clock to show this.
    Until(u64),
    /// It polls lines that do not change.
    Poll,
    /// It does, and yields with each turn.
    YieldingPoll,
}

pub(super) struct Thread {
    pub(super) name: String,
    pub(super) process: usize,
    /// Whether the process's sensor counts it.
    pub(super) is_load: bool,
    /// `None` once it has ended.
    pub(super) body: Option<Body>,
    pub(super) yielder: *const Yielder<(), ()>,
    pub(super) state: State,
    pub(super) flight: Flight,
    /// Events of another token are not for it any more.
    pub(super) token: u32,
    /// When its announced event happens.
    pub(super) resumes_at: u64,
    /// The context that it runs on, or ran on last.
    pub(super) context: usize,
    pub(super) vruntime: u64,
    pub(super) ran_since: u64,
    /// Nanoseconds of its time slice that it has run.
    pub(super) slice_used: u64,
    /// The place that it is parked on.
    pub(super) parked_on: Option<usize>,
    /// Whether a timer will end its sleep.
    pub(super) is_timed: bool,
    pub(super) wants_extension: bool,
    pub(super) extended: bool,
    /// Kernel sections that it is in; while there is one it is not preempted.
    pub(super) unpreemptible: u32,
    /// It is to be preempted when it has left them.
    pub(super) preempt_due: bool,
    pub(super) sliced: Sliced,
    pub(super) note: ThreadNote,
    pub(super) polling: Polling,
    pub(super) stores: Stores,
    pub(super) account: Account,
    pub(super) transaction: Transaction,
    pub(super) restart: Restart,
    /// What it accesses, if that is recorded.
    pub(super) recorded: Option<Box<AddressSet>>,
}

impl Thread {
    pub(super) fn new(
        name: String,
        process: usize,
        is_load: bool,
        context: usize,
        now: u64,
        body: impl FnOnce() + 'static,
    ) -> std::io::Result<Self> {
        let stack = DefaultStack::new(STACK_BYTES)?;
        let body = Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
            super::began(core::ptr::from_ref(yielder));
            body();
        });
        Ok(Thread {
            name,
            process,
            is_load,
            body: Some(body),
            yielder: core::ptr::null(),
            state: State::Blocked,
            flight: Flight::Work(0),
            token: 0,
            resumes_at: 0,
            context,
            vruntime: 0,
            ran_since: 0,
            slice_used: 0,
            parked_on: None,
            is_timed: false,
            wants_extension: false,
            extended: false,
            unpreemptible: 0,
            preempt_due: false,
            sliced: Sliced::default(),
            note: ThreadNote::default(),
            polling: Polling::default(),
            stores: Stores::default(),
            account: Account::new(now),
            transaction: Transaction::default(),
            restart: Restart::default(),
            recorded: None,
        })
    }
}
