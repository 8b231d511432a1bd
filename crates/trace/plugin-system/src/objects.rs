//! The kernel's heap: the slab object that contains an address.
//!
//! The offsets of members in structures differ between kernels. The file of the `offsets` option
//! has them in lines of `key=value`, decimal or hexadecimal with 0x:
//!
//! | key | value |
//! | --- | --- |
//! | `sizeof_page` | bytes of `struct page` |
//! | `compound_head` | its offset in `struct page` |
//! | `slab_cache` | its offset in `struct slab` |
//! | `kmem_cache_name` | offset of `name` in `struct kmem_cache` |
//! | `kmem_cache_size`, `kmem_cache_object_size` | offsets of `size` and `object_size` in `struct kmem_cache` |
//! | `kmem_cache_list` | offset of `list` in `struct kmem_cache` |
//! | `sizeof_pglist_data` | bytes of `struct pglist_data`; optional, records the memory nodes as objects |
//!
//! An address in the direct map has a `struct page`. In a compound page, the `struct page` of the
//! first page counts. The page is a slab if its `slab_cache` points to one of the kernel's caches.

use crate::layout::{KERNEL, Layout};
use crate::messages;
use crate::symbols::Symbols;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use unconvoy_trace_collector::memory::Memory;
use unconvoy_trace_stream::{Record, Region};

/// The content of the file of offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offsets {
    sizeof_page: u64,
    compound_head: u64,
    slab_cache: u64,
    name: u64,
    size: u64,
    object_size: u64,
    list: u64,
    sizeof_pglist_data: Option<u64>,
}

impl Offsets {
    /// Parses the file's text.
    ///
    /// # Errors
    ///
    /// A malformed line or a missing key; the text says which.
    pub fn parse(text: &str) -> Result<Offsets, String> {
        let mut values = HashMap::new();
        for line in
            text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            let (key, value) =
                line.split_once('=').ok_or_else(|| messages::malformed_offset(line))?;
            let number = match value.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16),
                None => value.parse(),
            };
            values.insert(key, number.map_err(|_| messages::malformed_offset(line))?);
        }
        let get = |key: &str| values.get(key).copied().ok_or_else(|| messages::missing_offset(key));
        Ok(Offsets {
            sizeof_page: get("sizeof_page")?,
            compound_head: get("compound_head")?,
            slab_cache: get("slab_cache")?,
            name: get("kmem_cache_name")?,
            size: get("kmem_cache_size")?,
            object_size: get("kmem_cache_object_size")?,
            list: get("kmem_cache_list")?,
            sizeof_pglist_data: get("sizeof_pglist_data").ok(),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    pub name: Vec<u8>,
    /// Bytes from one object to the next.
    size: u64,
    pub object_size: u64,
}

/// The kernel's caches at the start of the collection.
#[derive(Debug)]
pub struct Caches {
    offsets: Offsets,
    direct_map: u64,
    page_structures: u64,
    by_address: HashMap<u64, Cache>,
}

/// More caches than any kernel has: the list is corrupt.
const MOST: usize = 10_000;

impl Caches {
    /// Reads the caches from the guest, in a callback. `None` if they cannot be found.
    pub fn read(
        memory: &dyn Memory,
        symbols: &Symbols,
        layout: &Layout,
        offsets: Offsets,
    ) -> Option<Self> {
        let head = symbols.variable("slab_caches")?;
        let mut by_address = HashMap::new();
        let mut at = memory.word(head)?;
        while at != head && by_address.len() < MOST {
            let cache = at.wrapping_sub(offsets.list);
            let name = memory.word(cache + offsets.name)?;
            let (size, object_size) = (
                memory.half_word(cache + offsets.size)?,
                memory.half_word(cache + offsets.object_size)?,
            );
            if size > 0 {
                let name = memory.string(name, 64);
                by_address.insert(
                    cache,
                    Cache { name, size: size.into(), object_size: object_size.into() },
                );
            }
            at = memory.word(at)?;
        }
        let (direct_map, page_structures) = (layout.direct_map, layout.page_structures);
        (page_structures != 0 && !by_address.is_empty()).then_some(Caches {
            offsets,
            direct_map,
            page_structures,
            by_address,
        })
    }

    pub fn sizeof_page(&self) -> u64 {
        self.offsets.sizeof_page
    }

    /// Records that the kernel freed `pages` pages, the first of which has this structure.
    pub fn free_pages(&self, structure: u64, pages: u64) {
        let Some(offset) = structure.checked_sub(self.page_structures) else { return };
        let first = self.direct_map / 4096 + offset / self.offsets.sizeof_page;
        for page in first..first + pages.min(FREED.len() as u64) {
            freed(page).fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The memory nodes, which belong to no slab. In a callback.
    pub fn nodes(&self, memory: &dyn Memory, symbols: &Symbols) -> Vec<Region> {
        /// More nodes than a guest has.
        const NODES: u64 = 64;
        let (Some(array), Some(size)) =
            (symbols.variable("node_data"), self.offsets.sizeof_pglist_data)
        else {
            return Vec::new();
        };
        let nodes = (0..NODES)
            .map_while(|index| memory.word(array + index * 8).filter(|node| *node >= KERNEL));
        nodes.map(|node| Region::new(node, size)).collect()
    }

    pub fn get(&self, address: u64) -> Option<&Cache> {
        self.by_address.get(&address)
    }

    /// The slab that contains `address`: the addresses of its cache and of its first object. Takes
    /// two or three reads of guest memory.
    fn slab(&self, memory: &dyn Memory, address: u64) -> Option<(u64, u64)> {
        // The direct map's size with four-level page tables.
        const LARGEST: u64 = 64 << 40;
        let physical =
            address.checked_sub(self.direct_map).filter(|physical| *physical < LARGEST)?;
        let Offsets { sizeof_page, compound_head, slab_cache, .. } = self.offsets;
        let mut page = self.page_structures + (physical >> 12) * sizeof_page;
        let head = memory.word(page + compound_head)?;
        if head & 1 != 0 {
            // The word is the address of the first page's structure or, since Linux 7.1, a mask
            // that turns the address of this page's structure into the first one's.
            let first = head - 1;
            let is_address =
                first.checked_sub(self.page_structures).is_some_and(|offset| offset < LARGEST >> 6);
            page = if is_address { first } else { page & first };
        }
        let cache = memory.word(page + slab_cache)?;
        let first = (page.checked_sub(self.page_structures)? / sizeof_page) << 12;
        self.by_address.contains_key(&cache).then_some((cache, self.direct_map + first))
    }
}

/// The number of frees of pages, in slots hashed by page. After its free, a page may belong to
/// another cache.
static FREED: [AtomicU32; 1 << 14] = [const { AtomicU32::new(0) }; 1 << 14];

fn freed(page: u64) -> &'static AtomicU32 {
    &FREED[page as usize % FREED.len()]
}

/// Entries of each of a processor's two direct-mapped caches: pages with their slabs, and objects
/// already written to the stream.
const REMEMBERED: usize = 4096;

/// Sections after which a page's slab is read again: not every way to free a page is observed.
const FORGET_AFTER: u32 = 1000;

/// A processor's cache, which saves most reads of guest memory.
pub struct View {
    pages: Vec<Page>,
    taken: Vec<(u64, u64)>,
    now: u32,
}

#[derive(Clone, Copy, Default)]
struct Page {
    number: u64,
    /// The section counter and the page's number of frees when the page was read from guest memory.
    seen: u32,
    freed: u32,
    /// The slab cache; 0 if the page is not a slab.
    cache: u64,
    first: u64,
}

impl Page {
    fn object<'a>(&self, caches: &'a Caches, address: u64) -> Option<Object<'a>> {
        let cache = caches.get(self.cache)?;
        let index = address.checked_sub(self.first)? / cache.size;
        Some(Object { address: self.first + index * cache.size, cache })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object<'a> {
    pub address: u64,
    pub cache: &'a Cache,
}

impl<'a> Object<'a> {
    pub fn record(self) -> Record<'a> {
        Record::Object(unconvoy_trace_stream::Object {
            region: self.region(),
            name: &self.cache.name,
        })
    }

    pub fn region(self) -> Region {
        Region::new(self.address, self.cache.object_size)
    }
}

impl View {
    pub fn new() -> Self {
        View { pages: vec![Page::default(); REMEMBERED], taken: vec![(0, 0); REMEMBERED], now: 0 }
    }

    pub fn next_section(&mut self) {
        self.now = self.now.wrapping_add(1);
    }

    /// The object that contains `address`, from the cache or from guest memory.
    pub fn object<'a>(
        &mut self,
        memory: &dyn Memory,
        caches: &'a Caches,
        address: u64,
    ) -> Option<Object<'a>> {
        let number = address >> 12;
        let page = &self.pages[number as usize % REMEMBERED];
        let is_old = page.freed != freed(number).load(Ordering::Relaxed)
            || self.now.wrapping_sub(page.seen) > FORGET_AFTER;
        if page.number != number || is_old {
            return self.object_now(memory, caches, address);
        }
        page.object(caches, address)
    }

    /// The object that contains `address`, always read from guest memory.
    pub fn object_now<'a>(
        &mut self,
        memory: &dyn Memory,
        caches: &'a Caches,
        address: u64,
    ) -> Option<Object<'a>> {
        let number = address >> 12;
        let freed = freed(number).load(Ordering::Relaxed);
        let (cache, first) = caches.slab(memory, address).unwrap_or((0, 0));
        let page = &mut self.pages[number as usize % REMEMBERED];
        *page = Page { number, seen: self.now, freed, cache, first };
        page.object(caches, address)
    }

    /// The object that contains `address`, or `None` if a recent call returned it.
    pub fn take_new<'a>(
        &mut self,
        memory: &dyn Memory,
        caches: &'a Caches,
        address: u64,
    ) -> Option<Object<'a>> {
        let object = self.object(memory, caches, address)?;
        let cache = std::ptr::from_ref(object.cache) as u64;
        let slot = (object.address >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let taken = &mut self.taken[slot as usize % REMEMBERED];
        (std::mem::replace(taken, (object.address, cache)) != (object.address, cache))
            .then_some(object)
    }
}
