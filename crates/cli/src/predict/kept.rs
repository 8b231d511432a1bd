//! What unconvoy adds to the end record of a kept trace, under the key `unconvoy`. With it, another
//! machine can analyse the trace without the program's files or another run.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use unconvoy_syncchar::{Clock, LockTimes, TransactionCosts};

/// See the [module](self).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Kept {
    /// Duration of the native run, seconds.
    pub seconds: Option<f64>,
    /// Native measurements by lock number.
    pub times: BTreeMap<u32, LockTimes>,
    /// Names by lock number.
    pub locks: BTreeMap<u32, String>,
    /// Names of lock classes by lock number, for locks that are one of many of their kind.
    pub classes: BTreeMap<u32, String>,
    /// The command that ran in a guest. The collector does not know it.
    pub program: Vec<String>,
    /// The guest's kernel and processors, which the collector does not know either.
    pub source: String,
    /// Unit and meaning of the times.
    pub clock: Clock,
    /// What transactions cost on the machine of the native run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub costs: Option<TransactionCosts>,
    /// Names by place number.
    pub places: BTreeMap<u32, String>,
    /// Places of stores that are conditional in the source.
    pub conditional: Vec<u32>,
    /// Names, by address, of the words in the report of the run that wrote the trace.
    pub words: BTreeMap<u64, String>,
    /// The program's files. They name what the report of that run did not, unless they have
    /// changed.
    pub files: BTreeMap<PathBuf, Version>,
    /// Limitations of the runs.
    pub remarks: Vec<String>,
}

/// What differs after a file has been replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Bytes.
    size: u64,
    /// Time of the last change, in nanoseconds after 1970.
    changed: i128,
}

impl Version {
    /// Returns the version of a file; `None` if there is none.
    pub fn of(path: &Path) -> Option<Self> {
        let found = path.metadata().ok()?;
        let changed = i128::from(found.mtime()) * 1_000_000_000 + i128::from(found.mtime_nsec());
        Some(Version { size: found.len(), changed })
    }
}

impl Kept {
    /// Returns the collector's end record, or an empty one if there was none, with this added.
    pub fn end_record(&self, collectors: Option<&str>) -> serde_json::Result<String> {
        let mut end: serde_json::Map<String, serde_json::Value> = match collectors {
            Some(json) => serde_json::from_str(json)?,
            None => serde_json::Map::new(),
        };
        end.insert("unconvoy".to_string(), serde_json::to_value(self)?);
        serde_json::to_string(&end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_record_keeps_collectors_fields() {
        let kept =
            Kept { words: BTreeMap::from([(0x1000, "counter".to_string())]), ..Kept::default() };
        let json = kept.end_record(Some(r#"{"seen":3}"#)).unwrap();
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["seen"], 3);
        assert_eq!(serde_json::from_value::<Kept>(value["unconvoy"].clone()).unwrap(), kept);
        assert!(kept.end_record(None).unwrap().starts_with(r#"{"unconvoy""#));
    }
}
