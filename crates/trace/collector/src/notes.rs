//! What the collector could not see, in sentences for the reader of the report.

use std::sync::Mutex;

/// The most notes kept.
const NOTES: usize = 32;

/// See the [module](self).
#[derive(Default)]
pub struct Notes(Mutex<Vec<String>>);

impl Notes {
    /// Starts without notes.
    pub const fn new() -> Self {
        Notes(Mutex::new(Vec::new()))
    }

    /// Adds a note, unless it is there already or there are too many.
    pub fn add(&self, what: String) {
        let mut notes = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if notes.len() < NOTES && !notes.contains(&what) {
            notes.push(what);
        }
    }

    /// The notes so far.
    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }
}
