//! `unconvoy tune --advise`, and the advice in a profile's report, on profiles with known content.

mod known;
mod stage;

use std::sync::atomic::Ordering::Relaxed;

use known::Known;
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;
use stage::Stage;
use unconvoy_profile::layout::COUNT_UNIT;
use unconvoy_profile::observation::{HolderSamples, LockSpan, Observation, Usage};
use unconvoy_profile::{Kind, Source};
use unconvoy_syncchar::{Access, Analysis, LockTimes, Names, Options, Report, Run, Section};

const SECOND: u64 = 1_000_000_000;

/// A profile of two seconds in which eight threads take `queue_lock` for a short time. `call` is
/// what the holders do.
fn contended(call: u32) -> Known {
    let known = Known::new();
    let address = known.address("queue_lock");
    let waiter = known.profile.stack(&[known.address("wait_here") + 2], 0);
    let holder = known.profile.stack(&[known.address("hold_here") + 2], 0);
    let (index, lock) = known.profile.lock(Kind::Mutex, address as usize).unwrap();
    for wait in 0..1000 {
        known.profile.record_wait(lock, 6_000_000, wait, false);
        known.profile.record_hold(lock, 200);
    }
    lock.waits.store(200_000, Relaxed);
    known.profile.add_sample(index, (waiter, holder), 6 * SECOND, 1000 * COUNT_UNIT);
    let usage = Usage {
        wall_ns: 2 * SECOND,
        cpu_ns: 3 * SECOND,
        system_ns: SECOND,
        delay_ns: SECOND / 4,
        idle_ns: SECOND / 4,
    };
    let observation = Observation {
        processors: 2,
        threads: 8,
        whole: usage,
        locks: vec![LockSpan { address, waiting: 300, looks: 100, held: 60, usage }],
        holders: vec![HolderSamples { address, call, samples: 300 }],
        ..Observation::default()
    };
    observation.store(&known.profile.header.observed);
    std::fs::write(known.stage.path("locks.profile"), known.profile.to_bytes()).unwrap();
    known
}

fn advised(stage: &Stage, arguments: &[&str]) -> String {
    let mut command = stage.unconvoy();
    let output = command.args(["tune", "--advise"]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn advice_names_lock_problem_remedy_and_gain() {
    let known = contended(u32::MAX);
    let text = advised(&known.stage, &["locks.profile", "--json", "advice.json"]);
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    for part in [
        "1. queue_lock (held by hold_here in server): saturated short sections.",
        "times the throughput",
        "from measured waits",
        "unconvoy predict --json",
        "[[lock]]\nsymbol = \"queue_lock\"\nkind = \"mutex\"\nlock = \"default\"\n",
    ] {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
    let json: Value = serde_json::from_str(&known.stage.read("advice.json")).unwrap();
    assert_eq!(json["schema"], "unconvoy-advice-1");
    let advice = &json["programs"][0]["advice"][0];
    assert_eq!(advice["problem"], "saturated-short-sections");
    assert_eq!(advice["strategy"][0]["entry"]["name"], "queue_lock");
    assert!(advice["gain"]["low"].as_f64() >= Some(1.0), "{advice}");
    // The report of the profile has the same.
    let report = known.report(&["--json", "report.json", "--html", "report.html"]);
    assert!(report.ends_with(&text[text.find("\nadvice\n").unwrap()..]), "{report}");
    let report: Value = serde_json::from_str(&known.stage.read("report.json")).unwrap();
    assert_eq!(&report["advice"][0], advice);
    assert_eq!(report["classes"][0]["entries"][0]["key"], "symbol");
    let page = known.stage.read("report.html");
    assert!(page.contains("saturated short sections") && page.contains("[[lock]]"), "{page}");
}

/// The strategy in the report starts a program that has the lock.
#[test]
fn advised_strategy_is_accepted() {
    let known = contended(u32::MAX);
    let text = advised(&known.stage, &["locks.profile"]);
    let (_, strategy) = text.split_once("version = 1").expect("a strategy");
    known.stage.write("s.toml", &format!("version = 1{strategy}"));
    let mut command = known.stage.unconvoy();
    let run = command.args(["run", "--strategy", "s.toml", "--", "./server"]).assert();
    run.success().stderr(contains("matches no").not());
}

#[test]
fn holder_in_a_system_call_is_advised_to_move_it() {
    let fsync = libc::SYS_fsync as u32;
    let text = advised(&contended(fsync).stage, &["locks.profile"]);
    assert!(text.contains("I/O under the lock"), "{text}");
    assert!(text.contains("Move fsync out of the section in hold_here in server."), "{text}");
    assert!(!text.contains("[[lock]]"), "{text}");
}

/// The waits of a process with semaphores or idle threads, as `profile --pid` records them.
#[test]
fn waits_for_events_are_no_waits_on_condition_variables() {
    let known = contended(u32::MAX);
    known.profile.header.source.store(Source::Outside as u64, Relaxed);
    let (_, event) = known.profile.lock(Kind::Event, 0x1000).unwrap();
    known.profile.record_wait(event, 8 * SECOND, 1000, false);
    event.waits.store(1_000_000, Relaxed);
    std::fs::write(known.stage.path("locks.profile"), known.profile.to_bytes()).unwrap();
    let text = advised(&known.stage, &["locks.profile"]);
    assert!(text.contains("queue_lock") && !text.contains("condition variables"), "{text}");
}

#[test]
fn record_of_another_kind_or_version_is_refused() {
    let known = contended(u32::MAX);
    let stage = &known.stage;
    let refused = |arguments: &[&str], message: &str| {
        let mut command = stage.unconvoy();
        command.args(["tune", "--advise"]).args(arguments).assert().failure().stderr(
            contains(message).and(predicate::function(|text: &str| text.lines().count() == 1)),
        );
    };
    stage.write("compare.json", "{\"schema\": \"unconvoy-compare-1\"}");
    refused(&["locks.profile", "compare.json"], "compare.json: a record of unconvoy-compare-1;");
    stage.write("notes.txt", "no record");
    refused(&["notes.txt"], "notes.txt: expected a profile");
    stage.write("damaged.json", "{\"schema\": \"unconvoy-syncchar-1\"}");
    refused(&["locks.profile", "damaged.json"], "damaged.json: a prediction that cannot be read");
    refused(&["no-such-file"], "no-such-file");
    stage.write("p.json", &prediction("queue_lock"));
    refused(&["p.json"], "no profile among the records");
    known.profile.header.version.store(2, Relaxed);
    std::fs::write(stage.path("old.profile"), known.profile.to_bytes()).unwrap();
    refused(&["old.profile"], "it has version 2 of the format, but this command reads version 4");
}

/// A prediction for two threads whose sections of `queue_lock` use different lines.
fn prediction(lock: &'static str) -> String {
    struct Named(&'static str);
    impl Names for Named {
        fn lock(&self, _: u32) -> Option<String> {
            Some(self.0.into())
        }
        fn word(&self, _: u64) -> Option<String> {
            None
        }
        fn place(&self, _: u32) -> Option<String> {
            None
        }
        fn is_conditional_store(&self, _: u32) -> bool {
            false
        }
    }
    let options = Options { processors: vec![2], ..Options::default() };
    let mut analysis = Analysis::new(options.clone()).unwrap();
    for index in 0..4000_u32 {
        let thread = index % 2;
        let address = 0x2000 + u64::from(thread) * 64;
        let access = Access { address, read: 0xff, written: 0xff, read_place: 3, written_place: 3 };
        analysis.section(Section { lock: 0, thread, ..Section::default() }, [access]);
    }
    let run = Run { seconds: Some(2.0), ..Run::default() };
    let times = LockTimes { acquisitions: 4000, held: 1.5, waited: 1.0 };
    let times = [(0, times)].into_iter().collect();
    let report = Report::new(run, &options, analysis.finish(), times, &Named(lock));
    serde_json::to_string(&report).unwrap()
}

#[test]
fn prediction_adds_what_a_profile_cannot_tell() {
    let known = contended(u32::MAX);
    known.stage.write("predicted.json", &prediction("queue_lock"));
    let text = advised(&known.stage, &["predicted.json", "locks.profile"]);
    assert!(text.contains("independent sections") && text.contains("Syncchar's model"), "{text}");
    assert!(!text.contains("unconvoy predict --json"), "{text}");
}
