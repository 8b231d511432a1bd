//! Counts awake threads after a change of the target.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde::Serialize;
use unconvoy::parking::slots::SleepSlots;
use unconvoy::primitive::Native;
use unconvoy::runtime::load_control;

use crate::asplos::series::Series;

/// The two ways to count; both read the same counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Sampler {
    /// Poll in the thread that changes the target; polling takes a processor from the contenders
    Driver,
    /// Count in each contending thread while it holds the lock; no samples while no thread holds it
    Contenders,
}

/// A series that is being recorded.
struct Open {
    begin: Instant,
    series: Series,
}

/// Samples the number of awake threads.
pub struct Watch {
    threads: u32,
    slots: &'static SleepSlots<Native>,
    is_open: AtomicBool,
    open: Mutex<Option<Open>>,
}

impl Watch {
    /// Watches `threads` threads that only contend.
    pub fn new(threads: u32) -> Arc<Self> {
        Arc::new(Self {
            threads,
            slots: &load_control().slots,
            is_open: AtomicBool::new(false),
            open: Mutex::new(None),
        })
    }

    fn awake(&self) -> u32 {
        self.threads.saturating_sub(self.slots.sleeping())
    }

    /// Adds a sample, if a series is open.
    pub fn sample(&self) {
        if !self.is_open.load(Ordering::Relaxed) {
            return;
        }
        // Another thread holds this mutex only at the start or the end of a series. The sample is
        // then dropped.
        if let Ok(mut open) = self.open.try_lock()
            && let Some(open) = open.as_mut()
        {
            let awake = self.awake();
            let ns = u64::try_from(open.begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
            open.series.sample(ns, awake);
        }
    }

    /// Sets the target, and watches the count for `length`.
    pub fn change(&self, target: u32, sampler: Sampler, length: Duration) -> Series {
        let series = Series::new(self.awake(), self.threads - target.min(self.threads));
        let begin = Instant::now();
        *self.lock() = Some(Open { begin, series: series.clone() });
        self.is_open.store(true, Ordering::Relaxed);
        self.slots.set_target(target);
        self.sample();
        match sampler {
            Sampler::Driver => {
                while begin.elapsed() < length {
                    self.sample();
                }
            }
            Sampler::Contenders => thread::sleep(length),
        }
        self.sample();
        self.is_open.store(false, Ordering::Relaxed);
        self.lock().take().map_or(series, |open| open.series)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Open>> {
        // No holder panics, and a series is valid at any time.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
