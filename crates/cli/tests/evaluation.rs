//! `scripts/evaluation.py` in a repository of its own, and its list of records.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Measures a number of its source, after which it may fail.
const RECORD: &str = r#"
[[record]]
name = "number"
hours = 0
command = """
echo run >>runs
cat source >$OUT/number
test ! -e fails"""
publish = """
test ! -e publishing-fails
cp $OUT/number docs/records/number"""
sources = ["source"]
"#;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A repository with the script and one record.
struct Copy(tempfile::TempDir);

impl Copy {
    fn new() -> Self {
        let copy = Self(tempfile::tempdir().expect("a folder"));
        for folder in ["scripts", "docs/records"] {
            fs::create_dir_all(copy.path(folder)).expect("a folder");
        }
        fs::copy(repository().join("scripts/evaluation.py"), copy.path("scripts/evaluation.py"))
            .expect("a copy");
        copy.write("scripts/evaluation.toml", RECORD);
        copy.write("source", "1\n");
        copy.git(&["init", "--quiet"]);
        copy.commit();
        copy
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("a file");
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn git(&self, words: &[&str]) {
        let who = ["-c", "user.name=a", "-c", "user.email=a@b"];
        let mut command = Command::new("git");
        command.args(who).args(words).current_dir(self.0.path());
        let status = apart(&mut command).status();
        assert!(status.expect("git").success(), "git {words:?}");
    }

    fn commit(&self) {
        self.git(&["add", "source", "scripts"]);
        self.git(&["commit", "--quiet", "-m", "state"]);
    }

    /// Runs the script, and returns its exit status and what it printed.
    fn run(&self, words: &[&str]) -> (Option<i32>, String) {
        // By Python: the kernel executes no file while another test's child has it open.
        let mut command = Command::new("python3");
        command.arg(self.path("scripts/evaluation.py")).args(words);
        let Output { status, stdout, stderr } = apart(&mut command).output().expect("python3");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (status.code(), text(stdout) + &text(stderr))
    }
}

/// Keeps git away from the user's repository, which a hook of git's names, and from the user's
/// configuration.
fn apart(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"GIT_") {
            command.env_remove(name);
        }
    }
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1")
}

#[test]
fn records_are_renewed_when_their_sources_change() {
    let copy = Copy::new();
    let (status, text) = copy.run(&["--list"]);
    assert!(status == Some(0) && text.contains("not measured by"), "{status:?}: {text}");

    let (status, text) = copy.run(&[]);
    assert!(status == Some(0) && text.contains("1 renewed, 0 current"), "{status:?}: {text}");
    assert_eq!(copy.read("docs/records/number"), "1\n");
    let states: serde_json::Value =
        serde_json::from_str(&copy.read("docs/records/evaluation.json")).expect("JSON");
    for key in ["commit", "machine", "begun", "ended", "command", "sources"] {
        assert!(!states["number"][key].is_null(), "no {key} in {states:#}");
    }

    let (status, text) = copy.run(&[]);
    assert!(status == Some(0) && text.contains("0 renewed, 1 current"), "{status:?}: {text}");
    assert_eq!(copy.read("runs"), "run\n", "a current record was renewed");

    copy.write("source", "2\n");
    let (status, text) = copy.run(&[]);
    assert!(status == Some(0) && text.contains("0 renewed, 1 current"), "{status:?}: {text}");
    copy.commit();
    assert!(copy.run(&["--list"]).1.contains(": source"));
    assert_eq!(copy.run(&[]).0, Some(0));
    assert_eq!(copy.read("docs/records/number"), "2\n");

    let states = "docs/records/evaluation.json";
    copy.write(states, &copy.read(states).replace("\"cpu\": \"", "\"cpu\": \"Z80 "));
    assert!(copy.run(&["--list"]).1.contains("another machine: cpu was Z80 "));
}

#[test]
fn record_of_unknown_commit_is_renewed() {
    let copy = Copy::new();
    assert_eq!(copy.run(&[]).0, Some(0));
    let states = "docs/records/evaluation.json";
    let mut changed: serde_json::Value = serde_json::from_str(&copy.read(states)).expect("JSON");
    changed["number"]["commit"] = "badc0de".into();
    changed["number"]["digest"] = "another".into();
    copy.write(states, &changed.to_string());
    let (status, text) = copy.run(&["--list"]);
    assert!(status == Some(0) && text.trim_end().ends_with("changed since badc0de"), "{text}");
}

#[test]
fn failed_and_interrupted_records_continue() {
    let copy = Copy::new();
    copy.write("fails", "");
    let (status, text) = copy.run(&[]);
    assert!(status == Some(1) && text.contains("failed: number"), "{status:?}: {text}");
    assert!(!copy.path("docs/records/evaluation.json").exists());
    fs::remove_file(copy.path("fails")).expect("a file");
    let (status, text) = copy.run(&[]);
    assert!(status == Some(0) && text.contains("continues the run"), "{status:?}: {text}");
    assert!(!copy.path(".evaluation/number").exists(), "results of a finished record stay");
}

#[test]
fn record_whose_publication_failed_is_published_without_a_measurement() {
    let copy = Copy::new();
    copy.write("publishing-fails", "");
    assert_eq!(copy.run(&[]).0, Some(1));
    fs::remove_file(copy.path("publishing-fails")).expect("a file");
    let (status, text) = copy.run(&[]);
    assert!(status == Some(0) && text.contains("1 renewed"), "{status:?}: {text}");
    assert_eq!(copy.read("runs"), "run\n", "measured again");
}

#[test]
fn record_for_more_processors_is_skipped() {
    let copy = Copy::new();
    copy.write("scripts/evaluation.toml", &format!("{RECORD}processors = 100000\n"));
    copy.commit();
    for words in [&[][..], &["--force"], &["--list"]] {
        let (status, text) = copy.run(words);
        assert!(status == Some(0) && text.contains("needs 100000 processors"), "{words:?}: {text}");
    }
    assert_eq!(copy.read("runs"), "");
}

#[test]
fn wrong_use_measures_nothing() {
    let copy = Copy::new();
    let (status, text) = copy.run(&["nosuch"]);
    assert!(status == Some(2) && text.contains("no record nosuch: known are number"), "{text}");
    copy.write("source", "3\n");
    let (status, text) = copy.run(&[]);
    assert!(status == Some(2) && text.contains("commit first"), "{status:?}: {text}");
    assert_eq!(copy.read("runs"), "");
}

/// Each generated block of a page belongs to a record, and each source exists.
#[test]
fn list_covers_the_generated_blocks() {
    let list = fs::read_to_string(repository().join("scripts/evaluation.toml")).expect("a list");
    let list: toml::Table = list.parse().expect("TOML");
    let records = list["record"].as_array().expect("records");
    let mut publishing = String::new();
    for record in records {
        for source in record["sources"].as_array().expect("sources") {
            let source = source.as_str().expect("a path");
            assert!(repository().join(source).exists(), "{}: no {source}", record["name"]);
        }
        let publish = record["publish"].as_str().expect("a command");
        publishing += publish;
        let words = publish.split_whitespace();
        for script in words.filter(|word| word.starts_with("scripts/")) {
            publishing += &fs::read_to_string(repository().join(script)).expect(script);
        }
    }
    let pages = fs::read_dir(repository().join("docs/evaluation")).expect("pages");
    for page in pages.map(|page| page.expect("a page").path()) {
        let name = page.file_stem().expect("a name").to_string_lossy().into_owned();
        let text = if page.is_file() { fs::read_to_string(&page).expect("text") } else { continue };
        if text.contains("<!-- generated: ") {
            let writes = publishing.contains(&format!("evaluation/{name}.md"))
                || publishing.contains(&format!("block {name} "));
            assert!(writes, "no record in scripts/evaluation.toml writes {name}.md");
        }
    }
}

/// A record's command works in any clone.
#[test]
fn records_name_no_path_outside_the_repository() {
    let mut records = Command::new("git");
    records.args(["grep", "-lE", "[\" ](/tmp|/home|/root)/", "--", "docs/records/*.json"]);
    let found = records.current_dir(repository()).output().expect("git searches");
    assert_eq!(String::from_utf8_lossy(&found.stdout), "", "these name other paths");
    assert_eq!(found.status.code(), Some(1), "git grep found nothing");
}

/// The numbers in a text: `.941` for both `0.941` and `.941`.
fn numbers(text: &str) -> Vec<String> {
    let words = text.split(|it: char| !it.is_ascii_digit() && it != '.');
    let words = words.map(|word| word.trim_end_matches('.'));
    let found = words.filter(|word| word.contains(|it: char| it.is_ascii_digit()));
    found.map(|word| word.strip_prefix("0.").map_or(word.into(), |it| format!(".{it}"))).collect()
}

#[test]
fn numbers_of_the_goals_are_on_their_pages() {
    let folder = repository().join("docs/evaluation");
    let goals = fs::read_to_string(folder.join("goals.md")).expect("goals.md");
    let mut rows = 0;
    for line in goals.lines() {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [goal, found, _, link] = cells[..] else { continue };
        let Some((_, page)) = link.split_once("](") else { continue };
        let page = page.split(['#', ')']).next().expect("a page");
        let known = numbers(&fs::read_to_string(folder.join(page)).expect(page));
        for number in numbers(found) {
            assert!(known.contains(&number), "{goal}: {page} lacks {number} ({found})");
        }
        rows += 1;
    }
    assert!(rows > 20, "{rows} rows");
}
