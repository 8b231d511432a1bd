//! The layout of glibc's mutex, whose first word is its futex.

/// Distance of the owner's thread id, of four bytes, from the mutex's address.
pub const OWNER: u64 = std::mem::offset_of!(MutexStart, owner) as u64;

/// Start of a mutex.
#[repr(C)]
struct MutexStart {
    lock: i32,
    count: u32,
    owner: i32,
}
