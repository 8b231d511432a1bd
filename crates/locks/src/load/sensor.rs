//! What a sensor measures: how many threads of the process want a processor, and how many it may use.

/// One reading.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// Threads of the process on a processor or waiting for one, on average since the last reading.
    pub runnable: f64,
    /// The part of them that waited; where the sensor cannot tell, those beyond the capacity.
    pub waiting: f64,
    /// Processors that the process may use; a quota makes it a fraction.
    pub capacity: f64,
}

impl Reading {
    /// A reading of a sensor that cannot tell who runs and who waits.
    pub fn of_runnable(runnable: f64, capacity: f64) -> Self {
        Reading { runnable, waiting: (runnable - capacity).max(0.0), capacity }
    }
}

/// A source of readings. It runs on the controller, which has no thread-local storage of its own:
/// see the runtime's bare thread.
pub trait Sensor {
    /// The first interval begins.
    fn begin(&mut self, now: u64);

    /// Reads the interval since the last call; `None` if there is nothing to read.
    fn read(&mut self, now: u64) -> Option<Reading>;

    /// Called before a reading for every thread that sleeps now, and the place in the sleep-slot
    /// sequence where it does: at the same place as at the last reading, it slept all the time.
    fn expect_asleep(&mut self, _thread: u32, _slot: u32) {}
}

/// The load at this moment, from a sensor that learns of each change (ASPLOS 2010, section 6.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveLoad {
    /// Threads of the process on a processor or waiting for one.
    pub runnable: u32,
    /// With fewer runnable than this, a processor is free.
    pub low: u32,
    /// With more runnable than this, a waiter should sleep.
    pub high: u32,
}
