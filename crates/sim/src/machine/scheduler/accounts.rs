//! Accounts of thread time, by activity and by whether the thread had a processor; sums by process.

use super::split::Split;

/// Activity of a thread, as reported by its workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Activity {
    /// Outside critical sections.
    Work,
    /// In a critical section.
    Critical,
    /// Waiting for a lock.
    Wait,
    /// Off the processor for a reason other than locks and load, for example input or output.
    Away,
}

const ACTIVITIES: usize = 4;

/// Whether a thread has a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum RunState {
    Running,
    Ready,
    Blocked,
}

#[derive(Debug)]
pub(crate) struct Account {
    since: u64,
    state: RunState,
    activity: Activity,
    times: [[u64; 3]; ACTIVITIES],
    /// Whether it waits in `mwait`, and the part of its time on a processor that it did so.
    in_mwait: bool,
    mwaited: [u64; ACTIVITIES],
    /// The part of its waiting time on a processor during which no running thread held the lock.
    inverted: u64,
    /// The lock that it waits for, and that lock's inverted time at the last booking.
    waits_for: Option<(usize, u64)>,
    held: Vec<usize>,
    /// The process that counts it as load.
    process: Option<usize>,
}

impl Account {
    fn new(now: u64, process: Option<usize>) -> Self {
        Account {
            since: now,
            state: RunState::Blocked,
            activity: Activity::Away,
            times: [[0; 3]; ACTIVITIES],
            in_mwait: false,
            mwaited: [0; ACTIVITIES],
            inverted: 0,
            waits_for: None,
            held: Vec::new(),
            process,
        }
    }

    fn split(&self) -> Split {
        let at =
            |activity: Activity, state: RunState| self.times[activity as usize][state as usize];
        let everywhere = |state| {
            (0..ACTIVITIES).map(|activity| self.times[activity][state as usize]).sum::<u64>()
        };
        let mwait_ns: u64 = self.mwaited.iter().sum();
        let waited = at(Activity::Wait, RunState::Running) - self.mwaited[Activity::Wait as usize];
        let inverted = self.inverted.min(waited);
        Split {
            working_ns: everywhere(RunState::Running) - mwait_ns - waited,
            outside_ns: at(Activity::Work, RunState::Running)
                - self.mwaited[Activity::Work as usize],
            spinning_ns: waited - inverted,
            inverted_ns: inverted,
            mwait_ns,
            blocked_ns: everywhere(RunState::Blocked) - at(Activity::Away, RunState::Blocked),
            away_ns: at(Activity::Away, RunState::Blocked),
            ready_ns: everywhere(RunState::Ready),
            holder_preempted_ns: at(Activity::Critical, RunState::Ready),
        }
    }
}

/// Longest hand-over between running threads. If a lock stays free for longer despite its waiters,
/// it was handed to a thread that does not run.
const HAND_OVER_NS: u64 = 2_000;

/// Time during which no running thread held a lock.
#[derive(Debug, Default)]
struct LockClock {
    total: u64,
    /// Released, and not acquired since.
    is_free: bool,
    waiters: u32,
    /// Start of the current period without a running holder, if there is one.
    since: Option<u64>,
}

impl LockClock {
    fn inverted(&self, now: u64) -> u64 {
        self.total + self.since.map_or(0, |since| now.saturating_sub(since))
    }

    fn begin(&mut self, at: u64) {
        self.since = Some(self.since.map_or(at, |since| since.min(at)));
    }

    /// Adds a waiter. The time before the first one of a free lock does not count.
    fn add_waiter(&mut self, now: u64) {
        if self.is_free && self.waiters == 0 {
            self.since = Some(now + HAND_OVER_NS);
        }
        self.waiters += 1;
    }

    fn end(&mut self, now: u64) {
        self.total += self.since.take().map_or(0, |since| now.saturating_sub(since));
    }
}

/// Running and runnable threads of a process, integrated over time.
#[derive(Debug, Default, Clone, Copy)]
struct Load {
    threads: u32,
    running: i64,
    ready: i64,
    at: u64,
    /// Thread nanoseconds.
    ran: u64,
    waited: u64,
}

impl Load {
    fn book(&mut self, now: u64) {
        let span = now.saturating_sub(self.at);
        self.ran += self.running as u64 * span;
        self.waited += self.ready as u64 * span;
        self.at = self.at.max(now);
    }

    fn count(&mut self, state: RunState, change: i64) {
        match state {
            RunState::Running => self.running += change,
            RunState::Ready => self.ready += change,
            RunState::Blocked => {}
        }
    }

    /// Threads that run or wait to run.
    fn runnable(&self) -> u32 {
        (self.running + self.ready) as u32
    }
}

/// The accounts of all threads, locks and processes.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    threads: Vec<Account>,
    locks: Vec<LockClock>,
    loads: Vec<Load>,
}

impl Accounts {
    /// Adds a process. Processes are numbered from 0.
    pub(crate) fn add_process(&mut self) {
        self.loads.push(Load::default());
    }

    /// Adds a thread, which `process` counts as its load.
    pub(crate) fn add_thread(&mut self, now: u64, process: Option<usize>) {
        if let Some(process) = process {
            self.loads[process].threads += 1;
        }
        self.threads.push(Account::new(now, process));
    }

    /// Adds a lock and returns its number.
    pub(crate) fn add_lock(&mut self) -> usize {
        self.locks.push(LockClock::default());
        self.locks.len() - 1
    }

    /// Books the time of `thread` up to `now`.
    pub(crate) fn book(&mut self, thread: u32, now: u64) -> &mut Account {
        let account = &mut self.threads[thread as usize];
        let span = now.saturating_sub(account.since);
        account.times[account.activity as usize][account.state as usize] += span;
        if account.in_mwait {
            account.mwaited[account.activity as usize] += span;
        }
        account.since = account.since.max(now);
        if let Some((lock, before)) = account.waits_for {
            let inverted = self.locks[lock].inverted(now);
            if account.state == RunState::Running && !account.in_mwait {
                account.inverted += inverted.saturating_sub(before).min(span);
            }
            account.waits_for = Some((lock, inverted));
        }
        account
    }

    /// Records that `thread` gets or loses a processor.
    pub(crate) fn set_run_state(&mut self, thread: u32, state: RunState, now: u64) {
        self.book(thread, now);
        let account = &mut self.threads[thread as usize];
        let before = core::mem::replace(&mut account.state, state);
        for &lock in &account.held {
            match (before, state) {
                (RunState::Running, RunState::Ready | RunState::Blocked) => {
                    self.locks[lock].begin(now)
                }
                (RunState::Ready | RunState::Blocked, RunState::Running) => {
                    self.locks[lock].end(now)
                }
                _ => {}
            }
        }
        if let Some(process) = account.process {
            let load = &mut self.loads[process];
            load.book(now);
            load.count(before, -1);
            load.count(state, 1);
        }
    }

    /// Records that `thread`, which has a processor, begins or ends a wait in `mwait`.
    pub(crate) fn set_mwait(&mut self, thread: u32, waits: bool, now: u64) {
        self.book(thread, now).in_mwait = waits;
    }

    pub(crate) fn set_activity(&mut self, thread: u32, activity: Activity, now: u64) {
        self.book(thread, now).activity = activity;
    }

    pub(crate) fn begin_wait(&mut self, thread: u32, lock: usize, now: u64) {
        self.book(thread, now);
        self.end_wait(thread);
        self.locks[lock].add_waiter(now);
        let inverted = self.locks[lock].inverted(now);
        let account = &mut self.threads[thread as usize];
        account.activity = Activity::Wait;
        account.waits_for = Some((lock, inverted));
    }

    pub(crate) fn acquire(&mut self, thread: u32, lock: usize, now: u64) {
        self.enter_section(thread, now);
        self.locks[lock].end(now);
        self.locks[lock].is_free = false;
        self.threads[thread as usize].held.push(lock);
    }

    pub(crate) fn release(&mut self, thread: u32, lock: usize, now: u64) {
        self.book(thread, now).held.retain(|&held| held != lock);
        self.leave_section(thread, now);
        self.locks[lock].begin(now + HAND_OVER_NS);
        self.locks[lock].is_free = true;
    }

    /// Records that `thread` enters a critical section, with or without a lock.
    pub(crate) fn enter_section(&mut self, thread: u32, now: u64) {
        self.book(thread, now).activity = Activity::Critical;
        self.end_wait(thread);
    }

    fn end_wait(&mut self, thread: u32) {
        if let Some((lock, _)) = self.threads[thread as usize].waits_for.take() {
            self.locks[lock].waiters -= 1;
        }
    }

    pub(crate) fn leave_section(&mut self, thread: u32, now: u64) {
        let account = self.book(thread, now);
        account.activity =
            if account.held.is_empty() { Activity::Work } else { Activity::Critical };
    }

    pub(crate) fn activity_and_state(&self, thread: u32) -> (Activity, RunState) {
        let account = &self.threads[thread as usize];
        (account.activity, account.state)
    }

    /// Nanoseconds that `thread` waited for locks on a processor, up to its last booking.
    pub(crate) fn waited_on_processor(&self, thread: u32) -> u64 {
        self.threads[thread as usize].times[Activity::Wait as usize][RunState::Running as usize]
    }

    /// The time of `thread` up to `now`.
    pub(crate) fn split(&mut self, thread: u32, now: u64) -> Split {
        self.book(thread, now).split()
    }

    /// Run and run-queue time of the threads of `process`, or of all, in thread nanoseconds.
    pub(crate) fn run_times(&mut self, process: Option<usize>, now: u64) -> (u64, u64) {
        let those = process.map_or(0..self.loads.len(), |process| process..process + 1);
        self.loads[those].iter_mut().fold((0, 0), |(ran, waited), load| {
            load.book(now);
            (ran + load.ran, waited + load.waited)
        })
    }

    /// Number of threads of a process that run or wait to run.
    pub(crate) fn runnable(&self, process: usize) -> u32 {
        self.loads[process].runnable()
    }

    /// Number of threads that a process counts as its load, in any state.
    pub(crate) fn threads_of(&self, process: usize) -> u32 {
        self.loads[process].threads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accounts of one process and its threads 0 and 1, which run from time 0.
    fn accounts() -> Accounts {
        let mut accounts = Accounts::default();
        accounts.add_process();
        for thread in 0..2 {
            accounts.add_thread(0, Some(0));
            accounts.set_run_state(thread, RunState::Running, 0);
            accounts.set_activity(thread, Activity::Work, 0);
        }
        accounts
    }

    #[test]
    fn time_is_split_by_activity_and_state() {
        let mut accounts = accounts();
        accounts.set_run_state(0, RunState::Ready, 100);
        accounts.set_run_state(0, RunState::Running, 130);
        accounts.set_run_state(0, RunState::Blocked, 150);
        accounts.set_activity(0, Activity::Away, 160);
        let expected = Split {
            working_ns: 120,
            outside_ns: 120,
            ready_ns: 30,
            blocked_ns: 10,
            away_ns: 40,
            ..Split::default()
        };
        assert_eq!(accounts.split(0, 200), expected);
        assert_eq!(accounts.split(0, 200), expected, "nothing is booked twice");
    }

    #[test]
    fn wait_for_preempted_holder_is_inverted() {
        let mut accounts = accounts();
        let lock = accounts.add_lock();
        accounts.begin_wait(0, lock, 0);
        accounts.acquire(0, lock, 10);
        accounts.begin_wait(1, lock, 100);
        accounts.set_run_state(0, RunState::Ready, 200);
        accounts.set_run_state(0, RunState::Running, 500);
        accounts.release(0, lock, 600);
        accounts.acquire(1, lock, 610);
        let waiter = accounts.split(1, 1_000);
        assert_eq!((waiter.spinning_ns, waiter.inverted_ns), (210, 300));
        let holder = accounts.split(0, 1_000);
        assert_eq!(
            (holder.spinning_ns, holder.holder_preempted_ns, holder.ready_ns),
            (10, 300, 300)
        );
        assert_eq!(accounts.waited_on_processor(1), 510);
    }

    #[test]
    fn wait_in_mwait_is_neither_work_nor_spinning() {
        let mut accounts = accounts();
        let lock = accounts.add_lock();
        accounts.acquire(0, lock, 0);
        accounts.begin_wait(1, lock, 100);
        accounts.set_mwait(1, true, 150);
        accounts.set_run_state(0, RunState::Ready, 200);
        accounts.set_mwait(1, false, 500);
        let expected = Split {
            working_ns: 100,
            outside_ns: 100,
            spinning_ns: 50,
            mwait_ns: 350,
            inverted_ns: 100,
            ..Split::default()
        };
        assert_eq!(accounts.split(1, 600), expected);
        assert_eq!(expected.on_processor_ns(), 600);
        assert_eq!(accounts.waited_on_processor(1), 500, "the special set's policy sees all of it");
    }

    #[test]
    fn free_lock_counts_as_inverted_after_hand_over_time() {
        let mut accounts = accounts();
        let lock = accounts.add_lock();
        accounts.acquire(0, lock, 0);
        accounts.begin_wait(1, lock, 0);
        accounts.release(0, lock, 100);
        let end = 100 + HAND_OVER_NS + 70;
        accounts.acquire(1, lock, end);
        assert_eq!(accounts.split(1, end).inverted_ns, 70);
    }

    #[test]
    fn free_lock_without_waiters_is_not_inverted() {
        let mut accounts = accounts();
        let lock = accounts.add_lock();
        accounts.acquire(0, lock, 0);
        accounts.release(0, lock, 100);
        accounts.begin_wait(1, lock, 50_000);
        accounts.acquire(1, lock, 50_100);
        let waiter = accounts.split(1, 50_100);
        assert_eq!((waiter.spinning_ns, waiter.inverted_ns), (100, 0));
        accounts.begin_wait(0, lock, 60_000);
        accounts.release(1, lock, 70_000);
        accounts.acquire(0, lock, 70_000 + HAND_OVER_NS + 30);
        assert_eq!(accounts.split(0, 80_000).inverted_ns, 30, "it waited for the hand-over");
    }

    #[test]
    fn process_load_is_the_time_of_its_threads() {
        let mut accounts = accounts();
        accounts.add_process();
        accounts.add_thread(0, None);
        accounts.set_run_state(2, RunState::Running, 0);
        accounts.set_run_state(1, RunState::Ready, 100);
        assert_eq!(accounts.run_times(Some(0), 150), (250, 50));
        assert_eq!((accounts.runnable(0), accounts.threads_of(0)), (2, 2));
        assert_eq!((accounts.run_times(Some(1), 150), accounts.runnable(1)), ((0, 0), 0));
        assert_eq!(accounts.run_times(None, 200), (300, 100));
    }
}
