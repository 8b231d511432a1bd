//! The blocks of shell in README.md and docs/ are run, as they are, beside a program that stands for
//! the reader's.
//!
//! A block below `<!-- not run: REASON -->` is not run, and the reason is printed. One below
//! `<!-- run by make test-all: REASON -->` is run there.

mod stage;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use stage::{LIMIT, Stage};

/// A block of shell.
struct Block {
    /// File and line of its first command.
    place: String,
    text: String,
    /// The comment above it.
    remark: Option<String>,
}

impl Block {
    fn begins(&self, with: &str) -> bool {
        self.remark.as_deref().is_some_and(|remark| remark.starts_with(with))
    }
}

fn blocks_of(page: &Path) -> Vec<Block> {
    let text = fs::read_to_string(page).unwrap();
    let name = page.file_name().unwrap().to_string_lossy();
    let mut blocks = Vec::new();
    let mut lines = text.lines().enumerate();
    let mut remark = None;
    while let Some((number, line)) = lines.next() {
        if let Some(words) = line.strip_prefix("<!-- ").and_then(|line| line.strip_suffix(" -->")) {
            remark = Some(words.to_string());
        } else if line == "```sh" {
            let body: Vec<&str> = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
            blocks.push(Block {
                place: format!("{name}:{}", number + 2),
                text: body.join("\n"),
                remark: remark.take(),
            });
        } else if line.starts_with("```") {
            lines.by_ref().find(|(_, line)| *line == "```");
        } else if !line.is_empty() {
            remark = None;
        }
    }
    blocks
}

/// README.md and the pages of docs/.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let listed = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<_> = listed.filter(|path| path.extension().is_some_and(|suffix| suffix == "md")).collect();
    pages.sort();
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
fn blocks_of_shell_run() {
    let mut count = 0;
    for block in blocks() {
        if block.begins("not run: ") || block.begins("run by make test-all: ") {
            println!("{}: {}", block.place, block.remark.unwrap_or_default());
        } else {
            run(block);
            count += 1;
        }
    }
    assert!(count > 0, "no block is run");
}

#[test]
#[ignore = "make test-all: needs QEMU's user mode"]
fn blocks_of_shell_that_need_qemu_run() {
    blocks().into_iter().filter(|block| block.begins("run by make test-all: ")).for_each(run);
}
