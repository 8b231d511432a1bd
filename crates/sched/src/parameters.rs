//! The constants of the paper, and what it leaves open.

use core::num::NonZeroU32;

/// Section 3.2: a task that waits for locks for more than 10 % of a time slice is lock-intensive; "an empirical value".
pub const THRESHOLD: f64 = 0.10;

/// Section 3.3, Algorithm 3, line 20: enough have voted when there are more than 256,000 cycles of time slices for each
/// core of the set. The paper's machine is of Opteron 8347 HE (section 4.1), at 1.9 GHz: 135 us.
pub const VOTED_NS_PER_CORE: u64 = 256_000 * 10 / 19;

/// Section 3.5: the search begins anew when the set has not changed for 30 seconds; "empirically set".
pub const RESEARCH_NS: u64 = 30_000_000_000;

/// Algorithm 4, line 45: alpha, by how much the throughput may exceed what it was when the search stopped. The paper has
/// no number: a quarter is more than votes of [`VOTED_NS_PER_CORE`] scatter, and less than a bound too many or too few
/// makes (a factor of two, where the search was right).
pub const ABOVE: f64 = 1.25;

/// Algorithm 4, line 45: beta, by how much it may fall short of that. See [`ABOVE`].
pub const BELOW: f64 = 0.75;

/// How many children of a task inherit what was found of one ([`Parameters::inherits`]) though they end before a slice of their own
/// shows anything; then one is born ordinary. The paper has no inheritance.
pub const INHERITORS: u8 = 15;

/// What a core more has to add to the throughput for the refined search to take it, as a part of what a core of the set
/// does on average. T counts as useful all that is not waiting, and sections take longer the more cores pass their lines
/// around: of two sets with nearly the same T the smaller one does more. Sockbench (simulated) has the same T, to 1 %, on 7 and
/// 8 cores, and does 2 % more on 7, in 14 % less processor time.
pub const WORTH: f64 = 0.05;

/// How the bound is searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Search {
    /// Algorithm 4 as published: the bound doubles while throughput grows, and steps back once. It ends within a factor
    /// of two of the best (section 4.6: 8 where 10 is the best).
    Published,
    /// The same, and then between the last bounds: ends within one core of the best, where throughput has one peak. What was
    /// measured before the last task was found is forgotten.
    Refined,
    /// None: the set has so many cores, or all of the machine's if those are fewer. For comparisons with what a search
    /// finds.
    Fixed(NonZeroU32),
}

/// What a policy is made with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameters {
    /// Cores of the machine, at least 1: the largest special set.
    pub cores: u32,
    /// Part of a time slice, 0 to 1: who waits longer is lock-intensive.
    pub threshold: f64,
    /// So many slices in a row have to be beyond it, at least 1. The paper says one; where processors are taken from a machine by its
    /// host, any task may have to wait for a lock once.
    pub slices_in_a_row: u32,
    /// Time slices that have to be voted per core of the set before the search goes on, in nanoseconds.
    pub voted_ns_per_core: u64,
    /// Votes that each core at work has to give, on average, before the search goes on. The paper has only the time, which
    /// one slice of one core fills where slices are milliseconds: then a few votes decide that were cast while the tasks
    /// still went from core to core.
    pub votes_per_core: u32,
    /// Begin anew if throughput is more than this times what it was; above 1.
    pub above: f64,
    /// Begin anew if it is less than this times what it was; below 1.
    pub below: f64,
    /// Begin anew after this time without a change, in nanoseconds.
    pub research_ns: u64,
    /// What was found is held for so long at least, in nanoseconds, whatever the throughput becomes; twice as long each time
    /// that a search ends where the last one did, up to `research_ns`. The paper has none (0): its votes are many and
    /// short, and a search costs it little.
    pub patience_ns: u64,
    /// How the bound is searched for.
    pub search: Search,
    /// Whether the children of a lock-intensive task that waits are so from their start, and those of a task whose children have
    /// been ([`Policy::ends`](crate::Policy::ends)), until their own first slice shows otherwise. Section 4.6 blames parallel
    /// find's losses on processes that end before they are found out.
    pub inherits: bool,
    /// Whether tasks that are not lock-intensive may leave the set for cores with less to do. Section 3.4 balances the set
    /// and the rest apart, so that who happened to be on a core of what became the set shares it for good.
    pub lets_out: bool,
}

impl Parameters {
    /// The paper's scheduler on a machine of so many cores.
    ///
    /// # Panics
    ///
    /// `cores` is 0.
    pub const fn published(cores: u32) -> Self {
        assert!(cores != 0, "a machine has at least one core");
        Parameters {
            cores,
            threshold: THRESHOLD,
            slices_in_a_row: 1,
            voted_ns_per_core: VOTED_NS_PER_CORE,
            votes_per_core: 0,
            above: ABOVE,
            below: BELOW,
            research_ns: RESEARCH_NS,
            patience_ns: 0,
            search: Search::Published,
            inherits: false,
            lets_out: false,
        }
    }

    /// The paper's scheduler with what section 4.6 finds wanting mended.
    ///
    /// # Panics
    ///
    /// `cores` is 0.
    pub const fn refined(cores: u32) -> Self {
        Parameters {
            search: Search::Refined,
            votes_per_core: 1,
            inherits: true,
            lets_out: true,
            ..Self::published(cores)
        }
    }
}
