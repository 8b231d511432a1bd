//! A special set of cores: threads that wait too much for locks get its mask, and the program never
//! sees that mask. `c/special.c` describes its modes; it reads masks by direct system calls.

mod support;

use std::path::PathBuf;

use support::{Finished, compile, plain, preloaded, run};

struct Special {
    directory: tempfile::TempDir,
    program: PathBuf,
}

fn special() -> Option<Special> {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        println!("skipped: there is only one processor");
        return None;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = compile(directory.path(), "special.c", &[]);
    Some(Special { directory, program })
}

impl Special {
    /// Runs with a special set, under load managers that make waiters leave the processor: spinners
    /// would soon overload a set of one core.
    fn each(&self, arguments: &[&str], check: impl Fn(Finished)) {
        for (load, search) in [("control", "1"), ("control", "published"), ("park", "refined")] {
            println!("{arguments:?} with {load}, {search}");
            check(run(preloaded(&self.program)
                .args(arguments)
                .env("UNCONVOY_LOAD", load)
                .env("UNCONVOY_SSC", search)));
        }
    }

    fn record(&self, arguments: &[&str], ssc: &str) -> serde_json::Value {
        let file = self.directory.path().join("stats.json");
        let mut command = preloaded(&self.program);
        run(command.args(arguments).env("UNCONVOY_SSC", ssc).env("UNCONVOY_STATS", &file))
            .success("with statistics");
        let text = std::fs::read_to_string(&file).expect("the record is written");
        serde_json::from_str(&text).expect("the record is JSON")
    }
}

#[track_caller]
fn assert_lines(finished: Finished, lines: &[&str]) {
    let finished = finished.success("special");
    assert_eq!(finished.text().lines().collect::<Vec<_>>(), lines);
    assert_eq!(finished.stderr, "");
}

#[test]
fn waiting_threads_are_confined_and_released() {
    let Some(special) = special() else { return };
    special.each(&["masks"], |finished| assert_lines(finished, &["confined", "restored"]));
}

#[test]
fn children_do_not_inherit_set_mask() {
    let Some(special) = special() else { return };
    let expected = [
        "fork has the user's",
        "fork of a fork has the user's",
        "program has the user's",
        "program has the user's",
        "program has the user's",
        "program has the user's",
        "program has the user's",
        "program has the user's",
        "program has the user's",
        "program has the user's",
        "thread has the user's",
        "after exec has the user's",
        "confined again",
    ];
    special.each(&["children"], |finished| assert_lines(finished, &expected));
}

#[test]
fn program_after_exec_has_users_mask() {
    let Some(special) = special() else { return };
    special.each(&["exec"], |finished| assert_lines(finished, &["program has the user's"]));
}

#[test]
fn masks_set_by_program_are_kept() {
    let Some(special) = special() else { return };
    special.each(&["own"], |finished| assert_lines(finished, &["kept"]));
    special.each(&["pinned"], |finished| assert_lines(finished, &["kept"]));
}

#[test]
fn short_lived_threads_are_confined() {
    let Some(special) = special() else { return };
    special.each(&["come-and-go"], |finished| assert_lines(finished, &["all came and went"]));
}

#[test]
fn forbidden_masks_warn_once() {
    let Some(special) = special() else { return };
    let without = run(plain(&special.program).args(["forbid", "contend"]));
    if without.status.code() == Some(4) {
        println!("skipped: {}", without.text());
        return;
    }
    special.each(&["forbid", "contend"], |finished| {
        let finished = finished.success("under a filter");
        assert_eq!(finished.text(), "done\n");
        assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
        assert!(finished.stderr.contains("no special set"), "{}", finished.stderr);
    });
}

#[test]
fn invalid_value_warns_once_and_disables_set() {
    let Some(special) = special() else { return };
    let finished = run(preloaded(&special.program).arg("contend").env("UNCONVOY_SSC", "nosuch"));
    let finished = finished.success("a bad value");
    assert_eq!(finished.text(), "done\n");
    assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
    for word in ["UNCONVOY_SSC", "nosuch", "refined", "published"] {
        assert!(finished.stderr.contains(word), "{}", finished.stderr);
    }
}

#[test]
fn single_processor_warns_once() {
    let Some(taskset) = support::installed("taskset", "util-linux") else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = compile(directory.path(), "special.c", &[]);
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .expect("a mask")
        .trim();
    let first = list.split([',', '-']).next().expect("a processor");
    // taskset itself keeps the user's processors and prints nothing.
    let mut command = plain(taskset);
    command.args(["-c", first, "env"]).arg(format!("LD_PRELOAD={}", support::library().display()));
    let finished = run(command.args(["UNCONVOY_SSC=1"]).arg(&program).arg("contend"))
        .success("on one processor");
    assert_eq!(finished.text(), "done\n");
    assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
    assert!(finished.stderr.contains("one processor"), "{}", finished.stderr);
}

#[test]
fn statistics_record_set_decisions() {
    let Some(special) = special() else { return };
    let record = special.record(&["masks"], "1");
    let set = &record["special"];
    let number = |name: &str| set[name].as_u64().unwrap_or_else(|| panic!("no {name} in {set}"));
    assert!(
        number("cores") >= 2
            && number("most_tasks") >= 1
            && number("moves") >= 1
            && number("cpu_ns") > 0,
        "{set}"
    );
    // The set ended with the contention.
    assert_eq!((number("bound"), number("tasks")), (0, 0), "{set}");
    let changes = set["changes"].as_array().expect("a time line");
    assert!(changes.len() >= 2, "{set}");
    assert_eq!(changes[0][1], 1, "every search begins with one core: {set}");
    assert_eq!(changes[changes.len() - 1][1], 0, "{set}");
    assert!(changes.is_sorted_by_key(|change| change[0].as_u64()), "{set}");
    assert_eq!(special.record(&["contend"], "0")["special"], serde_json::Value::Null);
    let page = include_str!("../../../docs/reference/confine.md");
    for name in set.as_object().expect("an object").keys() {
        assert!(
            page.contains(&format!("`{name}`")),
            "docs/reference/confine.md does not explain {name}"
        );
    }
}
