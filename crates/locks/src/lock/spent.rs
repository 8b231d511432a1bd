//! Processor time of waits.

use crate::load::Context;
use crate::primitive::Primitive;
use crate::primitive::turn::LONGEST_TURN_NS;

/// Waiting time that a thread accumulates before it reports the sum: short compared with a time
/// slice.
const PORTION_NS: u64 = 50_000;

/// Processor time of one wait, for processes that collect it ([`Context::waited`]).
pub(super) struct Spent {
    is_counted: bool,
    last: u64,
    ns: u64,
}

impl Spent {
    pub(super) fn begin(process: impl Context, now: u64) -> Self {
        Spent { is_counted: process.counts_waits(), last: now, ns: 0 }
    }

    #[inline(always)]
    pub(super) fn turn(&mut self, process: impl Context, now: u64) {
        if self.is_counted {
            // A gap beyond the longest turn is time off the processor.
            self.ns += now.saturating_sub(self.last).min(LONGEST_TURN_NS);
            self.last = now;
            if self.ns >= PORTION_NS {
                process.waited(core::mem::take(&mut self.ns));
            }
        }
    }

    /// Skips the time that the thread spent off the processor.
    pub(super) fn resume<P: Primitive>(&mut self) {
        if self.is_counted {
            self.last = P::now();
        }
    }

    pub(super) fn end<P: Primitive>(mut self, process: impl Context) {
        if self.is_counted {
            self.turn(process, P::now());
            process.waited(self.ns);
        }
    }
}
