//! Which calls are defined in a state, and what a child may expect of it. Pure.

use super::calls::{Call, Deadline, kind};
use super::model::{Activity, Health, State};

/// Whether the idle `thread` may make this call in `state`: its effect is defined, and at most
/// other threads must act for it to end.
pub fn is_defined(call: Call, thread: usize, state: &State) -> bool {
    let mutex = |index: usize| &state.mutexes[index];
    let owns = |index: usize| mutex(index).owner == thread;
    let reads = |index: usize| state.rwlocks[index].readers[thread] > 0;
    match call {
        Call::Lock(a) | Call::TimedLock(a, Deadline::Far, _) if owns(a) => {
            kind::is_recursive(mutex(a).kind) || kind::is_checked(mutex(a).kind)
        }
        Call::Lock(a) | Call::TimedLock(a, Deadline::Far, _) => may_inherit(thread, a, state),
        // glibc 2.36 leaves an unrecoverable mutex locked after a trylock.
        Call::TryLock(a) => mutex(a).health != Health::Unrecoverable,
        Call::TimedLock(a, ..) if owns(a) => mutex(a).kind & kind::INHERIT == 0,
        Call::TimedLock(a, ..) => may_inherit(thread, a, state),
        // glibc 2.36 wakes only one waiter of a mutex that becomes unrecoverable.
        Call::Unlock(a) | Call::Wait(_, a) | Call::TimedWait(_, a, _)
            if owns(a) && mutex(a).health == Health::Inconsistent && state.waiters_of(a) > 1 =>
        {
            false
        }
        Call::Unlock(a) => owns(a) || kind::knows_owner(mutex(a).kind),
        Call::Consistent(a) => kind::is_robust(mutex(a).kind) && owns(a),
        // A static initialiser gives a type and no attributes.
        Call::InitMutex(a, of, is_static) => {
            state.is_unused_mutex(a) && (is_static == 0 || of & !kind::TYPES == 0)
        }
        Call::Wait(c, a) | Call::TimedWait(c, a, _) => {
            let may_end = !state.cancelled[thread] || holds_only(thread, a, state);
            let fails = kind::knows_owner(mutex(a).kind) && !state.cancelled[thread];
            let is_safe = may_inherit(thread, a, state) && !is_used_with_another(c, a, state);
            is_safe && if owns(a) { may_end } else { fails }
        }
        Call::InitCond(a, _) => !state.waits_on(a),
        Call::Read(a) | Call::TimedRead(a, ..) => {
            // A second read of a lock that prefers writers may wait for itself.
            !reads(a) || !kind::prefers_writers(state.rwlocks[a].kind)
        }
        Call::Write(a) | Call::TimedWrite(a, ..) => !reads(a),
        Call::UnlockRwlock(a) => reads(a) || state.rwlocks[a].writer == thread,
        Call::InitRwlock(a, _) => state.is_unused_rwlock(a),
        Call::Spin(a) => state.spins[a] != thread,
        Call::UnlockSpin(a) => state.spins[a] == thread,
        Call::Exit => {
            let mut held = state.held(thread);
            !state.holds_other_locks(thread) && held.all(|it| kind::is_robust(mutex(it).kind))
        }
        Call::Cancel(target) => match state.threads[target] {
            Activity::Wait { released, .. } => {
                released && state.held(target).next().is_none() && !state.holds_other_locks(target)
            }
            _ => false,
        },
        _ => true,
    }
}

/// Whether a thread holds this mutex, once, and no other lock.
fn holds_only(thread: usize, mutex: usize, state: &State) -> bool {
    let mut held = state.held(thread);
    let is_only = held.all(|it| it == mutex);
    is_only && state.mutexes[mutex].count == 1 && !state.holds_other_locks(thread)
}

/// Whether a thread may wait for this mutex: one that inherits priority and closes a circle of
/// waiting threads ends the process under glibc.
fn may_inherit(thread: usize, mutex: usize, state: &State) -> bool {
    let inherits = |index: &usize| state.mutexes[*index].kind & kind::INHERIT != 0;
    !inherits(&mutex) || !state.held(thread).any(|other| other != mutex && inherits(&other))
}

/// Whether a thread waits on a condition variable, or is about to, with a mutex other than this.
fn is_used_with_another(cond: usize, mutex: usize, state: &State) -> bool {
    state.threads.iter().any(|it| {
        let (on, with) = match *it {
            Activity::Wait { cond, mutex, .. } => (cond, mutex),
            Activity::Called(Call::Wait(cond, mutex) | Call::TimedWait(cond, mutex, _)) => {
                (cond, mutex)
            }
            _ => return false,
        };
        on == cond && with != mutex
    })
}

/// What a child of `thread` may expect of each object: two bits each (`c/differential.c`).
pub fn states_for_child(thread: usize, state: &State) -> i32 {
    const SKIP: i32 = 0;
    const FREE: i32 = 1;
    const HELD: i32 = 2;
    const BUSY: i32 = 3;
    let mutexes = state.mutexes.iter().map(|mutex| {
        let is_own = mutex.kind & (kind::ROBUST | kind::SHARED | kind::INHERIT) == 0;
        let has_owner = kind::knows_owner(mutex.kind);
        match mutex.owner {
            _ if !is_own || mutex.health != Health::Consistent => SKIP,
            0 => FREE,
            owner if owner != thread => BUSY,
            _ if has_owner => SKIP,
            _ => HELD,
        }
    });
    let rwlocks = state.rwlocks.iter().map(|lock| {
        let is_free = lock.writer == 0 && lock.readers.iter().all(|count| *count == 0);
        if is_free && lock.kind & kind::SHARED == 0 { FREE } else { SKIP }
    });
    let all = mutexes.chain(rwlocks).enumerate();
    all.fold(0, |bits, (index, value)| bits | value << (2 * index))
}
