//! The simulated machine's memory: what is allocated here has cache lines.
//!
//! One reservation, handed out in order and never given back while the machine lives, so that the
//! number of a line depends on nothing but what was allocated before it.

use std::io;
use std::ptr;

use rustix::mm::{MapFlags, ProtFlags};

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;
/// 64 MiB: a process's load control takes some 100 KiB, a lock one line, a queue node one.
const BYTES: usize = 64 << 20;
/// Lines of it.
pub(crate) const LINES: usize = BYTES / LINE;

pub(crate) struct Arena {
    base: *mut u8,
    used: usize,
}

impl Arena {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh anonymous mapping, at no address in particular.
        let base =
            unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), BYTES, ProtFlags::READ | ProtFlags::WRITE, flags)? };
        Ok(Arena { base: base.cast(), used: 0 })
    }

    /// Moves `value` to memory of the machine, on cache lines of its own. It is not dropped with
    /// the machine.
    ///
    /// # Panics
    ///
    /// The machine's memory is used up.
    pub(crate) fn place<T>(&mut self, value: T) -> *mut T {
        let align = align_of::<T>().max(LINE);
        let offset = self.used.next_multiple_of(align);
        let end = offset + size_of::<T>();
        assert!(end <= BYTES, "the simulated machine's memory is used up");
        self.used = end.next_multiple_of(LINE);
        // SAFETY: within the mapping, aligned, and nobody else's.
        unsafe {
            let place = self.base.add(offset).cast::<T>();
            place.write(value);
            place
        }
    }

    /// The line in which `address` is; `None` for memory that is not the machine's, such as a
    /// stack.
    #[inline(always)]
    pub(crate) fn line_of(&self, address: usize) -> Option<usize> {
        let offset = address.wrapping_sub(self.base.addr());
        (offset < BYTES).then_some(offset / LINE)
    }

    /// `address` as an offset into the machine's memory.
    pub(crate) fn offset_of(&self, address: usize) -> Option<usize> {
        let offset = address.wrapping_sub(self.base.addr());
        (offset < BYTES).then_some(offset)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; the machine that is dropped with it was all that used it.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), BYTES) };
    }
}
