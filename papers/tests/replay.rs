//! `unconvoy papers replay`, as a user calls it, on a collector's stream instead of a Parquet file.

#[path = "../../crates/cli/tests/stage/mod.rs"]
mod stage;

use predicates::prelude::*;
use predicates::str::contains;
use serde_json::{Value, json};
use stage::Stage;
use unconvoy_trace_stream::{Access, Context, MAGIC, Record, Section, append, append_section};

const HOT: u64 = 0x10000;

/// Writes a trace of eight threads whose sections write twenty lines of their own and count in one
/// word that all share.
fn write_trace(stage: &Stage, name: &str) {
    let mut stream = MAGIC.to_vec();
    let context = Context { source: "qemu-user", processors: 2, ..Context::default() };
    append(&mut stream, &Record::Context(&context.json()));
    let written = |address| Access { address, read: 0xff, written: 0xff, ..Access::default() };
    for order in 0..4096 {
        let thread = order % 8;
        let own = 0x1_0000_0000 + 0x10000 * thread;
        let mut accesses: Vec<Access> = (0..20).map(|line| written(own + 64 * line)).collect();
        accesses.push(written(HOT));
        let section = Section { lock: 0, thread: thread as u32, order, flags: 0 };
        append_section(&mut stream, &section, &accesses);
    }
    let kept = json!({"unconvoy": {
        "seconds": 1.0,
        "times": {"0": {"acquisitions": 40_960, "held": 0.4096, "waited": 0.0}},
        "locks": {"0": "the queue"},
        "words": {"65536": "total"},
    }});
    append(&mut stream, &Record::End(&kept.to_string()));
    std::fs::write(stage.path(name), stream).unwrap();
}

fn replay(stage: &Stage, arguments: &str) -> assert_cmd::assert::Assert {
    let words = ["papers", "replay"].into_iter().chain(arguments.split_whitespace());
    stage.unconvoy().args(words).assert()
}

/// The gain of a lock over the first one, without time between sections.
fn gain(row: &Value, lock: &str) -> f64 {
    let results = row["results"].as_array().unwrap();
    results.iter().find(|result| result["lock"] == lock).unwrap()["gain"].as_f64().unwrap()
}

#[test]
fn replay_compares_recorded_sections_with_and_without_hot_word() {
    let stage = Stage::new();
    write_trace(&stage, "t.stream");
    replay(
        &stage,
        "t.stream --processors 8 --sections 100 --locks ttas+none,transactions --without advice \
         --moved 0x10000 --json r.json",
    )
    .success()
    .stdout(
        contains("4096 recorded sections of 10000 ns")
            .and(contains("without: total (0x10000)"))
            .and(contains("moved: total (0x10000)")),
    );
    let record: Value = serde_json::from_str(&stage.read("r.json")).unwrap();
    let rows = record["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &record["complete"]), (6, &Value::Bool(true)));
    let [whole, without, moved] = [&rows[0], &rows[2], &rows[4]];
    assert_eq!(whole["predicted"].as_f64().unwrap().round(), 1.0);
    for row in [without, moved] {
        assert!(row["sections_by_line"] == 8.0, "{row}");
        assert!((7.0..8.5).contains(&gain(row, "transactions")), "{row}");
        assert!(row["bounded"].as_f64().unwrap() <= row["predicted"].as_f64().unwrap(), "{row}");
    }
    // Every section writes the word last, so that transactions overlap in part.
    assert!(gain(whole, "transactions") < gain(without, "transactions"), "{whole}");
    // (2 s of two processors - 0.4096 s) / 40960.
    let [variant, ..] = record["variants"].as_array().unwrap().as_slice() else { panic!() };
    assert_eq!(variant["between_ns"].as_f64().unwrap().round(), 38_828.0);
}

#[test]
fn replay_rejects_unknown_locks_and_addresses() {
    let stage = Stage::new();
    write_trace(&stage, "t.stream");
    replay(&stage, "t.stream --lock stack").code(1).stderr(contains("stack"));
    replay(&stage, "t.stream --without 65536").code(2).stderr(contains("0x4000020340"));
    replay(&stage, "t.stream --locks spin").code(2).stderr(contains("unknown lock"));
    replay(&stage, "missing.stream").code(1).stderr(contains("missing.stream"));
    replay(&stage, "t.stream --machine nosuch").code(2).stderr(contains("metatm-8"));
    replay(&stage, "t.stream --machine opteron-32").code(1).stderr(contains("no transactions"));
}
