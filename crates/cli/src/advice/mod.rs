//! Advice on a program's locks: what is wrong, what would help, and how much.
//!
//! [`evidence`] collects the numbers of a profile and of predictions. The [`rules`] make advice of
//! them, with the expected gain from [`gain`]. [`entry`] names a lock for a strategy file.

pub mod entry;
mod evidence;
pub mod finding;
mod gain;
mod rules;
pub mod text;

use unconvoy_profile::Recorded;
use unconvoy_syncchar::Report as Prediction;

use crate::profile::report::Report;
use finding::Advice;

/// The advice on a profile, in order of worth. `predictions` are of the same program.
pub fn advise(recorded: &Recorded, report: &Report, predictions: &[Prediction]) -> Vec<Advice> {
    rules::advise(&evidence::Evidence::of(recorded, report, predictions))
}
