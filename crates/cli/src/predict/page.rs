//! The report as a self-contained HTML page without scripts.

use askama::Template;
use unconvoy_syncchar::report::LockReport;
use unconvoy_syncchar::{ClassReport, Clock, Histogram, HotSpot, Projection, Report};

/// Hot spots shown per lock.
const SPOTS: usize = 8;
/// Width of a bar of 100 %, in rem.
const WIDEST: f64 = 6.0;

#[derive(Template)]
#[template(path = "predict.html")]
struct Page {
    title: String,
    source: String,
    version: &'static str,
    seconds: Option<String>,
    processors: Vec<u32>,
    remarks: Vec<String>,
    rows: Vec<Row>,
    hidden: usize,
    hidden_kinds: usize,
    is_native: bool,
    kinds: Vec<Kind>,
    gains: Vec<Gain>,
    has_times: bool,
    has_costs: bool,
    details: Vec<Detail>,
}

/// One row of the table of locks (the paper's Table 2).
struct Row {
    name: String,
    link: Option<u32>,
    held: String,
    sections: String,
    independence: Vec<String>,
    density: Vec<String>,
    is_all: bool,
}

/// One row of the table of lock classes.
struct Kind {
    name: String,
    locks: u64,
    held: String,
    acquisitions: u64,
    waited: String,
    /// Data independence, then conflict density, per number of processors.
    numbers: Vec<String>,
}

struct Gain {
    name: String,
    sections: Vec<String>,
    program: Vec<String>,
    elided: Vec<String>,
    is_all: bool,
}

struct Detail {
    number: u32,
    name: String,
    advice: Vec<String>,
    facts: Vec<String>,
    histogram: Vec<(&'static str, u64)>,
    spots: Vec<Spot>,
    false_sharing: Vec<String>,
}

struct Spot {
    word: String,
    address: String,
    share: String,
    width: String,
    alone: String,
    readers: Vec<String>,
    writers: Vec<String>,
}

/// Renders the page, with the `top` locks in detail and `listed` locks in the tables.
///
/// # Errors
///
/// The template cannot be rendered.
pub fn render(report: &Report, listed: usize, top: usize) -> anyhow::Result<Vec<u8>> {
    let shown = &report.locks[..report.locks.len().min(listed)];
    let detailed = shown.len().min(top);
    let mut rows: Vec<Row> =
        shown.iter().enumerate().map(|(index, lock)| Row::new(lock, index < detailed)).collect();
    let mut gains: Vec<Gain> = shown.iter().map(|lock| Gain::new(lock, report)).collect();
    rows.extend(Row::average(report));
    if !report.projections.is_empty() {
        gains.push(Gain {
            name: "all locks".into(),
            sections: speed_ups(
                report.projected().map(|gain| gain.map(|it| (it.sections, it.sections_by_line))),
            ),
            program: programs(report.projected()),
            elided: elided(report.projected(), report.run.costs.is_some()),
            is_all: true,
        });
    }
    let page = Page {
        title: report.run.program.join(" "),
        source: report.run.source.clone(),
        version: concat!("unconvoy ", env!("CARGO_PKG_VERSION")),
        seconds: report.run.seconds.map(|seconds| format!("{seconds:.3}")),
        processors: report.options.processors.clone(),
        remarks: report.remarks.clone(),
        rows,
        hidden: report.locks.len() - shown.len(),
        is_native: report.run.clock == Clock::Native,
        kinds: Kind::all(report, listed),
        hidden_kinds: report.classes.len().saturating_sub(listed),
        gains,
        has_times: !report.projections.is_empty(),
        has_costs: report.run.costs.is_some(),
        details: shown[..detailed].iter().map(|lock| Detail::new(report, lock)).collect(),
    };
    Ok(page.render()?.into_bytes())
}

impl Row {
    fn new(lock: &LockReport, has_details: bool) -> Self {
        Self {
            name: lock.name.clone(),
            link: has_details.then_some(lock.analysis.lock),
            held: lock.share.map_or_else(|| "unknown".into(), percent),
            sections: lock.analysis.sections.to_string(),
            independence: numbers(lock.measured(), |estimate| estimate.independence),
            density: numbers(lock.measured(), |estimate| estimate.density),
            is_all: false,
        }
    }

    /// Returns the last row, if there are times.
    fn average(report: &Report) -> Option<Self> {
        (!report.average.is_empty()).then(|| Self {
            name: "weighted average".into(),
            link: None,
            held: report.held.map_or_else(|| "unknown".into(), percent),
            sections: report.sections.to_string(),
            independence: numbers(report.means(), |mean| mean.independence),
            density: numbers(report.means(), |mean| mean.density),
            is_all: true,
        })
    }
}

impl Kind {
    /// Returns no rows if no class has several locks, because the table of locks has the same
    /// numbers.
    fn all(report: &Report, listed: usize) -> Vec<Self> {
        if report.classes.iter().all(|class| class.locks < 2) {
            return Vec::new();
        }
        let processors = &report.options.processors;
        let kind = |class: &ClassReport| {
            let mean = |n: &u32| {
                class.average.iter().find(|average| average.processors == *n).map(|mean| mean.byte)
            };
            let means = || processors.iter().map(mean);
            let independence = numbers(means(), |mean| mean.independence).into_iter();
            Self {
                name: class.name.clone(),
                locks: class.locks,
                held: class.share.map_or_else(|| "unknown".into(), percent),
                acquisitions: class.times.acquisitions,
                waited: format!("{:.6}", class.times.waited),
                numbers: independence.chain(numbers(means(), |mean| mean.density)).collect(),
            }
        };
        report.classes.iter().take(listed).map(kind).collect()
    }
}

impl Gain {
    fn new(lock: &LockReport, report: &Report) -> Self {
        let unknown = || vec!["unknown".to_string(); lock.analysis.estimates.len()];
        Self {
            name: lock.name.clone(),
            sections: speed_ups(lock.speed_ups()),
            program: if lock.projections.is_empty() {
                unknown()
            } else {
                programs(lock.projected())
            },
            elided: elided(lock.projected(), report.run.costs.is_some()),
            is_all: false,
        }
    }
}

impl Detail {
    fn new(report: &Report, lock: &LockReport) -> Self {
        let analysis = &lock.analysis;
        let mut facts = vec![
            format!("{} sections of {} threads", analysis.sections, analysis.threads),
            format!("{:.1} words each", analysis.words),
            format!("{} write nothing", percent(analysis.read_only)),
            format!("{} do I/O", percent(analysis.io)),
        ];
        if let Some(times) = &lock.times {
            facts.push(format!(
                "{}{} acquisitions, held for {:.6} s, waited for {:.6} s",
                if report.run.clock == Clock::Native { "natively " } else { "" },
                times.acquisitions,
                times.held,
                times.waited
            ));
        }
        let histogram = match analysis.histogram.conflicts {
            0 => Vec::new(),
            _ => Histogram::ROWS.into_iter().zip(analysis.histogram.words).collect(),
        };
        let falsely = analysis.false_sharing.iter().take(SPOTS);
        let falsely = falsely.map(|line| {
            format!(
                "{} ({:#x}), by {} pairs of sections",
                word(report, line.word),
                line.word,
                line.pairs
            )
        });
        Self {
            number: analysis.lock,
            name: lock.name.clone(),
            advice: lock.advice.iter().map(|advised| advised.sentence.clone()).collect(),
            facts,
            histogram,
            spots: analysis
                .hot_spots
                .iter()
                .take(SPOTS)
                .map(|spot| Spot::new(report, spot))
                .collect(),
            false_sharing: falsely.collect(),
        }
    }
}

impl Spot {
    fn new(report: &Report, spot: &HotSpot) -> Self {
        Self {
            word: word(report, spot.address),
            address: format!("{:#x}", spot.address),
            share: percent(spot.share),
            width: format!("{:.2}", WIDEST * spot.share),
            alone: percent(spot.alone),
            readers: report.names_of(&spot.readers),
            writers: report.names_of(&spot.writers),
        }
    }
}

fn word(report: &Report, address: u64) -> String {
    report.words.get(&address).cloned().unwrap_or_else(|| "unknown memory".into())
}

fn programs<'a>(projections: impl Iterator<Item = Option<&'a Projection>>) -> Vec<String> {
    speed_ups(projections.map(|gain| gain.map(|it| (it.program, it.program_by_line))))
}

fn elided<'a>(
    projections: impl Iterator<Item = Option<&'a Projection>>,
    has_costs: bool,
) -> Vec<String> {
    let elided = projections.filter(|_| has_costs).map(|gain| gain.and_then(|gain| gain.elided));
    numbers(elided, |gain| gain)
}

/// Formats a part of each value; `-` is one that nothing measured.
fn numbers<T>(values: impl Iterator<Item = Option<T>>, part: fn(T) -> f64) -> Vec<String> {
    let text = |value: Option<T>| value.map_or_else(unknown, |it| format!("{:.2}", part(it)));
    values.map(text).collect()
}

fn unknown() -> String {
    "-".into()
}

/// Formats the speed-up by byte, and by line in brackets if it differs.
fn speed_ups(values: impl Iterator<Item = Option<(f64, f64)>>) -> Vec<String> {
    let text = |value: Option<(f64, f64)>| {
        let Some((byte, line)) = value else { return unknown() };
        let (byte, line) = (format!("{byte:.2}"), format!("{line:.2}"));
        if byte == line { byte } else { format!("{byte} ({line})") }
    };
    values.map(text).collect()
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use unconvoy_syncchar::{Access, Analysis, LockTimes, Names, Options, Run, Section};

    struct Hostile;

    impl Names for Hostile {
        fn lock(&self, _: u32) -> Option<String> {
            Some("List<int>::lock".into())
        }

        fn word(&self, _: u64) -> Option<String> {
            Some("</td><script>".into())
        }

        fn place(&self, _: u32) -> Option<String> {
            Some("push<T> (list.h:7)".into())
        }

        fn is_conditional_store(&self, _: u32) -> bool {
            false
        }
    }

    fn report() -> Report {
        let options = Options { processors: vec![2], ..Options::default() };
        let mut analysis = Analysis::new(options.clone()).unwrap();
        for section in 0..1000 {
            let word =
                Access { address: 0x1000, read: 1, written: 1, read_place: 1, written_place: 1 };
            analysis
                .section(Section { lock: 4, thread: section % 2, ..Section::default() }, [word]);
        }
        let run = Run {
            source: "qemu-user".into(),
            program: vec!["./a&b".into()],
            seconds: Some(2.0),
            ..Run::default()
        };
        let times = HashMap::from([(4, LockTimes { acquisitions: 10, held: 1.0, waited: 0.5 })]);
        Report::new(run, &options, analysis.finish(), times, &Hostile)
    }

    #[test]
    fn page_contains_every_part_and_escapes_names() {
        let page = String::from_utf8(render(&report(), 10, 10).unwrap()).unwrap();
        for text in [
            "./a&#38;b",
            "List&#60;int&#62;::lock",
            "push&#60;T&#62; (list.h:7)",
            "50.00 %",
            "id=\"lock4\"",
            "per-thread",
        ] {
            assert!(page.contains(text), "{text} in {page}");
        }
        assert!(!page.contains("<script"), "{page}");
        assert!(!page.contains("http"), "the page refers to another resource");
    }

    #[test]
    fn unmeasured_estimate_is_a_dash() {
        let options = Options { processors: vec![8], ..Options::default() };
        let mut analysis = Analysis::new(options.clone()).unwrap();
        for _ in 0..1000 {
            analysis.section(Section { lock: 4, ..Section::default() }, [Access::default()]);
        }
        let times = HashMap::from([(4, LockTimes { acquisitions: 10, held: 1.0, waited: 0.5 })]);
        let run = Run { seconds: Some(2.0), ..Run::default() };
        let report = Report::new(run, &options, analysis.finish(), times, &Hostile);
        let page = String::from_utf8(render(&report, 10, 10).unwrap()).unwrap();
        assert!(page.contains("<td>1000</td><td>-</td><td>-</td>"), "{page}");
        assert!(page.contains("run at least 8 threads"), "{page}");
    }

    #[test]
    fn page_without_locks_states_reason() {
        let options = Options::default();
        let report = Report::new(Run::default(), &options, Vec::new(), HashMap::new(), &Hostile);
        let page = String::from_utf8(render(&report, 10, 10).unwrap()).unwrap();
        assert!(page.contains("No critical section was seen"), "{page}");
    }
}
