//! How often other work takes contexts from their threads, and for how long.

use fastrand::Rng;

/// How often contexts are interrupted, and for how long. Both times are exponentially distributed,
/// so that the next interruption may come at any time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interruptions {
    /// Mean time from the end of an interruption of a context to the next one, in nanoseconds; at
    /// least 1.
    pub every_ns: u64,
    /// Mean length of an interruption, in nanoseconds, without the context switches. No
    /// interruption is longer than ten times this.
    pub length_ns: u64,
}

/// Interruptions longer than this many times the mean, one in 22,000, are cut.
const LONGEST: u64 = 10;

/// The interruptions of a machine's contexts.
pub(crate) struct Interrupter {
    parameters: Interruptions,
    random: Rng,
    /// The thread that interrupts each context.
    threads: Vec<u32>,
    /// Length of the current or last interruption of each context.
    lengths: Vec<u64>,
    count: u64,
}

impl Interrupter {
    /// Interruptions of `contexts` contexts, at times drawn from `seed`.
    pub(super) fn new(parameters: Interruptions, seed: u64, contexts: usize) -> Self {
        assert!(parameters.every_ns != 0, "time must pass between two interruptions");
        Interrupter {
            parameters,
            random: Rng::with_seed(seed ^ 0x17e44), // not the ticks' numbers
            threads: Vec::new(),
            lengths: vec![0; contexts],
            count: 0,
        }
    }

    /// Makes `thread` the one that interrupts the next context. Returns that context, and the time
    /// until its first interruption.
    pub(super) fn add(&mut self, thread: u32) -> (u32, u64) {
        self.threads.push(thread);
        (self.threads.len() as u32 - 1, self.exponential(self.parameters.every_ns))
    }

    /// The thread that interrupts `context`.
    pub(super) fn thread(&self, context: usize) -> u32 {
        self.threads[context]
    }

    /// Draws the length of the interruption of `context` that is due. Returns the time until the
    /// one after it.
    pub(super) fn draw(&mut self, context: usize) -> u64 {
        let Interruptions { every_ns, length_ns } = self.parameters;
        let length = self.exponential(length_ns).min(LONGEST * length_ns);
        self.lengths[context] = length;
        length + self.exponential(every_ns)
    }

    /// Length of the current interruption of `context`.
    pub(super) fn length(&self, context: usize) -> u64 {
        self.lengths[context]
    }

    /// Counts an interruption of `context`. Returns its thread.
    pub(super) fn begin(&mut self, context: usize) -> u32 {
        self.count += 1;
        self.thread(context)
    }

    /// Number of interruptions so far.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    fn exponential(&mut self, mean: u64) -> u64 {
        (-(mean as f64) * (1.0 - self.random.f64()).ln()) as u64
    }
}
