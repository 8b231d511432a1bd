//! What a sensor measures: how many threads of the process want a processor, and how many
//! processors they may use.

/// One reading.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// Threads of the process on a processor or waiting for one, averaged since the last reading.
    pub runnable: f64,
    /// The number of these threads that waited. A sensor that cannot count them reports the threads
    /// beyond the capacity.
    pub waiting: f64,
    /// Processors that the process may use; a fraction under a quota.
    pub capacity: f64,
}

impl Reading {
    /// A reading from a sensor that does not separate running from waiting threads.
    pub fn of_runnable(runnable: f64, capacity: f64) -> Self {
        Reading { runnable, waiting: (runnable - capacity).max(0.0), capacity }
    }
}

impl Reading {
    /// The reading without threads that only polled for events, on average `polling`.
    #[must_use]
    pub(super) fn without(self, polling: f64) -> Self {
        Reading { runnable: (self.runnable - polling).max(0.0), ..self }
    }
}

/// A source of readings. It runs on the controller's thread, which has no thread-local storage of
/// its own (see the runtime's bare thread).
pub trait Sensor {
    /// Begins the first interval.
    fn begin(&mut self, now: u64);

    /// Reads the interval since the last call; `None` if there is nothing to read.
    fn read(&mut self, now: u64) -> Option<Reading>;

    /// Announces, before a reading, a thread that sleeps now and its sleep slot's sequence number.
    /// If the number is the same as at the last reading, the thread slept through the whole
    /// interval.
    fn expect_asleep(&mut self, _thread: u32, _slot: u32) {}
}

/// The current load, from a sensor that sees each change (ASPLOS 2010, section 6.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveLoad {
    /// Threads of the process on a processor or waiting for one.
    pub runnable: u32,
    /// With fewer runnable threads, a processor is free.
    pub low: u32,
    /// With more runnable threads, a waiter should sleep.
    pub high: u32,
}
