//! The time of one reading of each sensor over the number of threads, with descriptors kept open
//! and with descriptors opened each time.

use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;
use unconvoy::load::sensor::Sensor;
use unconvoy::primitive::{Clock as _, Native, Threads as _};
use unconvoy::runtime::sensor::choice::{Choice, ChosenSensor};
use unconvoy_measure::cells::Samples;
use unconvoy_measure::goal::Judgement;
use unconvoy_measure::interrupt::Interrupts;
use unconvoy_measure::statistics::{Spread, short};
use unconvoy_measure::table::Table;

use crate::goals;
use crate::messages;
use crate::threads::Threads;

/// Stack size of a thread that only sleeps.
const STACK: usize = 64 * 1024;
const GOAL_THREADS: u32 = 64;

/// One kind of reading.
#[derive(Debug, Serialize)]
pub struct Cell {
    sensor: &'static str,
    #[serde(skip)]
    choice: Choice,
    threads: u32,
    kept: bool,
}

impl Cell {
    pub fn name(&self) -> String {
        format!("{} reading {} threads, descriptors {}", self.sensor, self.threads, self.how())
    }

    fn how(&self) -> &'static str {
        match self.choice {
            Choice::Bpf => "none",
            _ if self.kept => "kept",
            _ => "opened each time",
        }
    }
}

/// Returns the cells in the order of the table's rows.
pub fn cells(sensors: &[Choice], threads: &[u32]) -> Vec<Cell> {
    let of_sensor = |&choice: &Choice| {
        // The kernel's count has no descriptors to open.
        let ways: &[bool] = if choice == Choice::Bpf { &[true] } else { &[true, false] };
        let cell = move |threads, kept| Cell { sensor: choice.name(), choice, threads, kept };
        threads.iter().flat_map(move |&threads| ways.iter().map(move |&kept| cell(threads, kept)))
    };
    sensors.iter().flat_map(of_sensor).collect()
}

/// Times `count` readings, `interval` nanoseconds apart, in microseconds. The sensor's first
/// reading, which opens its files, is not counted.
pub fn measure(cell: &Cell, count: u32, interval: u64) -> anyhow::Result<Vec<f64>> {
    let _sleepers = Threads::start(cell.threads, Some(STACK), || thread::park)?;
    let mut sensor = ChosenSensor::new(cell.choice, cell.kept, Native::thread_id());
    sensor.begin(Native::now());
    let mut times = Vec::with_capacity(count as usize);
    let interrupts = Interrupts::of_process()?;
    for _ in 0..count {
        interrupts.check()?;
        thread::sleep(Duration::from_nanos(interval));
        let begin = Native::now();
        let reading = sensor.read(begin);
        times.push((Native::now() - begin) as f64 / 1e3);
        reading.context(messages::nothing_to_read())?;
    }
    Ok(times)
}

/// Returns the spread of all readings of a cell, over all rounds.
fn spread(samples: &Samples<Vec<f64>>, cell: usize) -> Option<Spread> {
    Spread::of(
        samples
            .all
            .iter()
            .filter(|sample| sample.cell == cell)
            .flat_map(|sample| sample.value.iter().copied()),
    )
}

pub fn judge(cells: &[Cell], samples: &Samples<Vec<f64>>) -> Judgement {
    let cell = cells.iter().position(|cell| {
        cell.choice == Choice::Schedstat && cell.kept && cell.threads == GOAL_THREADS
    });
    match cell.and_then(|cell| spread(samples, cell)) {
        Some(spread) => {
            goals::READING.judge(spread.median, format!("median of {} readings", spread.count))
        }
        None => {
            goals::READING.not_judged(format!("needs --sensors schedstat --threads {GOAL_THREADS}"))
        }
    }
}

pub fn table(cells: &[Cell], samples: &Samples<Vec<f64>>) -> Table {
    let mut table = Table::new(
        "One reading of a sensor, us",
        ["sensor", "sleeping threads", "descriptors", "readings", "median", "min", "max"],
    );
    for (index, cell) in cells.iter().enumerate() {
        if let Some(spread) = spread(samples, index) {
            let figures = [spread.median, spread.min, spread.max].map(short);
            table.row(
                [
                    cell.sensor.to_string(),
                    cell.threads.to_string(),
                    cell.how().to_string(),
                    spread.count.to_string(),
                ]
                .into_iter()
                .chain(figures),
            );
        }
    }
    table
}
