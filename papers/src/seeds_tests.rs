use unconvoy_sim::experiment::Measured;

use super::*;
use crate::claim::{ANY, claim};

/// A cell whose throughput is `per_s`, as a record has it.
fn result(series: &str, x: f64, per_s: f64) -> Result {
    let parts = serde_json::json!({ "working": 1.0, "spinning": 0.0, "inverted": 0.0,
        "blocked": 0.0,
        "away": 0.0, "ready": 0.0, "holder_preempted": 0.0 });
    let outcome = serde_json::json!({ "outcome": { "per_s": per_s, "fairness": 1.0,
        "switches_per_s": 0.0, "preemptions_per_s": 0.0, "split": parts, "contexts": parts,
        "accesses": 7 } });
    let measured: Measured = serde_json::from_value(outcome).expect("an outcome");
    Result { panel: "p".to_string(), series: series.to_string(), x, measured }
}

fn per_s(results: &[Result], series: &str) -> Option<f64> {
    let result = results.iter().find(|result| result.series == series)?;
    result.measured.outcome().map(|outcome| outcome.per_s)
}

const FIGURE: Simulated = Simulated {
    claims: |results| {
        let ratio = per_s(results, "a").zip(per_s(results, "b")).map(|(a, b)| a / b);
        vec![
            claim("a has 2 to 3 times b's", ratio, 2.0..=3.0),
            claim("a has something", per_s(results, "a"), 0.0..=ANY),
        ]
    },
    panels: crate::view::throughput,
    ..Simulated::MEDIANS
};

/// Three seeds, of which two confirm that a has 2 to 3 times b's throughput.
fn three() -> Vec<(u64, Vec<Result>)> {
    let of = |seed, a, b| (seed, vec![result("a", 1.0, a), result("b", 1.0, b)]);
    vec![of(1, 20.0, 10.0), of(2, 9.0, 3.0), of(3, 50.0, 10.0)]
}

#[test]
fn claim_is_judged_on_median_of_ratios_and_counts_seeds() {
    let judged = judged(&FIGURE, &three());
    // The ratios are 2, 3 and 5. The ratio of the medians would be 20 / 10.
    assert_eq!(judged[0].numbers, [Some(2.0), Some(3.0), Some(5.0)]);
    assert_eq!(judged[0].found, "3.000 (2.000..5.000)");
    assert!(judged[0].holds && judged[0].is_disputed());
    assert_eq!(judged[0].seeds_that_hold, 2);
    assert!(judged[0].evidence().ends_with("holds with 2 of 3 seeds"), "{}", judged[0].evidence());
    assert_eq!(judged[0].bounds, (Some(2.0), Some(3.0)));
    assert!(judged[1].holds && !judged[1].is_disputed());
    assert_eq!(judged[1].bounds, (Some(0.0), None));
}

#[test]
fn claim_that_holds_with_the_median_but_no_seed_is_disputed() {
    let of = |seed, a| (seed, vec![result("a", 1.0, a), result("b", 1.0, 1.0)]);
    let judged = judged(&FIGURE, &[of(1, 1.0), of(2, 4.0)]);
    assert!(judged[0].holds && judged[0].is_disputed(), "{:?}", judged[0]);
    assert_eq!(judged[0].evidence(), "found 2.500 (1.000..4.000); holds with 0 of 2 seeds");
}

#[test]
fn number_that_rounds_to_zero_has_no_sign() {
    assert_eq!(
        [-0.0004, 0.0, -0.0006, 1.25].map(three_decimals),
        ["0.000", "0.000", "-0.001", "1.250"]
    );
}

#[test]
fn seed_without_results_does_not_dispute_a_claim() {
    let mut seeds = three();
    seeds.truncate(2);
    seeds.push((3, Vec::new()));
    let judged = judged(&FIGURE, &seeds);
    assert!(judged[0].holds && !judged[0].is_disputed(), "{:?}", judged[0]);
    assert_eq!(judged[0].numbers[2], None);
    seeds[2].1.push(result("a", 1.0, 1.0));
    assert!(!super::judged(&FIGURE, &seeds)[0].holds, "it lacks what the claim compares with");
    let none = super::judged(&FIGURE, &[(1, Vec::new())]);
    assert!(!none[0].holds && none[0].found == "not simulated");
}

#[test]
fn lines_have_median_spread_and_all_values() {
    let lines = lines(&FIGURE, &three());
    let a = lines.iter().find(|line| line.line == "a").expect("line a");
    let place = &a.points[0];
    assert_eq!((place.median, place.min, place.max), (20.0, 9.0, 50.0));
    assert_eq!(place.values, [Some(20.0), Some(9.0), Some(50.0)]);
    let csv = String::from_utf8(csv(&lines, &[1, 2, 3]).expect("written")).expect("text");
    assert!(csv.starts_with("panel,line,x,median,min,max,seed 1,seed 2,seed 3\n"), "{csv}");
    assert!(csv.contains(",a,1,20,9,50,20,9,50\n"), "{csv}");
}

#[test]
fn point_of_some_seeds_summarises_these_and_keeps_its_place() {
    let seeds = vec![
        (1, vec![result("a", 1.0, 1.0), result("a", 3.0, 3.0)]),
        (2, vec![result("a", 2.0, 8.0), result("a", 3.0, 5.0)]),
    ];
    let lines = lines(&FIGURE, &seeds);
    let xs: Vec<f64> = lines[0].points.iter().map(|point| point.x).collect();
    assert_eq!(xs, [1.0, 2.0, 3.0]);
    assert_eq!(lines[0].points[1].values, [None, Some(8.0)]);
    assert_eq!((lines[0].points[1].min, lines[0].points[2].median), (8.0, 4.0));
}

#[test]
fn course_is_drawn_from_first_seed_only() {
    let simulated = Simulated { is_first_seed: true, ..FIGURE };
    let lines = lines(&simulated, &three());
    assert!(lines.iter().all(|line| line.points[0].values.len() == 1));
    assert_eq!(lines[0].points[0].max, 20.0);
}

#[test]
fn joined_cells_give_each_seed_back() {
    let cells = joined(&three());
    assert_eq!(cells.len(), 2);
    assert_eq!(of_seed(&cells, 2), three()[1].1);
    assert!(of_seed(&cells, 4).is_empty());
}

#[test]
fn medians_are_of_every_number_and_counts_stay_whole() {
    let medians = medians(&joined(&three())).expect("one shape");
    assert_eq!(per_s(&medians, "a"), Some(20.0));
    let two = &three()[..2];
    let medians = super::medians(&joined(two)).expect("one shape");
    assert_eq!(per_s(&medians, "a"), Some(9.0));
    assert_eq!(medians[0].measured.outcome().map(|outcome| outcome.accesses), Some(7));
}

#[test]
fn merged_seed_comes_from_the_record_that_has_its_results() {
    let record = |seeds: &[(u64, Vec<Result>)]| Stored {
        figure: "asplos-1".to_string(),
        unconvoy: "0.1.0".to_string(),
        seed: seeds[0].0,
        seeds: seeds.iter().map(|&(seed, _)| seed).collect(),
        plan: None,
        build: None,
        quick: false,
        complete: false,
        failures: Vec::new(),
        results: joined(seeds),
    };
    let mut begun = three();
    begun[1].1.clear();
    begun[2].1.truncate(1);
    let begun = [record(&begun), record(&three())];
    let both = merged("asplos-1", &begun).expect("of the figure");
    assert_eq!(both.seeds, three());
    let other = (1, vec![result("a", 1.0, 7.0), result("b", 1.0, 7.0)]);
    let complete = [record(&three()), record(&[other])];
    let first = merged("asplos-1", &complete).expect("of the figure");
    assert_eq!(first.seeds, three(), "of two complete results the first counts");
    assert_eq!(first.sources.len(), 1);
}

#[test]
fn record_whose_results_are_not_used_is_no_source() {
    let record = |complete: bool, failures: &[&str], seeds: &[(u64, Vec<Result>)]| -> Stored {
        let names: Vec<u64> = seeds.iter().map(|&(seed, _)| seed).collect();
        let record = serde_json::json!({ "figure": "asplos-1", "unconvoy": "0.1.0",
            "seed": names[0], "seeds": names, "complete": complete, "failures": failures,
            "results": joined(seeds) });
        serde_json::from_value(record).expect("a record")
    };
    let (mut begun, mut failed) = (three(), three());
    begun[2].1.clear();
    failed[0].1.truncate(1);
    // The whole record counts even for seeds of which the other two have as many results.
    let records = [
        record(false, &[], &begun),
        record(true, &["a at 1"], &failed),
        record(true, &[], &three()),
    ];
    let all = merged("asplos-1", &records).expect("of the figure");
    assert_eq!(all.seeds, three());
    assert!(all.sources.iter().all(|source| source.is_whole()));
    assert_eq!(all.sources.len(), 1);
    let without = merged("asplos-1", &records[..2]).expect("of the figure");
    assert_eq!(without.sources.len(), 2, "seed 1 of the first, seed 3 of the second");
}

#[test]
fn record_with_one_seed_of_before_is_readable() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("old.json");
    let results: Vec<Result> = three().remove(0).1;
    let old = serde_json::json!({ "simulated": true, "unconvoy": "0.1.0", "seed": 4,
        "seconds": null,
        "figure": "asplos-1", "complete": true, "failures": [], "results": results });
    fs::write(&path, old.to_string()).expect("written");
    let stored = Stored::read(&path).expect("read");
    assert!(stored.has_all(&[4]) && !stored.has_all(&[4, 5]) && stored.plan.is_none());
    assert_eq!(stored.of_seed(4), results);
    let stored = [stored];
    let seeds = merged("asplos-1", &stored).expect("of the figure").seeds;
    assert_eq!(seeds, [(4, results)]);
    let again = Stored::read(&path).expect("read");
    assert!(merged("asplos-3", &[again]).is_err());
}
