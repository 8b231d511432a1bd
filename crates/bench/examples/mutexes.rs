//! `unconvoy::Mutex` beside the mutexes of parking_lot and of Rust's standard library, and
//! `unconvoy_mutex_t` beside those of Abseil and of C++'s standard library.
//!
//! ```text
//! cargo run --release -p unconvoy-bench --example mutexes -- [--cpp PROGRAM] [--out BASE]
//! ```
//!
//! Threads take one mutex in a loop. A section changes four cache lines, and then computes for some
//! steps; so does the pause after it. Each round measures every cell once under each mutex, in
//! random order, and a ratio compares two runs of one round.

use std::hint::black_box;
use std::ops::DerefMut;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Parser;
use serde::Serialize;
use unconvoy_bench::controller::await_exit;
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
    /// The program `cpp_mutex` of the workloads; without it, only Rust's mutexes are measured.
    #[arg(long)]
    cpp: Option<PathBuf>,
    /// Base name of the record's files.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Seed of the random order.
    #[arg(long, default_value_t = 1)]
    seed: u64,
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

/// For unconvoy's and parking_lot's.
impl<R: lock_api::RawMutex + Send + Sync> Mutex for lock_api::Mutex<R, Counters> {
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
    let begin = Instant::now();
    let (operations, elapsed) = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cell.threads).map(|_| scope.spawn(work)).collect();
        std::thread::sleep(Duration::from_secs_f64(seconds));
        stop.store(true, Relaxed);
        let elapsed = begin.elapsed();
        let join = |worker: ScopedJoinHandle<'_, u64>| worker.join().expect("no thread panics");
        (workers.into_iter().map(join).sum::<u64>(), elapsed)
    });
    assert!(mutex.lock().0.iter().all(|line| line.0 == operations), "an increment was lost");
    operations as f64 / elapsed.as_secs_f64() / 1e6
}

/// The same under a mutex of the program `cpp`.
fn rate_of_cpp(cpp: &Path, mutex: &str, cell: Cell, seconds: f64) -> anyhow::Result<f64> {
    let numbers = [
        ("--section", cell.section.to_string()),
        ("--pause", cell.pause.to_string()),
        ("--threads", cell.threads.to_string()),
        ("--seconds", seconds.to_string()),
    ];
    let mut command = Command::new(cpp);
    command.args(["--mutex", mutex]);
    for (option, number) in numbers {
        command.args([option, &number]);
    }
    let output = command.output().with_context(|| format!("{} does not start", cpp.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let rate = text.lines().find_map(|line| line.strip_prefix("ops_per_sec "));
    let rate = rate.filter(|_| output.status.success()).with_context(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        format!("{command:?} failed ({}): {errors}", output.status)
    })?;
    Ok(rate.parse::<f64>()? / 1e6)
}

type Measure<'a> = Box<dyn Fn(Cell, f64) -> anyhow::Result<f64> + 'a>;

/// The mutexes of one language, ours first.
struct Group<'a> {
    language: &'static str,
    mutexes: [(&'static str, Measure<'a>); 3],
}

impl Group<'_> {
    fn table(&self, cells: &[Cell], rates: &[Vec<[f64; 3]>]) -> Table {
        let [ours, others @ ..] = self.mutexes.each_ref().map(|(name, _)| name.to_string());
        let mut table = Table::new(
            format!("{}: million operations/s, and ratios, median (min..max)", self.language),
            ["section, steps", "pause, steps", "threads"]
                .map(str::to_string)
                .into_iter()
                .chain([ours])
                .chain(others.map(|other| format!("to {other}"))),
        );
        for (cell, rates) in cells.iter().zip(rates) {
            let spread =
                |of: &dyn Fn(&[f64; 3]) -> f64| shown(Spread::of(rates.iter().map(of)), short);
            let counts = [cell.section, cell.pause, cell.threads as u32];
            table.row(counts.map(|count| count.to_string()).into_iter().chain([
                spread(&|[ours, ..]| *ours),
                spread(&|[ours, first, _]| ours / first),
                spread(&|[ours, _, second]| ours / second),
            ]));
        }
        table
    }
}

fn groups(cpp: Option<&Path>) -> Vec<Group<'_>> {
    fn of_rust<M: Mutex>(name: &'static str) -> (&'static str, Measure<'static>) {
        (name, Box::new(|cell, seconds| Ok(rate::<M>(cell, seconds))))
    }
    let rust = Group {
        language: "Rust",
        mutexes: [
            of_rust::<unconvoy::Mutex<Counters>>("unconvoy::Mutex"),
            of_rust::<parking_lot::Mutex<Counters>>("parking_lot"),
            of_rust::<std::sync::Mutex<Counters>>("std"),
        ],
    };
    let cpp = cpp.map(|cpp| Group {
        language: "C and C++",
        mutexes: [("unconvoy", "unconvoy_mutex_t"), ("absl", "absl"), ("std", "std")].map(
            |(mutex, name)| -> (_, Measure<'_>) {
                (name, Box::new(move |cell, seconds| rate_of_cpp(cpp, mutex, cell, seconds)))
            },
        ),
    });
    std::iter::once(rust).chain(cpp).collect()
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let parameters = serde_json::json!({ "rounds": options.rounds, "seconds": options.seconds });
    let mut record = Record::begin("mutexes", options.seed, parameters);
    let cells: Vec<Cell> = CELLS
        .iter()
        .flat_map(|&(section, pause, counts)| {
            counts.iter().map(move |&threads| Cell { section, pause, threads })
        })
        .collect();
    let groups = groups(options.cpp.as_deref());
    let rounds = options.rounds as usize;
    let mut rates = vec![vec![Vec::new(); cells.len()]; groups.len()];
    let mut runs: Vec<(usize, usize, usize)> = (0..groups.len())
        .flat_map(|group| (0..cells.len()).map(move |cell| (group, cell)))
        .flat_map(|(group, cell)| (0..3).map(move |mutex| (group, cell, mutex)))
        .collect();
    let mut random = fastrand::Rng::with_seed(options.seed);
    for round in 0..rounds {
        random.shuffle(&mut runs);
        rates.iter_mut().flatten().for_each(|rates| rates.push([0.0; 3]));
        for &(group, cell, mutex) in &runs {
            let (name, measure) = &groups[group].mutexes[mutex];
            let rate = measure(cells[cell], options.seconds)?;
            await_exit()?; // the run's load controller takes no time from the next run
            record.runs.push(serde_json::json!({
                "language": groups[group].language, "mutex": name, "cell": cells[cell],
                "round": round, "million_operations_per_s": rate,
            }));
            rates[group][cell][round][mutex] = rate;
        }
    }
    let tables = groups.iter().zip(&rates).map(|(group, rates)| group.table(&cells, rates));
    record.tables.extend(tables);
    record.finish(options.out.as_deref())?;
    Ok(())
}
