//! Completion of a kept trace.

use unconvoy_measure::output::complain;

use super::kept::Kept;
use super::outputs::Outputs;
use super::trace::Trace;
use crate::messages::predict as messages;

/// Writes the end record of the kept trace, if there is one. Returns 1 if the trace could not be
/// kept, or has nothing: an earlier file of its name then stays as it was.
pub(super) fn keep(
    trace: &Trace,
    outputs: &mut Outputs,
    kept: impl FnOnce() -> Kept,
) -> anyhow::Result<u8> {
    let Some(writer) = outputs.trace() else { return Ok(0) };
    let failed = match &trace.not_kept {
        Some(why) => Some(why.clone()),
        None if trace.context.is_none() => Some(messages::nothing_recorded().into()),
        None => {
            let end = kept().end_record(trace.end_json.as_deref())?;
            writer
                .write(&unconvoy_trace_stream::Record::End(&end))
                .err()
                .map(|error| error.to_string())
        }
    };
    if let Some(why) = &failed {
        complain(&messages::cannot_keep_trace(why));
        outputs.discard_trace();
    }
    Ok(u8::from(failed.is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_without_data_leaves_earlier_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("trace.parquet");
        std::fs::write(&file, "an earlier trace").unwrap();
        let nothing = Trace::without_a_start("interrupted".into());
        let mut not_kept = Trace::without_a_start("interrupted".into());
        not_kept.not_kept = Some("No space left on device (os error 28)".into());
        for trace in [nothing, not_kept] {
            // Any program that starts may stand for `unconvoy-parquet`.
            let mut outputs = Outputs::of_trace(&file, "true".into()).unwrap();
            assert!(outputs.trace().is_some());
            assert_eq!(keep(&trace, &mut outputs, Kept::default).unwrap(), 1);
            assert!(outputs.trace().is_none(), "no second message from its end");
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "an earlier trace");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
