//! What a faster lock gains, from measured waits.
//!
//! Throughput is proportional to the time that threads spend in the program's own code. A faster
//! lock lengthens that time until the lock is always held, or all processors are busy:
//!
//! - **Processors.** It returns the kernel's time for sleeping and waking, and the processors that
//!   were idle while threads waited for the lock.
//! - **The lock.** It cannot be held for more than the whole time. Short holds become shorter,
//!   because the lock's data move less often.
//!
//! The smaller of the two is the bound. `docs/explanation/advice.md` has the model's assumptions
//! and how it compares with measurements.

use super::evidence::{Evidence, LockEvidence};
use super::finding::{Gain, SpanEvidence};

/// Kernel time of one wait that ends in a sleep, in seconds: two system calls, two switches of
/// threads and a wake-up took less than this on the machines of the evaluation.
const SLEEP: f64 = 8e-6;

/// The part of a short hold that fetches the lock's data from another processor, in nanoseconds. It
/// is saved when one thread takes the lock several times in a row.
const TRANSFER_NS: f64 = 80.0;

/// At most this part of a hold is such a transfer.
const MOSTLY_TRANSFER: f64 = 0.5;

/// The part of the bound that was reached, in the mean of the measurements.
const REACHED: f64 = 0.85;

/// The range of that part.
const RANGE: (f64, f64) = (0.5, 1.1);

/// The gain of serving a lock, or the condition variables, by unconvoy's default instead of libc;
/// `None` if the process was not observed while threads waited.
pub fn of_faster_lock(evidence: &Evidence, lock: &LockEvidence) -> Option<Gain> {
    let span = lock.span.filter(|_| evidence.processors > 0.0 && evidence.seconds > 0.0)?;
    let share = lock.waits as f64 / (evidence.all_waits.max(1)) as f64;
    let allowed = evidence.processors;
    let bound = processors(&span, allowed, share.min(1.0), lock.waits).min(lock_bound(&span, lock));
    let at = |part: f64| 1.0 + part * (bound - 1.0).max(0.0);
    Some(Gain {
        low: at(RANGE.0),
        expected: at(REACHED),
        high: at(RANGE.1),
        part: part(evidence, &span),
    })
}

/// The gain of sections that take less time by this share, in which case the lock is held for the
/// rest of the time; `None` if the process was not observed while threads waited.
pub fn of_shorter_sections(evidence: &Evidence, lock: &LockEvidence, share: f64) -> Option<Gain> {
    let span = lock.span.filter(|_| evidence.seconds > 0.0)?;
    let high = 1.0 / (1.0 - share * held(&span, lock)).max(0.1);
    Some(Gain { low: 1.0, expected: (1.0 + high) / 2.0, high, part: part(evidence, &span) })
}

/// The share of the recorded time in which threads waited.
fn part(evidence: &Evidence, span: &SpanEvidence) -> f64 {
    (span.seconds / evidence.seconds).min(1.0)
}

/// The share of the time in which the lock is held. Where nobody looked, a lock with a mean of q
/// waiting threads is held for q / (1 + q) of the time, as in a queue with one thread in service.
fn held(span: &SpanEvidence, lock: &LockEvidence) -> f64 {
    let queue = span.waiting / lock.locks.max(1) as f64;
    span.held.unwrap_or(queue / (1.0 + queue))
}

/// The factor on the time in the program's own code, if no thread waited for the lock. The process
/// may use `allowed` processors, and `share` is the lock's share of all waits.
fn processors(span: &SpanEvidence, allowed: f64, share: f64, waits: u64) -> f64 {
    let own = (span.running * (1.0 - span.system)).max(0.01);
    let system = (span.running * span.system * share).min(waits as f64 * SLEEP / span.seconds);
    let idle = span.idle.min(span.waiting).min((allowed - span.running).max(0.0));
    (own + system + idle) / own
}

/// The factor at which the lock is held all the time.
fn lock_bound(span: &SpanEvidence, lock: &LockEvidence) -> f64 {
    if lock.locks == 0 {
        return f64::INFINITY; // signals
    }
    let held = held(span, lock).max(0.01);
    let hold = lock.hold_p50_ns.map_or(f64::INFINITY, |ns| ns as f64);
    let local = 1.0 - (TRANSFER_NS / hold).min(MOSTLY_TRANSFER);
    (1.0 / (held * local)).max(1.0)
}
