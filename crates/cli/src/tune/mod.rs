//! `unconvoy tune`: from a slow program to a remedy, lock by lock, with nothing rebuilt.

pub mod options;

use options::TuneArgs;
use unconvoy_measure::output::print;

use crate::profile;

/// Advises by records, and returns the exit status.
///
/// # Errors
///
/// A record that cannot be read (1).
pub fn tune(args: &TuneArgs) -> anyhow::Result<u8> {
    for record in &args.advise {
        print(&profile::advice_of(record)?)?;
    }
    Ok(0)
}
