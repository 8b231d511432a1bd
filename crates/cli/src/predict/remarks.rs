//! Remarks about what the emulated run did not observe. Every empty report has a reason.

use unconvoy_measure::child::describe;

use super::native::Native;
use super::trace::{End, Trace};
use crate::child::{Ended, Why};

/// Returns one sentence per limitation.
pub fn of_emulated(ended: &Ended, trace: &Trace, native: &Native) -> Vec<String> {
    let mut remarks = Vec::new();
    match ended.why {
        Some(Why::Interrupted(_)) => remarks
            .push("The emulated run was interrupted: the report covers the run until then.".into()),
        Some(Why::TimedOut) => {
            remarks.push(
                "The time-out ended the emulated run: the report covers the run until then.".into(),
            );
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
            "The plug-in sent no data: QEMU could not start the program or load the plug-in (see \
             its message above), or the program has closed the plug-in's file."
                .into(),
        );
        return remarks;
    }
    if let Some(why) = &trace.cut_off {
        remarks.push(format!(
            "The address sets end early ({why}): the report covers the run until then."
        ));
    }
    if let Some(end) = &trace.end {
        remarks.extend(of_end(end));
    }
    remarks
}

fn of_end(end: &End) -> Vec<String> {
    let mut remarks = Vec::new();
    if end.functions.is_empty() {
        remarks.push(
            "No locking function was found in the program or its libraries: it uses no pthread \
             locks, or is stripped of their names."
                .into(),
        );
    }
    if end.forks_not_followed > 0 {
        remarks.push(format!(
            "The program created {}, whose locks were not observed.",
            number(end.forks_not_followed, "process", "processes")
        ));
    }
    if end.lost > 0 {
        remarks.push(format!(
            "{} lost because they could not be written.",
            number(end.lost, "record", "records")
        ));
    }
    if end.threads == 1 {
        remarks
            .push("The program had one thread, so no sections could have run concurrently.".into());
    }
    if end.unmatched_unlocks > 0 {
        remarks.push(format!(
            "The plug-in saw {} of locks that it had not seen acquired.",
            number(end.unmatched_unlocks, "unlock", "unlocks")
        ));
    }
    remarks.extend(end.notes.iter().map(|note| format!("The plug-in: {note}.")));
    remarks
}

/// Formats a count with its noun.
pub fn number(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
