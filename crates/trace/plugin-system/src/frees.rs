//! Ends the locks in memory that the kernel frees.

use crate::collector::Collector;
use crate::guest::Guest;
use crate::layout;
use crate::objects::{Cache, View};
use unconvoy_trace_collector::collection::locks;
use unconvoy_trace_collector::memory::Memory as _;
use unconvoy_trace_stream::Region;

/// Retires the locks in an object that the kernel frees. `cache` is the object's slab cache, if the
/// caller knows it.
pub fn free_object(view: &mut View, collector: &Collector, address: u64, cache: Option<u64>) {
    if address < layout::KERNEL || !locks().may_be_within(address) {
        return;
    }
    let Some(caches) = &collector.sampling().caches else { return };
    let of_cache = |cache: &Cache| Region::new(address, cache.object_size);
    let known = cache.and_then(|cache| caches.get(cache)).map(of_cache);
    let object = known.or_else(|| Some(view.object(&Guest, caches, address)?.region()));
    if let Some(object) = object {
        locks().retire_within(object);
    }
}

/// Retires the locks in `count` objects that the kernel frees. `array` is the address of an array
/// of pointers to them.
pub fn free_objects(view: &mut View, collector: &Collector, count: u64, array: u64) {
    /// More objects than the kernel frees at once: an array in one page has 512 pointers.
    const MOST: u64 = 4096;
    let mut pointers = vec![0; count.min(MOST) as usize * 8];
    if Guest.read(array, &mut pointers) {
        for pointer in pointers.chunks_exact(8) {
            let object = u64::from_le_bytes(pointer.try_into().expect("eight bytes"));
            free_object(view, collector, object, None);
        }
    }
}

/// Retires the locks of the pages that the kernel frees. The `struct page` of the first one is at
/// `structure`. For a page of the page tables, the lock is in that structure.
pub fn free_pages(collector: &Collector, structure: u64, order: u32) {
    /// More than the kernel's largest order.
    const ORDERS: u32 = 20;
    let Some(caches) = &collector.sampling().caches else { return };
    if structure < layout::KERNEL || order >= ORDERS {
        return;
    }
    caches.free_pages(structure, 1 << order);
    if locks().may_be_within(structure) {
        locks().retire_within(Region::new(structure, caches.sizeof_page() << order));
    }
}
