//! Pieces of heap that live, and who asked for them: recorded when a sampled section touches them,
//! or a lock lies in them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use unconvoy_trace_collector::shadow::{Shadow, granule};
use unconvoy_trace_stream::{Allocation, Region};

/// Where the allocator's caller goes on, and its callers; 0 for none.
pub type Frames = [u64; 4];

/// Where it was allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub region: Region,
    pub thread: u32,
    pub frames: Frames,
}

impl Piece {
    /// As the stream has it.
    pub fn allocation(&self) -> Allocation<'_> {
        let frames = self.frames.iter().position(|frame| *frame == 0).unwrap_or(self.frames.len());
        Allocation::new(self.region, self.thread, &self.frames[..frames])
    }
}

/// Pieces up to this many bytes are found by walking back from an address; larger ones are in a
/// map, under a mutex: they are few.
const SMALL: u64 = 1 << 14;

/// How far is walked before the large ones are asked. By judgement: most pieces are smaller than
/// that.
const NEAR: u64 = 256;

/// A granule where a small piece starts: 1, whether it was taken, 16 bits of its size less one, 20
/// of its site, 26 of its thread.
const STARTS: u64 = 1;
const TAKEN: u64 = 2;
const SITES: u32 = 1 << 20;
const THREADS: u32 = 1 << 26;

/// What a thread knows by itself, so that most sections need not ask: a copy of where the large
/// pieces are, and pages that no small piece reaches into.
#[derive(Default)]
pub struct View {
    changes: u64,
    /// With whether it was taken.
    pieces: Vec<(Region, bool)>,
    /// By page, one each: its number, and how many pages of small pieces there were then.
    without: Vec<(u64, u64)>,
}

/// Pages that a thread remembers.
const WITHOUT: usize = 256;

/// See the [module](self).
pub struct Heap {
    small: Shadow<AtomicU64>,
    /// Counts the pages of `small`.
    pages: AtomicU64,
    large: Mutex<BTreeMap<u64, (Piece, bool)>>,
    /// Counts the changes of `large`; 0 while there never was one.
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

    /// The number of a site, for [`Heap::add`]; a thread keeps those that it has asked for. Nothing
    /// if there are too many.
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

    /// A piece now lives.
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

    /// The piece at `address` is given back; what it was, if it was known.
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

    /// The piece that `address` is in, unless it was taken before. `view` is the asking thread's
    /// own.
    pub fn take_new(&self, address: u64, view: &mut View) -> Option<Piece> {
        let (page, pages) = (address >> 12, self.pages.load(Ordering::Relaxed));
        if view.without.is_empty() {
            view.without = vec![(0, 0); WITHOUT];
        }
        let mut small = true;
        let without = &mut view.without[page as usize % WITHOUT];
        if *without == (page, pages) {
            small = false;
        } else if !(0..=SMALL >> 12).any(|back| self.small.page(address.saturating_sub(back << 12)).is_some()) {
            *without = (page, pages);
            small = false;
        }
        // Mostly it is near its piece's start, or in a large one: only then is it worth walking
        // far.
        if small && let Some(found) = self.take_small(address, NEAR) {
            return found;
        }
        if let Some(found) = self.take_large(address, view) {
            return found;
        }
        if small { self.take_small(address, SMALL).flatten() } else { None }
    }

    /// Nothing if `address` is in no large piece.
    fn take_large(&self, address: u64, view: &mut View) -> Option<Option<Piece>> {
        // Relaxed: a piece that another thread just made is handed over by what the program
        // synchronises with.
        let changes = self.changes.load(Ordering::Relaxed);
        if view.changes != changes {
            let large = self.large();
            view.changes = changes;
            view.pieces.clear();
            view.pieces.extend(large.values().map(|(piece, taken)| (piece.region, *taken)));
        }
        let at = view.pieces.partition_point(|(region, _)| region.address <= address).checked_sub(1)?;
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

    /// Nothing if `address` is in no small piece that starts at most `far` before it.
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
                // Behind it, and so in none that starts before.
                return None;
            }
            // Another thread may free it now, and allocate another there: taking one twice or not
            // is all that comes of it.
            if piece & TAKEN != 0
                || granule.compare_exchange(piece, piece | TAKEN, Ordering::Relaxed, Ordering::Relaxed).is_err()
            {
                return Some(None);
            }
            let frames = self.frames((piece >> 18) as u32 % SITES);
            return Some(Some(Piece { region: Region::new(at, size(piece)), thread: (piece >> 38) as u32, frames }));
        }
        None
    }

    fn frames(&self, site: u32) -> Frames {
        let sites = self.sites.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        sites.as_ref().and_then(|sites| sites.frames.get(site as usize).copied()).unwrap_or_default()
    }

    fn large(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, (Piece, bool)>> {
        self.large.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Of a small piece, as in its granule; a piece of no bytes counts as one of 1.
fn size(piece: u64) -> u64 {
    (piece >> 2 & 0xffff) + 1
}
