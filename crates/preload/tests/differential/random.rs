//! Random programs: which call comes next.

use fastrand::Rng;

use super::calls::{CONDS, Call, Deadline, Line, MUTEXES, RWLOCKS, SPINS, THREADS, kind};
use super::subject::Subject;

/// The next call, defined whatever state the subject is in; `None` if all threads wait and cannot
/// be helped.
pub fn next_line(random: &mut Rng, subject: &Subject) -> Option<Line> {
    let idle: Vec<usize> = subject.idle().collect();
    for _ in 0..200 {
        let is_main = idle.is_empty() || random.u32(..20) == 0;
        let thread = if is_main { 0 } else { *random.choice(&idle)? };
        let call = if is_main { of_main(random) } else { draw(random, subject, thread) };
        if subject.may_call(thread, call) {
            return Some(Line { thread, call, settles: random.u32(..10) < 7 });
        }
    }
    None
}

fn of_main(random: &mut Rng) -> Call {
    let target = random.usize(1..=THREADS);
    if random.bool() { Call::Cancel(target) } else { Call::Kill(target) }
}

fn deadline(random: &mut Rng) -> Deadline {
    [Deadline::Past, Deadline::Soon, Deadline::Far][random.usize(..3)]
}

fn draw(random: &mut Rng, subject: &Subject, thread: usize) -> Call {
    let state = &subject.states()[0];
    let (m, c, l, s) = (
        random.usize(..MUTEXES),
        random.usize(..CONDS),
        random.usize(..RWLOCKS),
        random.usize(..SPINS),
    );
    let how = random.i32(0..3);
    let own: Vec<usize> = state.held(thread).collect();
    // Calls on a held mutex, often: otherwise all threads soon wait.
    if let Some(&held) = random.choice(&own)
        && random.bool()
    {
        return match random.u32(..10) {
            0..5 => Call::Unlock(held),
            5..7 => Call::Wait(c, held),
            7 => Call::TimedWait(c, held, deadline(random)),
            8 => Call::Consistent(held),
            _ => Call::Lock(held),
        };
    }
    if state.holds_other_locks(thread) && random.u32(..3) > 0 {
        return if random.bool() { Call::UnlockRwlock(l) } else { Call::UnlockSpin(s) };
    }
    match random.u32(..64) {
        0..12 => Call::Lock(m),
        12..16 => Call::TryLock(m),
        16..20 => Call::TimedLock(m, deadline(random), how),
        20..23 => Call::Unlock(m),
        23..26 => init_mutex(random, m),
        26 => Call::Wait(c, m),
        27..31 => Call::Signal(c),
        31..35 => Call::Broadcast(c),
        35 => Call::InitCond(c, random.i32(0..4)),
        36..40 => Call::Read(l),
        40 => Call::TryRead(l),
        41..43 => Call::TimedRead(l, deadline(random), how),
        43..47 => Call::Write(l),
        47 => Call::TryWrite(l),
        48..51 => Call::TimedWrite(l, deadline(random), how),
        51..54 => Call::UnlockRwlock(l),
        54 => Call::InitRwlock(l, random.i32(0..3) + random.i32(0..2) * kind::SHARED),
        55 => Call::Spin(s),
        56 => Call::TrySpin(s),
        57..59 => Call::UnlockSpin(s),
        59 => Call::Fork(i32::from(random.u32(..4) == 0)),
        60..62 => Call::Exit,
        _ => Call::Consistent(m),
    }
}

fn init_mutex(random: &mut Rng, mutex: usize) -> Call {
    if random.u32(..4) == 0 {
        return Call::InitMutex(mutex, random.i32(0..4), 1);
    }
    // Most mutexes are of the kinds that programs use most.
    let rare = |random: &mut Rng, bit: i32| if random.u32(..4) == 0 { bit } else { 0 };
    let attributes = rare(random, kind::SHARED) | rare(random, kind::INHERIT);
    Call::InitMutex(mutex, random.i32(0..4) | rare(random, kind::ROBUST) | attributes, 0)
}
