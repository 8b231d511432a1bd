//! Numbers of places in the code. Each place is written to the stream at its first use.

use crate::log::Log;
use std::collections::HashMap;
use std::sync::{Mutex, OnceLock};
use unconvoy_trace_stream::{Place, Record};

/// See the [module](self).
#[derive(Default)]
pub struct Places {
    numbers: OnceLock<Mutex<HashMap<u64, u32>>>,
}

impl Places {
    /// Starts without places.
    pub const fn new() -> Self {
        Places { numbers: OnceLock::new() }
    }

    /// The number of the place at `pc`, from 1.
    pub fn number(&self, log: &Log, pc: u64) -> u32 {
        let numbers = self.numbers.get_or_init(Mutex::default);
        let mut numbers = numbers.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let next = numbers.len() as u32 + 1;
        *numbers.entry(pc).or_insert_with(|| {
            // Write the record before another thread can see the number.
            log.append_record(&Record::Place(Place { number: next, pc }));
            next
        })
    }
}
