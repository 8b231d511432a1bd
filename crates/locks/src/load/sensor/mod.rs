//! Sensors: how many threads of the process want a processor, and how many it may use.

#[cfg(not(loom))]
pub mod capacity;
#[cfg(not(loom))]
pub(crate) mod file;
pub mod fixed;
#[cfg(not(loom))]
pub mod schedstat;

/// One reading.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// Threads of the process on a processor or waiting for one, on average since the last reading.
    pub runnable: f64,
    /// Those of them that waited.
    pub waiting: f64,
    /// Processors that the process may use; a quota makes it a fraction.
    pub capacity: f64,
}

/// A source of readings. It runs on the controller, which has no thread-local storage of its own:
/// see the native platform's controller thread.
pub trait Sensor {
    /// The first interval begins.
    fn begin(&mut self, now: u64);

    /// Reads the interval since the last call; `None` if there is nothing to read.
    fn read(&mut self, now: u64) -> Option<Reading>;

    /// Told before a reading of every thread that sleeps now, and the place in the sleep-slot
    /// sequence where it does: at the same place as at the last reading, it slept all the time.
    fn expect_asleep(&mut self, _thread: u32, _slot: u32) {}
}
