//! Samples the sections of one thread or virtual processor, in either mode.

use crate::api;
use crate::collection::{Collection, locks};
use crate::counts::Counts;
use crate::locks::Lock;
use crate::set::Set;
use crate::state::State;
use unconvoy_trace_stream::sampling::{Draws, Sampling};
use unconvoy_trace_stream::{Access, Section};

/// The most bytes of records about a section's words that are written together with the section.
/// Together with the largest section they stay below [`CAPACITY`](crate::log::CAPACITY).
const AT_ONCE: usize = 1 << 15;

/// See the [module](self). Only the processor's own thread uses it.
pub struct Recorder {
    /// The processor's registers.
    pub state: State,
    /// The processor's counts of lock acquisitions.
    pub counts: Counts,
    rate: u32,
    sampling: Sampling,
    seed: u64,
    words: usize,
    spare: Vec<Set>,
    out: Vec<u8>,
    shapes: [Shape; 32],
}

/// QEMU's description of an access, decoded.
#[derive(Clone, Copy, Default)]
struct Shape {
    information: u32,
    /// Size of the access in bytes; 0 in an empty slot.
    size: u8,
    is_store: bool,
}

impl Recorder {
    /// The recorder of a thread or processor, with a cache of counts for `locks` locks.
    pub fn new(collection: &Collection, state: State, locks: usize) -> Self {
        let options = &collection.options;
        Recorder {
            state,
            counts: Counts::new(locks),
            rate: options.rate,
            sampling: options.sampling,
            seed: options.seed,
            words: options.words,
            spare: Vec::new(),
            out: Vec::new(),
            shapes: [Shape::default(); 32],
        }
    }

    /// Whether to sample the section that begins. Called once for each request of the lock.
    #[inline]
    pub fn draw(&self, lock: &Lock) -> bool {
        let draws = Draws::new(self.sampling, self.rate, self.seed, lock.number);
        self.rate == 1 || draws.is_sampled(lock.next_request())
    }

    /// An empty set for a sampled section.
    pub fn open(&mut self) -> Set {
        self.spare.pop().unwrap_or_else(|| Set::new(self.words))
    }

    /// Writes a sampled section that ends. Call it while the lock is still held, so that a lock's
    /// sections are written in order. `describe` appends records that describe the words touched;
    /// they precede the section.
    #[inline(never)]
    pub fn close(
        &mut self,
        collection: &Collection,
        section: Section,
        mut set: Set,
        mut describe: impl FnMut(&Access, &mut Vec<u8>),
    ) {
        let (accesses, cut_short) = set.finish(locks());
        for access in accesses {
            describe(access, &mut self.out);
            // A section and the records about its words may together exceed the log's longest
            // record.
            if self.out.len() > AT_ONCE {
                collection.log.append(&self.out);
                self.out.clear();
            }
        }
        let section = Section { flags: section.flags | cut_short, ..section };
        collection.log.append_section(&mut self.out, &section, accesses);
        collection.log.write_if_due();
        collection.count_section();
        set.clear();
        self.spare.push(set);
    }

    /// The number of bytes of an access and whether it is a store, from the value that QEMU passed
    /// to the current callback. Few distinct values occur, so they are cached.
    #[inline]
    pub(crate) fn shape(&mut self, information: u32) -> (u64, bool) {
        let shape = &mut self.shapes[(information.wrapping_mul(0x9e37_79b9) >> 27) as usize];
        if shape.information != information || shape.size == 0 {
            // SAFETY: QEMU has just passed this value; the functions only decode its bits.
            let (shift, is_store) = unsafe {
                (
                    api::qemu_plugin_mem_size_shift(information),
                    api::qemu_plugin_mem_is_store(information),
                )
            };
            *shape = Shape { information, size: 1 << shift.min(6), is_store };
        }
        (shape.size.into(), shape.is_store)
    }
}
