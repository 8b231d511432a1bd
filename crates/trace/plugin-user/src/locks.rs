//! The C library's locks, as glibc for x86-64 lays them out.

use crate::guest;
use unconvoy_trace_stream::Region;

/// A kind of lock, as the functions' names have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lockable {
    Mutex,
    Read,
    Write,
    /// Either.
    ReadWrite,
    Spin,
}

impl Lockable {
    /// The bytes of one at `address`.
    pub fn region(self, address: u64) -> Region {
        let size = match self {
            Lockable::Mutex => 40,
            Lockable::Read | Lockable::Write | Lockable::ReadWrite => 56,
            Lockable::Spin => 4,
        };
        Region::new(address, size)
    }
}

/// The bytes of a `pthread_cond_t` at `address`. It is no lock, but what it does to its memory is
/// of no concern to a section that signals it.
pub fn condition(address: u64) -> Region {
    Region::new(address, 48)
}

/// Of a `pthread_mutex_t`, which begins with a word that is 0 when free: a count of a recursive
/// one, the owner's thread number, and (behind users) the kind.
const COUNT: u64 = 4;
const OWNER: u64 = 8;
const KIND: u64 = 16;
const KIND_MASK: u32 = 3;
const RECURSIVE: u32 = 1;
const ERROR_CHECKING: u32 = 2;

/// Of a `pthread_rwlock_t`: the writer's thread number.
const WRITER: u64 = 24;

/// The words of a lock.
pub struct Words(u64);

impl Words {
    /// # Safety
    ///
    /// A lock was seen there, and the program is about to use it: if its memory is gone, the
    /// program dies of it here instead of in the function.
    pub unsafe fn known(address: u64) -> Self {
        Words(address)
    }

    fn word(&self, offset: u64) -> u32 {
        // SAFETY: by `known`.
        unsafe { guest::read(self.0 + offset) }
    }

    /// Whether who asks for it has to wait.
    pub fn is_busy(&self, kind: Lockable) -> bool {
        match kind {
            Lockable::Mutex => self.word(0) != 0,
            Lockable::Read => self.word(WRITER) != 0,
            Lockable::Write | Lockable::ReadWrite => self.word(0) != 0 || self.word(WRITER) != 0,
            Lockable::Spin => self.word(0) as i32 <= 0,
        }
    }

    /// Of a mutex: whether it is this thread's.
    pub fn is_owned_by(&self, thread: u32) -> bool {
        self.word(OWNER) == thread
    }

    /// Of a busy mutex: whether its owner, this thread, may ask for it once more.
    pub fn is_repeated_by(&self, thread: u32) -> bool {
        self.is_owned_by(thread) && self.word(KIND) & KIND_MASK != 0
    }

    /// Of a mutex: whether an unlock by this thread leaves it locked.
    pub fn outlasts_unlock(&self, thread: u32) -> bool {
        match self.word(KIND) & KIND_MASK {
            RECURSIVE => self.word(COUNT) > 1,
            ERROR_CHECKING => !self.is_owned_by(thread),
            _ => false,
        }
    }
}
