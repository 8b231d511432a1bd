//! The simulated machine's memory. Every allocation lies on cache lines of its own.
//!
//! The arena is one reservation that hands out memory in order and takes none back, so that line
//! numbers depend only on the preceding allocations.

use std::io;
use std::ptr;

use rustix::mm::{MapFlags, ProtFlags};

pub(crate) const LINE: usize = 64;
/// 64 MiB. A process's load control takes about 100 KiB; a lock or a queue node takes one line.
const BYTES: usize = 64 << 20;
pub(crate) const LINES: usize = BYTES / LINE;

pub(crate) struct Arena {
    base: *mut u8,
    used: usize,
}

impl Arena {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                ptr::null_mut(),
                BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
            )?
        };
        Ok(Arena { base: base.cast(), used: 0 })
    }

    /// Moves `value` to the machine's memory, on cache lines of its own. The value is never
    /// dropped.
    ///
    /// # Panics
    ///
    /// Panics if the machine's memory is exhausted.
    pub(crate) fn allocate<T>(&mut self, value: T) -> *mut T {
        let align = align_of::<T>().max(LINE);
        let offset = self.used.next_multiple_of(align);
        let end = offset + size_of::<T>();
        assert!(end <= BYTES, "the simulated machine's memory is used up");
        self.used = end.next_multiple_of(LINE);
        // SAFETY: within the mapping, aligned, and handed out only once.
        unsafe {
            let place = self.base.add(offset).cast::<T>();
            place.write(value);
            place
        }
    }

    /// The line of `address`; `None` outside the machine's memory, for example on a stack.
    #[inline(always)]
    pub(crate) fn line_of(&self, address: usize) -> Option<usize> {
        let offset = address.wrapping_sub(self.base.addr());
        (offset < BYTES).then_some(offset / LINE)
    }

    /// Offset of `address` in the machine's memory.
    pub(crate) fn offset_of(&self, address: usize) -> Option<usize> {
        let offset = address.wrapping_sub(self.base.addr());
        (offset < BYTES).then_some(offset)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: `new` mapped it; its only user, the machine, is dropped with it.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), BYTES) };
    }
}
