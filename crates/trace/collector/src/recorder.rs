//! What a thread or virtual processor needs to sample sections, whichever mode it runs in.

use crate::api;
use crate::collection::{Collection, locks};
use crate::counts::Counts;
use crate::draw::Draws;
use crate::set::Set;
use crate::state::State;
use unconvoy_trace_stream::{Access, Section};

/// Bytes of records that are written together with a section; with the largest section, less than
/// the log takes.
const AT_ONCE: usize = 1 << 15;

/// See the [module](self). Each is used by its own thread alone.
pub struct Recorder {
    /// Its registers.
    pub state: State,
    /// What it has counted of locks.
    pub counts: Counts,
    rate: u32,
    words: usize,
    draws: Draws,
    spare: Vec<Set>,
    out: Vec<u8>,
    shapes: [Shape; 32],
}

/// What QEMU says of an access, decoded.
#[derive(Clone, Copy, Default)]
struct Shape {
    information: u32,
    /// Bytes; 0: nothing here.
    size: u8,
    is_store: bool,
}

impl Recorder {
    /// Of the thread or processor of this number; it counts so many locks by itself.
    pub fn new(collection: &Collection, number: u32, state: State, locks: usize) -> Self {
        let options = &collection.options;
        Recorder {
            state,
            counts: Counts::new(locks),
            rate: options.rate,
            words: options.words,
            draws: Draws::new(options.seed, number),
            spare: Vec::new(),
            out: Vec::new(),
            shapes: [Shape::default(); 32],
        }
    }

    /// Whether the section that begins is to be sampled.
    #[inline]
    pub fn draw(&mut self) -> bool {
        self.draws.draw(self.rate)
    }

    /// An empty set for a sampled section.
    pub fn open(&mut self) -> Set {
        self.spare.pop().unwrap_or_else(|| Set::new(self.words))
    }

    /// A sampled section ends: it is written, while its lock is still held, so that a lock's
    /// sections come in their order. `describe` appends records that say what was touched, before
    /// it.
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
            // A section and what describes it may be more than the log takes at once.
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

    /// Of an access, as QEMU hands it to the callback at hand: its bytes, and whether it is a
    /// store. QEMU is asked once for each value, of which there are few.
    #[inline]
    pub(crate) fn shape(&mut self, information: u32) -> (u64, bool) {
        let shape = &mut self.shapes[(information.wrapping_mul(0x9e37_79b9) >> 27) as usize];
        if shape.information != information || shape.size == 0 {
            // SAFETY: by the caller, QEMU has just handed it over; the functions look at its bits
            // alone.
            let (shift, is_store) =
                unsafe { (api::qemu_plugin_mem_size_shift(information), api::qemu_plugin_mem_is_store(information)) };
            *shape = Shape { information, size: 1 << shift.min(6), is_store };
        }
        (shape.size.into(), shape.is_store)
    }
}
