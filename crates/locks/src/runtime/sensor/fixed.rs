//! A fixed load target for experiments: the process's load against a capacity that the user sets.
//!
//! The ASPLOS 2010 paper steers towards a target regardless of the machine (sections 2.3 and 5.1,
//! Figures 5 and 8). This sensor does the same for a whole program.

use super::schedstat::Schedstat;
use crate::load::sensor::{Reading, Sensor};

/// Run and run-queue times against a fixed number of processors.
pub struct Fixed {
    load: Schedstat,
    capacity: f64,
}

impl Fixed {
    /// Sets the target to `capacity` runnable threads.
    pub fn new(capacity: f64, load: Schedstat) -> Self {
        Fixed { load, capacity }
    }
}

impl Sensor for Fixed {
    fn begin(&mut self, now: u64) {
        self.load.begin(now);
    }

    fn read(&mut self, now: u64) -> Option<Reading> {
        Some(Reading { capacity: self.capacity, ..self.load.read(now)? })
    }

    fn expect_asleep(&mut self, thread: u32, slot: u32) {
        self.load.expect_asleep(thread, slot);
    }
}
