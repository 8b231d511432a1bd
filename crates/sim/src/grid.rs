//! Runs many experiments in parallel and keeps the finished ones.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError, mpsc};
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

/// Most simulated threads of all cells at a time. The stack of a thread takes two mappings, and
/// Linux allows a process 65,530 of them by default (`vm.max_map_count`).
const MOST_THREADS: u32 = 30_000;

/// The simulated threads that may exist at a time.
struct Budget {
    most: u32,
    used: Mutex<u32>,
    freed: Condvar,
}

/// The simulated threads of a cell. The budget gets them back when the share is dropped.
struct Share<'a> {
    budget: &'a Budget,
    threads: u32,
}

impl Budget {
    fn new(most: u32) -> Self {
        Budget { most, used: Mutex::new(0), freed: Condvar::new() }
    }

    /// Waits until `threads` more threads may exist. A cell with more than the limit runs alone.
    fn take(&self, threads: u32) -> Share<'_> {
        let threads = threads.min(self.most);
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = |used: &mut u32| *used + threads > self.most;
        let free = self.freed.wait_while(used, is_full);
        *free.unwrap_or_else(PoisonError::into_inner) += threads;
        Share { budget: self, threads }
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        *self.budget.used.lock().unwrap_or_else(PoisonError::into_inner) -= self.threads;
        self.budget.freed.notify_all();
    }
}

/// Simulates all cells, `jobs` at a time, or fewer if these would have too many threads. Calls
/// `watch` with the results so far and `true` after each cell, and with `false` in between. Stops
/// when `watch` returns false.
pub fn run(cells: &[Cell], jobs: usize, mut watch: impl FnMut(&[Result], bool) -> bool) -> Ended {
    // Run the longest cells first, so that none of them delays the end.
    let mut order: Vec<usize> = (0..cells.len()).collect();
    order.sort_by(|&one, &other| cells[other].task.size().total_cmp(&cells[one].task.size()));
    let (next, stop) = (AtomicUsize::new(0), Stop::new(false));
    let budget = Budget::new(MOST_THREADS);
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
            let budget = &budget;
            scope.spawn(move || {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&cell) = order.get(place) else { return };
                    let task = &cells[cell].task;
                    let _share = budget.take(task.threads());
                    if stop.load(Ordering::Relaxed) || sender.send((cell, task.run(stop))).is_err()
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::sync::atomic::Ordering::SeqCst;

    use super::*;

    /// The most shares of `threads` threads that existed at a time.
    fn most_at_a_time(budget: &Budget, threads: u32) -> u32 {
        let (now, most) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let _share = budget.take(threads);
                        most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
                        std::thread::yield_now();
                        now.fetch_sub(1, SeqCst);
                    }
                });
            }
        });
        most.into_inner()
    }

    #[test]
    fn cells_beyond_the_budget_of_threads_wait() {
        let budget = Budget::new(10);
        assert!(most_at_a_time(&budget, 4) <= 2);
        assert_eq!(most_at_a_time(&budget, 11), 1, "more than the limit: alone");
        assert_eq!(budget.used.into_inner().expect("no thread panicked"), 0);
    }
}
