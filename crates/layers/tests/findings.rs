//! What the check says of made-up source trees, lists of layers and known arrows.

use std::collections::BTreeMap;

use unconvoy_layers::check::{self, Findings, Package};
use unconvoy_layers::rules::{self, Known};

/// The faults of a package `p` with these files (`src/NAME.rs`; the root declares them all).
fn faults(files: &[(&str, &str)], layers: &str, known: &str) -> Vec<String> {
    findings(files, layers, known).faults
}

fn findings(files: &[(&str, &str)], layers: &str, known: &str) -> Findings {
    let paths: Vec<String> = files.iter().map(|(name, _)| format!("src/{name}.rs")).collect();
    let modules = files.iter().filter(|(name, _)| !name.contains('/'));
    let root: String = modules.map(|(name, _)| format!("mod {name};")).collect();
    let mut sources: BTreeMap<&str, &str> =
        paths.iter().map(String::as_str).zip(files.iter().map(|(_, text)| *text)).collect();
    sources.insert("src/lib.rs", &root);
    let graph = check::graph(&sources, &["src/lib.rs".to_string()]).unwrap();
    let layers = rules::layers(&format!("[packages]\n[files]\n{layers}")).unwrap();
    let mut findings = Findings::default();
    check::files("p", &graph, &layers, &Known::read(known).unwrap(), &mut findings).unwrap();
    findings
}

const PAIR: [(&str, &str); 2] = [("a", "use crate::b::B;\npub struct A;"), ("b", "pub struct B(\ncrate::a::A);")];

#[test]
fn circle_names_its_files_and_arrows() {
    let expected = "p: a circle of 2 files: src/a.rs, src/b.rs\n  there is none without\n  \
                    \"src/b.rs -> src/a.rs\": line 2, crate::a::A\n  beside\n  \
                    \"src/a.rs -> src/b.rs\": line 1, crate::b::B\n";
    assert_eq!(faults(&PAIR, "", ""), [expected]);
}

#[test]
fn circle_of_macros_and_of_parent_and_child_is_found() {
    let by_macro =
        [("a", "#[macro_export] macro_rules! m { () => { $crate::b::go() } }"), ("b", "pub fn go() { crate::m!() }")];
    assert!(faults(&by_macro, "", "")[0].contains("\"src/a.rs -> src/b.rs\": line 1, crate::b::go"));
    let family = |parent| [("a", parent), ("a/child", "pub fn go() { super::stop() }")];
    let uses = faults(&family("mod child; pub fn stop() { child::go() }"), "", "");
    assert!(uses[0].starts_with("p: a circle of 2 files: src/a.rs, src/a/child.rs\n"), "{uses:?}");
    assert_eq!(faults(&family("mod child; pub use child::go; pub fn stop() {}"), "", ""), [""; 0]);
}

#[test]
fn circle_through_a_facade_is_one_of_the_children() {
    let tree = [
        ("f", "mod x; mod y; pub use x::X; pub use y::Y;"),
        ("f/x", "pub struct X(super::Y);"),
        ("f/y", "use crate::f::X; pub struct Y;"),
    ];
    assert!(faults(&tree, "", "")[0].starts_with("p: a circle of 2 files: src/f/x.rs, src/f/y.rs\n"));
}

#[test]
fn two_circles_are_two_faults() {
    let tree = [
        ("a", "use crate::b::X;"),
        ("b", "use crate::a::X; use crate::c::X as Y;"),
        ("c", "use crate::d::X;"),
        ("d", "use crate::c::X;"),
    ];
    let found = faults(&tree, "", "");
    assert_eq!(found.len(), 2);
    assert!(found[0].contains("2 files: src/a.rs, src/b.rs") && found[1].contains("2 files: src/c.rs, src/d.rs"));
}

#[test]
fn known_arrow_excuses_the_circle_that_it_closes() {
    assert_eq!(faults(&PAIR, "", "[p]\n\"src/b.rs -> src/a.rs\" = \"why\""), [""; 0]);
    let other = faults(&PAIR, "", "[other]\n\"src/b.rs -> src/a.rs\" = \"why\"");
    assert_eq!(other.len(), 1);
}

#[test]
fn known_arrow_that_is_gone_is_a_fault() {
    let straight = [("a", "use crate::b::B;"), ("b", "pub struct B;")];
    let stale = |arrow: &str| faults(&straight, "", &format!("[p]\n\"{arrow}\" = \"why\""));
    assert_eq!(
        stale("src/b.rs -> src/a.rs"),
        ["known.toml, [p]: \"src/b.rs -> src/a.rs\" is no import any more: delete the line"]
    );
    assert_eq!(
        stale("src/a.rs -> src/b.rs"),
        ["known.toml, [p]: \"src/a.rs -> src/b.rs\" closes no circle any more: delete the line"]
    );
}

#[test]
fn one_of_two_known_arrows_of_a_circle_is_a_fault() {
    let known = "[p]\n\"src/a.rs -> src/b.rs\" = \"why\"\n\"src/b.rs -> src/a.rs\" = \"why\"\n";
    let found = findings(&PAIR, "", known);
    assert_eq!(found.faults.len(), 1);
    assert_eq!(rules::without(known, &found.stale), "[p]\n\"src/b.rs -> src/a.rs\" = \"why\"\n");
}

#[test]
fn known_arrow_without_a_reason_is_refused() {
    for line in ["\"src/b.rs -> src/a.rs\" = \" \"", "\"src/b.rs\" = \"why\""] {
        assert!(Known::read(&format!("[p]\n{line}")).unwrap().arrows("p").is_err());
    }
}

const LOCKS: [(&str, &str); 4] = [
    ("primitive", "pub struct Word;"),
    ("contention", "use crate::primitive::Word; pub struct Queue;"),
    ("load", "use crate::primitive::Word; pub struct Slots;"),
    ("lock", "use crate::contention::Queue; use crate::load::Slots;"),
];
const LAYERS: &str = "p = [[\"src/primitive\"], [\"src/contention\", \"src/load\"], [\"src/lock\"]]";

/// The faults of the locks above with another text for one of the files.
fn changed(name: &str, text: &'static str, known: &str) -> Vec<String> {
    let files = LOCKS.map(|(file, old)| (file, if file == name { text } else { old }));
    faults(&files, LAYERS, known)
}

#[test]
fn layers_that_are_kept_have_no_fault() {
    assert_eq!(faults(&LOCKS, LAYERS, ""), [""; 0]);
}

#[test]
fn arrow_upwards_sideways_or_out_of_the_layers_is_a_fault() {
    let up = "p: against the layers:\n  \"src/primitive.rs -> src/lock.rs\": line 1, crate::lock::Lock\n    \
              src/primitive is below src/lock";
    assert_eq!(changed("primitive", "use crate::lock::Lock;", "")[0], up);
    let beside = "p: against the layers:\n  \"src/load.rs -> src/contention.rs\": line 1, crate::contention::Queue\n    \
                  src/load and src/contention lie side by side";
    assert_eq!(changed("load", "pub struct Slots(crate::contention::Queue, crate::primitive::Word);", ""), [beside]);
    let out = "p: against the layers:\n  \"src/primitive.rs -> src/lib.rs\": line 1, crate::Root\n    \
               src/primitive is a layer, and src/lib.rs is above the layers";
    assert_eq!(changed("primitive", "use crate::Root;", ""), [out]);
}

#[test]
fn known_arrow_against_the_layers_is_excused_as_long_as_it_is_there() {
    let known = "[p]\n\"src/load.rs -> src/contention.rs\" = \"why\"";
    let text = "pub struct Slots(crate::contention::Queue, crate::primitive::Word);";
    assert_eq!(changed("load", text, known), [""; 0]);
    assert_eq!(faults(&LOCKS, LAYERS, known).len(), 1);
}

#[test]
fn layer_without_a_file_is_a_fault() {
    let layers = "p = [[\"src/prim\"], [\"src/lock\"]]";
    let found = faults(&LOCKS, layers, "");
    assert_eq!(found.last().unwrap(), "layers.toml: p has no file in src/prim");
}

#[test]
fn dependency_of_packages_that_no_line_allows_is_a_fault() {
    let package = |name: &str, needs: &[&str]| {
        let dependencies = needs.iter().map(|need| need.to_string()).collect();
        Package { name: name.to_string(), roots: Vec::new(), dependencies }
    };
    let all = [package("sim", &["locks", "bench"]), package("bench", &["locks"]), package("locks", &[])];
    let layers = rules::layers("[packages]\nsim = [\"locks\"]\nbench = [\"locks\"]").unwrap();
    let faults = |known: &str| {
        let mut findings = Findings::default();
        check::packages(&all, &layers, &Known::read(known).unwrap(), &mut findings).unwrap();
        findings.faults
    };
    let no_line = "layers.toml, [packages]: locks has no line";
    assert_eq!(faults(""), ["packages: \"sim -> bench\" is against the layers", no_line]);
    assert_eq!(faults("[packages]\n\"sim -> bench\" = \"why\""), [no_line]);
    assert_eq!(
        faults("[packages]\n\"sim -> bench\" = \"why\"\n\"bench -> sim\" = \"why\"\n[gone]\n\"a -> b\" = \"why\""),
        [
            no_line,
            "known.toml, [packages]: \"bench -> sim\" is no such dependency any more: delete the line",
            "known.toml, [gone]: there is no such package",
        ]
    );
}
