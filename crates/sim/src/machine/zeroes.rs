//! Zeroed arrays with one entry per line of memory. A program touches few of the entries.

use std::alloc::{Layout, alloc_zeroed, dealloc};

/// A zeroed array whose pages are allocated on first touch.
pub(crate) struct Zeroes<T> {
    first: *mut T,
    len: usize,
}

/// A type of the entries of [`Zeroes`].
///
/// # Safety
///
/// All-zero bytes are a valid value of the type.
pub(crate) unsafe trait Zeroable: Copy {}

// SAFETY: integers.
unsafe impl Zeroable for u32 {}
// SAFETY: integers.
unsafe impl Zeroable for u64 {}

impl<T: Zeroable> Zeroes<T> {
    pub(crate) fn new(len: usize) -> Self {
        let layout = Self::layout(len);
        // SAFETY: the layout has a nonzero size: `len` is not 0 and `T` is not zero-sized.
        let first = unsafe { alloc_zeroed(layout) }.cast::<T>();
        assert!(!first.is_null(), "no memory for {len} entries");
        Zeroes { first, len }
    }

    fn layout(len: usize) -> Layout {
        Layout::array::<T>(len).expect("an array of a simulated machine fits the address space")
    }

    /// Borrows the entry at `index`.
    ///
    /// # Panics
    ///
    /// Panics if `index` is out of range.
    #[inline(always)]
    pub(crate) fn at(&mut self, index: usize) -> &mut T {
        assert!(index < self.len);
        // SAFETY: in bounds, initialised (`Zeroable`), and borrowed through `self`.
        unsafe { &mut *self.first.add(index) }
    }
}

impl<T> Drop for Zeroes<T> {
    fn drop(&mut self) {
        let layout = Layout::array::<T>(self.len).expect("as it was allocated");
        // SAFETY: `new` allocated it with this layout; `T: Copy` needs no drop.
        unsafe { dealloc(self.first.cast(), layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_start_as_zero() {
        let mut zeroes = Zeroes::<u64>::new(1 << 20);
        *zeroes.at(77) = 5;
        assert_eq!([76, 77, 78, (1 << 20) - 1].map(|index| *zeroes.at(index)), [0, 5, 0, 0]);
    }

    #[test]
    #[should_panic(expected = "index < self.len")]
    fn index_past_the_end_panics() {
        Zeroes::<u32>::new(4).at(4);
    }
}
