//! A load that is what it is told: for experiments and tests.

use super::{Reading, Sensor};

/// Always the same reading.
#[derive(Debug, Clone, Copy)]
pub struct Fixed(pub Reading);

impl Sensor for Fixed {
    fn begin(&mut self, _now: u64) {}

    fn read(&mut self, _now: u64) -> Option<Reading> {
        Some(self.0)
    }
}
