//! The C library's locks.

/// What a lock is; its size in bytes is glibc's for x86-64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Mutex,
    ReadWrite,
    Spin,
}

impl Kind {
    pub fn size(self) -> u32 {
        match self {
            Kind::Mutex => 40,
            Kind::ReadWrite => 56,
            Kind::Spin => 4,
        }
    }
}

/// Bytes of a `pthread_cond_t`. It is no lock, but what it does to its memory is of no concern to a section that signals it.
pub const CONDITION: u32 = 48;
