//! The simulated machine's memory: what is allocated here has cache lines.
//!
//! One reservation, handed out in order and never given back while the machine lives, so that the number of a line
//! depends on nothing but what was allocated before it.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;
use std::ptr;

use rustix::mm::{MapFlags, ProtFlags};

/// Bytes of a cache line.
pub(super) const LINE: usize = 64;
/// 64 MiB: a process's load control takes some 100 KiB, a lock one line, a queue node one.
const BYTES: usize = 64 << 20;
/// Lines of it.
pub(super) const LINES: usize = BYTES / LINE;

pub(super) struct Arena {
    base: *mut u8,
    used: usize,
}

impl Arena {
    pub(super) fn new() -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh anonymous mapping, at no address in particular.
        let base =
            unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), BYTES, ProtFlags::READ | ProtFlags::WRITE, flags)? };
        Ok(Arena { base: base.cast(), used: 0 })
    }

    /// Moves `value` to memory of the machine, on cache lines of its own. It is not dropped with the machine.
    ///
    /// # Panics
    ///
    /// The machine's memory is used up.
    pub(super) fn place<T>(&mut self, value: T) -> *mut T {
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

    /// The line in which `address` is; `None` for memory that is not the machine's, such as a stack.
    #[inline(always)]
    pub(super) fn line_of(&self, address: usize) -> Option<usize> {
        let offset = address.wrapping_sub(self.base.addr());
        (offset < BYTES).then_some(offset / LINE)
    }

    /// `address` as an offset into the machine's memory.
    pub(super) fn offset_of(&self, address: usize) -> Option<usize> {
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

/// An array of zeroes whose pages appear as they are touched.
pub(super) struct Zeroes<T> {
    first: *mut T,
    len: usize,
}

/// What is valid when all its bytes are 0.
///
/// # Safety
///
/// It is.
pub(super) unsafe trait Zeroable: Copy {}

impl<T: Zeroable> Zeroes<T> {
    pub(super) fn new(len: usize) -> Self {
        let layout = Self::layout(len);
        // SAFETY: `len` is not 0, and `T` has a size.
        let first = unsafe { alloc_zeroed(layout) }.cast::<T>();
        assert!(!first.is_null(), "no memory for {len} entries");
        Zeroes { first, len }
    }

    fn layout(len: usize) -> Layout {
        Layout::array::<T>(len).expect("an array of a simulated machine fits the address space")
    }

    /// # Panics
    ///
    /// There is no such entry.
    #[inline(always)]
    pub(super) fn at(&mut self, index: usize) -> &mut T {
        assert!(index < self.len);
        // SAFETY: within the array, valid from the start (`Zeroable`), and borrowed through `self`.
        unsafe { &mut *self.first.add(index) }
    }
}

impl<T> Drop for Zeroes<T> {
    fn drop(&mut self) {
        let layout = Layout::array::<T>(self.len).expect("as it was allocated");
        // SAFETY: allocated by `new` with this layout; `T` is `Copy`.
        unsafe { dealloc(self.first.cast(), layout) };
    }
}
