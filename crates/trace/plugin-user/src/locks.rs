//! The C library's locks, in glibc's layout for x86-64.

use crate::guest;
use unconvoy_trace_stream::Region;

/// A kind of lock, after the names of its functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lockable {
    Mutex,
    Read,
    Write,
    /// Read or write lock, for functions that serve both.
    ReadWrite,
    Spin,
}

impl Lockable {
    pub fn region(self, address: u64) -> Region {
        let size = match self {
            Lockable::Mutex => 40,
            Lockable::Read | Lockable::Write | Lockable::ReadWrite => 56,
            Lockable::Spin => 4,
        };
        Region::new(address, size)
    }
}

/// The bytes of a `pthread_cond_t` at `address`. A condition variable is not a lock, but its
/// internal accesses do not belong to the section that signals it.
pub fn condition(address: u64) -> Region {
    Region::new(address, 48)
}

/// Offsets in a `pthread_mutex_t`, whose first word is 0 when it is free: the recursion count, the
/// owner's thread number, and (after the number of users) the kind.
const COUNT: u64 = 4;
const OWNER: u64 = 8;
const KIND: u64 = 16;
const KIND_MASK: u32 = 3;
const RECURSIVE: u32 = 1;
const ERROR_CHECKING: u32 = 2;

/// Offset in a `pthread_rwlock_t`: the writer's thread number.
const WRITER: u64 = 24;
/// Bit of a reader-writer lock's first word that a writer's unlock leaves.
const WRITE_PHASE: u32 = 1;

pub struct Words(u64);

impl Words {
    /// # Safety
    ///
    /// A lock was seen at `address`, and the program is about to use it. If its memory has been
    /// unmapped, the program faults here instead of in the locking function.
    pub unsafe fn known(address: u64) -> Self {
        Words(address)
    }

    fn word(&self, offset: u64) -> u32 {
        // SAFETY: by `known`.
        unsafe { guest::read(self.0 + offset) }
    }

    /// Whether a request would wait.
    pub fn is_busy(&self, kind: Lockable) -> bool {
        match kind {
            Lockable::Mutex => self.word(0) != 0,
            Lockable::Read => self.word(WRITER) != 0,
            Lockable::Write | Lockable::ReadWrite => {
                self.word(0) & !WRITE_PHASE != 0 || self.word(WRITER) != 0
            }
            Lockable::Spin => self.word(0) as i32 <= 0,
        }
    }

    /// Whether `thread` owns the mutex.
    pub fn is_owned_by(&self, thread: u32) -> bool {
        self.word(OWNER) == thread
    }

    /// Whether `thread` owns the busy mutex and may acquire it again.
    pub fn is_reacquired_by(&self, thread: u32) -> bool {
        self.is_owned_by(thread) && self.word(KIND) & KIND_MASK != 0
    }

    /// Whether the mutex stays locked after an unlock by `thread`.
    pub fn outlasts_unlock(&self, thread: u32) -> bool {
        match self.word(KIND) & KIND_MASK {
            RECURSIVE => self.word(COUNT) > 1,
            ERROR_CHECKING => !self.is_owned_by(thread),
            _ => false,
        }
    }
}
