//! The findings for synthetic source trees, layers and known edges.

use std::collections::BTreeMap;

use unconvoy_layers::check::{self, Findings, Package};
use unconvoy_layers::rules::{self, Known};

/// The faults of a package `p` with these files (`src/NAME.rs`, all declared by the root).
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

const PAIR: [(&str, &str); 2] =
    [("a", "use crate::b::B;\npub struct A;"), ("b", "pub struct B(\ncrate::a::A);")];

#[test]
fn cycle_report_lists_files_and_edges() {
    let expected = "p: cycle of 2 files: src/a.rs, src/b.rs\n  remove\n  \
                    \"src/b.rs -> src/a.rs\": line 2, crate::a::A\n  other imports\n  \
                    \"src/a.rs -> src/b.rs\": line 1, crate::b::B\n";
    assert_eq!(faults(&PAIR, "", ""), [expected]);
}

#[test]
fn cycle_through_macro_or_parent_is_a_fault() {
    let by_macro = [
        ("a", "#[macro_export] macro_rules! m { () => { $crate::b::go() } }"),
        ("b", "pub fn go() { crate::m!() }"),
    ];
    assert!(
        faults(&by_macro, "", "")[0].contains("\"src/a.rs -> src/b.rs\": line 1, crate::b::go")
    );
    let family = |parent| [("a", parent), ("a/child", "pub fn go() { super::stop() }")];
    let uses = faults(&family("mod child; pub fn stop() { child::go() }"), "", "");
    assert!(uses[0].starts_with("p: cycle of 2 files: src/a.rs, src/a/child.rs\n"), "{uses:?}");
    assert_eq!(faults(&family("mod child; pub use child::go; pub fn stop() {}"), "", ""), [""; 0]);
}

#[test]
fn cycle_through_facade_lists_the_children() {
    let tree = [
        ("f", "mod x; mod y; pub use x::X; pub use y::Y;"),
        ("f/x", "pub struct X(super::Y);"),
        ("f/y", "use crate::f::X; pub struct Y;"),
    ];
    assert!(faults(&tree, "", "")[0].starts_with("p: cycle of 2 files: src/f/x.rs, src/f/y.rs\n"));
}

#[test]
fn two_cycles_are_two_faults() {
    let tree = [
        ("a", "use crate::b::X;"),
        ("b", "use crate::a::X; use crate::c::X as Y;"),
        ("c", "use crate::d::X;"),
        ("d", "use crate::c::X;"),
    ];
    let found = faults(&tree, "", "");
    assert_eq!(found.len(), 2);
    assert!(
        found[0].contains("2 files: src/a.rs, src/b.rs")
            && found[1].contains("2 files: src/c.rs, src/d.rs")
    );
}

#[test]
fn known_edge_permits_its_cycle() {
    assert_eq!(faults(&PAIR, "", "[p]\n\"src/b.rs -> src/a.rs\" = \"why\""), [""; 0]);
    let other = faults(&PAIR, "", "[other]\n\"src/b.rs -> src/a.rs\" = \"why\"");
    assert_eq!(other.len(), 1);
}

#[test]
fn known_edge_without_import_is_a_fault() {
    let straight = [("a", "use crate::b::B;"), ("b", "pub struct B;")];
    let stale = |edge: &str| faults(&straight, "", &format!("[p]\n\"{edge}\" = \"why\""));
    assert_eq!(
        stale("src/b.rs -> src/a.rs"),
        ["known.toml, [p]: \"src/b.rs -> src/a.rs\" is not an import: delete the entry"]
    );
    assert_eq!(
        stale("src/a.rs -> src/b.rs"),
        ["known.toml, [p]: \"src/a.rs -> src/b.rs\" closes no cycle: delete the entry"]
    );
}

#[test]
fn redundant_known_edge_of_a_cycle_is_a_fault() {
    let known = "[p]\n\"src/a.rs -> src/b.rs\" = \"why\"\n\"src/b.rs -> src/a.rs\" = \"why\"\n";
    let found = findings(&PAIR, "", known);
    assert_eq!(found.faults.len(), 1);
    assert_eq!(rules::without(known, &found.stale), "[p]\n\"src/b.rs -> src/a.rs\" = \"why\"\n");
}

#[test]
fn known_edge_without_reason_is_an_error() {
    for line in ["\"src/b.rs -> src/a.rs\" = \" \"", "\"src/b.rs\" = \"why\""] {
        assert!(Known::read(&format!("[p]\n{line}")).unwrap().edges("p").is_err());
    }
}

const LOCKS: [(&str, &str); 4] = [
    ("primitive", "pub struct Word;"),
    ("contention", "use crate::primitive::Word; pub struct Queue;"),
    ("load", "use crate::primitive::Word; pub struct Slots;"),
    ("lock", "use crate::contention::Queue; use crate::load::Slots;"),
];
const LAYERS: &str =
    "p = [[\"src/primitive\"], [\"src/contention\", \"src/load\"], [\"src/lock\"]]";

/// The faults of `LOCKS` after one file's text is replaced.
fn changed(name: &str, text: &'static str, known: &str) -> Vec<String> {
    let files = LOCKS.map(|(file, old)| (file, if file == name { text } else { old }));
    faults(&files, LAYERS, known)
}

#[test]
fn layered_imports_have_no_fault() {
    assert_eq!(faults(&LOCKS, LAYERS, ""), [""; 0]);
}

#[test]
fn edge_up_sideways_or_above_the_layers_is_a_fault() {
    let up = "p: import violates the layers:\n  \
              \"src/primitive.rs -> src/lock.rs\": line 1, crate::lock::Lock\n    \
              src/primitive is below src/lock";
    assert_eq!(changed("primitive", "use crate::lock::Lock;", "")[0], up);
    let beside = "p: import violates the layers:\n  \
                  \"src/load.rs -> src/contention.rs\": line 1, crate::contention::Queue\n    \
                  src/load and src/contention are in one row";
    assert_eq!(
        changed("load", "pub struct Slots(crate::contention::Queue, crate::primitive::Word);", ""),
        [beside]
    );
    let out = "p: import violates the layers:\n  \
               \"src/primitive.rs -> src/lib.rs\": line 1, crate::Root\n    \
               src/primitive is a layer, and src/lib.rs is above all layers";
    assert_eq!(changed("primitive", "use crate::Root;", ""), [out]);
}

#[test]
fn known_edge_permits_its_layer_violation() {
    let known = "[p]\n\"src/load.rs -> src/contention.rs\" = \"why\"";
    let text = "pub struct Slots(crate::contention::Queue, crate::primitive::Word);";
    assert_eq!(changed("load", text, known), [""; 0]);
    assert_eq!(faults(&LOCKS, LAYERS, known).len(), 1);
}

#[test]
fn layer_without_file_is_a_fault() {
    let layers = "p = [[\"src/prim\"], [\"src/lock\"]]";
    let found = faults(&LOCKS, layers, "");
    assert_eq!(
        found.last().unwrap(),
        "layers.toml: p has no file in src/prim: rename or delete the layer"
    );
}

#[test]
fn unlisted_package_dependency_is_a_fault() {
    let package = |name: &str, needs: &[&str]| {
        let dependencies = needs.iter().map(|need| need.to_string()).collect();
        Package { name: name.to_string(), roots: Vec::new(), dependencies }
    };
    let all =
        [package("sim", &["locks", "bench"]), package("bench", &["locks"]), package("locks", &[])];
    let layers = rules::layers("[packages]\nsim = [\"locks\"]\nbench = [\"locks\"]").unwrap();
    let faults = |known: &str| {
        let mut findings = Findings::default();
        check::packages(&all, &layers, &Known::read(known).unwrap(), &mut findings).unwrap();
        findings.faults
    };
    let no_entry = "layers.toml, [packages]: no entry for locks: add one";
    assert_eq!(
        faults(""),
        ["packages: dependency \"sim -> bench\" violates layers.toml", no_entry]
    );
    assert_eq!(faults("[packages]\n\"sim -> bench\" = \"why\""), [no_entry]);
    assert_eq!(
        faults(
            "[packages]\n\"sim -> bench\" = \"why\"\n\"bench -> sim\" = \"why\"\n\
             [gone]\n\"a -> b\" = \"why\""
        ),
        [
            no_entry,
            "known.toml, [packages]: \"bench -> sim\" is not a dependency: delete the entry",
            "known.toml, [gone]: no such package: delete the table",
        ]
    );
}
