//! `memory`: bytes per mutex, and memory of a contending thread beyond libc's.

use std::fs;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;
use serde_json::json;
use unconvoy::{Mutex, RwLock};
use unconvoy_measure::arguments::threads;
use unconvoy_measure::cells::Samples;
use unconvoy_measure::context::kib;
use unconvoy_measure::goal::Judgement;
use unconvoy_measure::interrupt::Interrupts;
use unconvoy_measure::record::Record;
use unconvoy_measure::statistics::{Spread, short, shown};
use unconvoy_measure::table::Table;

use crate::goals;
use crate::messages;
use crate::options::{Common, Places};
use crate::programs::Programs;
use crate::run::{Job, options};
use crate::setup::Setup;

/// Samples during a run, spread over the later part of its window.
const SAMPLES: u32 = 4;

/// Options of `memory`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    places: Places,
    /// Thread counts
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "64,512",
          value_parser = threads)]
    threads: Vec<u32>,
}

#[derive(Debug, Serialize)]
struct Cell {
    threads: u32,
    setup: Setup,
}

/// Memory of a process, KiB: the maximum of the samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
struct Memory {
    /// Resident memory, shared pages included.
    resident_kib: u64,
    /// Private memory: dirty pages that no other process shares.
    private_kib: u64,
}

/// A column's name and its value.
type Account = (&'static str, fn(&Memory) -> u64);

impl Memory {
    /// The present memory of a process; `None` if it has ended.
    fn of(process: u32) -> anyhow::Result<Option<Self>> {
        let path = format!("/proc/{process}/smaps_rollup");
        let text = match fs::read_to_string(&path) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
            text => text.with_context(|| messages::cannot_read(&path))?,
        };
        Self::parse(&text).with_context(|| messages::field_missing(&path)).map(Some)
    }

    fn parse(text: &str) -> Option<Self> {
        Some(Self { resident_kib: kib(text, "Rss:")?, private_kib: kib(text, "Private_Dirty:")? })
    }

    fn max(self, other: Self) -> Self {
        Self {
            resident_kib: self.resident_kib.max(other.resident_kib),
            private_kib: self.private_kib.max(other.private_kib),
        }
    }
}

fn measure(cell: &Cell, seconds: f64, programs: &Programs) -> anyhow::Result<Memory> {
    let options = options([("threads", cell.threads.to_string())]);
    let running = Job::window("counter", options, cell.setup, seconds).start(programs)?;
    let mut memory = None;
    // The threads start during the first half of the window. Samples come before its end, unless
    // the threads keep this one from the processors.
    let interrupts = Interrupts::of_process()?;
    interrupts.sleep(Duration::from_secs_f64(seconds / 2.0))?;
    for _ in 0..SAMPLES {
        interrupts.sleep(Duration::from_secs_f64(seconds / 2.0 / f64::from(SAMPLES + 1)))?;
        let Some(sample) = Memory::of(running.id())? else { break };
        memory = Some(memory.map_or(sample, |memory: Memory| memory.max(sample)));
    }
    running.finish()?;
    memory.with_context(messages::no_sample)
}

/// Measures, prints and writes the record.
pub fn run(options: &Options) -> anyhow::Result<Record> {
    let common = &options.common;
    let parameters =
        json!({ "threads": options.threads, "seconds": common.seconds, "runs": common.runs() });
    let mut record = common.begin("memory", parameters)?;
    let programs = options.places.find(&["counter"], &[])?;
    let cells: Vec<Cell> = options
        .threads
        .iter()
        .flat_map(|&threads| [Setup::Libc, Setup::Default].map(|setup| Cell { threads, setup }))
        .collect();
    let name = |cell: &Cell| format!("{} threads under {}", cell.threads, cell.setup.name());
    let measure = |cell: &Cell| measure(cell, common.seconds, &programs);
    let samples = common.interleave(&mut record, &cells, name, measure)?;
    let size = size_of::<Mutex<()>>() as f64;
    record.judgements = vec![
        goals::MUTEX_SIZE.judge(size, "unconvoy::Mutex<()>, without any memory elsewhere"),
        judge(&options.threads, &samples),
    ];
    record.tables = vec![sizes(), table(&options.threads, &samples)];
    record.notes.push(
        "The difference includes the library's memory per process, divided by the threads."
            .to_string(),
    );
    record.finish(common.out.as_deref())
}

/// Returns the KiB per thread beyond libc, round by round, at the thread count with this index.
fn per_thread(
    samples: &Samples<Memory>,
    index: usize,
    threads: u32,
    of: fn(&Memory) -> u64,
) -> Option<Spread> {
    let by_round = |cell| samples.by_round(cell, |memory| Some(of(memory) as f64));
    let (libc, ours) = (by_round(2 * index), by_round(2 * index + 1));
    Spread::of(
        ours.iter()
            .filter_map(|(round, ours)| Some((ours - libc.get(round)?) / f64::from(threads))),
    )
}

fn judge(threads: &[u32], samples: &Samples<Memory>) -> Judgement {
    let medians = threads.iter().enumerate().filter_map(|(index, &threads)| {
        let spread = per_thread(samples, index, threads, |memory| memory.private_kib)?;
        Some((spread.median, format!("{threads} threads")))
    });
    goals::THREAD_SIZE.judge_worst(medians)
}

/// Returns the KiB per additional thread beyond libc: the growth from the fewest threads to the
/// most, without the library's memory per process.
fn per_further_thread(
    samples: &Samples<Memory>,
    threads: &[u32],
    of: fn(&Memory) -> u64,
) -> Option<Spread> {
    let by_count = |&(_, &count): &(usize, &u32)| count;
    let (fewest, most) = (
        threads.iter().enumerate().min_by_key(by_count)?,
        threads.iter().enumerate().max_by_key(by_count)?,
    );
    let between = f64::from(*most.1 - *fewest.1);
    let beyond = |index: usize, round: u32| {
        let of_round =
            |cell| samples.by_round(cell, |memory| Some(of(memory) as f64)).get(&round).copied();
        Some(of_round(2 * index + 1)? - of_round(2 * index)?)
    };
    let rounds = samples.by_round(2 * most.0, |_| Some(0.0)).into_keys();
    let growth = |round| Some((beyond(most.0, round)? - beyond(fewest.0, round)?) / between);
    Spread::of(rounds.filter_map(growth).filter(|growth| growth.is_finite()))
}

fn sizes() -> Table {
    let mut table =
        Table::new("Sizes, bytes; a lock keeps all its state in itself", ["type", "bytes"]);
    let sizes = [
        ("unconvoy::Mutex<()>", size_of::<Mutex<()>>()),
        ("unconvoy::RwLock<()>", size_of::<RwLock<()>>()),
        (
            "pthread_mutex_t, which the interposer's mutex lives in",
            size_of::<libc::pthread_mutex_t>(),
        ),
        ("pthread_rwlock_t, likewise", size_of::<libc::pthread_rwlock_t>()),
    ];
    for (name, size) in sizes {
        table.row([name.to_string(), size.to_string()]);
    }
    table
}

fn table(threads: &[u32], samples: &Samples<Memory>) -> Table {
    let mut table = Table::new(
        "Memory of the counter program while it runs, KiB",
        ["threads", "account", "libc", "default", "difference per thread"],
    );
    let accounts: [Account; 2] = [
        ("private and written", |memory| memory.private_kib),
        ("resident", |memory| memory.resident_kib),
    ];
    let text = |spread| shown(spread, short);
    for (index, &count) in threads.iter().enumerate() {
        for (name, of) in accounts {
            let spread = |cell| text(samples.spread(cell, |memory| Some(of(memory) as f64)));
            table.row([
                count.to_string(),
                name.to_string(),
                spread(2 * index),
                spread(2 * index + 1),
                text(per_thread(samples, index, count, of)),
            ]);
        }
    }
    for (name, of) in accounts {
        let growth = text(per_further_thread(samples, threads, of));
        table.row(["each further thread", name, "-", "-", &growth]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_parses_smaps_rollup() {
        let text = "00400000-7fff ---p 00000000 00:00 0 [rollup]\n\
            Rss:  900 kB\nPrivate_Clean: 3 kB\nPrivate_Dirty:  120 kB\n";
        assert_eq!(Memory::parse(text), Some(Memory { resident_kib: 900, private_kib: 120 }));
        assert_eq!(Memory::parse(""), None);
    }

    #[test]
    fn difference_is_divided_by_threads() {
        let sample = |cell, private_kib| {
            let value = Memory { resident_kib: 0, private_kib };
            unconvoy_measure::cells::Sample::new(cell, 1, value)
        };
        let samples = Samples { all: vec![sample(0, 100), sample(1, 356)], ended_by: None };
        assert_eq!(per_further_thread(&samples, &[64], |memory| memory.private_kib), None);
        assert_eq!(
            per_thread(&samples, 0, 64, |memory| memory.private_kib).map(|spread| spread.median),
            Some(4.0)
        );
    }
}
