//! The recorded sections of one lock, from a kept trace, for the study.

use std::collections::BTreeMap;
use std::path::Path;

use unconvoy_syncchar::{Access, Clock, LockTimes, Section};
use unconvoy_trace_stream::Record;

use super::kept::Kept;
use super::trace::{self, Context, End};
use crate::messages::predict as messages;

/// The recorded sections of one lock, and the times of their run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recorded {
    /// The lock's name.
    pub lock: String,
    /// What ran.
    pub program: Vec<String>,
    /// How it was recorded.
    pub source: String,
    /// The sampled sections, in the order of their unlocks.
    pub sections: Vec<(Section, Vec<Access>)>,
    /// The lock's measurements.
    pub times: LockTimes,
    /// Run time in seconds; for a kernel, the instructions of all processors except those of
    /// waiting, a nanosecond each.
    pub seconds: f64,
    /// Processors that had this time: 1 for a kernel.
    pub processors: f64,
    /// Names of words by address.
    pub words: BTreeMap<u64, String>,
    /// Places of conditional stores.
    pub conditional: Vec<u32>,
}

/// Reads the sections of a lock: the one that was held longest among those that `wanted` names, or
/// among all. A lock's number names it, and so does its name or a part of it.
///
/// # Errors
///
/// The file is no complete trace, has no times, or has no sections of such a lock.
pub fn read(path: &Path, wanted: Option<&str>) -> anyhow::Result<Recorded> {
    let in_file = |error: anyhow::Error| error.context(path.display().to_string());
    let summary = Summary::read(path)?;
    let number = summary.lock(wanted).map_err(in_file)?;
    let mut sections = Vec::new();
    each(path, |record| {
        if let Record::Section(section, entries) = record
            && section.lock == number
        {
            sections.push((*section, entries.iter().collect()));
        }
        Ok(())
    })?;
    let seconds = summary.kept.seconds.ok_or_else(|| anyhow::anyhow!(messages::no_run_time()));
    let seconds = seconds.map_err(in_file)?;
    let processors = summary.processors();
    let Kept { mut locks, mut times, program, source, words, conditional, .. } = summary.kept;
    let context = summary.context;
    let is_kernel = !program.is_empty();
    Ok(Recorded {
        lock: locks.remove(&number).unwrap_or_default(),
        program: if is_kernel { program } else { context.program },
        source: if is_kernel { source } else { context.source },
        sections,
        times: times.remove(&number).unwrap_or_default(),
        seconds,
        processors,
        words,
        conditional,
    })
}

/// Calls `with` for each record, up to the end record. Errors name the file.
fn each(path: &Path, mut with: impl FnMut(&Record) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let mut records = trace::open(path)?;
    let mut go = || {
        while let Some(record) =
            records.next_record().map_err(|error| anyhow::anyhow!(trace::reason(error)))?
        {
            with(&record)?;
        }
        Ok(())
    };
    go().map_err(|error: anyhow::Error| error.context(path.display().to_string()))
}

/// All of a trace but its sections.
#[derive(Default)]
struct Summary {
    context: Context,
    kept: Kept,
    /// Numbers of sections by lock.
    sections: BTreeMap<u32, u64>,
}

impl Summary {
    fn read(path: &Path) -> anyhow::Result<Self> {
        let mut summary = Summary::default();
        each(path, |record| {
            match record {
                Record::Context(json) => summary.context = trace::parsed("context", json)?,
                Record::Section(section, _) => {
                    *summary.sections.entry(section.lock).or_default() += 1;
                }
                // A collector's own stream has no times and names.
                Record::End(json) => {
                    summary.kept = trace::parsed::<End>("end", json)?.kept.unwrap_or_default();
                }
                _ => {}
            }
            Ok(())
        })?;
        Ok(summary)
    }

    fn lock(&self, wanted: Option<&str>) -> anyhow::Result<u32> {
        let name = |lock: &u32| self.kept.locks.get(lock).map_or("", String::as_str);
        let held = |lock: &u32| self.kept.times.get(lock).map_or(0.0, |times| times.held);
        let of_number = wanted.and_then(|wanted| wanted.parse().ok());
        let is_exact = |lock: &u32| Some(name(lock)) == wanted || Some(*lock) == of_number;
        let is_like = |lock: &u32| wanted.is_none_or(|wanted| name(lock).contains(wanted));
        let locks = || self.sections.keys().copied().filter(|lock| held(lock) > 0.0);
        let longest = |is_wanted: &dyn Fn(&u32) -> bool| {
            locks().filter(is_wanted).max_by(|one, other| held(one).total_cmp(&held(other)))
        };
        longest(&is_exact)
            .or_else(|| longest(&is_like))
            .ok_or_else(|| anyhow::anyhow!(messages::no_sections_of(wanted)))
    }

    fn processors(&self) -> f64 {
        match self.kept.clock {
            Clock::Native => f64::from(self.context.processors.max(1)),
            Clock::Instructions => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unconvoy_trace_stream::{End, MAGIC, append, append_section};

    fn trace(kept: &Kept) -> tempfile::NamedTempFile {
        let mut stream = MAGIC.to_vec();
        let context = r#"{"source":"qemu-user","program":["./server"],"processors":4}"#;
        append(&mut stream, &Record::Context(context));
        for (lock, order) in [(0, 1), (1, 2), (0, 3), (2, 4)] {
            let section = Section { lock, thread: order as u32, order, flags: 0 };
            let access = Access { address: 8 * order, read: 1, ..Access::default() };
            append_section(&mut stream, &section, &[access]);
        }
        append(&mut stream, &Record::End(&kept.end_record(Some(&End::default().json())).unwrap()));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), stream).unwrap();
        file
    }

    fn kept() -> Kept {
        let times = |held| LockTimes { acquisitions: 100, held, waited: 0.0 };
        let name = |number: u32, name: &str| (number, name.to_string());
        Kept {
            seconds: Some(2.0),
            times: [(0, times(0.5)), (1, times(1.0)), (2, times(0.1)), (3, times(2.0))].into(),
            locks: [name(0, "queue"), name(1, "cache"), name(2, "cache #2"), name(3, "log")].into(),
            ..Kept::default()
        }
    }

    #[test]
    fn lock_is_found_by_name_number_and_time_held() {
        let file = trace(&kept());
        let lock = |wanted: Option<&str>| read(file.path(), wanted).map(|recorded| recorded.lock);
        // `log` was held longest, but none of its sections was sampled.
        assert_eq!(lock(None).unwrap(), "cache");
        assert_eq!(lock(Some("ue")).unwrap(), "queue");
        assert_eq!(lock(Some("cache #2")).unwrap(), "cache #2");
        assert_eq!(lock(Some("2")).unwrap(), "cache #2");
        assert!(lock(Some("log")).unwrap_err().root_cause().to_string().contains("log"));
    }

    #[test]
    fn error_names_the_file_once() {
        let missing = read(Path::new("nothere"), None).map(drop).unwrap_err();
        let text = format!("{missing:#}");
        assert_eq!(text.matches("nothere").count(), 1, "{text}");
        let cut_off = trace(&Kept { seconds: None, ..kept() });
        let text = format!("{:#}", read(cut_off.path(), None).map(drop).unwrap_err());
        assert_eq!(text.matches(&*cut_off.path().to_string_lossy()).count(), 1, "{text}");
    }

    #[test]
    fn sections_of_lock_keep_their_order() {
        let recorded = read(trace(&kept()).path(), Some("queue")).unwrap();
        let orders: Vec<u64> = recorded.sections.iter().map(|(section, _)| section.order).collect();
        assert_eq!((orders, recorded.sections[1].1[0].address), (vec![1, 3], 24));
        assert_eq!((recorded.times.held, recorded.seconds, recorded.processors), (0.5, 2.0, 4.0));
        assert_eq!(recorded.program, ["./server"]);
    }

    #[test]
    fn complete_stream_of_collector_is_not_called_cut_off() {
        let mut stream = MAGIC.to_vec();
        append_section(&mut stream, &Section::default(), &[]);
        append(&mut stream, &Record::End(&End::default().json()));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), stream).unwrap();
        let why = read(file.path(), None).unwrap_err().root_cause().to_string();
        assert_eq!(why, messages::no_sections_of(None));
    }

    #[test]
    fn trace_without_times_is_rejected() {
        let cut_off = trace(&Kept { seconds: None, ..kept() });
        assert!(read(cut_off.path(), None).unwrap_err().root_cause().to_string().contains("time"));
    }
}
