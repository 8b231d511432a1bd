//! Runs many experiments in parallel and keeps the finished ones.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::experiment::{Measured, Task};
use crate::messages;
use crate::outcome::{Stop, Stopped};

/// An experiment and its position in tables and figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// Panel of a figure.
    pub panel: String,
    /// Line in the panel.
    pub series: String,
    /// Position on the line.
    pub x: f64,
    /// The experiment.
    pub task: Task,
}

/// The result of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Result {
    /// See [`Cell`].
    pub panel: String,
    /// See [`Cell`].
    pub series: String,
    /// See [`Cell`].
    pub x: f64,
    /// The measurements.
    pub measured: Measured,
}

/// The outcome of a grid's run.
#[derive(Debug, Default)]
pub struct Ended {
    /// Results of the finished cells, in their order.
    pub results: Vec<Result>,
    /// Errors of the failed cells.
    pub failures: Vec<String>,
    /// Whether every cell finished or failed.
    pub complete: bool,
}

/// Interval between the host's checks for a request to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Simulates all cells, `jobs` at a time. Calls `watch` with the results so far and `true` after
/// each cell, and with `false` in between. Stops when `watch` returns false.
pub fn run(cells: &[Cell], jobs: usize, mut watch: impl FnMut(&[Result], bool) -> bool) -> Ended {
    // Run the longest cells first, so that none of them delays the end.
    let mut order: Vec<usize> = (0..cells.len()).collect();
    order.sort_by(|&one, &other| cells[other].task.size().total_cmp(&cells[one].task.size()));
    let (next, stop) = (AtomicUsize::new(0), Stop::new(false));
    let mut finished: Vec<Option<Measured>> = vec![None; cells.len()];
    let (sender, receiver) = mpsc::channel();
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
            let (sender, next, stop, order) = (sender.clone(), &next, &stop, &order);
            scope.spawn(move || {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&cell) = order.get(place) else { return };
                    if stop.load(Ordering::Relaxed)
                        || sender.send((cell, cells[cell].task.run(stop))).is_err()
                    {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut tried = 0;
        loop {
            match receiver.recv_timeout(POLL_INTERVAL) {
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
                    let (panel, series) = (&cell.panel, &cell.series);
                    ended.failures.push(messages::cell_failed(panel, series, cell.x, &error));
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
