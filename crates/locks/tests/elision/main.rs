//! Lock elision: its decisions, on a machine with scripted transactions; and its effects on this
//! machine, if transactions commit here.
#![cfg(not(loom))]

mod machine;
mod mutex;
mod rwlock;

use unconvoy::catalogue::{Availability, availability};

/// Whether transactions commit on this machine.
fn commits() -> bool {
    match availability("elided") {
        Availability::Refused(reason) => println!("skipped: {reason}"),
        other => {
            assert_eq!(other, Availability::Full);
            return true;
        }
    }
    false
}
