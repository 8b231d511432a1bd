//! Atomic cells and fences: the processor's or the model checker's.

use core::sync::atomic::Ordering;
#[cfg(not(loom))]
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

#[cfg(loom)]
use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

/// An atomic cell with the operations that the algorithms use.
///
/// The orderings are those of `core::sync::atomic`.
pub trait Atomic<T: Copy>: Send + Sync {
    /// A cell that holds `value`.
    fn new(value: T) -> Self;
    /// Reads the cell.
    fn load(&self, order: Ordering) -> T;
    /// Writes the cell.
    fn store(&self, value: T, order: Ordering);
    /// Writes the cell and returns what it held.
    fn swap(&self, value: T, order: Ordering) -> T;
    /// Writes `new` if the cell holds `current`; `Ok` and `Err` carry the previous value.
    fn compare_exchange(
        &self,
        current: T,
        new: T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<T, T>;

    /// Replaces the value by the result of `change`, until a compare-and-swap succeeds or `change`
    /// returns `None`. `Ok` and `Err` carry the previous value. `read` is the ordering of loads and
    /// of failed exchanges.
    #[inline(always)]
    fn modify(
        &self,
        write: Ordering,
        read: Ordering,
        mut change: impl FnMut(T) -> Option<T>,
    ) -> Result<T, T> {
        let mut seen = self.load(read);
        while let Some(new) = change(seen) {
            match self.compare_exchange(seen, new, write, read) {
                Ok(before) => return Ok(before),
                Err(now) => seen = now,
            }
        }
        Err(seen)
    }
}

/// An atomic integer: [`Atomic`] with wrapping arithmetic.
pub trait AtomicInt<T: Copy>: Atomic<T> {
    /// Adds; returns the previous value.
    fn fetch_add(&self, value: T, order: Ordering) -> T;
    /// Subtracts; returns the previous value.
    fn fetch_sub(&self, value: T, order: Ordering) -> T;
    /// Bitwise or; returns the previous value.
    fn fetch_or(&self, value: T, order: Ordering) -> T;
    /// Bitwise and; returns the previous value.
    fn fetch_and(&self, value: T, order: Ordering) -> T;
}

/// A machine's memory.
///
/// # Safety
///
/// The cells are atomic, as those of `core::sync::atomic` are. The machine's generation, nodes and
/// transactions also are what their traits promise: locks that guard data rely on them.
pub unsafe trait Atomics: Sized + Send + Sync + 'static {
    /// A word that threads may park on.
    type U32: AtomicInt<u32>;
    /// A time stamp or bit set.
    type U64: AtomicInt<u64>;
    /// A pointer.
    type Ptr<T>: Atomic<*mut T>;

    /// A memory fence.
    fn fence(order: Ordering);

    /// Orders a `SeqCst` write before a later `SeqCst` load of another cell, on a machine whose
    /// `SeqCst` accesses are weaker than the language's, as loom's are. Does nothing on others.
    #[inline(always)]
    fn order_seq_cst() {}

    /// A number that identifies `object`, by default its address. It carries no other information.
    /// A machine that must be deterministic numbers its objects instead.
    #[inline(always)]
    fn address<T>(object: &T) -> u64 {
        core::ptr::from_ref(object).addr() as u64
    }
}

macro_rules! atomic {
    ($cell:ty, $value:ty $(, $generic:ident)?) => {
        impl$(<$generic>)? Atomic<$value> for $cell {
            #[inline(always)]
            fn new(value: $value) -> Self {
                <$cell>::new(value)
            }
            #[inline(always)]
            fn load(&self, order: Ordering) -> $value {
                self.load(order)
            }
            #[inline(always)]
            fn store(&self, value: $value, order: Ordering) {
                self.store(value, order);
            }
            #[inline(always)]
            fn swap(&self, value: $value, order: Ordering) -> $value {
                self.swap(value, order)
            }
            #[inline(always)]
            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }
        }
    };
}

macro_rules! atomic_int {
    ($cell:ty, $value:ty: $($operation:ident)*) => {
        atomic!($cell, $value);
        impl AtomicInt<$value> for $cell {
            $(#[inline(always)]
            fn $operation(&self, value: $value, order: Ordering) -> $value {
                self.$operation(value, order)
            })*
        }
    };
}

atomic_int!(AtomicU32, u32: fetch_add fetch_sub fetch_or fetch_and);
atomic_int!(AtomicU64, u64: fetch_add fetch_sub fetch_or fetch_and);
atomic!(AtomicPtr<T>, *mut T, T);
