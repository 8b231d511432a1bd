//! Compares the reported numbers of a 10 % sample with those of all sections (section 4.2 of the
//! paper: they differ by 1 %).
//!
//! One run records all sections. Its stream is analysed as a whole, and once per seed with the
//! analysis drawing a tenth of the sections, in bursts (a *thinned* sample). In another run the
//! plug-in samples 10 %, in bursts too. The test prints a table. For other sizes, programs and the
//! paper's independent draws (`UNCONVOY_SAMPLING=independent`):
//!
//! ```text
//! UNCONVOY_SECTIONS=1000000 UNCONVOY_PROGRAM='hashtable --buckets 1 ...' \
//!     cargo test --release -p unconvoy-plugin-user --test ten_percent -- --nocapture
//! ```

#[allow(dead_code, reason = "each test uses a part")]
mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::{plugin, skipped};
use unconvoy_syncchar::{Analysis, Estimate, LockAnalysis, Options};
use unconvoy_trace_stream::sampling::Sampling;
use unconvoy_trace_stream::{Reader, Record};

const PROCESSORS: [u32; 4] = [2, 4, 8, 16];
const THREADS: u64 = 16;
/// Sections of each lock. The paper makes its claim for 100,000 and more. With 100,000, one of 45
/// runs had a sample that was 5.4 % off.
const SECTIONS: u64 = 400_000;
/// Number of thinned samples.
const SEEDS: u64 = 12;

/// Analyses a stream once per option set. Each result maps a lock's address to its number and
/// analysis.
fn analyse(stream: &Path, options: &[Options]) -> Vec<BTreeMap<u64, (u32, LockAnalysis)>> {
    let analysis = |options: &Options| Analysis::new(options.clone()).expect("sensible options");
    let mut analyses: Vec<Analysis> = options.iter().map(analysis).collect();
    let file = std::fs::File::open(stream).expect("a stream");
    let mut reader =
        Reader::new(std::io::BufReader::with_capacity(1 << 20, file)).expect("a stream");
    let mut addresses = BTreeMap::new();
    while let Some(record) = reader.next_record().expect("a whole stream") {
        match record {
            Record::Lock(lock) => drop(addresses.insert(lock.number, lock.region.address)),
            Record::Section(section, entries) => {
                for analysis in &mut analyses {
                    analysis.section(section, entries.iter());
                }
            }
            _ => {}
        }
    }
    let by_address = |lock: LockAnalysis| (addresses[&lock.lock], (lock.lock, lock));
    analyses
        .into_iter()
        .map(|analysis| analysis.finish().into_iter().map(by_address).collect())
        .collect()
}

fn sampling() -> Sampling {
    let name = std::env::var("UNCONVOY_SAMPLING").ok();
    name.map_or(Sampling::Bursts, |name| Sampling::named(&name).expect("bursts or independent"))
}

/// Runs the command under the plug-in. Returns the stream's path.
fn run(command: &[String], folder: &Path, rate: u32) -> PathBuf {
    let out = folder.join(format!("rate-{rate}"));
    let (plugin, sampling) = (plugin(), sampling().name());
    let options = format!(
        "{},out={},rate={rate},sampling={sampling},heap=off",
        plugin.display(),
        out.display()
    );
    let status = Command::new("qemu-x86_64")
        .arg("-plugin")
        .arg(options)
        .args(command)
        .stdout(Stdio::null())
        .status();
    assert!(status.expect("qemu-x86_64").success());
    out
}

/// Errors in percent: of data independence and speed-up relative to their values, of conflict
/// density relative to n.
fn errors(of: &Estimate, whole: &Estimate, processors: u32) -> [f64; 3] {
    [
        (of.independence / whole.independence - 1.0) * 100.0,
        (of.density - whole.density) / f64::from(processors) * 100.0,
        (of.speed_up() / whole.speed_up() - 1.0) * 100.0,
    ]
}

struct Row {
    lock: u32,
    processors: u32,
    whole: Estimate,
    /// Mean and maximum error of the thinned samples, and the error of the other run.
    errors: [(f64, f64, f64); 3],
}

/// One row for each lock with at least `least` sections and each number of processors.
fn compare(command: &[String], least: u64) -> Vec<Row> {
    let folder = tempfile::tempdir().expect("a folder");
    let options = |one_in, seed| Options {
        processors: PROCESSORS.to_vec(),
        one_in,
        sampling: sampling(),
        seed,
        ..Options::default()
    };
    let all: Vec<Options> =
        std::iter::once(options(1, 0)).chain((0..SEEDS).map(|seed| options(10, seed))).collect();
    let stream = run(command, folder.path(), 1);
    let mut analyses = analyse(&stream, &all);
    std::fs::remove_file(stream).expect("its own file");
    let thinned = analyses.split_off(1);
    let other = analyse(&run(command, folder.path(), 10), &[options(1, 0)]).remove(0);
    let mut rows = Vec::new();
    for (address, (number, whole)) in
        analyses[0].iter().filter(|(_, (_, lock))| lock.sections >= least)
    {
        for (index, processors) in PROCESSORS.into_iter().enumerate() {
            let exact = &whole.estimates[index].byte;
            let error = |analysis: &BTreeMap<u64, (u32, LockAnalysis)>| {
                analysis
                    .get(address)
                    .map(|(_, lock)| errors(&lock.estimates[index].byte, exact, processors))
            };
            let thinned: Vec<[f64; 3]> = thinned.iter().filter_map(error).collect();
            let other = error(&other).unwrap_or([f64::NAN; 3]);
            let summary = |which: usize| {
                let mean =
                    thinned.iter().map(|error| error[which]).sum::<f64>() / thinned.len() as f64;
                let most = thinned.iter().map(|error| error[which].abs()).fold(0.0, f64::max);
                (mean, most, other[which])
            };
            let errors = [summary(0), summary(1), summary(2)];
            rows.push(Row { lock: *number, processors, whole: *exact, errors });
        }
    }
    rows.sort_by_key(|row| (row.lock, row.processors));
    rows
}

fn print(rows: &[Row], name: impl Fn(u32) -> String) {
    println!(
        "| lock | n | I_n | D_n | speed-up | I_n: mean, most, other run | D_n of n | speed-up |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for row in rows {
        let errors =
            row.errors.map(|(mean, most, other)| format!("{mean:+.1}, {most:.1}, {other:+.1}"));
        let Estimate { independence, density, .. } = row.whole;
        let values = format!("{independence:.2} | {density:.2} | {:.2}", row.whole.speed_up());
        println!("| {} | {} | {values} | {} |", name(row.lock), row.processors, errors.join(" | "));
    }
}

#[test]
fn ten_percent_sample_matches_all_sections() {
    if skipped() {
        return;
    }
    let number =
        |name| std::env::var(name).ok().and_then(|value: String| value.parse::<u64>().ok());
    let sections = number("UNCONVOY_SECTIONS").unwrap_or(SECTIONS);
    if let Ok(command) = std::env::var("UNCONVOY_PROGRAM") {
        let command: Vec<String> = command.split_whitespace().map(String::from).collect();
        return print(&compare(&command, sections), |lock| format!("lock {lock}"));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("optimistic");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let source = root.join("papers/workloads/optimistic.c");
    let compiled = Command::new("cc")
        .args(["-std=c11", "-D_GNU_SOURCE", "-O2", "-g", "-pthread", "-o"])
        .args([&program, &source])
        .arg("-I")
        .arg(root.join("crates/bench/workloads"))
        .arg("-lm")
        .status();
    assert!(compiled.expect("a compiler").success());
    let program = program.display().to_string();
    let (threads, each) = (THREADS.to_string(), sections.div_ceil(THREADS).to_string());
    // With these options no thread gets ahead of the others by more than a window, even on a busy
    // machine.
    let options = [
        "--program",
        "all",
        "--yield",
        "--together",
        "20",
        "--work",
        "10",
        "--threads",
        &threads,
        "--sections",
        &each,
    ];
    let command: Vec<String> =
        std::iter::once(program.as_str()).chain(options).map(String::from).collect();
    let rows = compare(&command, sections);
    // Each thread takes the locks in this order.
    let name = |lock: u32| {
        ["prob", "rw", "rb-tree", "table"]
            .get(lock as usize)
            .map_or(lock.to_string(), |name| name.to_string())
    };
    print(&rows, name);
    assert_eq!(rows.len(), 4 * PROCESSORS.len(), "four locks with enough sections");
    for row in &rows {
        let which = format!("{}, {} processors", name(row.lock), row.processors);
        let [(independence, ..), (density, ..), (mean, most, other)] = row.errors;
        // Sampling noise remains: docs/evaluation/predictions.md has the measured accuracy. In
        // eight runs no mean was more than .6 % off.
        assert!(mean.abs() <= 1.0, "{which}: the speed-up is {mean:+.2} % off on average");
        assert!(
            most <= 3.0 && other.abs() <= 4.0,
            "{which}: the speed-up is {most:.2} % and {other:+.2} % off"
        );
        assert!(
            independence.abs() <= 1.5 && density.abs() <= 1.0,
            "{which}: {independence:+.2} %, {density:+.2} %"
        );
    }
}
