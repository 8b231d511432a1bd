//! Where each thread's time goes: what it was at, and whether it had a processor; and what that is
//! together, by process.

use serde::Serialize;

/// What a thread is at, as its workload says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Activity {
    /// Outside of critical sections.
    Work,
    /// In one.
    Critical,
    /// Waiting for a lock.
    Wait,
    /// Away for a reason of its own: input, output.
    Away,
}

const ACTIVITIES: usize = 4;

/// Nanoseconds of threads, by what they were at and whether they had a processor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Split {
    /// On a processor, outside of critical sections and in them.
    pub working_ns: u64,
    /// On a processor, waiting for a lock that a running thread held.
    pub spinning_ns: u64,
    /// On a processor, waiting for a lock that no running thread held: its holder was preempted or
    /// asleep, or it was handed to a thread that was.
    pub inverted_ns: u64,
    /// Off the processor, of its own accord: parked, asleep for load.
    pub blocked_ns: u64,
    /// Off the processor for input or output, or between two requests.
    pub away_ns: u64,
    /// In a run queue.
    pub ready_ns: u64,
    /// In a run queue with a lock held.
    pub holder_preempted_ns: u64,
}

impl Split {
    /// Another thread's time as well.
    pub fn add(&mut self, other: &Split) {
        self.working_ns += other.working_ns;
        self.spinning_ns += other.spinning_ns;
        self.inverted_ns += other.inverted_ns;
        self.blocked_ns += other.blocked_ns;
        self.away_ns += other.away_ns;
        self.ready_ns += other.ready_ns;
        self.holder_preempted_ns += other.holder_preempted_ns;
    }

    /// The time since `before`.
    pub fn since(&self, before: &Split) -> Split {
        Split {
            working_ns: self.working_ns - before.working_ns,
            spinning_ns: self.spinning_ns - before.spinning_ns,
            inverted_ns: self.inverted_ns - before.inverted_ns,
            blocked_ns: self.blocked_ns - before.blocked_ns,
            away_ns: self.away_ns - before.away_ns,
            ready_ns: self.ready_ns - before.ready_ns,
            holder_preempted_ns: self.holder_preempted_ns - before.holder_preempted_ns,
        }
    }

    /// On a processor, whatever it did there.
    pub fn on_processor_ns(&self) -> u64 {
        self.working_ns + self.spinning_ns + self.inverted_ns
    }
}

/// Whether a thread has a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Place {
    Running,
    Ready,
    Blocked,
}

/// One thread's time.
#[derive(Debug)]
pub(crate) struct Account {
    since: u64,
    place: Place,
    activity: Activity,
    times: [[u64; 3]; ACTIVITIES],
    /// Of the time that it waited on a processor.
    inverted: u64,
    /// The lock that it waits for, and that lock's inverted time when it began or was last looked
    /// at.
    waits_for: Option<(usize, u64)>,
    /// Locks that it holds.
    held: Vec<usize>,
    /// The process that counts it as load.
    process: Option<usize>,
}

impl Account {
    fn new(now: u64, process: Option<usize>) -> Self {
        Account {
            since: now,
            place: Place::Blocked,
            activity: Activity::Away,
            times: [[0; 3]; ACTIVITIES],
            inverted: 0,
            waits_for: None,
            held: Vec::new(),
            process,
        }
    }

    fn split(&self) -> Split {
        let at = |activity: Activity, place: Place| self.times[activity as usize][place as usize];
        let everywhere = |place| (0..ACTIVITIES).map(|activity| self.times[activity][place as usize]).sum::<u64>();
        let waited = at(Activity::Wait, Place::Running);
        let inverted = self.inverted.min(waited);
        Split {
            working_ns: everywhere(Place::Running) - waited,
            spinning_ns: waited - inverted,
            inverted_ns: inverted,
            blocked_ns: everywhere(Place::Blocked) - at(Activity::Away, Place::Blocked),
            away_ns: at(Activity::Away, Place::Blocked),
            ready_ns: everywhere(Place::Ready),
            holder_preempted_ns: at(Activity::Critical, Place::Ready),
        }
    }
}

/// A hand-over between running threads takes less; a free lock that waiters did not take for longer
/// was handed to a thread that does not run.
const HAND_OVER_NS: u64 = 2_000;

/// Since when no running thread holds a lock.
#[derive(Debug, Default)]
struct LockClock {
    total: u64,
    /// The beginning of such a time, if it is one.
    since: Option<u64>,
}

impl LockClock {
    fn inverted(&self, now: u64) -> u64 {
        self.total + self.since.map_or(0, |since| now.saturating_sub(since))
    }

    fn begin(&mut self, at: u64) {
        self.since = Some(self.since.map_or(at, |since| since.min(at)));
    }

    fn end(&mut self, now: u64) {
        self.total += self.since.take().map_or(0, |since| now.saturating_sub(since));
    }
}

/// How many threads of a process run and wait to run, summed over time.
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

    fn count(&mut self, place: Place, change: i64) {
        match place {
            Place::Running => self.running += change,
            Place::Ready => self.ready += change,
            Place::Blocked => {}
        }
    }

    /// Threads that run or wait to run.
    fn runnable(&self) -> u32 {
        (self.running + self.ready) as u32
    }
}

/// All threads' time, and what locks and processes have of it.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    threads: Vec<Account>,
    locks: Vec<LockClock>,
    loads: Vec<Load>,
}

impl Accounts {
    /// A process to keep the load of. They are numbered from 0.
    pub(crate) fn add_process(&mut self) {
        self.loads.push(Load::default());
    }

    /// A thread more, which `process` counts as its load.
    pub(crate) fn add_thread(&mut self, now: u64, process: Option<usize>) {
        if let Some(process) = process {
            self.loads[process].threads += 1;
        }
        self.threads.push(Account::new(now, process));
    }

    /// A lock to keep the time of; its number.
    pub(crate) fn add_lock(&mut self) -> usize {
        self.locks.push(LockClock::default());
        self.locks.len() - 1
    }

    /// Books what `thread` did until the time `now`.
    pub(crate) fn book(&mut self, thread: u32, now: u64) -> &mut Account {
        let account = &mut self.threads[thread as usize];
        let span = now.saturating_sub(account.since);
        account.times[account.activity as usize][account.place as usize] += span;
        account.since = account.since.max(now);
        if let Some((lock, before)) = account.waits_for {
            let inverted = self.locks[lock].inverted(now);
            if account.place == Place::Running {
                account.inverted += inverted.saturating_sub(before).min(span);
            }
            account.waits_for = Some((lock, inverted));
        }
        account
    }

    /// `thread` gets or loses a processor.
    pub(crate) fn set_place(&mut self, thread: u32, place: Place, now: u64) {
        self.book(thread, now);
        let account = &mut self.threads[thread as usize];
        let before = core::mem::replace(&mut account.place, place);
        for &lock in &account.held {
            match (before, place) {
                (Place::Running, Place::Ready | Place::Blocked) => self.locks[lock].begin(now),
                (Place::Ready | Place::Blocked, Place::Running) => self.locks[lock].end(now),
                _ => {}
            }
        }
        if let Some(process) = account.process {
            let load = &mut self.loads[process];
            load.book(now);
            load.count(before, -1);
            load.count(place, 1);
        }
    }

    /// `thread` is at something else from now on.
    pub(crate) fn set_activity(&mut self, thread: u32, activity: Activity, now: u64) {
        self.book(thread, now).activity = activity;
    }

    /// `thread` begins to wait for a lock.
    pub(crate) fn begin_wait(&mut self, thread: u32, lock: usize, now: u64) {
        self.book(thread, now);
        let inverted = self.locks[lock].inverted(now);
        let account = &mut self.threads[thread as usize];
        account.activity = Activity::Wait;
        account.waits_for = Some((lock, inverted));
    }

    /// `thread` has acquired a lock.
    pub(crate) fn acquire(&mut self, thread: u32, lock: usize, now: u64) {
        self.enter_section(thread, now);
        self.locks[lock].end(now);
        self.threads[thread as usize].held.push(lock);
    }

    /// `thread` releases a lock.
    pub(crate) fn release(&mut self, thread: u32, lock: usize, now: u64) {
        self.book(thread, now).held.retain(|&held| held != lock);
        self.leave_section(thread, now);
        self.locks[lock].begin(now + HAND_OVER_NS);
    }

    /// `thread` is in a critical section, whether or not it holds the lock.
    pub(crate) fn enter_section(&mut self, thread: u32, now: u64) {
        let account = self.book(thread, now);
        account.activity = Activity::Critical;
        account.waits_for = None;
    }

    /// `thread` has left one.
    pub(crate) fn leave_section(&mut self, thread: u32, now: u64) {
        let account = self.book(thread, now);
        account.activity = if account.held.is_empty() { Activity::Work } else { Activity::Critical };
    }

    /// What `thread` is at, and whether it has a processor.
    pub(crate) fn whereabouts(&self, thread: u32) -> (Activity, Place) {
        let account = &self.threads[thread as usize];
        (account.activity, account.place)
    }

    /// Nanoseconds that `thread` waited for locks while it had a processor, as far as they are
    /// booked.
    pub(crate) fn waited_on_processor(&self, thread: u32) -> u64 {
        self.threads[thread as usize].times[Activity::Wait as usize][Place::Running as usize]
    }

    /// Where the time of `thread` went until now.
    pub(crate) fn split(&mut self, thread: u32, now: u64) -> Split {
        self.book(thread, now).split()
    }

    /// Run and run-queue time of a process's threads, or of all, so far: in thread nanoseconds.
    pub(crate) fn run_times(&mut self, process: Option<usize>, now: u64) -> (u64, u64) {
        let those = process.map_or(0..self.loads.len(), |process| process..process + 1);
        self.loads[those].iter_mut().fold((0, 0), |(ran, waited), load| {
            load.book(now);
            (ran + load.ran, waited + load.waited)
        })
    }

    /// Threads of a process that run or wait to run.
    pub(crate) fn runnable(&self, process: usize) -> u32 {
        self.loads[process].runnable()
    }

    /// Threads that a process counts as its load, whatever they are at.
    pub(crate) fn threads_of(&self, process: usize) -> u32 {
        self.loads[process].threads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accounts of one process and its threads 0 and 1, which run from the time 0 on.
    fn accounts() -> Accounts {
        let mut accounts = Accounts::default();
        accounts.add_process();
        for thread in 0..2 {
            accounts.add_thread(0, Some(0));
            accounts.set_place(thread, Place::Running, 0);
            accounts.set_activity(thread, Activity::Work, 0);
        }
        accounts
    }

    #[test]
    fn time_is_split_by_activity_and_place() {
        let mut accounts = accounts();
        accounts.set_place(0, Place::Ready, 100);
        accounts.set_place(0, Place::Running, 130);
        accounts.set_place(0, Place::Blocked, 150);
        accounts.set_activity(0, Activity::Away, 160);
        let expected = Split { working_ns: 120, ready_ns: 30, blocked_ns: 10, away_ns: 40, ..Split::default() };
        assert_eq!(accounts.split(0, 200), expected);
        assert_eq!(accounts.split(0, 200), expected, "nothing is booked twice");
    }

    #[test]
    fn wait_is_inverted_while_the_holder_has_no_processor() {
        let mut accounts = accounts();
        let lock = accounts.add_lock();
        accounts.begin_wait(0, lock, 0);
        accounts.acquire(0, lock, 10);
        accounts.begin_wait(1, lock, 100);
        accounts.set_place(0, Place::Ready, 200);
        accounts.set_place(0, Place::Running, 500);
        accounts.release(0, lock, 600);
        accounts.acquire(1, lock, 610);
        let waiter = accounts.split(1, 1_000);
        assert_eq!((waiter.spinning_ns, waiter.inverted_ns), (210, 300));
        let holder = accounts.split(0, 1_000);
        assert_eq!((holder.spinning_ns, holder.holder_preempted_ns, holder.ready_ns), (10, 300, 300));
        assert_eq!(accounts.waited_on_processor(1), 510);
    }

    #[test]
    fn free_lock_counts_as_inverted_after_the_time_of_a_hand_over() {
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
    fn load_of_a_process_is_the_time_of_its_threads() {
        let mut accounts = accounts();
        accounts.add_process();
        accounts.add_thread(0, None);
        accounts.set_place(2, Place::Running, 0);
        accounts.set_place(1, Place::Ready, 100);
        assert_eq!(accounts.run_times(Some(0), 150), (250, 50));
        assert_eq!((accounts.runnable(0), accounts.threads_of(0)), (2, 2));
        assert_eq!((accounts.run_times(Some(1), 150), accounts.runnable(1)), ((0, 0), 0));
        assert_eq!(accounts.run_times(None, 200), (300, 100));
    }
}
