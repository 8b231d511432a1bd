//! The rules: pure functions from evidence to advice. Each threshold has its reason.

use unconvoy_measure::chart::quantity;

use super::evidence::{Evidence, LockEvidence, PredictedLock};
use super::finding::{Advice, Basis, Choice, Gain, Problem};
use super::gain;
use crate::names::{GENERATED, UNKNOWN};

/// Nothing is advised if all threads together waited for a smaller part of the recording.
const LITTLE: f64 = 0.01;

/// A lock with a smaller share of the time waited gets no advice.
const WORTH: f64 = 0.1;

/// Most locks that get advice: more would not be read.
const MOST: usize = 5;

/// Smaller expected gains are not recommended: the model errs by a few percent.
const MARGIN: f64 = 1.05;

/// Holds of at least this length take as long as some switches of threads, so a cheaper lock would
/// not help.
const LONG_HOLD_NS: u64 = 50_000;

/// A hold of at least this length, found by a wait that does not end, is no hold whose holder lost
/// its processor for some time slices.
const NOT_RELEASED_NS: u64 = 100_000_000;

/// A holder that ran out of its time slice is away for milliseconds.
const PREEMPTED_NS: u64 = 1_000_000;

/// Such a hold is this many times as long as the median.
const TAIL: u64 = 20;

/// A preempted holder is runnable. Holders that are so in fewer samples wait for something else.
const MOSTLY_RUNNABLE: f64 = 0.5;

/// Mean number of threads that waited for a processor, per processor, above which threads outnumber
/// the processors. Other programs and the kernel cause some waiting, too.
const OVERLOADED: f64 = 0.25;

/// Share of the holders' samples above which a system call explains the waiting.
const MOSTLY_IN_CALL: f64 = 0.3;

/// Share of the sections that do I/O, likewise (Syncchar, section 4.1).
const MOSTLY_IO: f64 = 0.5;

/// Share of the time in which a lock is held, or mean number of waiting threads, above which the
/// lock limits the program.
const SATURATED: f64 = 0.5;

/// Share of the processor time in the kernel above which sleeping and waking may cost much.
const MUCH_SYSTEM: f64 = 0.2;

/// The kinds of locks that a strategy for the process serves.
const SERVED: [&str; 3] = ["mutex", "rwlock", "spin"];

/// Speed-up of the sections above which they are mostly independent: half of the processors' worth
/// on two processors.
const INDEPENDENT: f64 = 1.5;

/// Share of sections that write nothing above which readers need no lock: four readers per writer.
const MOSTLY_READERS: f64 = 0.8;

/// All advice, in order of worth.
pub fn advise(evidence: &Evidence) -> Vec<Advice> {
    let waited: f64 = evidence.locks.iter().map(|lock| lock.waited_seconds).sum();
    if evidence.is_kernels {
        return Vec::new();
    }
    if evidence.locks.is_empty() {
        return sleeping_and_waking(evidence).into_iter().collect();
    }
    if waited < LITTLE * evidence.seconds {
        let signals = sleeping_and_waking(evidence);
        return vec![signals.unwrap_or_else(|| nothing_to_mend(evidence, waited))];
    }
    let named = |lock: &&LockEvidence| lock.share >= WORTH && !lock.places.is_empty();
    let worthy = evidence.locks.iter().filter(named).take(MOST);
    let mut all: Vec<Advice> = worthy.flat_map(|lock| of_lock(evidence, lock)).collect();
    all.extend(sleeping_and_waking(evidence));
    let worth = |advice: &Advice| advice.gain.map_or(0.0, |gain| (gain.expected - 1.0) * gain.part);
    all.sort_by(|one, other| worth(other).total_cmp(&worth(one)));
    if !evidence.is_predicted && !all.is_empty() {
        all.push(more_records());
    }
    all
}

/// The advice on one lock: what a prediction says, then what the waits say.
fn of_lock(evidence: &Evidence, lock: &LockEvidence) -> Vec<Advice> {
    let predicted = lock.predicted.iter().flat_map(|it| of_prediction(evidence, lock, it));
    let mut all: Vec<Advice> = predicted.collect();
    let rules = [
        unknown,
        io_under_lock,
        not_released,
        long_sections,
        preempted_holder,
        overload_convoy,
        long_reads,
        long_waits,
        saturated,
        light,
    ];
    all.extend(rules.iter().find_map(|rule| rule(evidence, lock)));
    all
}

/// An advice without a remedy.
fn about(lock: &LockEvidence, problem: Problem, sentence: String) -> Advice {
    Advice {
        lock: lock.name.clone(),
        locks: lock.locks,
        places: lock.places.clone(),
        are_holders: lock.are_holders,
        problem,
        sentence,
        strategy: Vec::new(),
        source: String::new(),
        gain: None,
        based_on: Basis::MeasuredWaits,
        observed: lock.span,
    }
}

fn nothing_to_mend(evidence: &Evidence, waited: f64) -> Advice {
    let sentence = format!(
        "Other locks can gain little: all threads together waited for {} of {}.",
        quantity::seconds(waited),
        quantity::seconds(evidence.seconds)
    );
    about(&LockEvidence::default(), Problem::NothingToMend, sentence)
}

fn more_records() -> Advice {
    let sentence = "A profile cannot tell whether sections are independent, only read, or share \
                    lines with other data. A prediction can: unconvoy predict --json FILE -- \
                    PROGRAM, then unconvoy tune --advise PROFILE FILE.";
    about(&LockEvidence::default(), Problem::MoreRecordsNeeded, sentence.into())
}

/// The place that holds the lock most, for a sentence.
fn place(lock: &LockEvidence) -> &str {
    lock.places.first().map_or("the program", |place| place)
}

/// Adds unconvoy's default lock as a remedy, if that gains enough.
fn with_default_lock(evidence: &Evidence, lock: &LockEvidence, advice: Advice) -> Advice {
    let gain = gain::of_faster_lock(evidence, lock).filter(|_| evidence.is_libcs);
    let worth = gain.is_some_and(|gain| gain.expected >= MARGIN);
    Advice { strategy: if worth { choices(lock, "default") } else { Vec::new() }, gain, ..advice }
}

/// Serves the lock's entries by `chosen`, or the whole process if the lock has none.
fn choices(lock: &LockEvidence, chosen: &'static str) -> Vec<Choice> {
    let choice = |entry| Choice { entry, lock: chosen };
    match lock.entries.is_empty() {
        false => lock.entries.iter().cloned().map(Some).map(choice).collect(),
        true if SERVED.contains(&lock.kind) => vec![choice(None)],
        true => Vec::new(),
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

fn time(ns: u64) -> String {
    quantity::seconds(ns as f64 * 1e-9)
}

fn unknown(_: &Evidence, lock: &LockEvidence) -> Option<Advice> {
    let (sentence, source) = if lock.places.iter().any(|place| is_name(place)) {
        let name = &lock.name;
        let sentence =
            format!("A futex of the program's own: {name} may be a lock, or a wait for work.");
        (sentence, "")
    } else {
        let sentence = "The functions that wait have no known names: they may wait for a lock, or \
                        for work to do.";
        (sentence.into(), "Record a program with symbols.")
    };
    let advice = Advice { source: source.into(), ..about(lock, Problem::Unknown, sentence) };
    lock.is_unknown.then_some(advice)
}

/// Whether a place has a function's name, and is no offset in a file.
fn is_name(place: &str) -> bool {
    ![UNKNOWN, GENERATED].contains(&place) && !place.contains("+0x")
}

/// Each release of a lock with waiters wakes one of them. So while a wait lasts, the lock is
/// released at most as often as other waits end, and about as often as other threads wait.
fn not_released(evidence: &Evidence, lock: &LockEvidence) -> Option<Advice> {
    let unended = lock.unended?;
    let ended = lock.waits.saturating_sub(unended.waits) as f64;
    let releases = waiting(evidence, lock).min(ended);
    let section = least_section(unended.longest_ns, releases, NOT_RELEASED_NS)?;
    let sentence = format!(
        "A wait of {} had not ended when the recording did: it is held for {} or longer.",
        time(unended.longest_ns),
        time(section)
    );
    let source = "If the program hangs, start it with `unconvoy run`. Then `unconvoy inspect PID` \
                  shows a deadlock.";
    Some(Advice { source: source.into(), ..about(lock, Problem::LongSections, sentence) })
}

fn io_under_lock(evidence: &Evidence, lock: &LockEvidence) -> Option<Advice> {
    let (call, share) = lock.call.filter(|(_, share)| *share >= MOSTLY_IN_CALL)?;
    let sentence = format!(
        "In {} of the samples with waiting threads, the holder was in the system call {call}.",
        percent(share)
    );
    let source = format!("Move {call} out of the section in {}.", place(lock));
    let gain = gain::of_shorter_sections(evidence, lock, share);
    Some(Advice { source, gain, ..about(lock, Problem::IoUnderLock, sentence) })
}

fn long_sections(_: &Evidence, lock: &LockEvidence) -> Option<Advice> {
    let hold = lock.hold_p50_ns.filter(|&ns| ns >= LONG_HOLD_NS)?;
    let sentence = format!("It is held for {} in the median.", time(hold));
    let source = format!("Shorten what {} does while it holds the lock.", place(lock));
    Some(Advice { source, ..about(lock, Problem::LongSections, sentence) })
}

fn overloaded(evidence: &Evidence, lock: &LockEvidence) -> Option<f64> {
    let delayed = lock.span?.delayed;
    (evidence.processors > 0.0 && delayed >= OVERLOADED * evidence.processors).then_some(delayed)
}

fn preempted_holder(evidence: &Evidence, lock: &LockEvidence) -> Option<Advice> {
    let delayed = overloaded(evidence, lock)?;
    let (p50, p99) = (lock.hold_p50_ns?, lock.hold_p99_ns?);
    let is_asleep = lock.runnable.is_some_and(|share| share < MOSTLY_RUNNABLE);
    if p99 < PREEMPTED_NS || p99 < TAIL * p50 || is_asleep {
        return None;
    }
    let sentence = format!(
        "Holders lose their processor: half of the holds take {}, but one in a hundred {}, while \
         {delayed:.1} threads wait for a processor.",
        time(p50),
        time(p99)
    );
    let source = format!("Run fewer threads than the {:.0}.", evidence.threads);
    let advice = about(lock, Problem::PreemptedHolder, sentence);
    Some(with_default_lock(evidence, lock, Advice { source, ..advice }))
}

fn overload_convoy(evidence: &Evidence, lock: &LockEvidence) -> Option<Advice> {
    let delayed = overloaded(evidence, lock)?;
    let waiting = lock.span?.waiting;
    if waiting < 1.0 {
        return None;
    }
    let sentence = format!(
        "{waiting:.1} threads wait for it on average, and {delayed:.1} for one of the {:.0} \
         processors.",
        evidence.processors
    );
    let source = format!("Run fewer threads, or take it less often in {}.", place(lock));
    let advice = about(lock, Problem::OverloadConvoy, sentence);
    Some(with_default_lock(evidence, lock, Advice { source, ..advice }))
}

/// Mean number of threads that wait for the lock.
fn waiting(evidence: &Evidence, lock: &LockEvidence) -> f64 {
    let recorded = lock.waited_seconds / evidence.seconds.max(1e-9);
    lock.span.map_or(recorded, |span| span.waiting.max(recorded))
}

/// The least length of sections, if that is `long`: a thread waits for at most as many as `others`
/// wait, and for one more.
fn least_section(wait_ns: u64, others: f64, long: u64) -> Option<u64> {
    Some((wait_ns as f64 / (1.0 + others)) as u64).filter(|&section| section >= long)
}

/// Threads wait for readers.
fn long_reads(evidence: &Evidence, lock: &LockEvidence) -> Option<Advice> {
    let wait = lock.behind_readers_ns.filter(|_| overloaded(evidence, lock).is_none())?;
    let waiting = waiting(evidence, lock);
    let section = least_section(wait, waiting, LONG_HOLD_NS)?;
    let sentence = format!(
        "Half of the waits take {}, with {waiting:.1} threads that wait on average, though writers \
         hold it briefly: readers hold it for {} or longer.",
        time(wait),
        time(section)
    );
    let source = "Hold it for reading for less time.".to_string();
    Some(Advice { source, ..about(lock, Problem::LongSections, sentence) })
}

/// As [`long_reads`], of a saturated lock without a measured hold.
fn long_waits(evidence: &Evidence, lock: &LockEvidence) -> Option<Advice> {
    let waiting = waiting(evidence, lock);
    if lock.hold_p50_ns.is_some() || waiting < SATURATED || overloaded(evidence, lock).is_some() {
        return None;
    }
    let wait = lock.wait_p50_ns?;
    let section = least_section(wait, waiting, LONG_HOLD_NS)?;
    let sentence = format!(
        "Half of the waits take {}, with {waiting:.1} threads that wait on average: it is held for \
         {} or longer.",
        time(wait),
        time(section)
    );
    let source = match lock.are_holders {
        true => format!("Shorten what {} does while it holds the lock.", place(lock)),
        false => "Hold it for less time.".to_string(),
    };
    Some(Advice { source, ..about(lock, Problem::LongSections, sentence) })
}

fn saturated(evidence: &Evidence, lock: &LockEvidence) -> Option<Advice> {
    let waiting = waiting(evidence, lock);
    let held = lock.span.and_then(|span| span.held);
    if waiting < SATURATED && held.is_none_or(|held| held < SATURATED) {
        return None;
    }
    let held = held
        .map_or(String::new(), |held| format!(", and it is held {} of the time", percent(held)));
    let holds = lock
        .hold_p50_ns
        .map_or(String::new(), |ns| format!(" Half of the holds take {} or less.", time(ns)));
    let sentence = format!("{waiting:.1} threads wait for it on average{held}.{holds}");
    let source = match lock.read_share > 0.5 {
        true => format!("Hold it for writing less often, or for less time, in {}.", place(lock)),
        false => format!("Take it less often in {}, or split it.", place(lock)),
    };
    let advice = about(lock, Problem::SaturatedShortSections, sentence);
    Some(with_default_lock(evidence, lock, Advice { source, ..advice }))
}

/// A lock that is waited for, but does not limit the program: it is not [`saturated`].
fn light(evidence: &Evidence, lock: &LockEvidence) -> Option<Advice> {
    let waiting = waiting(evidence, lock);
    let sentence =
        format!("{waiting:.2} threads wait for it on average: it does not limit the program.");
    Some(about(lock, Problem::NothingToMend, sentence))
}

/// Threads that hand work over by signals spend the time in the kernel. Only a strategy for the
/// whole process also serves condition variables.
fn sleeping_and_waking(evidence: &Evidence) -> Option<Advice> {
    let signals = &evidence.signals;
    let span = signals.span.filter(|span| span.system >= MUCH_SYSTEM)?;
    let sleeps = signals.waits as f64 * 2.0 >= evidence.all_waits as f64;
    let sentence = format!(
        "The kernel takes {} of the program's processor time, while threads wait {:.0} times in a \
         second for signals.",
        percent(span.system),
        signals.waits as f64 / span.seconds
    );
    let advice = about(signals, Problem::SleepingAndWaking, sentence);
    let gain = gain::of_faster_lock(evidence, signals).filter(|_| evidence.is_libcs && sleeps)?;
    let strategy = vec![Choice { entry: None, lock: "default" }];
    let lock = "condition variables".to_string();
    (gain.expected >= MARGIN).then_some(Advice { lock, strategy, gain: Some(gain), ..advice })
}

/// The advice that needs the model of conflicts.
fn of_prediction(
    evidence: &Evidence,
    lock: &LockEvidence,
    predicted: &PredictedLock,
) -> Vec<Advice> {
    let rules = [shared_line, read_mostly, independent];
    rules.iter().filter_map(|rule| rule(evidence, lock, predicted)).take(1).collect()
}

/// A gain between none and the model's, which has all waiting for the lock removed.
fn modelled(predicted: &PredictedLock) -> Option<Gain> {
    let high = predicted.program?.max(1.0);
    Some(Gain { low: 1.0, expected: (1.0 + high) / 2.0, high, part: 1.0 })
}

fn independent(
    evidence: &Evidence,
    lock: &LockEvidence,
    predicted: &PredictedLock,
) -> Option<Advice> {
    if predicted.sections < INDEPENDENT || predicted.io >= MOSTLY_IO {
        return None;
    }
    let sentence = format!(
        "Its sections rarely touch the same data: run at once, they would be {:.1} times as fast \
         on {} processors.",
        predicted.sections, predicted.processors
    );
    let strategy = if evidence.may_elide { choices(lock, "elided") } else { Vec::new() };
    Some(Advice {
        strategy,
        source: format!("Split it by the data that {} uses.", place(lock)),
        gain: modelled(predicted),
        based_on: Basis::SyncCharModel,
        ..about(lock, Problem::IndependentSections, sentence)
    })
}

fn read_mostly(
    evidence: &Evidence,
    lock: &LockEvidence,
    predicted: &PredictedLock,
) -> Option<Advice> {
    if predicted.read_only < MOSTLY_READERS || lock.kind != "mutex" {
        return None;
    }
    let sentence = format!("{} of its sections write nothing.", percent(predicted.read_only));
    let strategy = if evidence.may_elide { choices(lock, "elided") } else { Vec::new() };
    Some(Advice {
        strategy,
        source: "Use a reader-writer lock, a sequence lock or RCU.".into(),
        gain: modelled(predicted),
        based_on: Basis::SyncCharModel,
        ..about(lock, Problem::ReadMostly, sentence)
    })
}

fn shared_line(_: &Evidence, lock: &LockEvidence, predicted: &PredictedLock) -> Option<Advice> {
    let word = predicted.shared_line.as_ref()?;
    let sentence = format!("Its sections share a cache line, but no data, at {word}.");
    Some(Advice {
        source: format!("Put {word} on a cache line of its own."),
        gain: modelled(predicted),
        based_on: Basis::SyncCharModel,
        ..about(lock, Problem::SharedLine, sentence)
    })
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
