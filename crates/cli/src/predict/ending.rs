//! The end of a trace that is being kept.

use super::kept::Kept;
use super::messages::complain;
use super::outputs::Outputs;
use super::trace::Trace;

/// Ends the trace that is being kept, if one is, with what else is known; 1 if it cannot be kept.
pub(super) fn keep(trace: &Trace, outputs: &mut Outputs, kept: impl FnOnce() -> Kept) -> anyhow::Result<u8> {
    let failed = match (&trace.not_kept, outputs.trace()) {
        (Some(why), _) => Some(why.to_string()),
        (None, Some(writer)) => {
            let end = kept().end_record(trace.end_json.as_deref())?;
            writer.write(&unconvoy_trace_stream::Record::End(&end)).err().map(|error| error.to_string())
        }
        (None, None) => None,
    };
    if let Some(why) = &failed {
        complain(&format!("the trace could not be kept: {why}"));
    }
    Ok(u8::from(failed.is_some()))
}
