use super::*;
use crate::report::Clock;
use crate::{Access, Analysis, Nameless, Section};

struct Named;

impl Names for Named {
    fn lock(&self, lock: u32) -> Option<String> {
        (lock == 0).then(|| "cache".into())
    }

    fn word(&self, address: u64) -> Option<String> {
        (address == 0x1000).then(|| "hits".into())
    }

    fn place(&self, place: u32) -> Option<String> {
        (place == 3).then(|| "lookup, cache.c:12".into())
    }

    fn is_conditional_store(&self, _place: u32) -> bool {
        false
    }
}

/// Two locks and two threads: sections of lock 0 increment one word, those of lock 1 have a word
/// per thread.
fn report(seconds: Option<f64>, times: HashMap<u32, LockTimes>) -> Report {
    report_with(seconds, times, None)
}

fn report_with(
    seconds: Option<f64>,
    times: HashMap<u32, LockTimes>,
    costs: Option<TransactionCosts>,
) -> Report {
    let options = Options { processors: vec![2, 8], ..Options::default() };
    let mut analysis = Analysis::new(options.clone()).unwrap();
    for index in 0..4000u32 {
        let (lock, thread) = (index % 2, index / 2 % 2);
        let address = [0x1000, 0x2000 + u64::from(thread) * 64][lock as usize];
        let access = Access { address, read: 0xff, written: 0xff, read_place: 3, written_place: 3 };
        analysis.section(Section { lock, thread, ..Section::default() }, [access]);
    }
    let run = Run {
        source: "sim".into(),
        program: vec!["served".into(), "-v".into()],
        seconds,
        costs,
        clock: Clock::Native,
    };
    Report::new(run, &options, analysis.finish(), times, &Named)
}

fn times(held: &[(u32, f64)]) -> HashMap<u32, LockTimes> {
    held.iter()
        .map(|(lock, held)| (*lock, LockTimes { acquisitions: 2000, held: *held, waited: 0.5 }))
        .collect()
}

#[test]
fn report_with_times_has_shares_and_projections() {
    let report = report(Some(10.0), times(&[(0, 1.0), (1, 4.0)]));
    let [first, second] = &report.locks[..] else { panic!("two locks") };
    assert_eq!((&*first.name, &*second.name), ("lock 1", "cache"), "longest held first");
    assert_eq!((first.share, second.share), (Some(0.4), Some(0.1)));
    // Lock 1: 6 s outside and 4 s twice as fast. The same on 8 processors, because only two threads
    // take it.
    for projection in &first.projections {
        assert_eq!((projection.sections, projection.seconds, projection.program), (2.0, 8.0, 1.25));
    }
    assert_eq!(second.projections[0].seconds, 10.0);
    // All locks: 5 s outside, 2 s and 1 s.
    assert_eq!(report.projections[0].seconds, 8.0);
    assert_eq!(report.projections[0].sections, (4.0 * 2.0 + 1.0) / 5.0);
    // Weighted by time held: lock 1 has I 2 and D 0, lock 0 has I 1 and D 2.
    let average = report.average[0].byte;
    assert!((average.independence - 1.8).abs() < 1e-12 && (average.density - 0.4).abs() < 1e-12);
    assert_eq!(report.words, BTreeMap::from([(0x1000, "hits".to_string())]));
    assert_eq!(report.places, BTreeMap::from([(3, "lookup, cache.c:12".to_string())]));
    assert!(report.remarks.is_empty(), "{:?}", report.remarks);
}

#[test]
fn report_without_times_has_no_projections() {
    let report = report(None, HashMap::new());
    assert!(report.average.is_empty() && report.projections.is_empty());
    assert!(report.locks.iter().all(|lock| lock.share.is_none() && lock.projections.is_empty()));
    assert!(report.text(10).contains("unknown"));
}

#[test]
fn unmeasured_estimates_are_dashes() {
    let options = Options { processors: vec![1, 8], ..Options::default() };
    let mut analysis = Analysis::new(options.clone()).unwrap();
    for _ in 0..2000 {
        analysis.section(Section::default(), [Access::default()]);
    }
    let run = Run { seconds: Some(2.0), ..Run::default() };
    let report = Report::new(run, &options, analysis.finish(), times(&[(0, 1.0)]), &Nameless);
    let text = report.text(10);
    let row = |name: &str, nth: usize| -> Vec<&str> {
        let rows = text.lines().filter(|line| line.split_whitespace().any(|word| word == name));
        let row = rows.filter(|line| line.contains('┆')).nth(nth).expect("a row");
        row.trim_matches('│').split('┆').map(str::trim).collect()
    };
    assert_eq!(row("lock", 1), ["lock 0", "50.00%", "2000", "1.00", "-", "0.00", "-"], "{text}");
    assert_eq!(row("average", 0)[3..], ["1.00", "-", "0.00", "-"], "{text}");
    assert_eq!(row("lock", 2), ["lock 0", "1.00", "-", "1.00", "-"], "{text}");
    assert_eq!(row("all", 0)[1..], ["1.00", "-", "1.00", "-"], "{text}");
    assert!(text.contains("run at least 8 threads"), "{text}");
}

#[test]
fn json_round_trip_is_lossless() {
    let mut report = report(Some(10.0), times(&[(0, 1.0)]));
    // Kernel addresses survive.
    report.words.insert(u64::MAX - 7, "jiffies".into());
    let json = serde_json::to_string(&report).unwrap();
    for expected in
        [r#""kind":"per-thread-counter","address":"0x1000""#, r#""0xfffffffffffffff8":"jiffies""#]
    {
        assert!(json.contains(expected), "{expected} is not in {json}");
    }
    assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
}

#[test]
fn text_has_tables_advice_and_remarks() {
    let text = report(Some(10.0), times(&[(0, 1.0), (1, 4.0), (7, 0.1)])).text(10);
    for expected in [
        "served -v (address sets by sim; native run 10.000 s)",
        "40.00%",
        "weighted average",
        "51.00%",
        "-> Make the counter hits per-thread and sum",
        "hits (0x1000): in 100.00% of the conflicts, in 100.00% alone",
        "written at lookup, cache.c:12",
        "100%: 1",
        "note: Not listed: 1 lock held in the native run without a sampled section.",
    ] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
    assert!(!text.contains("1.0 times as fast"), "{text}");
    // A table's lines have equal widths.
    let widths: Vec<usize> =
        text.lines().filter(|line| line.contains('│')).map(|line| line.chars().count()).collect();
    assert!(
        widths.len() > 6 && widths.windows(2).filter(|pair| pair[0] != pair[1]).count() <= 1,
        "{text}"
    );
}

#[test]
fn elided_gain_pays_for_transactions() {
    let held = times(&[(0, 1.0), (1, 4.0)]);
    let ideal = report_with(Some(10.0), held.clone(), Some(TransactionCosts::default()));
    let elided = |report: &Report, lock: usize| report.locks[lock].projections[0].elided.unwrap();
    // Of lock 1, two threads waited for 0.5 s. All sections of lock 0 conflict.
    assert!((elided(&ideal, 0) - 10.0 / 9.75).abs() < 1e-9);
    assert_eq!(elided(&ideal, 1), 1.0);
    assert!((ideal.projections[0].elided.unwrap() - 10.0 / 9.75).abs() < 1e-9);
    assert!(ideal.text(10).contains("elided 8"), "{}", ideal.text(10));
    // `--analyse` may print it on another machine.
    assert!(ideal.text(10).contains("on the machine of the native run"), "{}", ideal.text(10));
    // 2000 sections take 0.1 ms longer.
    let slow = TransactionCosts { pair_ns: 1e5, ..Default::default() };
    let slow = report_with(Some(10.0), held, Some(slow));
    assert!((elided(&slow, 0) - 10.0 / 9.85).abs() < 1e-9);
}

/// Each lock is a reader-writer lock but lock 2.
struct Readers;

impl Names for Readers {
    fn lock(&self, _: u32) -> Option<String> {
        None
    }

    fn word(&self, _: u64) -> Option<String> {
        None
    }

    fn place(&self, _: u32) -> Option<String> {
        None
    }

    fn admits_readers(&self, lock: u32) -> bool {
        lock != 2
    }

    fn is_conditional_store(&self, _: u32) -> bool {
        false
    }
}

#[test]
fn reader_writer_locks_have_upper_bounds() {
    let options = Options { processors: vec![2], ..Options::default() };
    let remarks = |locks: u32, names: &dyn Fn(Vec<LockAnalysis>) -> Report| {
        let mut analysis = Analysis::new(options.clone()).unwrap();
        for index in 0..locks * 2000 {
            let (lock, thread) = (index % locks, index / locks % 2);
            analysis.section(Section { lock, thread, ..Section::default() }, [Access::default()]);
        }
        names(analysis.finish()).remarks
    };
    let named = |locks| Report::new(Run::default(), &options, locks, HashMap::new(), &Readers);
    let nameless = |locks| Report::new(Run::default(), &options, locks, HashMap::new(), &Nameless);
    let upper = "readers run at once already, so these gains are upper bounds.";
    assert_eq!(remarks(1, &named), [format!("lock 0 is a reader-writer lock: {upper}")]);
    assert_eq!(
        remarks(3, &named),
        [format!("lock 0 and another lock are reader-writer locks: {upper}")]
    );
    assert!(remarks(3, &nameless).is_empty());
}

#[test]
fn report_without_sections_says_so() {
    let options = Options::default();
    let run = Run {
        source: "sim".into(),
        program: vec!["true".into()],
        seconds: Some(1.0),
        ..Run::default()
    };
    let report = Report::new(run, &options, Vec::new(), HashMap::new(), &Nameless);
    let text = report.text(10);
    assert!(text.contains("No critical section was seen") && !text.contains('│'), "{text}");
}

/// Two locks of one kind, one of another, and one of the first kind that was never sampled.
struct Kinds;

impl Names for Kinds {
    fn lock(&self, _: u32) -> Option<String> {
        None
    }

    fn class(&self, lock: u32) -> Option<String> {
        Some(if lock == 2 { "zone.lock" } else { "dentry.d_lockref" }.into())
    }

    fn word(&self, _: u64) -> Option<String> {
        None
    }

    fn place(&self, _: u32) -> Option<String> {
        None
    }

    fn is_conditional_store(&self, _: u32) -> bool {
        false
    }
}

#[test]
fn locks_of_one_kind_are_grouped() {
    let options = Options { processors: vec![2], ..Options::default() };
    let mut analysis = Analysis::new(options.clone()).unwrap();
    for section in 0..3000 {
        let (lock, thread) = (section % 3, section / 3 % 2);
        // Sections of lock 0 conflict, those of lock 1 do not.
        let address = 0x1000
            + 0x1000 * u64::from(lock)
            + if lock == 1 { 0x100 * u64::from(thread) } else { 0 };
        let word = Access { address, read: 1, written: 1, ..Access::default() };
        analysis.section(Section { lock, thread, ..Section::default() }, [word]);
    }
    let run = Run {
        source: "qemu-system".into(),
        program: vec!["find".into()],
        seconds: Some(8.0),
        clock: Clock::Instructions,
        ..Run::default()
    };
    let held = |held: f64| LockTimes { acquisitions: 10, held, waited: 0.5 };
    let times = HashMap::from([(0, held(1.0)), (1, held(3.0)), (2, held(2.0)), (7, held(0.5))]);
    let report = Report::new(run, &options, analysis.finish(), times, &Kinds);
    let [dentries, zones] = &report.classes[..] else { panic!("{:?}", report.classes) };
    assert_eq!(
        (dentries.name.as_str(), dentries.locks, dentries.times.acquisitions),
        ("dentry.d_lockref", 3, 30)
    );
    assert_eq!(
        (dentries.times.held, dentries.times.waited, dentries.share),
        (4.5, 1.5, Some(4.5 / 8.0))
    );
    assert_eq!(dentries.average[0].byte.independence, (1.0 * 1.0 + 3.0 * 2.0) / 4.0);
    assert_eq!((zones.name.as_str(), zones.locks, zones.sections), ("zone.lock", 1, 1000));
    let text = report.text(10);
    for part in [
        "8.000 s of work on all processors",
        "a nanosecond each",
        "kind of lock",
        "56.25%",
        "note: Not listed: 1 lock without a sampled section.",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let again: Report = serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
    assert_eq!(again, report);
}
