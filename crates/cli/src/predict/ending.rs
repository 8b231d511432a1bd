//! Completion of a kept trace.

use unconvoy_measure::output::complain;

use super::kept::Kept;
use super::outputs::Outputs;
use super::trace::Trace;
use crate::messages::predict as messages;

/// Writes the end record of the kept trace, if there is one. Returns 1 if the trace could not be
/// kept.
pub(super) fn keep(
    trace: &Trace,
    outputs: &mut Outputs,
    kept: impl FnOnce() -> Kept,
) -> anyhow::Result<u8> {
    let failed = match (&trace.not_kept, outputs.trace()) {
        (Some(why), _) => Some(why.to_string()),
        (None, Some(writer)) => {
            let end = kept().end_record(trace.end_json.as_deref())?;
            writer
                .write(&unconvoy_trace_stream::Record::End(&end))
                .err()
                .map(|error| error.to_string())
        }
        (None, None) => None,
    };
    if let Some(why) = &failed {
        complain(&messages::cannot_keep_trace(why));
    }
    Ok(u8::from(failed.is_some()))
}
