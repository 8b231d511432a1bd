//! The calls of a random program.

use std::fmt;

pub const THREADS: usize = 5;
pub const MUTEXES: usize = 4;
pub const CONDS: usize = 2;
pub const RWLOCKS: usize = 2;
pub const SPINS: usize = 1;

/// Bits of an object's kind (`c/differential.c` has the same).
pub mod kind {
    pub const RECURSIVE: i32 = 1;
    pub const CHECKED: i32 = 2;
    pub const TYPES: i32 = 3;
    pub const ROBUST: i32 = 4;
    pub const SHARED: i32 = 8;
    pub const INHERIT: i32 = 16;

    pub fn is_recursive(kind: i32) -> bool {
        kind & TYPES == RECURSIVE
    }

    pub fn is_checked(kind: i32) -> bool {
        kind & TYPES == CHECKED
    }

    pub fn is_robust(kind: i32) -> bool {
        kind & ROBUST != 0
    }

    /// Whether a wrong unlock is defined to fail.
    pub fn knows_owner(kind: i32) -> bool {
        is_recursive(kind) || is_checked(kind) || is_robust(kind)
    }

    /// Whether the mutex is of a kind that libc's own functions handle.
    pub fn is_libcs(kind: i32) -> bool {
        kind & (ROBUST | INHERIT) != 0
    }

    /// Of a reader-writer lock.
    pub fn prefers_writers(kind: i32) -> bool {
        kind & TYPES == 2
    }
}

/// What a call returns.
pub mod result {
    pub const EPERM: i32 = 1;
    pub const EBUSY: i32 = 16;
    pub const EINVAL: i32 = 22;
    pub const EDEADLK: i32 = 35;
    pub const ETIMEDOUT: i32 = 110;
    pub const EOWNERDEAD: i32 = 130;
    pub const ENOTRECOVERABLE: i32 = 131;
    /// The result of a thread that ended by cancellation, after it unlocked its mutex.
    pub const CANCELLED: i32 = -2;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Deadline {
    Past,
    Soon,
    Far,
}

impl Deadline {
    fn milliseconds(self) -> i32 {
        match self {
            Self::Past => -10,
            Self::Soon => 2,
            Self::Far => 1_000_000,
        }
    }
}

/// A call. Numbers are those of objects and threads; a deadline's number is its clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Call {
    Lock(usize),
    TryLock(usize),
    TimedLock(usize, Deadline, i32),
    Unlock(usize),
    Consistent(usize),
    /// Destroys and initialises; the last is 1 for a static initialiser.
    InitMutex(usize, i32, i32),
    Wait(usize, usize),
    TimedWait(usize, usize, Deadline),
    Signal(usize),
    Broadcast(usize),
    InitCond(usize, i32),
    Read(usize),
    TryRead(usize),
    TimedRead(usize, Deadline, i32),
    Write(usize),
    TryWrite(usize),
    TimedWrite(usize, Deadline, i32),
    UnlockRwlock(usize),
    InitRwlock(usize, i32),
    Spin(usize),
    TrySpin(usize),
    UnlockSpin(usize),
    /// 1: a child that executes another program.
    Fork(i32),
    Exit,
    Cancel(usize),
    Kill(usize),
    Join(usize),
}

impl Call {
    /// The command of `c/differential.c`: a letter and three numbers. `expectations` are a child's.
    pub fn command(self, expectations: i32) -> (char, [i32; 3]) {
        let n = |number: usize| i32::try_from(number).expect("a small number");
        match self {
            Self::Lock(a) => ('l', [n(a), 0, 0]),
            Self::TryLock(a) => ('t', [n(a), 0, 0]),
            Self::TimedLock(a, deadline, how) => ('T', [n(a), deadline.milliseconds(), how]),
            Self::Unlock(a) => ('u', [n(a), 0, 0]),
            Self::Consistent(a) => ('c', [n(a), 0, 0]),
            Self::InitMutex(a, kind, is_static) => ('i', [n(a), kind, is_static]),
            Self::Wait(a, b) => ('w', [n(a), n(b), 0]),
            Self::TimedWait(a, b, deadline) => ('W', [n(a), n(b), deadline.milliseconds()]),
            Self::Signal(a) => ('s', [n(a), 0, 0]),
            Self::Broadcast(a) => ('b', [n(a), 0, 0]),
            Self::InitCond(a, kind) => ('I', [n(a), kind, 0]),
            Self::Read(a) => ('r', [n(a), 0, 0]),
            Self::TryRead(a) => ('R', [n(a), 0, 0]),
            Self::TimedRead(a, deadline, how) => ('q', [n(a), deadline.milliseconds(), how]),
            Self::Write(a) => ('x', [n(a), 0, 0]),
            Self::TryWrite(a) => ('X', [n(a), 0, 0]),
            Self::TimedWrite(a, deadline, how) => ('y', [n(a), deadline.milliseconds(), how]),
            Self::UnlockRwlock(a) => ('U', [n(a), 0, 0]),
            Self::InitRwlock(a, kind) => ('k', [n(a), kind, 0]),
            Self::Spin(a) => ('p', [n(a), 0, 0]),
            Self::TrySpin(a) => ('P', [n(a), 0, 0]),
            Self::UnlockSpin(a) => ('o', [n(a), 0, 0]),
            Self::Fork(executes) => ('f', [expectations, executes, 0]),
            Self::Exit => ('e', [0, 0, 0]),
            Self::Cancel(a) => ('C', [n(a), 0, 0]),
            Self::Kill(a) => ('K', [n(a), 0, 0]),
            Self::Join(a) => ('j', [n(a), 0, 0]),
        }
    }

    /// Whether the call can only be made when the states of all objects are known.
    pub fn needs_rest(self) -> bool {
        use Call::{Fork, InitCond, InitMutex, InitRwlock};
        matches!(self, InitMutex(..) | InitCond(..) | InitRwlock(..) | Fork(_))
    }

    /// The mutex that the call may acquire.
    pub fn mutex(self) -> Option<usize> {
        match self {
            Self::Lock(mutex)
            | Self::TryLock(mutex)
            | Self::TimedLock(mutex, ..)
            | Self::Wait(_, mutex)
            | Self::TimedWait(_, mutex, _) => Some(mutex),
            _ => None,
        }
    }

    /// Whether the call has a deadline that passes soon.
    pub fn is_short(self) -> bool {
        match self {
            Self::TimedLock(_, deadline, _)
            | Self::TimedWait(_, _, deadline)
            | Self::TimedRead(_, deadline, _)
            | Self::TimedWrite(_, deadline, _) => deadline == Deadline::Soon,
            _ => false,
        }
    }
}

/// A call of a thread, and whether the test waits until all threads rest before the next call.
#[derive(Debug, Clone, Copy)]
pub struct Line {
    pub thread: usize,
    pub call: Call,
    pub settles: bool,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}: {:?}{}", self.thread, self.call, if self.settles { "" } else { " …" })
    }
}
