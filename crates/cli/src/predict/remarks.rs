//! What the emulated run did not see, in sentences: no report is empty without a reason.

use unconvoy_measure::child::describe;

use super::child::{Ended, Why};
use super::native::Native;
use super::trace::{End, Trace};

/// Sentences for a report.
pub fn of_emulated(ended: &Ended, trace: &Trace, native: &Native) -> Vec<String> {
    let mut remarks = Vec::new();
    match ended.why {
        Some(Why::Interrupted(_)) => {
            remarks.push("The emulated run was interrupted: what was seen until then is reported.".into())
        }
        Some(Why::TimedOut) => {
            remarks.push("The emulated run was ended by the time-out: what was seen until then is reported.".into());
        }
        None if ended.status != native.ended.status => {
            remarks.push(format!(
                "The emulated run: {}; natively: {}.",
                describe(ended.status),
                describe(native.ended.status)
            ));
        }
        None => {}
    }
    if trace.context.is_none() {
        remarks.push(
            "The plug-in told nothing: QEMU could not start the program, or did not load the plug-in (its own words are above).".into(),
        );
        return remarks;
    }
    if let Some(why) = &trace.cut_off {
        remarks.push(format!("The address sets end early ({why}): what had come until then is reported."));
    }
    if let Some(end) = &trace.end {
        remarks.extend(of_end(end));
    }
    remarks
}

fn of_end(end: &End) -> Vec<String> {
    let mut remarks = Vec::new();
    if end.functions.is_empty() {
        remarks.push("No function that locks was found in the program or its libraries: it uses no pthread locks, or was stripped of their names.".into());
    }
    if end.forks_not_followed > 0 {
        remarks.push(format!(
            "The program made {} that nobody followed: the locks of child processes were not seen.",
            number(end.forks_not_followed, "process", "processes")
        ));
    }
    if end.lost > 0 {
        remarks.push(format!("{} could not be written and are missing.", number(end.lost, "record", "records")));
    }
    if end.threads == 1 {
        remarks.push("The program had one thread: sections that could have run at once were not there.".into());
    }
    if end.unmatched_unlocks > 0 {
        remarks.push(format!("{} of what was never seen locked.", number(end.unmatched_unlocks, "unlock", "unlocks")));
    }
    remarks.extend(end.notes.iter().map(|note| format!("The plug-in: {note}.")));
    remarks
}

/// A number with its noun.
pub fn number(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
