//! Syncchar: what would optimistic concurrency gain, lock by lock? After Porter, Hofmann and Witchel, *Predicting and Tuning the Performance of
//! Multicore Systems*, University of Texas at Austin, 2008.
//!
//! Sections of one lock that touch different memory could run at once, as transactions, under a sequence lock or under finer locks. From the
//! addresses that sampled sections read and wrote, this crate estimates how many could.
//!
//! | module | idea | in the paper |
//! | --- | --- | --- |
//! | [`set`] | an address set; when two conflict | section 2, Table 1 |
//! | `window` | which sections might have run at once | section 4.2, Figure 3 |
//! | [`compare`](mod@compare) | a sample's sections, each with each | section 4.3, Figure 4 |
//! | [`estimate`] | data independence, conflict density, speed-up, probability of conflict | sections 4.3 and 4.4 |
//! | [`conflicts`] | hot spots, and how conflicts are distributed | sections 3.1 and 6.2, Table 3 |
//! | [`analysis`] | the whole, as sections come in | section 4 |
//! | [`projection`] | what the program gains | section 4.4, Table 2 |
//! | [`advice`] | what to do about it | sections 3.1, 3.3, 6.1 and 6.3 |
//! | [`report`] | all of it, for people and programs | Tables 2 and 3 |
//!
//! There is no file, clock or thread in here. Whoever has sections gives them to an [`Analysis`] in the order of their unlocks; time held and acquisitions come
//! from elsewhere, too.
//!
//! ```
//! use unconvoy_syncchar::{Access, Analysis, Options, Section};
//!
//! let mut analysis = Analysis::new(Options { processors: vec![2], ..Options::default() })?;
//! for section in 0..1000u64 {
//!     // Two threads, each with a word of its own.
//!     let thread = section % 2;
//!     let word = Access { address: 0x1000 + 8 * thread, read: 0xff, written: 0xff, ..Access::default() };
//!     analysis.section(Section { lock: 0, thread: thread as u32, ..Section::default() }, [word]);
//! }
//! let lock = &analysis.finish()[0];
//! assert_eq!(lock.estimates[0].byte.speed_up(), 2.0);
//! // But both words are in one cache line.
//! assert_eq!(lock.estimates[0].line.speed_up(), 1.0);
//! # Ok::<(), unconvoy_syncchar::OptionsError>(())
//! ```
//!
//! # Where this differs from the paper
//!
//! - A conflict has two sides, and both are in C_n. Figure 4 as printed adds the other side only, and then stops at the first.
//! - A window that is open at the end is compared if none of its lock and number of processors ever closed; else a lock that was taken rarely would
//!   have no estimate ([`Estimates::partial`] says so).
//! - A window of more sections than processors, or more than a quarter of its 512 sections, is drawn from several times ([`Options::draws`]), for a steadier mean.
//! - Where fewer than n threads take a lock, the probability of conflict refers to their number.

#![forbid(unsafe_code)]

mod address;
pub mod advice;
pub mod analysis;
pub mod compare;
pub mod conflicts;
pub mod estimate;
pub mod projection;
mod relation;
pub mod report;
pub mod set;
mod window;

pub use advice::{Advice, advise};
pub use analysis::{Analysis, Estimates, LockAnalysis, MOST_PROCESSORS, Options, OptionsError, Pairs};
pub use compare::compare;
pub use conflicts::{FalseSharing, Histogram, HotSpot, PlaceCount, Uses};
pub use estimate::{Estimate, Outcome};
pub use projection::Projection;
pub use report::{ClassReport, Clock, LockTimes, Nameless, Names, Report, Run};
pub use set::{AddressSet, Granularity};
pub use unconvoy_trace_stream::{Access, Section};
