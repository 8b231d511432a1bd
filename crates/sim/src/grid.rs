//! Many experiments, on all processors of the host at a time. What has finished is kept.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::experiment::{Measured, Task};
use crate::outcome::{Stop, Stopped};

/// An experiment and its place in tables and figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// Which panel of a figure.
    pub panel: String,
    /// Which line in it.
    pub series: String,
    /// Where on the line.
    pub x: f64,
    /// What is simulated.
    pub task: Task,
}

/// What a cell gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Result {
    /// See [`Cell`].
    pub panel: String,
    /// See [`Cell`].
    pub series: String,
    /// See [`Cell`].
    pub x: f64,
    /// What was measured.
    pub measured: Measured,
}

/// How a grid ended.
#[derive(Debug, Default)]
pub struct Ended {
    /// What has finished, in the order of the cells.
    pub results: Vec<Result>,
    /// What went wrong, by cell.
    pub failures: Vec<String>,
    /// Whether all cells were tried.
    pub complete: bool,
}

/// How often the host looks whether it should stop.
const LOOK: Duration = Duration::from_millis(100);

/// Simulates all cells, `jobs` at a time. `watch` is told of the results so far after each, and asked in between whether
/// to go on.
pub fn run(cells: &[Cell], jobs: usize, mut watch: impl FnMut(&[Result], bool) -> bool) -> Ended {
    // The longest first, so that no processor is left with one at the end.
    let mut order: Vec<usize> = (0..cells.len()).collect();
    order.sort_by(|&one, &other| cells[other].task.size().total_cmp(&cells[one].task.size()));
    let (next, stop) = (AtomicUsize::new(0), Stop::new(false));
    let mut finished: Vec<Option<Measured>> = vec![None; cells.len()];
    let (told, news) = mpsc::channel();
    let mut ended = Ended::default();
    let collect = |finished: &[Option<Measured>]| -> Vec<Result> {
        let result = |(cell, measured): (&Cell, &Option<Measured>)| {
            let (panel, series) = (cell.panel.clone(), cell.series.clone());
            measured.clone().map(|measured| Result { panel, series, x: cell.x, measured })
        };
        cells.iter().zip(finished).filter_map(result).collect()
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, cells.len().max(1)) {
            let (told, next, stop, order) = (told.clone(), &next, &stop, &order);
            scope.spawn(move || {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&cell) = order.get(place) else { return };
                    if stop.load(Ordering::Relaxed) || told.send((cell, cells[cell].task.run(stop))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(told);
        let mut tried = 0;
        loop {
            match news.recv_timeout(LOOK) {
                Ok((cell, Ok(measured))) => {
                    tried += 1;
                    finished[cell] = Some(measured);
                    if !watch(&collect(&finished), true) {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
                Ok((_, Err(error))) if error.is::<Stopped>() => {}
                Ok((cell, Err(error))) => {
                    tried += 1;
                    let cell = &cells[cell];
                    ended.failures.push(format!("{} {} at {}: {error:#}", cell.panel, cell.series, cell.x));
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    if !watch(&[], false) {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
        ended.complete = tried == cells.len();
    });
    ended.results = collect(&finished);
    ended
}
