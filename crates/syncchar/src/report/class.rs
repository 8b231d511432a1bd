//! Groups locks of one kind. A kernel has thousands of locks in objects of few types, and a change
//! to the code affects all locks of a type.

use super::mean::averages;
use super::names::Names;
use super::record::{ClassReport, LockReport, LockTimes};
use std::collections::BTreeMap;

/// The classes of all locks that have one, held longest first. `unsampled` locks were held but are
/// not in the reports.
pub(super) fn by_class(
    locks: &[LockReport],
    unsampled: &BTreeMap<u32, LockTimes>,
    seconds: Option<f64>,
    processors: &[u32],
    names: &impl Names,
) -> Vec<ClassReport> {
    let mut sampled: BTreeMap<&str, Vec<&LockReport>> = BTreeMap::new();
    for lock in locks {
        if let Some(class) = &lock.class {
            sampled.entry(class).or_default().push(lock);
        }
    }
    let mut others: BTreeMap<String, Vec<&LockTimes>> = BTreeMap::new();
    for (lock, times) in unsampled {
        if let Some(class) = names.class(*lock) {
            others.entry(class).or_default().push(times);
        }
    }
    let mut names: Vec<&str> =
        sampled.keys().copied().chain(others.keys().map(String::as_str)).collect();
    names.sort_unstable();
    names.dedup();
    let class = |name: &str| {
        let (reports, others) =
            (sampled.get(name).map_or(&[][..], Vec::as_slice), others.get(name));
        let others = others.map_or(&[][..], Vec::as_slice);
        let mut times = LockTimes::default();
        for part in
            reports.iter().filter_map(|lock| lock.times.as_ref()).chain(others.iter().copied())
        {
            times.acquisitions += part.acquisitions;
            times.held += part.held;
            times.waited += part.waited;
        }
        ClassReport {
            name: name.to_string(),
            locks: (reports.len() + others.len()) as u64,
            share: seconds.filter(|seconds| *seconds > 0.0).map(|seconds| times.held / seconds),
            sections: reports.iter().map(|lock| lock.analysis.sections).sum(),
            average: averages(reports.iter().copied(), processors),
            times,
        }
    };
    let mut classes: Vec<ClassReport> = names.into_iter().map(class).collect();
    classes.sort_by(|a, b| b.times.held.total_cmp(&a.times.held).then_with(|| a.name.cmp(&b.name)));
    classes
}
