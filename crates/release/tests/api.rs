//! The public API of the library, as rustdoc describes it in JSON: `crates/locks/api.txt` lists it,
//! and each of its items has an example.
//!
//! rustdoc's JSON is unstable, so the list needs a parser for the installed rustdoc's version of
//! the format. The examples are read from parts of the format that have not changed for years.

mod surface;

use public_api::Builder;
use surface::{document, items, repository};

/// The version of rustdoc's format that the parser is known to read.
const FORMAT: u64 = 57;

/// Traits that the compiler implements by itself, and of which a user seldom thinks. Which there
/// are depends on the compiler's version. `Send` and `Sync` are not among them.
const AUTOMATIC: [&str; 5] = ["Freeze", "RefUnwindSafe", "UnwindSafe", "Unpin", "UnsafeUnpin"];

fn is_automatic(line: &str) -> bool {
    let traits = line.split_once(" for ").map_or("", |(before, _)| before);
    line.starts_with("impl") && AUTOMATIC.iter().any(|name| traits.ends_with(&format!("::{name}")))
}

/// The list: each line once, without the methods of a trait's implementation, which the trait has.
fn list(api: impl Iterator<Item = String>) -> Vec<String> {
    let mut list: Vec<String> = Vec::new();
    let mut implementor = None;
    for line in api.filter(|line| !is_automatic(line)) {
        if line.starts_with("impl") {
            let implemented = line.split_once(" for ").map(|(_, rest)| rest);
            let implemented = implemented.and_then(|rest| rest.split(" where").next());
            implementor = implemented.map(|name| format!("fn {name}::"));
        }
        let is_implied = implementor.as_ref().is_some_and(|method| line.contains(method));
        if !is_implied && !list.contains(&line) {
            list.push(line);
        }
    }
    list
}

#[test]
fn list_omits_methods_of_implementations() {
    let lines = ["impl<T> Lock for a::B<T>", "pub fn a::B<T>::lock(&self)", "pub fn a::new()"];
    let listed = list(lines.iter().chain(&lines).map(|line| line.to_string()));
    assert_eq!(listed, ["impl<T> Lock for a::B<T>", "pub fn a::new()"]);
}

/// With `UNCONVOY_BLESS=1` the test writes the list instead of comparing it.
#[test]
fn public_api_matches_list() {
    let document = document();
    let format = document.json["format_version"].as_u64().expect("a version");
    let api = match Builder::from_rustdoc_json(&document.path).omit_blanket_impls(true).build() {
        Ok(api) => api,
        Err(error) => {
            assert_ne!(format, FORMAT, "{error}");
            println!(
                "skipped: rustdoc's JSON is of format {format}, and the parser reads {FORMAT}"
            );
            return;
        }
    };
    let lines = list(api.items().map(|item| item.to_string()));
    assert!(lines.contains(&"pub mod unconvoy".to_string()), "{lines:#?}");
    let path = repository().join("crates/locks/api.txt");
    if std::env::var_os("UNCONVOY_BLESS").is_some() {
        std::fs::write(&path, lines.join("\n") + "\n").expect("a file");
    }
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let listed: Vec<_> = text.lines().collect();
    let new = lines.iter().filter(|line| !listed.contains(&line.as_str()));
    let new: Vec<_> = new.map(|line| format!("+ {line}")).collect();
    let gone = listed.iter().filter(|line| !lines.iter().any(|new| new == *line));
    let gone: Vec<_> = gone.map(|line| format!("- {line}")).collect();
    assert!(
        new.is_empty() && gone.is_empty(),
        "the public API has changed; if a line with - was in a release, the next release needs a \
         new version; then run `make api` and commit crates/locks/api.txt:\n{}",
        [gone, new].concat().join("\n")
    );
}

/// Whether documentation has a block of code that is compiled and run as a test.
fn has_example(documentation: &str) -> bool {
    let mut fences = documentation.lines().filter_map(|line| line.trim().strip_prefix("```"));
    let mut is_found = false;
    while let Some(language) = fences.next() {
        is_found |= ["", "rust", "should_panic"].contains(&language);
        fences.next();
    }
    is_found
}

#[test]
fn example_is_recognised_by_its_fence() {
    assert!(has_example("A lock.\n\n```\nlock();\n```\n"));
    assert!(has_example("```text\na queue\n```\n```should_panic\nlock();\n```\n"));
    assert!(!has_example("```text\na queue\n```\nThe end.\n"));
    assert!(!has_example("```ignore\nlock();\n```\n"));
    assert!(!has_example("A lock."));
}

#[test]
fn every_public_item_has_an_example() {
    let items = items(&document().json);
    let names: Vec<_> = items.iter().map(|item| item.path.as_str()).collect();
    for name in ["unconvoy::Mutex", "unconvoy::checkpoint", "unconvoy::load::LoadManager"] {
        assert!(names.contains(&name), "{name} is not among {names:#?}");
    }
    let without = items.iter().filter(|item| !has_example(&item.documentation));
    let without: Vec<_> = without.map(|item| format!("{} {}", item.kind, item.path)).collect();
    assert!(
        without.is_empty(),
        "no example in the documentation of:\n{}\nAn item that is not for users has the attribute \
         #[doc(hidden)].",
        without.join("\n")
    );
    println!("{} items", items.len());
}

#[test]
fn hidden_modules_are_not_in_the_api() {
    let items = items(&document().json);
    for hidden in ["lock", "parking", "queue", "runtime::sensor", "catalogue::environment"] {
        let prefix = format!("unconvoy::{hidden}::");
        let found: Vec<_> = items.iter().filter(|item| item.path.starts_with(&prefix)).collect();
        assert!(found.is_empty(), "{found:#?}");
    }
}
