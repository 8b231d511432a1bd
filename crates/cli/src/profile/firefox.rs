//! The report for profiler.firefox.com. The longest waits are markers on their threads' tracks. All
//! waits are samples on one additional track, weighted by the time waited.

use std::time::Duration;

use anyhow::Context as _;
use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, CpuDelta, Frame, FrameFlags, FrameInfo, MarkerFieldFlags,
    MarkerFieldFormat, MarkerLocations, MarkerTiming, Profile, ReferenceTimestamp,
    SamplingInterval, StackHandle, StaticSchemaMarker, StaticSchemaMarkerField, StringHandle,
    ThreadHandle, Timestamp, WeightType,
};
use serde_json::Value;

use super::report::Report;

/// The id of the track of all waits, which no thread has.
const ALL: u32 = 0;

/// The marker of one wait.
struct Wait {
    lock: StringHandle,
    place: StringHandle,
    category: CategoryHandle,
}

impl StaticSchemaMarker for Wait {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "LockWait";
    const LOCATIONS: MarkerLocations =
        MarkerLocations::MARKER_CHART.union(MarkerLocations::MARKER_TABLE);
    const CHART_LABEL: Option<&'static str> = Some("{marker.name}");
    const TABLE_LABEL: Option<&'static str> = Some("{marker.name} in {marker.data.place}");
    const FIELDS: &'static [StaticSchemaMarkerField] = &[StaticSchemaMarkerField {
        key: "place",
        label: "Waits in",
        format: MarkerFieldFormat::String,
        flags: MarkerFieldFlags::SEARCHABLE,
    }];

    fn name(&self, _: &mut Profile) -> StringHandle {
        self.lock
    }

    fn category(&self, _: &mut Profile) -> CategoryHandle {
        self.category
    }

    fn string_field_value(&self, _: u32) -> StringHandle {
        self.place
    }

    fn number_field_value(&self, _: u32) -> f64 {
        0.0 // the marker has no number
    }
}

/// Encodes the report.
///
/// # Errors
///
/// None in practice: all keys of the profile's maps are strings.
pub fn encode(report: &Report) -> anyhow::Result<String> {
    let begin = Duration::from_nanos(report.begin_unix_ns);
    let mut profile = Profile::new(
        report.subject(),
        ReferenceTimestamp::from_duration_since_unix_epoch(begin),
        SamplingInterval::from_nanos(report.period_ns.max(1)),
    );
    profile.set_symbolicated(true);
    profile.set_os_name("Linux");
    let start = Timestamp::from_nanos_since_reference(0);
    let end = Timestamp::from_nanos_since_reference((report.seconds * 1e9) as u64);
    let process = profile.add_process(report.subject(), report.pid, start);
    profile.set_process_end_time(process, end);
    let category = profile.add_category("Waiting for a lock", CategoryColor::Orange);
    // The format names a main thread after its process.
    let all = profile.add_thread(process, ALL, start, false);
    profile.set_thread_name(all, "All waits");
    profile.set_thread_samples_weight_type(all, WeightType::TracingMs);
    profile.add_initial_visible_thread(all);
    profile.add_initial_selected_thread(all);
    let mut weights = Vec::new();
    for stack in &report.waiter_stacks {
        let frames = stack.frames.iter().chain([&stack.lock]);
        let handle = stack_of(&mut profile, all, category, frames);
        profile.add_sample(all, start, handle, CpuDelta::ZERO, 1);
        weights.push(stack.ns as f64 / 1e6);
    }
    let mut threads: Vec<u32> = report.longest.iter().map(|wait| wait.thread).collect();
    threads.sort_unstable();
    threads.dedup();
    for id in threads {
        let thread = profile.add_thread(process, id, start, false);
        profile.set_thread_name(thread, &format!("Thread {id}"));
        profile.set_thread_end_time(thread, end);
        profile.set_thread_show_markers_in_timeline(thread, true);
        profile.add_initial_visible_thread(thread);
        for wait in report.longest.iter().filter(|wait| wait.thread == id) {
            let to = (wait.at_seconds * 1e9) as u64;
            let [from, to] =
                [to.saturating_sub(wait.ns), to].map(Timestamp::from_nanos_since_reference);
            let lock = profile.intern_string(&wait.lock);
            let place = profile.intern_string(&wait.place);
            let timing = MarkerTiming::Interval(from, to);
            let marker = profile.add_marker(thread, timing, Wait { lock, place, category });
            let stack = stack_of(&mut profile, thread, category, wait.frames.iter());
            profile.set_marker_stack(thread, marker, stack);
        }
    }
    let mut value = serde_json::to_value(&profile)?;
    weigh(&mut value, &weights).context("a profile without samples")?;
    Ok(serde_json::to_string(&value)?)
}

/// Replaces the samples' weights by fractions of milliseconds: the crate has only whole numbers.
fn weigh(profile: &mut Value, weights: &[f64]) -> Option<()> {
    let threads = profile.get_mut("threads")?.as_array_mut()?;
    let thread = threads.iter_mut().find(|thread| thread["name"] == "All waits")?;
    *thread.get_mut("samples")?.get_mut("weight")? = weights.into();
    Some(())
}

fn stack_of<'a>(
    profile: &mut Profile,
    thread: ThreadHandle,
    category: CategoryHandle,
    frames: impl Iterator<Item = &'a String>,
) -> Option<StackHandle> {
    let frames: Vec<FrameInfo> = frames
        .map(|name| FrameInfo {
            frame: Frame::Label(profile.intern_string(name)),
            category_pair: category.into(),
            flags: FrameFlags::empty(),
        })
        .collect();
    profile.intern_stack_frames(thread, frames.into_iter())
}
