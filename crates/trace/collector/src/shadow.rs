//! A table over the program's address space with one `T` for each granule of 8 bytes. Pages are
//! allocated at the first write and read without a lock.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

const PAGE: u32 = 12;
/// Number of granules in a page.
pub const GRANULES: usize = 1 << (PAGE - 3);
/// Significant bits of an x86-64 address. The bits above equal the highest of them, which is 1 in
/// kernel addresses.
const BITS: u32 = 48;
/// Two levels of directories above the pages.
const UPPER: usize = 1 << 18;
const LOWER: usize = 1 << (BITS - 18 - PAGE);

type Page<T> = [T; GRANULES];
type Lower<T> = [AtomicPtr<Page<T>>; LOWER];

/// See the [module](self). `T` is an atomic type whose all-zero bytes mean "nothing".
pub struct Shadow<T: 'static> {
    upper: [AtomicPtr<Lower<T>>; UPPER],
}

impl<T> Default for Shadow<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Shadow<T> {
    /// An empty table.
    pub const fn new() -> Self {
        Shadow { upper: [const { AtomicPtr::new(ptr::null_mut()) }; UPPER] }
    }

    /// The page of `address`, if one of its granules was ever written.
    pub fn page(&self, address: u64) -> Option<&Page<T>> {
        let (upper, lower) = indices(address)?;
        // Acquire, here and below: pairs with the release in `install`.
        let directory = self.upper[upper].load(Ordering::Acquire);
        // SAFETY: null, or installed and never freed.
        let directory = unsafe { directory.as_ref() }?;
        // SAFETY: as above.
        unsafe { directory[lower].load(Ordering::Acquire).as_ref() }
    }

    /// The granule of `address`, if its page exists.
    pub fn get(&self, address: u64) -> Option<&T> {
        self.page(address).map(|page| &page[granule(address)])
    }

    /// The granule of `address`, for writing. `None` for a non-canonical address or without memory.
    pub fn make(&self, address: u64) -> Option<&T> {
        let (upper, lower) = indices(address)?;
        let directory: &Lower<T> = install(&self.upper[upper])?;
        Some(&install(&directory[lower])?[granule(address)])
    }
}

/// Index of the granule in its page.
pub fn granule(address: u64) -> usize {
    (address >> 3) as usize % GRANULES
}

fn indices(address: u64) -> Option<(usize, usize)> {
    let above = 64 - BITS;
    let page = (address << above >> above >> PAGE) as usize;
    let is_canonical = ((address << above) as i64 >> above) as u64 == address;
    is_canonical.then_some((page / LOWER, page % LOWER))
}

fn install<X>(slot: &AtomicPtr<X>) -> Option<&X> {
    let mut at = slot.load(Ordering::Acquire);
    if at.is_null() {
        let size = size_of::<X>();
        // SAFETY: a fresh mapping; zero bytes are a valid X, which consists of atomics. Untouched
        // pages cost nothing.
        let fresh = unsafe {
            libc::mmap(
                ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if fresh == libc::MAP_FAILED {
            return None;
        }
        at = match slot.compare_exchange(
            ptr::null_mut(),
            fresh.cast(),
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => fresh.cast(),
            Err(other) => {
                // SAFETY: no other thread has seen the mapping.
                unsafe { libc::munmap(fresh, size) };
                other
            }
        };
    }
    // SAFETY: installed, and never freed.
    Some(unsafe { &*at })
}
