//! What the calls of some threads may do: by POSIX, or by glibc where POSIX is silent. Pure.
//!
//! A [`State`] is one possible state of all objects and threads. Where several outcomes are allowed
//! (which waiter a signal wakes, whether a time-out or a release comes first, in which order calls
//! of different threads take effect), it has several successors. A test that watches a real run
//! keeps the set of states that explain all results so far: the run is wrong when none is left.

use std::collections::HashSet;

use super::calls::result::{
    CANCELLED, EBUSY, EDEADLK, EINVAL, ENOTRECOVERABLE, EOWNERDEAD, EPERM, ETIMEDOUT,
};
use super::calls::{Call, Deadline, MUTEXES, RWLOCKS, SPINS, THREADS, kind};

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct State {
    pub mutexes: [Mutex; MUTEXES],
    pub rwlocks: [Rwlock; RWLOCKS],
    /// The holders; 0 without one.
    pub spins: [usize; SPINS],
    /// By number of the thread; 0 is the one that gives commands.
    pub threads: [Activity; THREADS + 1],
    /// Which threads have a pending cancellation.
    pub cancelled: [bool; THREADS + 1],
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Mutex {
    pub kind: i32,
    /// The thread that holds it; 0 without one.
    pub owner: usize,
    pub count: usize,
    pub health: Health,
}

/// Of a robust mutex.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Health {
    #[default]
    Consistent,
    /// The owner died, and no other thread holds it.
    OwnerDied,
    /// The owner died, and the new owner has not made it consistent.
    Inconsistent,
    Unrecoverable,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Rwlock {
    pub kind: i32,
    pub writer: usize,
    /// How often each thread holds it for reading.
    pub readers: [usize; THREADS + 1],
}

/// What a thread does. `timed`: its deadline may pass at any time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Activity {
    #[default]
    Idle,
    /// The call has taken no effect yet.
    Called(Call),
    /// Waits for a mutex, and then returns `then`.
    Lock {
        mutex: usize,
        timed: bool,
        then: i32,
    },
    /// Waits on a condition variable. `released`: the mutex is.
    Wait {
        cond: usize,
        mutex: usize,
        timed: bool,
        released: bool,
    },
    Read {
        lock: usize,
        timed: bool,
    },
    Write {
        lock: usize,
        timed: bool,
    },
    Spin {
        spin: usize,
    },
    /// Was cancelled in a wait, and holds this mutex, which its cleanup handler unlocks.
    Cleanup(usize),
    /// The call returned this, or will without any other thread's help.
    Returned(i32),
}

/// A successor of a state.
struct Step {
    state: State,
    /// Whether it happens in the end, unless another one prevents it.
    must: bool,
}

impl State {
    /// Whether nothing more happens without another call.
    pub fn is_at_rest(&self) -> bool {
        self.steps().iter().all(|step| !step.must)
    }

    /// Whether some thread has returned, which was not observed yet.
    pub fn has_results(&self) -> bool {
        self.threads.iter().any(|it| matches!(it, Activity::Returned(_)))
    }

    pub fn waits_on(&self, cond: usize) -> bool {
        (1..=THREADS).any(|thread| self.is_waiter(thread, cond))
    }

    /// Whether no thread holds the mutex or waits for it, be it on a condition variable.
    pub fn is_unused_mutex(&self, index: usize) -> bool {
        self.mutexes[index].owner == 0 && self.waiters_of(index) == 0
    }

    /// Number of threads that wait for a mutex, or on a condition variable with it.
    pub fn waiters_of(&self, index: usize) -> usize {
        let waits = |it: &&Activity| match **it {
            Activity::Wait { mutex, .. } | Activity::Lock { mutex, .. } => mutex == index,
            Activity::Called(call) => call.mutex() == Some(index),
            _ => false,
        };
        self.threads.iter().filter(waits).count()
    }

    pub fn is_unused_rwlock(&self, index: usize) -> bool {
        let waits = |it: &Activity| {
            matches!(*it, Activity::Read { lock, .. } | Activity::Write { lock, .. }
                if lock == index)
        };
        self.admits_writer(index) && !self.threads.iter().any(waits)
    }

    /// The mutexes that a thread holds.
    pub fn held(&self, thread: usize) -> impl Iterator<Item = usize> {
        (0..MUTEXES).filter(move |&mutex| self.mutexes[mutex].owner == thread)
    }

    pub fn holds_other_locks(&self, thread: usize) -> bool {
        self.spins.contains(&thread)
            || self.rwlocks.iter().any(|it| it.writer == thread || it.readers[thread] > 0)
    }

    /// The same with a call of an idle thread.
    pub fn with_call(&self, thread: usize, call: Call) -> Self {
        self.with(thread, Activity::Called(call))
    }

    /// The same after an observed result; `None` if this state does not have it.
    pub fn without_result(&self, thread: usize, code: i32) -> Option<Self> {
        let has_it = self.threads[thread] == Activity::Returned(code);
        has_it.then(|| self.with(thread, Activity::Idle))
    }

    fn with(&self, thread: usize, activity: Activity) -> Self {
        let mut next = self.clone();
        next.threads[thread] = activity;
        next
    }

    fn returned(&self, thread: usize, code: i32) -> Self {
        self.with(thread, Activity::Returned(code))
    }

    fn is_waiter(&self, thread: usize, on: usize) -> bool {
        matches!(self.threads[thread], Activity::Wait { cond, .. } if cond == on)
    }

    fn steps(&self) -> Vec<Step> {
        (0..=THREADS).flat_map(|thread| self.steps_of(thread)).collect()
    }

    fn steps_of(&self, thread: usize) -> Vec<Step> {
        let timeout = || self.returned(thread, ETIMEDOUT);
        let mut next = Vec::new();
        match self.threads[thread] {
            Activity::Called(call) => next = self.begin(thread, call),
            Activity::Lock { mutex, timed, then } => {
                if self.is_free_for(thread, mutex) {
                    next.push(self.acquire(thread, mutex, then));
                }
                next.extend(timed.then(timeout));
            }
            Activity::Wait { mutex, timed, released, .. } => {
                let wake = |then| self.with(thread, Activity::Lock { mutex, timed: false, then });
                next.extend(timed.then(|| wake(ETIMEDOUT)));
                next.extend((self.cancelled[thread] && released).then(|| wake(CANCELLED)));
            }
            Activity::Read { lock, timed } => {
                if let Some(must) = self.admits_waiting_reader(lock) {
                    let mut state = self.returned(thread, 0);
                    state.rwlocks[lock].readers[thread] += 1;
                    next.extend(timed.then(timeout));
                    let others = next.into_iter().map(|state| Step { state, must: true });
                    return others.chain([Step { state, must }]).collect();
                }
                next.extend(timed.then(timeout));
            }
            Activity::Write { lock, timed } => {
                if self.admits_writer(lock) {
                    let mut state = self.returned(thread, 0);
                    state.rwlocks[lock].writer = thread;
                    next.push(state);
                }
                next.extend(timed.then(timeout));
            }
            Activity::Spin { spin } if self.spins[spin] == 0 => {
                next.push(self.returned(thread, 0));
                next[0].spins[spin] = thread;
            }
            Activity::Cleanup(mutex) => {
                next.push(self.returned(thread, CANCELLED));
                let _ = next[0].release(mutex);
            }
            Activity::Idle | Activity::Spin { .. } | Activity::Returned(_) => {}
        }
        next.into_iter().map(|state| Step { state, must: true }).collect()
    }

    /// What a call may do first.
    fn begin(&self, thread: usize, call: Call) -> Vec<State> {
        let mut next = self.returned(thread, 0);
        match call {
            Call::Lock(mutex) => return self.lock(thread, mutex, Some(false)),
            Call::TryLock(mutex) => return self.lock(thread, mutex, None),
            Call::TimedLock(mutex, deadline, _) => {
                return self.lock(thread, mutex, Some(deadline != Deadline::Far));
            }
            Call::Unlock(mutex) => {
                if self.mutexes[mutex].owner != thread {
                    return vec![self.returned(thread, EPERM)];
                }
                if let Err(code) = next.release(mutex) {
                    return vec![next.returned(thread, code)];
                }
            }
            Call::Consistent(mutex) => match &mut next.mutexes[mutex].health {
                health @ Health::Inconsistent => *health = Health::Consistent,
                _ => return vec![self.returned(thread, EINVAL)],
            },
            Call::InitMutex(mutex, kind, _) => {
                next.mutexes[mutex] = Mutex { kind, ..Mutex::default() };
            }
            Call::Wait(cond, mutex) => return self.wait(thread, cond, mutex, false),
            Call::TimedWait(cond, mutex, deadline) => {
                return self.wait(thread, cond, mutex, deadline != Deadline::Far);
            }
            Call::Signal(cond) => {
                let waiters = (1..=THREADS).filter(|&waiter| self.is_waiter(waiter, cond));
                let woken: Vec<State> = waiters.map(|waiter| next.with_woken(waiter)).collect();
                return if woken.is_empty() { vec![next] } else { woken };
            }
            Call::Broadcast(cond) => {
                for waiter in 1..=THREADS {
                    if self.is_waiter(waiter, cond) {
                        next = next.with_woken(waiter);
                    }
                }
            }
            Call::Read(lock) => return vec![self.read(thread, lock, Some(false))],
            Call::TryRead(lock) => return vec![self.read(thread, lock, None)],
            Call::TimedRead(lock, deadline, _) => {
                return vec![self.read(thread, lock, Some(deadline != Deadline::Far))];
            }
            Call::Write(lock) => return vec![self.write(thread, lock, Some(false))],
            Call::TryWrite(lock) => return vec![self.write(thread, lock, None)],
            Call::TimedWrite(lock, deadline, _) => {
                return vec![self.write(thread, lock, Some(deadline != Deadline::Far))];
            }
            Call::UnlockRwlock(lock) => {
                let lock = &mut next.rwlocks[lock];
                if lock.writer == thread {
                    lock.writer = 0;
                } else {
                    lock.readers[thread] -= 1;
                }
            }
            Call::InitRwlock(lock, kind) => {
                next.rwlocks[lock] = Rwlock { kind, ..Rwlock::default() };
            }
            Call::Spin(spin) if self.spins[spin] == 0 => next.spins[spin] = thread,
            Call::Spin(spin) => return vec![self.with(thread, Activity::Spin { spin })],
            Call::TrySpin(spin) if self.spins[spin] == 0 => next.spins[spin] = thread,
            Call::TrySpin(_) => return vec![self.returned(thread, EBUSY)],
            Call::UnlockSpin(spin) => next.spins[spin] = 0,
            Call::Exit => next.end(thread),
            Call::Cancel(target) => next.cancelled[target] = true,
            Call::Join(target) => next.end(target),
            Call::InitCond(..) | Call::Kill(_) | Call::Fork(_) => {}
        }
        vec![next]
    }

    /// The end of a thread: its robust mutexes lose their owner.
    fn end(&mut self, thread: usize) {
        self.cancelled[thread] = false;
        for mutex in self.mutexes.iter_mut().filter(|mutex| mutex.owner == thread) {
            (mutex.owner, mutex.count, mutex.health) = (0, 0, Health::OwnerDied);
        }
    }

    fn with_woken(&self, waiter: usize) -> Self {
        let Activity::Wait { mutex, .. } = self.threads[waiter] else { return self.clone() };
        self.with(waiter, Activity::Lock { mutex, timed: false, then: 0 })
    }

    // ---- mutexes --------------------------------------------------------------------------------

    fn is_free_for(&self, thread: usize, mutex: usize) -> bool {
        let mutex = &self.mutexes[mutex];
        let again = mutex.owner == thread && kind::is_recursive(mutex.kind);
        mutex.owner == 0 || again || mutex.health == Health::Unrecoverable
    }

    /// `timed` is `None` for an attempt.
    fn lock(&self, thread: usize, mutex: usize, timed: Option<bool>) -> Vec<State> {
        if self.is_free_for(thread, mutex) {
            return vec![self.acquire(thread, mutex, 0)];
        }
        let it = &self.mutexes[mutex];
        let is_own = it.owner == thread;
        match timed {
            None if is_own && kind::is_checked(it.kind) && kind::is_libcs(it.kind) => {
                // POSIX: EBUSY. glibc: EDEADLK.
                vec![self.returned(thread, EBUSY), self.returned(thread, EDEADLK)]
            }
            None => vec![self.returned(thread, EBUSY)],
            Some(_) if is_own && kind::is_checked(it.kind) => vec![self.returned(thread, EDEADLK)],
            Some(timed) => vec![self.with(thread, Activity::Lock { mutex, timed, then: 0 })],
        }
    }

    /// The free mutex is acquired, and the call returns `then` unless the mutex has lost an owner.
    fn acquire(&self, thread: usize, mutex: usize, then: i32) -> State {
        let mut next = self.clone();
        let it = &mut next.mutexes[mutex];
        let code = match it.health {
            Health::Unrecoverable => ENOTRECOVERABLE,
            Health::OwnerDied => {
                (it.owner, it.count, it.health) = (thread, 1, Health::Inconsistent);
                EOWNERDEAD
            }
            _ => {
                (it.owner, it.count) = (thread, it.count + 1);
                then
            }
        };
        match then {
            CANCELLED if code == ENOTRECOVERABLE => next.returned(thread, CANCELLED),
            CANCELLED => next.with(thread, Activity::Cleanup(mutex)),
            _ => next.returned(thread, code),
        }
    }

    /// Releases a mutex once. The error is glibc's, for an inconsistent mutex that is still held.
    fn release(&mut self, mutex: usize) -> Result<(), i32> {
        let it = &mut self.mutexes[mutex];
        it.count -= 1;
        match it.health {
            Health::Inconsistent if it.count > 0 => return Err(ENOTRECOVERABLE),
            Health::Inconsistent => (it.owner, it.health) = (0, Health::Unrecoverable),
            _ if it.count == 0 => it.owner = 0,
            _ => {}
        }
        Ok(())
    }

    fn wait(&self, thread: usize, cond: usize, mutex: usize, timed: bool) -> Vec<State> {
        if self.mutexes[mutex].owner != thread {
            return vec![self.returned(thread, EPERM)];
        }
        let mut next = self.clone();
        if let Err(code) = next.release(mutex) {
            return vec![next.returned(thread, code)];
        }
        let released = next.mutexes[mutex].owner == 0;
        vec![next.with(thread, Activity::Wait { cond, mutex, timed, released })]
    }

    // ---- reader-writer locks --------------------------------------------------------------------

    fn has_waiting_writer(&self, on: usize) -> bool {
        self.threads.iter().any(|it| matches!(it, Activity::Write { lock, .. } if *lock == on))
    }

    fn is_read(&self, lock: usize) -> bool {
        self.rwlocks[lock].readers.iter().any(|count| *count > 0)
    }

    fn admits_writer(&self, lock: usize) -> bool {
        self.rwlocks[lock].writer == 0 && !self.is_read(lock)
    }

    /// Whether a reader that asks now is admitted: unless the lock prefers writers, also past
    /// waiting writers.
    fn admits_reader(&self, lock: usize) -> bool {
        let waits = kind::prefers_writers(self.rwlocks[lock].kind) && self.has_waiting_writer(lock);
        self.rwlocks[lock].writer == 0 && !waits
    }

    /// Whether a waiting reader may be admitted, and whether it must.
    fn admits_waiting_reader(&self, lock: usize) -> Option<bool> {
        let is_first = self.rwlocks[lock].writer == 0 && !self.is_read(lock);
        if self.admits_reader(lock) { Some(true) } else { is_first.then_some(false) }
    }

    fn read(&self, thread: usize, lock: usize, timed: Option<bool>) -> State {
        if self.admits_reader(lock) {
            let mut next = self.returned(thread, 0);
            next.rwlocks[lock].readers[thread] += 1;
            return next;
        }
        match timed {
            None => self.returned(thread, EBUSY),
            Some(_) if self.rwlocks[lock].writer == thread => self.returned(thread, EDEADLK),
            Some(timed) => self.with(thread, Activity::Read { lock, timed }),
        }
    }

    fn write(&self, thread: usize, lock: usize, timed: Option<bool>) -> State {
        if self.admits_writer(lock) {
            let mut next = self.returned(thread, 0);
            next.rwlocks[lock].writer = thread;
            return next;
        }
        match timed {
            None => self.returned(thread, EBUSY),
            Some(_) if self.rwlocks[lock].writer == thread => self.returned(thread, EDEADLK),
            Some(timed) => self.with(thread, Activity::Write { lock, timed }),
        }
    }
}

/// All states that may follow these, themselves included.
pub fn closure(states: impl IntoIterator<Item = State>) -> HashSet<State> {
    let mut all = HashSet::new();
    let mut open: Vec<State> = states.into_iter().collect();
    while let Some(state) = open.pop() {
        if !all.contains(&state) {
            open.extend(state.steps().into_iter().map(|step| step.state));
            all.insert(state);
        }
    }
    all
}
