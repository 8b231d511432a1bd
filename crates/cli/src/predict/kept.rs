//! What unconvoy adds to the end record of a kept trace, under the key `unconvoy`, so that another analysis, on another machine, has no need of the program's files or of another run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use unconvoy_syncchar::{Clock, LockTimes};

/// See the [module](self).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Kept {
    /// The native run's time, seconds.
    pub seconds: Option<f64>,
    /// Of locks by number: what the native run measured.
    pub times: BTreeMap<u32, LockTimes>,
    /// Locks' names.
    pub locks: BTreeMap<u32, String>,
    /// Of locks that are one of many of their kind: what all of these are called.
    pub classes: BTreeMap<u32, String>,
    /// What ran, where the collector cannot tell: in a guest.
    pub program: Vec<String>,
    /// On what, likewise.
    pub source: String,
    /// What the times mean.
    pub clock: Clock,
    /// Places' names.
    pub places: BTreeMap<u32, String>,
    /// Places of stores that the source makes only under a condition.
    pub conditional: Vec<u32>,
    /// Names of words in the report that was made when the trace was kept, by address.
    pub words: BTreeMap<u64, String>,
    /// What was not seen in the runs.
    pub remarks: Vec<String>,
}

impl Kept {
    /// The end record: the collector's own, or an empty one if it told none, and this.
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
    fn the_collectors_own_end_stays() {
        let kept = Kept { words: BTreeMap::from([(0x1000, "counter".to_string())]), ..Kept::default() };
        let json = kept.end_record(Some(r#"{"seen":3}"#)).unwrap();
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["seen"], 3);
        assert_eq!(serde_json::from_value::<Kept>(value["unconvoy"].clone()).unwrap(), kept);
        assert!(kept.end_record(None).unwrap().starts_with(r#"{"unconvoy""#));
    }
}
