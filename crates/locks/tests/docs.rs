//! The documentation matches the code: tables are generated from the catalogue, and pages that a
//! script assembles contain its blocks.
#![cfg(not(loom))]

mod generated;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use generated::{assert_up_to_date, repository, table};
use unconvoy::catalogue::environment::{Reader, VARIABLES, Values, Variable};
use unconvoy::catalogue::{CONTENTION_MANAGERS, Class, LOAD_MANAGERS, POLICIES, Purpose, SENSORS};

/// The name of a table's entry, marked as the default if it is the first.
fn name(index: usize, name: &str) -> String {
    if index == 0 { format!("`{name}` (default)") } else { format!("`{name}`") }
}

fn purpose(purpose: Purpose) -> String {
    match purpose {
        Purpose::For(what) => what.to_string(),
        Purpose::Comparison(what) => format!("comparison: {what}"),
    }
}

macro_rules! sizes {
    ([$(($lock:literal, $contention:ty)),*] $loads:tt) => {
        const SIZES: &[(&str, usize)] = &[$(($lock, size_of::<$contention>())),*];
    };
}

unconvoy::with_managers!(sizes);

#[test]
fn lock_tables_match_catalogue() {
    let sizes = BTreeMap::from_iter(SIZES.iter().copied());
    let locks = CONTENTION_MANAGERS.iter().enumerate().map(|(index, lock)| {
        let class = match lock.class {
            Class::Spins => "never".to_string(),
            Class::YieldsToPreempted(_) => "rescue".to_string(),
            Class::CallsSystem(_) => "**by design**".to_string(),
        };
        let state = format!("{} bytes", sizes[lock.entry.name]);
        let name = name(index, lock.entry.name);
        [
            name,
            lock.order.to_string(),
            lock.polls.into(),
            class,
            state,
            purpose(lock.purpose),
            lock.source.into(),
        ]
    });
    let heading =
        ["name", "order", "waiters poll", "system calls", "state", "what it is for", "source"];
    let calls = CONTENTION_MANAGERS.iter().filter_map(|lock| match lock.class {
        Class::Spins => None,
        Class::YieldsToPreempted(when) => {
            Some([lock.entry.name, "rescue", "`sched_yield`, and then short sleeps, ", when])
        }
        Class::CallsSystem(what) => Some([lock.entry.name, "by design", "", what]),
    });
    let calls = calls.map(|[name, class, call, when]| {
        [format!("`{name}`"), class.into(), format!("{call}{when}")]
    });
    let loads = LOAD_MANAGERS.iter().enumerate().map(|(index, load)| {
        [
            name(index, load.entry.name),
            load.waiter.into(),
            purpose(load.purpose),
            load.source.into(),
        ]
    });
    let policies = POLICIES.iter().enumerate().map(|(index, policy)| {
        [name(index, policy.entry.name), policy.target.into(), format!("{:.2}", policy.noise)]
    });
    assert_up_to_date(
        "reference/locks.md",
        &[
            ("contention managers", table(heading, locks)),
            ("system calls", table(["name", "class", "calls"], calls)),
            ("load managers", table(["name", "a waiter", "what it is for", "source"], loads)),
            ("policies", table(["name", "the target is", "noise left"], policies)),
        ],
    );
}

#[test]
fn sensor_table_matches_catalogue() {
    let sensors = SENSORS.iter().enumerate().map(|(index, sensor)| {
        let name = name(index, sensor.entry.name);
        [name, sensor.reads.into(), sensor.others.into(), sensor.cost.into(), sensor.needs.into()]
    });
    let heading = ["name", "reads", "sees of other processes", "cost of a reading", "needs"];
    assert_up_to_date("reference/sensors.md", &[("sensors", table(heading, sensors))]);
}

fn values(variable: &Variable) -> String {
    let words = |words: &[&str]| {
        words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
    };
    match &variable.values {
        Values::Entry(entries) => {
            words(&entries.iter().map(|entry| entry.name).collect::<Vec<_>>())
        }
        Values::Milliseconds(range) => format!("{} to {} ms", range.start(), range.end()),
        Values::Word(choices) => words(choices),
        Values::Switch => "0; anything else is 1".to_string(),
        Values::Path => "path".to_string(),
        Values::Anything => "anything".to_string(),
        Values::Form(form) => (*form).to_string(),
    }
}

fn readers(variable: &Variable) -> String {
    let name = |reader: &Reader| match reader {
        Reader::Library => "the library",
        Reader::Command => "`unconvoy`",
        Reader::Scheduler => "`unconvoy-sched-ext`",
        Reader::Workloads => "workload programs",
        Reader::Tests => "tests",
        Reader::Build => "build scripts",
    };
    variable.readers.iter().map(name).collect::<Vec<_>>().join(", ")
}

fn variables(is_wanted: impl Fn(&Variable) -> bool) -> String {
    let rows = VARIABLES.iter().filter(|variable| is_wanted(variable)).map(|variable| {
        let name = format!("`{}`", variable.name);
        [
            name,
            readers(variable),
            values(variable),
            variable.default.into(),
            variable.meaning.into(),
        ]
    });
    table(["name", "read by", "values", "default", "meaning"], rows)
}

#[test]
fn environment_tables_match_catalogue() {
    let is_ours = |variable: &Variable| variable.name.starts_with("UNCONVOY_");
    let is_for_developers =
        |variable: &Variable| matches!(variable.readers[0], Reader::Tests | Reader::Build);
    let is_for_library = |variable: &Variable| variable.readers[0] == Reader::Library;
    let library = variables(|variable| is_ours(variable) && is_for_library(variable));
    let command = variables(|variable| {
        is_ours(variable) && !is_for_library(variable) && !is_for_developers(variable)
    });
    let developers = variables(|variable| is_ours(variable) && is_for_developers(variable));
    let others = variables(|variable| !is_ours(variable));
    let blocks = [
        ("library", library),
        ("command", command),
        ("development", developers),
        ("others", others),
    ];
    assert_up_to_date("reference/environment.md", &blocks);
}

/// Path below the repository and text of each source file below `directories`.
fn sources(directories: &[&str]) -> Vec<(String, String)> {
    const KINDS: [&str; 9] = ["rs", "c", "cc", "h", "sh", "py", "toml", "html", ""];
    let root = repository();
    let mut open: Vec<_> = directories.iter().map(|directory| root.join(directory)).collect();
    let mut found = Vec::new();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            let entries =
                fs::read_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            open.extend(entries.map(|entry| entry.expect("an entry of a directory").path()));
        } else if KINDS.contains(&path.extension().unwrap_or_default().to_str().unwrap_or("none"))
            && let Ok(text) = fs::read_to_string(&path)
        {
            let name = path.strip_prefix(&root).expect("below the root").display().to_string();
            found.push((name, text));
        }
    }
    assert!(found.len() > directories.len(), "no sources found");
    found
}

/// The uppercase words in `text` that begin with `prefix`.
fn words_from<'a>(text: &'a str, prefix: &'a str) -> impl Iterator<Item = &'a str> {
    let is_of_a_name =
        |letter: char| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_';
    text.match_indices(prefix)
        .filter(move |(index, _)| {
            !text[..*index].ends_with(|letter: char| letter.is_ascii_alphanumeric())
        })
        .map(move |(index, _)| &text[index..])
        .map(move |rest| &rest[..rest.find(|letter| !is_of_a_name(letter)).unwrap_or(rest.len())])
}

const TABLE: &str = "crates/locks/src/catalogue/environment.rs";

#[test]
fn variables_in_sources_are_in_the_table() {
    let sources = sources(&["crates", "fuzz", "papers", "scripts", "Makefile"]);
    // C macros are defined in the sources.
    let macros: Vec<&str> = sources
        .iter()
        .flat_map(|(_, text)| text.lines())
        .filter_map(|line| line.trim_start().strip_prefix("#define ")?.split([' ', '(']).next())
        .collect();
    let mut unknown = Vec::new();
    for (path, text) in sources.iter().filter(|(path, _)| path != TABLE) {
        let ours = words_from(text, "UNCONVOY_").filter(|word| word.len() > "UNCONVOY_".len());
        let quoted = |call: &'static str| {
            text.match_indices(call)
                .filter_map(move |(index, call)| text[index + call.len()..].split('"').next())
        };
        let read = ["env::var(\"", "env::var_os(\"", "getenv(\"", "getenv(c\""]
            .into_iter()
            .flat_map(quoted);
        // Variables that cargo sets for its build scripts belong to cargo.
        let read = read.filter(|name| *name != "OUT_DIR" && !name.starts_with("CARGO_"));
        for word in ours.chain(read) {
            if !macros.contains(&word) && VARIABLES.iter().all(|variable| variable.name != word) {
                unknown.push(format!("{path}: {word}"));
            }
        }
    }
    assert!(unknown.is_empty(), "not in {TABLE}: {unknown:#?}");
}

#[test]
fn variables_in_the_table_are_in_sources() {
    let sources = sources(&["crates", "fuzz", "papers", "scripts"]);
    let (_, table) = sources.iter().find(|(path, _)| path == TABLE).expect("the table");
    for variable in VARIABLES {
        let quoted = format!("\"{}\"", variable.name);
        let row = table.split(&quoted).next().expect("a first part");
        let constant = row
            .rsplit('\n')
            .next()
            .and_then(|line| line.trim().strip_suffix(':'))
            .expect("ID: NAME");
        let constant = format!("environment::{constant}");
        let is_end = |rest: &str| {
            !rest.starts_with(|letter: char| letter.is_ascii_uppercase() || letter == '_')
        };
        let is_named = |text: &str| {
            text.match_indices(&constant).any(|(index, of)| is_end(&text[index + of.len()..]))
        };
        assert!(
            sources
                .iter()
                .any(|(path, text)| path != TABLE && (text.contains(&quoted) || is_named(text))),
            "no source reads {}",
            variable.name
        );
    }
}

#[test]
fn evaluation_pages_contain_generated_tables() {
    let blocks = [
        ("measured", "goals"),
        ("measured", "programs"),
        ("counter", "tables"),
        ("costs", "tables"),
        ("programs", "table"),
        ("grids", "records"),
    ];
    for (page, block) in blocks {
        let path = repository().join(format!("docs/evaluation/{page}.md"));
        let text =
            fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let rest = text.split_once(&format!("<!-- generated: {block} -->\n"));
        let content = rest.and_then(|(_, rest)| rest.split_once(&format!("<!-- end: {block} -->")));
        assert!(
            content.is_some_and(|(content, _)| content.contains("\n|")),
            "{page}.md: no table in the block {block}"
        );
    }
}

/// Algorithms reach the system only through their machine and their process. No other code of the
/// library calls the kernel or prints.
#[test]
fn sources_above_the_machine_make_no_system_calls() {
    const WAYS: [&str; 8] = [
        "libc::",
        "rustix::",
        "syscalls::",
        "std::fs",
        "std::io",
        "println!(",
        "std::process",
        "asm!(",
    ];
    let is_allowed = |path: &str| {
        [
            "crates/locks/src/primitive/native/",
            "crates/locks/src/queue/pool.rs",
            "crates/locks/src/runtime/",
        ]
        .iter()
        .any(|below| path.starts_with(below))
    };
    for (path, text) in sources(&["crates/locks/src"]).iter().filter(|(path, _)| !is_allowed(path))
    {
        let code = text.split("#[cfg(test)]").next().expect("a first part");
        let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in code {
            assert!(!WAYS.iter().any(|way| line.contains(way)), "{path}: {line}");
        }
    }
}

/// Path and text of README.md and of each page below docs/.
fn pages() -> Vec<(PathBuf, String)> {
    let root = repository();
    let mut open = vec![root.join("docs")];
    let mut pages = vec![root.join("README.md")];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            let entries =
                fs::read_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            open.extend(entries.map(|entry| entry.expect("an entry of a directory").path()));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    pages
        .into_iter()
        .map(|path| (path.clone(), fs::read_to_string(path).expect("a page")))
        .collect()
}

#[test]
fn pages_state_the_oldest_rust() {
    let manifest = fs::read_to_string(repository().join("Cargo.toml")).expect("a manifest");
    let version = manifest.lines().find_map(|line| line.strip_prefix("rust-version = \""));
    let version = version.and_then(|rest| rest.strip_suffix('"')).expect("a version");
    for page in [
        "README.md",
        "crates/cli/README.md",
        "crates/locks/README.md",
        "crates/locks/src/lib.rs",
        "docs/how-to/rust.md",
        "docs/start/install.md",
    ] {
        let text = fs::read_to_string(repository().join(page)).expect("a page");
        assert!(text.contains(&format!("{version} or later")), "{page}: not Rust {version}");
    }
}

#[test]
fn features_are_in_the_root_documentation() {
    let manifest = fs::read_to_string(repository().join("crates/locks/Cargo.toml"));
    let manifest = manifest.expect("a manifest");
    let (_, features) = manifest.split_once("[features]\n").expect("features");
    let features = features.split("\n[").next().expect("a table").lines();
    let features = features.filter_map(|line| line.split_once(" = ")).map(|(name, _)| name);
    let features: Vec<_> = features.filter(|name| *name != "default").collect();
    assert!(features.contains(&"lock_api"), "{features:?}");
    let root = fs::read_to_string(repository().join("crates/locks/src/lib.rs")).expect("a root");
    let rows = root.lines().filter_map(|line| line.strip_prefix("//! | `")?.split('`').next());
    assert_eq!(rows.collect::<Vec<_>>(), features, "the table of features in lib.rs");
}

#[test]
fn paths_in_documentation_exist() {
    let root = repository();
    for (page, text) in pages() {
        // Inline code: every other part between backquotes.
        let code = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
        let paths = code.filter(|word| {
            let is_a_path = ["crates/", "papers/", "scripts/", "docs/"]
                .iter()
                .any(|directory| word.starts_with(directory));
            is_a_path && !word.contains([' ', '*', '{'])
        });
        for path in paths.map(|path| root.join(path)) {
            assert!(path.exists(), "{} names a missing file: {}", page.display(), path.display());
        }
        // A page may name a source by the last parts of its path.
        let is_source = |word: &&str| word.ends_with(".rs") && !word.contains(' ');
        for word in
            text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).filter(is_source)
        {
            let named = sources_named().iter().any(|path| path.ends_with(word));
            assert!(named, "{} names a missing source: {word}", page.display());
        }
    }
}

fn sources_named() -> &'static [PathBuf] {
    static PATHS: OnceLock<Vec<PathBuf>> = OnceLock::new();
    PATHS.get_or_init(|| {
        sources(&["crates", "papers"]).into_iter().map(|(path, _)| PathBuf::from(path)).collect()
    })
}
