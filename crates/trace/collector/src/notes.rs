//! What could not be seen, in words, for whoever reads the report.

use std::sync::Mutex;

/// The most notes that are kept.
const NOTES: usize = 32;

/// See the [module](self).
#[derive(Default)]
pub struct Notes(Mutex<Vec<String>>);

impl Notes {
    /// No notes yet.
    pub const fn new() -> Self {
        Notes(Mutex::new(Vec::new()))
    }

    /// Remembers one, once, unless there are too many.
    pub fn add(&self, what: String) {
        let mut notes = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if notes.len() < NOTES && !notes.contains(&what) {
            notes.push(what);
        }
    }

    /// Those so far.
    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }
}
