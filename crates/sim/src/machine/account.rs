//! Where each thread's time goes: what it was at, and whether it had a processor.

use serde::Serialize;

use super::Machine;

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

pub(super) const ACTIVITIES: usize = 4;

/// Nanoseconds of threads, by what they were at and whether they had a processor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Split {
    /// On a processor, outside of critical sections and in them.
    pub working_ns: u64,
    /// On a processor, waiting for a lock that a running thread held.
    pub spinning_ns: u64,
    /// On a processor, waiting for a lock that no running thread held: its holder was preempted or asleep, or it was
    /// handed to a thread that was.
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
pub(super) enum Place {
    Running,
    Ready,
    Blocked,
}

/// One thread's time.
#[derive(Debug)]
pub(super) struct Account {
    since: u64,
    place: Place,
    activity: Activity,
    times: [[u64; 3]; ACTIVITIES],
    /// Of the time that it waited on a processor.
    inverted: u64,
    /// The lock that it waits for, and that lock's inverted time when it began or was last looked at.
    waits_for: Option<(usize, u64)>,
    /// Locks that it holds.
    held: Vec<usize>,
}

impl Account {
    pub(super) fn new(now: u64) -> Self {
        Account {
            since: now,
            place: Place::Blocked,
            activity: Activity::Away,
            times: [[0; 3]; ACTIVITIES],
            inverted: 0,
            waits_for: None,
            held: Vec::new(),
        }
    }

    pub(super) fn whereabouts(&self) -> (Activity, Place) {
        (self.activity, self.place)
    }

    /// Nanoseconds that the thread waited for locks while it had a processor, as far as they are booked.
    pub(super) fn waited_on_processor(&self) -> u64 {
        self.times[Activity::Wait as usize][Place::Running as usize]
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

/// A hand-over between running threads takes less; a free lock that waiters did not take for longer was handed to a
/// thread that does not run.
const HAND_OVER_NS: u64 = 2_000;

/// Since when no running thread holds a lock.
#[derive(Debug, Default)]
pub(super) struct LockClock {
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

impl Machine {
    /// A lock to keep the time of; its number.
    pub(super) fn new_clock(&mut self) -> usize {
        self.clocks.push(LockClock::default());
        self.clocks.len() - 1
    }

    /// Books what `thread` did until the time `now`.
    pub(super) fn book(&mut self, thread: u32, now: u64) {
        let account = &mut self.threads[thread as usize].account;
        let span = now.saturating_sub(account.since);
        account.times[account.activity as usize][account.place as usize] += span;
        account.since = account.since.max(now);
        if let Some((lock, before)) = account.waits_for {
            let inverted = self.clocks[lock].inverted(now);
            if account.place == Place::Running {
                account.inverted += inverted.saturating_sub(before).min(span);
            }
            account.waits_for = Some((lock, inverted));
        }
    }

    /// `thread` gets or loses a processor.
    pub(super) fn moves(&mut self, thread: u32, place: Place, now: u64) {
        self.book(thread, now);
        let account = &mut self.threads[thread as usize].account;
        let before = core::mem::replace(&mut account.place, place);
        for &lock in &account.held {
            match (before, place) {
                (Place::Running, Place::Ready | Place::Blocked) => self.clocks[lock].begin(now),
                (Place::Ready | Place::Blocked, Place::Running) => self.clocks[lock].end(now),
                _ => {}
            }
        }
        if !self.threads[thread as usize].is_load {
            return;
        }
        let process = &mut self.loads[self.threads[thread as usize].process];
        process.book(now);
        process.count(before, -1);
        process.count(place, 1);
    }

    /// The running thread is at something else from now on.
    pub(super) fn set_activity(&mut self, activity: Activity) {
        let (thread, now) = (self.current, self.now);
        self.book(thread, now);
        self.threads[thread as usize].account.activity = activity;
    }

    pub(super) fn begins_to_wait(&mut self, lock: usize) {
        let (thread, now) = (self.current, self.now);
        self.book(thread, now);
        let inverted = self.clocks[lock].inverted(now);
        let account = &mut self.threads[thread as usize].account;
        account.activity = Activity::Wait;
        account.waits_for = Some((lock, inverted));
    }

    pub(super) fn has_acquired(&mut self, lock: usize) {
        let (thread, now) = (self.current, self.now);
        self.book(thread, now);
        self.clocks[lock].end(now);
        let account = &mut self.threads[thread as usize].account;
        account.activity = Activity::Critical;
        account.waits_for = None;
        account.held.push(lock);
    }

    /// The running thread is in a critical section without holding its lock.
    pub(super) fn enters_section(&mut self) {
        let (thread, now) = (self.current, self.now);
        self.book(thread, now);
        let account = &mut self.threads[thread as usize].account;
        account.activity = Activity::Critical;
        account.waits_for = None;
    }

    /// It has left it.
    pub(super) fn leaves_section(&mut self) {
        let (thread, now) = (self.current, self.now);
        self.book(thread, now);
        let account = &mut self.threads[thread as usize].account;
        account.activity = if account.held.is_empty() { Activity::Work } else { Activity::Critical };
    }

    pub(super) fn releases(&mut self, lock: usize) {
        let (thread, now) = (self.current, self.now);
        self.book(thread, now);
        let account = &mut self.threads[thread as usize].account;
        account.held.retain(|&held| held != lock);
        account.activity = if account.held.is_empty() { Activity::Work } else { Activity::Critical };
        self.clocks[lock].begin(now + HAND_OVER_NS);
    }

    /// Where the time of `thread` went until now.
    pub(super) fn split_of(&mut self, thread: u32, now: u64) -> Split {
        self.book(thread, now);
        self.threads[thread as usize].account.split()
    }
}

/// How many threads of a process run and wait to run, summed over time.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Load {
    running: i64,
    ready: i64,
    at: u64,
    /// Thread nanoseconds.
    pub(super) ran: u64,
    pub(super) waited: u64,
}

impl Load {
    pub(super) fn book(&mut self, now: u64) {
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
    pub(super) fn runnable(&self) -> u32 {
        (self.running + self.ready) as u32
    }
}
