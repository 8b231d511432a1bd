//! `unconvoy::Mutex` beside the mutexes of parking_lot and of the standard library.
//!
//! ```text
//! cargo run --release -p unconvoy-bench --example rust_mutexes -- [--rounds N] [--seconds S] [--out BASE]
//! ```
//!
//! Threads take one mutex in a loop. A section changes four cache lines, and then computes for some
//! time; so does the pause after it. Each round measures every cell once under each mutex, and a
//! ratio compares two runs of one round.

use std::hint::black_box;
use std::ops::DerefMut;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use clap::Parser;
use serde::Serialize;
use unconvoy_measure::record::Record;
use unconvoy_measure::statistics::{Spread, short, shown};
use unconvoy_measure::table::Table;

#[derive(Parser)]
struct Options {
    #[arg(long, default_value_t = 7)]
    rounds: u32,
    /// Length of each run.
    #[arg(long, default_value_t = 0.2)]
    seconds: f64,
    /// Base name of the record's files.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// Steps of computation within a section and after it, about a nanosecond each, and threads.
#[derive(Clone, Copy, Serialize)]
struct Cell {
    section: u32,
    pause: u32,
    threads: usize,
}

const CELLS: [(u32, u32, &[usize]); 5] = [
    (0, 0, &[1]),
    (100, 0, &[2, 4, 8, 64]),
    (20, 100, &[2, 4, 8, 64]),
    (100, 1_000, &[2, 4, 8, 64]),
    (1_000, 10_000, &[2, 4, 8, 64]),
];

/// What the mutex protects: a counter on each of some cache lines.
#[derive(Default)]
struct Counters([Line; 4]);

#[derive(Default)]
#[repr(align(64))]
struct Line(u64);

trait Mutex: Sync {
    fn new() -> Self;
    fn lock(&self) -> impl DerefMut<Target = Counters>;
}

impl Mutex for unconvoy::Mutex<Counters> {
    fn new() -> Self {
        Self::new(Counters::default())
    }

    #[inline(always)]
    fn lock(&self) -> impl DerefMut<Target = Counters> {
        self.lock()
    }
}

impl Mutex for parking_lot::Mutex<Counters> {
    fn new() -> Self {
        Self::new(Counters::default())
    }

    #[inline(always)]
    fn lock(&self) -> impl DerefMut<Target = Counters> {
        self.lock()
    }
}

impl Mutex for std::sync::Mutex<Counters> {
    fn new() -> Self {
        Self::new(Counters::default())
    }

    #[inline(always)]
    fn lock(&self) -> impl DerefMut<Target = Counters> {
        self.lock().expect("no thread panics")
    }
}

fn compute(steps: u32) {
    let mut value = u64::from(steps);
    for _ in 0..steps {
        value = value.wrapping_mul(6_364_136_223_846_793_005) + 1;
    }
    black_box(value);
}

/// Million operations per second. Checks that no increment was lost.
fn rate<M: Mutex>(cell: Cell, seconds: f64) -> f64 {
    let (mutex, stop) = (M::new(), AtomicBool::new(false));
    let work = || {
        let mut operations = 0;
        while !stop.load(Relaxed) {
            let mut counters = mutex.lock();
            for line in &mut counters.0 {
                line.0 += 1;
            }
            compute(cell.section);
            drop(counters);
            compute(cell.pause);
            operations += 1;
        }
        operations
    };
    let operations: u64 = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cell.threads).map(|_| scope.spawn(work)).collect();
        std::thread::sleep(Duration::from_secs_f64(seconds));
        stop.store(true, Relaxed);
        workers.into_iter().map(|worker| worker.join().expect("no thread panics")).sum()
    });
    assert!(mutex.lock().0.iter().all(|line| line.0 == operations), "an increment was lost");
    operations as f64 / seconds / 1e6
}

/// The mutexes, ours first.
const MUTEXES: [(&str, fn(Cell, f64) -> f64); 3] = [
    ("unconvoy", rate::<unconvoy::Mutex<Counters>>),
    ("parking_lot", rate::<parking_lot::Mutex<Counters>>),
    ("std", rate::<std::sync::Mutex<Counters>>),
];

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let parameters = serde_json::json!({ "rounds": options.rounds, "seconds": options.seconds });
    let mut record = Record::begin("rust-mutexes", 0, parameters);
    let cells: Vec<Cell> = CELLS
        .iter()
        .flat_map(|&(section, pause, counts)| {
            counts.iter().map(move |&threads| Cell { section, pause, threads })
        })
        .collect();
    let mut rates = vec![[const { Vec::new() }; MUTEXES.len()]; cells.len()];
    for round in 0..options.rounds {
        for (cell, rates) in cells.iter().zip(&mut rates) {
            for turn in 0..MUTEXES.len() {
                let mutex = (turn + round as usize) % MUTEXES.len();
                let (name, measure) = MUTEXES[mutex];
                let rate = measure(*cell, options.seconds);
                rates[mutex].push(rate);
                record.runs.push(serde_json::json!({
                    "cell": cell, "round": round, "mutex": name, "million_operations_per_s": rate,
                }));
            }
        }
    }
    let mut table = Table::new(
        "One mutex; million operations/s, and ratios to other mutexes: median (min..max)",
        ["section, steps", "pause, steps", "threads", "unconvoy", "to parking_lot", "to std"],
    );
    for (cell, [ours, others @ ..]) in cells.iter().zip(&rates) {
        let counts = [cell.section, cell.pause, cell.threads as u32];
        let ratios = others.iter().map(|other| {
            shown(Spread::of(ours.iter().zip(other).map(|(ours, other)| ours / other)), short)
        });
        let rate = shown(Spread::of(ours.iter().copied()), short);
        table.row(counts.map(|count| count.to_string()).into_iter().chain([rate]).chain(ratios));
    }
    record.tables.push(table);
    record.complete = true;
    record.deliver(options.out.as_deref())?;
    Ok(())
}
