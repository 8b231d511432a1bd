//! Live heap allocations and their call sites. An allocation is recorded when a sampled section
//! touches it or a lock lies in it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use unconvoy_trace_collector::shadow::{Shadow, granule};
use unconvoy_trace_stream::{Allocation, Region};

/// Return addresses, the allocator's caller first; 0 for none.
pub type Frames = [u64; 4];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub region: Region,
    pub thread: u32,
    pub frames: Frames,
}

impl Piece {
    pub fn allocation(&self) -> Allocation<'_> {
        let frames = self.frames.iter().position(|frame| *frame == 0).unwrap_or(self.frames.len());
        Allocation::new(self.region, self.thread, &self.frames[..frames])
    }
}

/// Allocations up to this size are found by walking back from an address. The few larger ones are
/// in a map, under a mutex.
const SMALL: u64 = 1 << 14;

/// Bytes to walk back before searching the large allocations. Chosen by judgement: most allocations
/// are smaller.
const NEAR: u64 = 256;

/// The word of a granule where a small allocation starts. Bit 0 is 1. Bit 1 says whether the
/// allocation was taken: a caller has written its record. Then follow 16 bits of size - 1, 20 of
/// the site and 26 of the thread.
const STARTS: u64 = 1;
const TAKEN: u64 = 2;
const SITES: u32 = 1 << 20;
const THREADS: u32 = 1 << 26;

/// A thread's cache, so that most sections need no mutex: the positions of the large allocations,
/// and pages that no small allocation reaches into.
#[derive(Default)]
pub struct View {
    changes: u64,
    /// The large allocations, and whether each was taken.
    pieces: Vec<(Region, bool)>,
    /// Pages that no small allocation reaches into, direct-mapped: the page's number, and the value
    /// of [`Heap::pages`] when that was found.
    without: Vec<(u64, u64)>,
}

/// Pages cached by a thread.
const WITHOUT: usize = 256;

pub struct Heap {
    small: Shadow<AtomicU64>,
    /// Number of pages in `small`.
    pages: AtomicU64,
    large: Mutex<BTreeMap<u64, (Piece, bool)>>,
    /// Number of changes of `large`.
    changes: AtomicU64,
    sites: Mutex<Option<Sites>>,
}

#[derive(Default)]
struct Sites {
    numbers: HashMap<Frames, u32>,
    frames: Vec<Frames>,
}

impl Heap {
    pub const fn new() -> Self {
        Heap {
            small: Shadow::new(),
            pages: AtomicU64::new(0),
            large: Mutex::new(BTreeMap::new()),
            changes: AtomicU64::new(0),
            sites: Mutex::new(None),
        }
    }

    /// The number of a site for [`Heap::add`]; threads cache it. `None` if there are too many
    /// sites.
    pub fn site(&self, frames: Frames) -> Option<u32> {
        let mut sites = self.sites.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let sites = sites.get_or_insert_default();
        let next = sites.frames.len() as u32;
        if let Some(number) = sites.numbers.get(&frames) {
            return Some(*number);
        }
        if next >= SITES {
            return None;
        }
        sites.numbers.insert(frames, next);
        sites.frames.push(frames);
        Some(next)
    }

    pub fn add(&self, Region { address, size }: Region, thread: u32, site: u32) {
        if size > SMALL {
            let region = Region::new(address, size.min(u64::MAX - address));
            let piece = Piece { region, thread, frames: self.frames(site) };
            self.large().insert(address, (piece, false));
            self.changes.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if self.small.page(address).is_none() {
            self.pages.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(granule) = self.small.make(address) {
            let thread = u64::from(thread % THREADS);
            let piece = STARTS | size.saturating_sub(1) << 2 | u64::from(site) << 18 | thread << 38;
            granule.store(piece, Ordering::Relaxed);
        }
    }

    /// Removes the allocation at `address` and returns its bytes, if it was known.
    pub fn remove(&self, address: u64) -> Option<Region> {
        if let Some(granule) = self.small.get(address) {
            let piece = granule.load(Ordering::Relaxed);
            if piece != 0 {
                granule.store(0, Ordering::Relaxed);
                return Some(Region::new(address, size(piece)));
            }
        }
        if self.changes.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let (piece, _) = self.large().remove(&address)?;
        self.changes.fetch_add(1, Ordering::Relaxed);
        Some(piece.region)
    }

    /// The bytes of the large allocation that contains `address`.
    pub fn large_around(&self, address: u64) -> Option<Region> {
        let large = self.large();
        let (_, (piece, _)) = large.range(..=address).next_back()?;
        piece.region.contains(address).then_some(piece.region)
    }

    /// Takes the allocation that contains `address`: returns it to one caller only, which writes
    /// its record. `None` if there is no allocation or it was taken before. `view` is the calling
    /// thread's own.
    pub fn take_new(&self, address: u64, view: &mut View) -> Option<Piece> {
        let (page, pages) = (address >> 12, self.pages.load(Ordering::Relaxed));
        if view.without.is_empty() {
            view.without = vec![(0, 0); WITHOUT];
        }
        let mut small = true;
        let without = &mut view.without[page as usize % WITHOUT];
        if *without == (page, pages) {
            small = false;
        } else if !(0..=SMALL >> 12)
            .any(|back| self.small.page(address.saturating_sub(back << 12)).is_some())
        {
            *without = (page, pages);
            small = false;
        }
        // Most addresses are near the start of their allocation or in a large one: try both before
        // a long walk.
        if small && let Some(found) = self.take_small(address, NEAR) {
            return found;
        }
        if let Some(found) = self.take_large(address, view) {
            return found;
        }
        if small { self.take_small(address, SMALL).flatten() } else { None }
    }

    /// `None` if `address` is in no large allocation; `Some(None)` if that was taken before.
    fn take_large(&self, address: u64, view: &mut View) -> Option<Option<Piece>> {
        // Relaxed: if another thread has just made the allocation, this thread knows its address by
        // the program's own synchronization.
        let changes = self.changes.load(Ordering::Relaxed);
        if view.changes != changes {
            let large = self.large();
            view.changes = changes;
            view.pieces.clear();
            view.pieces.extend(large.values().map(|(piece, taken)| (piece.region, *taken)));
        }
        let at =
            view.pieces.partition_point(|(region, _)| region.address <= address).checked_sub(1)?;
        let (region, taken) = &mut view.pieces[at];
        if !region.contains(address) {
            return None;
        }
        if std::mem::replace(taken, true) {
            return Some(None);
        }
        let mut large = self.large();
        let Some((piece, taken)) = large.get_mut(&region.address) else { return Some(None) };
        Some((!std::mem::replace(taken, true)).then_some(*piece))
    }

    /// `None` if `address` is in no small allocation that starts at most `far` before it;
    /// `Some(None)` if that was taken before.
    fn take_small(&self, address: u64, far: u64) -> Option<Option<Piece>> {
        let mut at = address & !7;
        let lowest = address.saturating_sub(far);
        while at >= lowest && at != 0 {
            let Some(page) = self.small.page(at) else {
                at = (at & !0xfff).wrapping_sub(8);
                continue;
            };
            let granule = &page[granule(at)];
            let piece = granule.load(Ordering::Relaxed);
            if piece == 0 {
                at -= 8;
                continue;
            }
            if address - at >= size(piece) {
                // The address is past the end of this allocation, hence in no allocation that
                // starts before it.
                return None;
            }
            // Another thread may now free this allocation and allocate here again. At worst one
            // allocation is taken twice or not at all.
            if piece & TAKEN != 0
                || granule
                    .compare_exchange(piece, piece | TAKEN, Ordering::Relaxed, Ordering::Relaxed)
                    .is_err()
            {
                return Some(None);
            }
            let frames = self.frames((piece >> 18) as u32 % SITES);
            return Some(Some(Piece {
                region: Region::new(at, size(piece)),
                thread: (piece >> 38) as u32,
                frames,
            }));
        }
        None
    }

    fn frames(&self, site: u32) -> Frames {
        let sites = self.sites.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        sites
            .as_ref()
            .and_then(|sites| sites.frames.get(site as usize).copied())
            .unwrap_or_default()
    }

    fn large(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, (Piece, bool)>> {
        self.large.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The size of a small allocation from its granule's word; a size of 0 counts as 1.
fn size(piece: u64) -> u64 {
    (piece >> 2 & 0xffff) + 1
}
