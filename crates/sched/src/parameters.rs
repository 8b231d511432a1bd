//! The paper's constants, and the choices that it leaves open.

use core::num::NonZeroU32;

/// Section 3.2: a task that spends more than 10 % of a time slice waiting for locks is
/// lock-intensive; "an empirical value".
pub const THRESHOLD: f64 = 0.10;

/// Section 3.3, Algorithm 3, line 20: votes suffice once they cover more than 256,000 cycles of
/// time slices per core of the set. The paper's machine has Opteron 8347 HE processors at 1.9 GHz
/// (section 4.1), which gives 135 us.
pub const VOTED_NS_PER_CORE: u64 = 256_000 * 10 / 19;

/// Section 3.5: the search restarts after 30 seconds without a change of the set; "empirically
/// set".
pub const RESEARCH_NS: u64 = 30_000_000_000;

/// Algorithm 4, line 45: alpha, the factor by which the throughput may exceed its value at the end
/// of the search. The paper gives no number. A margin of a quarter exceeds the scatter between
/// measurements that each cover [`VOTED_NS_PER_CORE`]. The margin is smaller than the effect of a
/// wrong bound, a factor of two.
pub const ABOVE: f64 = 1.25;

/// Algorithm 4, line 45: beta, the factor by which the throughput may fall below that value. See
/// [`ABOVE`].
pub const BELOW: f64 = 0.75;

/// Number of consecutive children that may inherit a sibling's state ([`Parameters::inherits`]) and
/// end before their own first slice. The child after them starts ordinary. The paper has no
/// inheritance.
pub const INHERITORS: u8 = 15;

/// Throughput that an extra core must add for the refined search to take it, as a fraction of the
/// average throughput per core of the set. T counts all time without waiting as useful, but
/// critical sections take longer as more cores pass cache lines around. Of two sets with nearly the
/// same T, the smaller one therefore does more work: the simulated Sockbench has the same T on 7
/// and 8 cores, to within 1 %, but does 2 % more work on 7 cores, in 14 % less processor time.
pub const WORTH: f64 = 0.05;

/// Method of the search for the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Search {
    /// Algorithm 4 as published: doubles the bound while throughput grows, then steps back once.
    /// Ends within a factor of two of the best bound (section 4.6: 8 instead of 10).
    Published,
    /// Searches like `Published`, then narrows the interval around the bound found. Ends within one
    /// core of the best bound if throughput has a single peak. Discards measurements from before
    /// the latest task was recognized.
    Refined,
    /// No search: the set has this many cores, or all cores of a smaller machine. For comparison
    /// with the result of a search.
    Fixed(NonZeroU32),
}

/// Parameters of a policy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameters {
    /// Cores of the machine, at least 1. Limits the size of the special set.
    pub cores: u32,
    /// Fraction of a time slice, 0 to 1. A task that waits for locks longer is lock-intensive.
    pub threshold: f64,
    /// Minimum number of consecutive slices above the threshold that make a task lock-intensive,
    /// not 0. The paper uses one slice. On a virtual machine, a preempted virtual processor can
    /// make any task wait for a lock once.
    pub slices_in_a_row: u32,
    /// Voted time required per core of the set before the search takes a step, in nanoseconds.
    pub voted_ns_per_core: u64,
    /// Votes required per occupied core, on average, before the search takes a step. The paper
    /// requires only the time. Where slices last milliseconds, a single slice fills that time. A
    /// few votes, cast while tasks still moved between cores, would then decide the step.
    pub votes_per_core: u32,
    /// Restart the search if throughput exceeds its recorded value by this factor; above 1.
    pub above: f64,
    /// Restart the search if throughput falls below its recorded value times this factor; below 1.
    pub below: f64,
    /// Restart the search after this time without a change of the bound, in nanoseconds.
    pub research_ns: u64,
    /// Minimum time to hold a found bound, in nanoseconds, whatever the throughput becomes. The
    /// time doubles, up to `research_ns`, whenever a search ends at the same bound as the one
    /// before. The paper does not hold bounds (0), because its votes are many and short and a
    /// search is cheap.
    pub hold_ns: u64,
    /// Method of the search for the bound.
    pub search: Search,
    /// Whether children start lock-intensive if their parent is lock-intensive and waits, or if
    /// earlier children of the parent were lock-intensive ([`Policy::ends`](crate::Policy::ends)).
    /// The child's own first slice then decides whether it stays lock-intensive. Section 4.6 blames
    /// parallel find's losses on processes that end before the scheduler recognizes them.
    pub inherits: bool,
    /// Whether ordinary tasks may leave the set for less loaded cores. Section 3.4 balances the set
    /// and the other cores separately, so a task stays in the set for good if its core joins the
    /// set.
    pub lets_out: bool,
}

impl Parameters {
    /// The paper's scheduler on a machine with `cores` cores.
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
            hold_ns: 0,
            search: Search::Published,
            inherits: false,
            lets_out: false,
        }
    }

    /// The paper's scheduler with the shortcomings of section 4.6 fixed.
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
