//! Checks of the documentation: its shell blocks run unmodified, beside a program that stands for
//! the reader's; its links have targets; and its page of commands equals the commands' help.
//!
//! A block below `<!-- not run: REASON -->` is skipped and the reason printed. A block below `<!--
//! run by make test-all: REASON -->` runs there only.

#[path = "../../locks/tests/generated/mod.rs"]
mod generated;
mod stage;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use generated::{assert_up_to_date, repository};
use stage::{LIMIT, Stage};
use unconvoy::catalogue::{CONTENTION_MANAGERS, LOAD_MANAGERS, POLICIES, SENSORS};

/// A shell block of a page.
struct Block {
    /// File and line of its first command.
    place: String,
    text: String,
    /// Comment above it.
    remark: Option<String>,
}

impl Block {
    fn begins(&self, with: &str) -> bool {
        self.remark.as_deref().is_some_and(|remark| remark.starts_with(with))
    }
}

fn blocks_of(page: &Path) -> Vec<Block> {
    let text = fs::read_to_string(page).unwrap();
    let name = page.strip_prefix(repository()).unwrap().to_string_lossy();
    let mut blocks = Vec::new();
    let mut lines = text.lines().enumerate();
    let mut remark = None;
    while let Some((number, line)) = lines.next() {
        // A block in a list item is indented.
        let indent = line.len() - line.trim_start().len();
        let line = line.trim_start();
        if let Some(words) = line.strip_prefix("<!-- ").and_then(|line| line.strip_suffix(" -->")) {
            remark = Some(words.to_string());
        } else if line == "```sh" {
            let body = lines.by_ref().map(|(_, line)| line.get(indent..).unwrap_or_default());
            let body: Vec<&str> = body.take_while(|line| *line != "```").collect();
            blocks.push(Block {
                place: format!("{name}:{}", number + 2),
                text: body.join("\n"),
                remark: remark.take(),
            });
        } else if line.starts_with("```") {
            lines.by_ref().find(|(_, line)| line.trim_start() == "```");
        } else if !line.is_empty() {
            remark = None;
        }
    }
    blocks
}

fn pages_below(directory: &Path) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages.extend(pages_below(&path));
        } else if path.extension().is_some_and(|suffix| suffix == "md") {
            pages.push(path);
        }
    }
    pages.sort();
    pages
}

/// Returns README.md and the pages of docs/.
fn pages() -> Vec<PathBuf> {
    let root = repository();
    let mut pages = pages_below(&root.join("docs"));
    pages.insert(0, root.join("README.md"));
    pages
}

fn blocks() -> Vec<Block> {
    pages().iter().flat_map(|page| blocks_of(page)).collect()
}

fn run(Block { place, text, .. }: Block) {
    let directory = assert_cmd::cargo::cargo_bin("unconvoy").parent().unwrap().to_path_buf();
    let mut path = OsString::from(directory);
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let stage = Stage::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/docs/server.c");
    for name in ["server", "program"] {
        stage.compile(name, &source, &["-O2", "-g", "-pthread"]).unwrap();
    }
    let output = assert_cmd::Command::new("sh")
        .args(["-eu", "-c", &text])
        .current_dir(stage.path("."))
        .env("PATH", &path)
        .env_remove("UNCONVOY_LIBRARY")
        .timeout(LIMIT)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{place} fails, {}:\n{text}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn shell_blocks_run() {
    let mut count = 0;
    for block in blocks() {
        if block.begins("not run: ") || block.begins("run by make test-all: ") {
            println!("{}: {}", block.place, block.remark.unwrap_or_default());
        } else {
            run(block);
            count += 1;
        }
    }
    assert!(count > 0, "no block ran");
}

#[test]
#[ignore = "make test-all: needs QEMU's user mode"]
fn shell_blocks_that_need_qemu_run() {
    blocks().into_iter().filter(|block| block.begins("run by make test-all: ")).for_each(run);
}

/// Returns a page's text without its code blocks.
fn prose(text: &str) -> String {
    let mut is_code = false;
    let lines = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the anchors of a page's headings, as forges generate them.
fn anchors(text: &str) -> Vec<String> {
    let mut used = BTreeMap::new();
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let slugs = headings.map(|line| {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading
            .chars()
            .filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
        kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect::<String>()
    });
    slugs
        .map(|slug| {
            let count = used.entry(slug.clone()).or_insert(0);
            *count += 1;
            if *count == 1 { slug } else { format!("{slug}-{}", *count - 1) }
        })
        .collect()
}

/// Returns the targets of a text's links and pictures. A link's text may span lines.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

#[test]
fn anchors_follow_the_rules_of_forges() {
    let text = "# `unconvoy run --confine`\n## Syncchar's predictions\n## Twice\n## Twice";
    assert_eq!(
        anchors(text),
        ["unconvoy-run---confine", "syncchars-predictions", "twice", "twice-1"]
    );
}

#[test]
fn links_have_targets() {
    let mut dead = Vec::new();
    let root = repository();
    let others = ["CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"].map(|name| root.join(name));
    for page in pages().iter().chain(&others) {
        let text = prose(&fs::read_to_string(page).unwrap());
        for link in
            links(&text).filter(|link| !link.contains("://") && !link.starts_with("mailto:"))
        {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target =
                if path.is_empty() { page.clone() } else { page.parent().unwrap().join(path) };
            let leads = target.exists()
                && (anchor.is_empty()
                    || anchors(&prose(&fs::read_to_string(&target).unwrap()))
                        .iter()
                        .any(|known| known == anchor));
            if !leads {
                dead.push(format!("{}: {link}", page.strip_prefix(&root).unwrap().display()));
            }
        }
    }
    assert!(dead.is_empty(), "dead links: {dead:#?}");
}

/// In the book, such a link would lead nowhere.
#[test]
fn link_out_of_docs_is_rewritten_for_the_book() {
    let makefile = fs::read_to_string(repository().join("Makefile")).unwrap();
    let recipe = makefile.split("\nbook: ").nth(1).and_then(|rest| rest.split("\n\n").next());
    let names: Vec<&str> = recipe.unwrap().split(['(', '|', ')']).collect();
    for page in pages_below(&repository().join("docs")) {
        for link in links(&prose(&fs::read_to_string(&page).unwrap())) {
            let up = link.matches("../").count();
            let depth = page.strip_prefix(repository()).unwrap().components().count() - 1;
            let name = link.trim_start_matches("../").split(['/', '.']).next().unwrap();
            let is_rewritten = up != depth || names.contains(&name);
            assert!(is_rewritten, "`make book` breaks {link} in {}", page.display());
        }
    }
}

#[test]
fn page_is_listed_in_book_and_map() {
    let docs = repository().join("docs");
    for map in ["SUMMARY.md", "README.md"] {
        let text = fs::read_to_string(docs.join(map)).unwrap();
        let listed: Vec<&str> = links(&text).collect();
        for page in pages_below(&docs) {
            let name = page.strip_prefix(&docs).unwrap().to_str().unwrap();
            // The map lists only the evaluation's own map.
            let is_listed =
                listed.contains(&name) || map == "README.md" && name.starts_with("evaluation/");
            assert!(
                is_listed || matches!(name, "SUMMARY.md" | "README.md"),
                "docs/{map} does not list {name}"
            );
        }
    }
}

#[test]
fn page_has_fewer_than_300_lines() {
    for page in pages() {
        let lines = fs::read_to_string(&page).unwrap().lines().count();
        assert!(lines < 300, "{}: {lines} lines", page.display());
    }
}

#[test]
fn help_page_is_up_to_date() {
    let help = |arguments: &[&str]| {
        let output =
            assert_cmd::Command::cargo_bin("unconvoy").unwrap().args(arguments).output().unwrap();
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    };
    let mut page = format!("```text\n{}\n```\n", help(&["--help"]).trim_end());
    for command in ["run", "stats", "compare", "predict", "inspect", "locks"] {
        page += &format!(
            "\n## unconvoy {command}\n\n```text\n{}\n```\n",
            help(&[command, "-h"]).trim_end()
        );
    }
    assert_up_to_date("reference/commands.md", &[("help", page)]);
    for command in ["profile", "tune"] {
        let text = format!("```text\n{}\n```\n", help(&[command, "-h"]).trim_end());
        assert_up_to_date(&format!("reference/{command}.md"), &[("help", text)]);
    }
}

#[test]
fn changelog_names_all_commands_and_locks() {
    let help = assert_cmd::Command::cargo_bin("unconvoy").unwrap().arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let commands = help.lines().filter_map(|line| line.strip_prefix("  ")?.split_once("  "));
    let commands = commands.map(|(name, _)| name).filter(|name| !name.starts_with(['-', ' ']));
    let commands: Vec<&str> = commands.filter(|name| *name != "help").collect();
    assert!(commands.contains(&"run") && commands.contains(&"man"), "{commands:?}");
    let locks = CONTENTION_MANAGERS.iter().map(|lock| lock.entry.name);
    let loads = LOAD_MANAGERS.iter().map(|load| load.entry.name);
    let policies = POLICIES.iter().map(|policy| policy.entry.name);
    let sensors = SENSORS.iter().map(|sensor| sensor.entry.name);
    let text = fs::read_to_string(repository().join("CHANGELOG.md")).unwrap();
    for name in commands.into_iter().chain(locks).chain(loads).chain(policies).chain(sensors) {
        let is_named = [format!("`{name}`"), format!("`{name} "), format!("`unconvoy {name}")]
            .iter()
            .any(|form| text.contains(form));
        assert!(is_named, "CHANGELOG.md does not name {name}");
    }
}

/// Returns whether a sentence ends inside `line` and another one follows.
fn has_two_sentences(line: &str) -> bool {
    let line = line.replace("et al. ", "et al ");
    line.match_indices(". ").any(|(place, _)| {
        let before = line[..place].chars().next_back();
        let after = line[place + 2..].trim_start().chars().next();
        // Skip the marker of a list item, `1.`, bold or not.
        let is_end =
            before.is_some_and(|letter| letter.is_lowercase() || matches!(letter, ')' | '`' | '"'));
        is_end && after.is_some_and(|letter| letter.is_uppercase() || letter == '`')
    })
}

#[test]
fn long_line_is_one_sentence() {
    let mut long = Vec::new();
    for page in pages() {
        let text = prose(&fs::read_to_string(&page).unwrap());
        let mut is_generated = false;
        for line in text.lines() {
            is_generated = (is_generated || line.starts_with("<!-- generated: "))
                && !line.starts_with("<!-- end: ");
            let is_prose = !is_generated && !line.trim_start().starts_with(['|', '#', '!']);
            if is_prose && line.chars().count() > 100 && has_two_sentences(line) {
                long.push(format!(
                    "{}: {line}",
                    page.strip_prefix(repository()).unwrap().display()
                ));
            }
        }
    }
    assert!(long.is_empty(), "wrap at 100 columns, or write one sentence a line: {long:#?}");
}

/// Returns one number of a record of `unconvoy compare`.
fn number(record: &serde_json::Value, configuration: &str, threads: u64, pointer: &str) -> f64 {
    let rows = record["summary"].as_array().unwrap();
    let row =
        rows.iter().find(|row| row["configuration"] == configuration && row["threads"] == threads);
    row.and_then(|row| row.pointer(pointer)).and_then(serde_json::Value::as_f64).unwrap()
}

#[test]
fn numbers_in_prose_match_their_records() {
    let record = |name: &str| -> serde_json::Value {
        let path = repository().join(format!("docs/records/{name}.json"));
        serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    };
    let range = |name: &str, threads: &[u64]| {
        let record = record(name);
        let ratios = threads.iter().map(|&threads| number(&record, "default", threads, "/ratio"));
        let (least, most) =
            ratios.fold((f64::MAX, f64::MIN), |(least, most), it| (least.min(it), most.max(it)));
        format!("{least:.2} to {most:.2}")
    };
    let writes = record("leveldb-fillrandom");
    let ratio = |threads| number(&writes, "default", threads, "/ratio");
    let jain = |configuration| number(&writes, configuration, 32, "/fairness/median");
    let readme = fs::read_to_string(repository().join("README.md")).unwrap();
    let readme = readme.split_whitespace().collect::<Vec<_>>().join(" ");
    for claim in [
        writes["conclusion"].as_str().unwrap().to_string(),
        format!("| {:.2} times at 8 threads, {:.2} at 32 |", ratio(8), ratio(32)),
        format!(
            "| a ray tracer, 2 to 32 threads | {} times |",
            range("raytrace", &[2, 4, 8, 16, 32])
        ),
        format!(
            "a connection per thread, 2 to 32 threads | {} times ",
            range("sqlite-xeon", &[2, 4, 8, 16, 32])
        ),
        format!(
            "| LevelDB reads, 2 to 32 threads | {} times |",
            range("leveldb-readrandom", &[2, 4, 8, 16, 32])
        ),
        format!(
            "Jain's index {:.2} against {:.2}: LevelDB writes, 32 threads",
            jain("default"),
            jain("libc")
        ),
    ] {
        assert!(readme.contains(&claim), "README.md lacks: {claim}");
    }
    let page = "how-to/thread-per-connection.md";
    let claim = format!(
        "with 32 threads Jain's index is {:.2}, libc's {:.2}",
        jain("default"),
        jain("libc")
    );
    let text = fs::read_to_string(repository().join("docs").join(page)).unwrap();
    assert!(text.contains(&claim), "{page} lacks: {claim}");
}

/// The ratios of the rounds whose two runs began with processors at the same distance, sorted.
fn ratios_at(name: &str, threads: u64, is_far: bool) -> Vec<f64> {
    let path = repository().join(format!("docs/records/distance/{name}.json"));
    let record: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let is_time = record["metric"]["lower_is_better"] == true;
    let runs = record["runs"].as_array().unwrap();
    let metric = |configuration: &str, round: u64| {
        let run = runs.iter().find(|run| {
            run["configuration"] == configuration
                && run["threads"] == threads
                && run["round"] == round
                && (run["transfer_ns"].as_f64() >= Some(80.0)) == is_far
        })?;
        run["metric"].as_f64()
    };
    let rounds = (1..=record["plan"]["runs"].as_u64().unwrap()).filter_map(|round| {
        let ratio = metric("default", round)? / metric("libc", round)?;
        Some(if is_time { 1.0 / ratio } else { ratio })
    });
    let mut ratios: Vec<f64> = rounds.collect();
    ratios.sort_by(f64::total_cmp);
    ratios
}

#[test]
fn ratios_by_distance_match_their_records() {
    let page = fs::read_to_string(repository().join("docs/evaluation/measured.md")).unwrap();
    for (name, program, distances) in [
        ("raytrace", "ray tracer", &[(2, "near"), (4, "near")][..]),
        (
            "leveldb-readrandom",
            "LevelDB reads",
            &[(4, "near"), (4, "far"), (32, "near"), (32, "far")],
        ),
    ] {
        for &(threads, distance) in distances {
            let ratios = ratios_at(name, threads, distance == "far");
            let count = ratios.len();
            let median = f64::midpoint(ratios[(count - 1) / 2], ratios[count / 2]);
            let row = format!("| {program} | {threads} | {distance} | {count} | {median:.2} |");
            assert!(page.contains(&row), "measured.md lacks: {row}");
        }
    }
}
