use serde_json::json;

use super::*;

#[test]
fn interrupted_quick_record_is_not_continued_by_full_version() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("asplos-9.json");
    let is_continued = |quick, resume, complete, runs: u32| {
        let seconds = if runs == QUICK_RUNS { QUICK_SECONDS } else { 1.0 };
        let record = json!({ "complete": complete,
            "parameters": { "runs": runs, "seconds": seconds } });
        std::fs::write(&path, record.to_string()).expect("written");
        let how = Options { out: None, quick, seed: 1, seeds: 1, jobs: None, data: None };
        let making = Making { how: &how, resume, plot: None, json: None };
        making.is_continued("asplos-9", &path)
    };
    assert!(!is_continued(false, true, false, QUICK_RUNS));
    assert!(is_continued(true, true, false, QUICK_RUNS) && is_continued(false, true, false, 5));
    assert!(is_continued(true, true, false, 5), "`bench` rejects it, and keeps the full runs");
    assert!(!is_continued(false, false, false, 5), "no --resume");
    assert!(!is_continued(false, true, true, 5), "complete");
}

#[test]
fn quick_record_is_kept_only_for_quick_version() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("asplos-9.json");
    let is_kept = |quick, complete, parameters: Value| {
        let record = json!({ "complete": complete, "parameters": parameters });
        std::fs::write(&path, record.to_string()).expect("written");
        let how = Options { out: None, quick, seed: 1, seeds: 1, jobs: None, data: None };
        let making = Making { how: &how, resume: true, plot: None, json: None };
        making.is_kept("asplos-9", &path)
    };
    let (quick, full) =
        (json!({ "runs": 2, "seconds": 0.2 }), json!({ "runs": 5, "seconds": 1.0 }));
    assert!(is_kept(true, true, quick.clone()) && !is_kept(false, true, quick));
    assert!(is_kept(true, true, full.clone()) && is_kept(false, true, full.clone()));
    assert!(!is_kept(false, true, json!({ "runs": 2 })), "bump");
    assert!(is_kept(false, true, json!({ "runs": 2, "seconds": 1.0 })), "the user's choice");
    assert!(!is_kept(false, false, full));
}

#[test]
fn quick_version_that_would_replace_a_full_native_record_is_rejected() {
    let directory = tempfile::tempdir().expect("a directory");
    let figures: Vec<&Figure> = FIGURES.iter().filter(|figure| figure.name == "asplos-9").collect();
    let is_rejected = |quick, resume, complete, runs: u32| {
        let record = json!({ "complete": complete,
            "parameters": { "runs": runs, "seconds": if runs == 2 { 0.2 } else { 1.0 } } });
        let path = directory.path().join("asplos-9.json");
        std::fs::write(path, record.to_string()).expect("written");
        let out = Some(directory.path().to_path_buf());
        let how = Options { out, quick, seed: 1, seeds: 1, jobs: None, data: None };
        let making = Making { how: &how, resume, plot: None, json: None };
        making.check_full_records(&figures).is_err()
    };
    assert!(is_rejected(true, false, true, 5), "a complete record");
    assert!(is_rejected(true, true, false, 5), "an interrupted one");
    assert!(!is_rejected(true, true, true, 5), "--resume keeps the record");
    assert!(!is_rejected(true, false, true, 2), "quick results");
    assert!(!is_rejected(false, false, true, 5), "full ones replace full ones");
}
