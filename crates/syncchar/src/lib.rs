//! Syncchar predicts, lock by lock, what optimistic concurrency would gain. After Porter, Hofmann
//! and Witchel, *Predicting and Tuning the Performance of Multicore Systems*, University of Texas
//! at Austin, 2008.
//!
//! Sections of one lock that touch different memory could run concurrently: as transactions, under
//! a sequence lock, or under finer locks. From the addresses that sampled sections read and wrote,
//! this crate estimates how many sections could.
//!
//! | module | purpose | in the paper |
//! | --- | --- | --- |
//! | [`set`] | an address set; when two conflict | section 2, Table 1 |
//! | `window` | sections that might have run concurrently | section 4.2, Figure 3 |
//! | `widening` | wider windows for threads that take turns | |
//! | [`compare`](mod@compare) | all pairs of a sample's sections | section 4.3, Figure 4 |
//! | [`estimate`] | data independence, conflict density, speed-up, probability of conflict | sections 4.3, 4.4 |
//! | [`conflicts`] | hot spots and the distribution of conflicts | sections 3.1, 6.2, Table 3 |
//! | [`analysis`] | the online analysis | section 4 |
//! | `transfers` | cache lines that move between processors | |
//! | [`projection`] | the program's gain | section 4.4, Table 2 |
//! | [`advice`] | what to change | sections 3.1, 3.3, 6.1, 6.3 |
//! | [`report`] | the results as text and JSON | Tables 2 and 3 |
//!
//! The crate uses no file, clock or thread. Callers pass sections to an [`Analysis`] in the order
//! of their unlocks, and supply hold times and acquisition counts.
//!
//! ```
//! use unconvoy_syncchar::{Access, Analysis, Options, Section};
//!
//! let mut analysis = Analysis::new(Options { processors: vec![2], ..Options::default() })?;
//! for section in 0..1000u64 {
//!     // Two threads, each with its own word.
//!     let thread = section % 2;
//!     let address = 0x1000 + 8 * thread;
//!     let word = Access { address, read: 0xff, written: 0xff, ..Access::default() };
//!     analysis.section(Section { lock: 0, thread: thread as u32, ..Section::default() }, [word]);
//! }
//! let lock = &analysis.finish()[0];
//! assert_eq!(lock.estimates[0].byte.speed_up(), 2.0);
//! // Both words are in one cache line.
//! assert_eq!(lock.estimates[0].line.speed_up(), 1.0);
//! # Ok::<(), unconvoy_syncchar::OptionsError>(())
//! ```
//!
//! # Differences from the paper
//!
//! - A conflict has two sides, and both are in C_n. Figure 4 as printed adds only the other side
//!   and stops at the first conflict.
//! - A window still open at the end is compared if no window of its lock and number of processors
//!   ever closed. Otherwise a rarely taken lock would have no estimate ([`Estimates::partial`]
//!   marks such estimates).
//! - Several samples are drawn from a long window ([`Options::draws`]). This steadies the mean.
//! - If threads take turns, a window is widened until it has enough threads ([`Options::widest`]).
//! - A tenth of the sections is drawn in bursts (`unconvoy_trace_stream::sampling`).
//! - If fewer than n threads take a lock, the probability of conflict is computed with their number
//!   instead of n.

#![forbid(unsafe_code)]

mod address;
pub mod advice;
pub mod analysis;
pub mod compare;
pub mod conflicts;
pub mod estimate;
mod hash;
mod messages;
mod places;
pub mod projection;
mod relation;
pub mod report;
pub mod set;
mod transfers;
mod widening;
mod window;

pub use advice::{Advice, advise};
pub use analysis::{
    Analysis, Estimates, LockAnalysis, MOST_PROCESSORS, Options, OptionsError, Pairs,
};
pub use compare::compare;
pub use conflicts::{FalseSharing, Histogram, HotSpot, PlaceCount, Uses};
pub use estimate::{Estimate, Outcome};
pub use projection::{Projection, TransactionCosts};
pub use report::{ClassReport, Clock, LockTimes, Nameless, Names, Report, Run};
pub use set::{AddressSet, Granularity};
pub use unconvoy_trace_stream::{Access, Section};
