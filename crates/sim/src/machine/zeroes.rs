//! Arrays with an entry for every line of memory, of which a program touches few.

use std::alloc::{Layout, alloc_zeroed, dealloc};

/// An array of zeroes whose pages appear as they are touched.
pub(crate) struct Zeroes<T> {
    first: *mut T,
    len: usize,
}

/// What is valid when all its bytes are 0.
///
/// # Safety
///
/// It is.
pub(crate) unsafe trait Zeroable: Copy {}

// SAFETY: numbers.
unsafe impl Zeroable for u32 {}
// SAFETY: as above.
unsafe impl Zeroable for u64 {}

impl<T: Zeroable> Zeroes<T> {
    pub(crate) fn new(len: usize) -> Self {
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
    pub(crate) fn at(&mut self, index: usize) -> &mut T {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_zero_until_they_are_written() {
        let mut zeroes = Zeroes::<u64>::new(1 << 20);
        *zeroes.at(77) = 5;
        assert_eq!([76, 77, 78, (1 << 20) - 1].map(|index| *zeroes.at(index)), [0, 5, 0, 0]);
    }

    #[test]
    #[should_panic(expected = "index < self.len")]
    fn an_index_past_the_end_panics() {
        Zeroes::<u32>::new(4).at(4);
    }
}
