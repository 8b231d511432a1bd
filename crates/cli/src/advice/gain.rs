//! What a faster lock gains, from measured waits.
//!
//! Throughput is proportional to the time that threads spend in the program's own code. A faster
//! lock lengthens that time until the lock is always held, or all processors are busy:
//!
//! - **Processors.** It returns the kernel's time for sleeping and waking, and the processors that
//!   were idle while threads waited for the lock.
//! - **The lock.** It cannot be held for more than the whole time.
//!
//! The smaller of the two is the bound. `docs/explanation/advice.md` has the model's assumptions and
//! how it compares with measurements.

use super::evidence::{Evidence, LockEvidence};
use super::finding::{Gain, SpanEvidence};

/// Kernel time of one wait that ends in a sleep, in seconds: two system calls, two switches of
/// threads and a wake-up took less than this on the machines of the evaluation.
const SLEEP: f64 = 8e-6;

/// The part of the bound that was reached, in the mean of the measurements.
const REACHED: f64 = 0.7;

/// The range of that part.
const RANGE: (f64, f64) = (0.35, 1.0);

/// The gain of serving a lock by unconvoy's default instead of libc; `None` if the process was not
/// observed while threads waited.
pub fn of_faster_lock(evidence: &Evidence, lock: &LockEvidence) -> Option<Gain> {
    let span = lock.span.filter(|_| evidence.processors > 0.0 && evidence.seconds > 0.0)?;
    let bound = processors(evidence.processors, &span, lock.waits).min(lock_bound(&span));
    let at = |part: f64| 1.0 + part * (bound - 1.0).max(0.0);
    Some(Gain {
        low: at(RANGE.0),
        expected: at(REACHED),
        high: at(RANGE.1),
        part: (span.seconds / evidence.seconds).min(1.0),
    })
}

/// The factor on the time in the program's own code, if no thread waited for the lock.
fn processors(processors: f64, span: &SpanEvidence, waits: u64) -> f64 {
    let own = (span.running * (1.0 - span.system)).max(0.01);
    let system = (span.running * span.system).min(waits as f64 * SLEEP / span.seconds);
    let idle = (processors - span.running).clamp(0.0, span.waiting);
    (own + system + idle) / own
}

/// The factor at which the lock is held all the time.
fn lock_bound(span: &SpanEvidence) -> f64 {
    span.held.map_or(f64::INFINITY, |held| 1.0 / held)
}
