//! The edges of synthetic source trees.

use std::collections::BTreeMap;

use unconvoy_layers::check;

/// The edges as `FROM -> TO: LINE PATH`, where the names of files omit `src/` and `.rs`.
fn edges(files: &[(&str, &str)]) -> Vec<String> {
    let sources: BTreeMap<&str, &str> = files.iter().copied().collect();
    let edges = check::graph(&sources, &["src/lib.rs".to_string()]).unwrap().edges;
    let short =
        |file: &str| file.strip_prefix("src/").unwrap().strip_suffix(".rs").unwrap().to_string();
    let line = |((from, to), site): ((String, String), unconvoy_layers::resolve::Site)| {
        format!("{} -> {}: {} {}", short(&from), short(&to), site.line, site.path)
    };
    edges.into_iter().map(line).collect()
}

const ROOT: (&str, &str) = ("src/lib.rs", "mod a; mod b;");

/// The edges of file `a` with text `a`, next to a file `b` with a function, a type, an enum and a
/// module.
fn edges_of(a: &str) -> Vec<String> {
    let b = "pub fn go() {}\npub struct Node;\npub enum Verdict { Stay, Leave }\n\
             pub mod inner { pub fn deep() {} }";
    edges(&[ROOT, ("src/a.rs", a), ("src/b.rs", b)])
}

#[test]
fn use_item_is_an_edge() {
    assert_eq!(edges_of("use crate::b::Node;"), ["a -> b: 1 crate::b::Node"]);
    assert_eq!(edges_of("\nuse super::b::{inner, Node as N};"), ["a -> b: 2 super::b::inner"]);
    assert_eq!(edges_of("fn f() { use crate::b::go as run; run() }"), ["a -> b: 1 crate::b::go"]);
    assert_eq!(edges_of("use std::b::Node; use ::b::Node as Other;"), [""; 0]);
}

#[test]
fn inline_path_is_an_edge() {
    assert_eq!(edges_of("fn f() {\n crate::b::go() }"), ["a -> b: 2 crate::b::go"]);
    assert_eq!(edges_of("fn f(_: super::b::Node) {}"), ["a -> b: 1 super::b::Node"]);
    assert_eq!(
        edges_of("fn f() -> bool { matches!(1, _ if crate::b::inner::deep() == ()) }").len(),
        1
    );
    assert_eq!(
        edges_of("mod own { fn f() { super::super::b::go() } }"),
        ["a -> b: 1 super::super::b::go"]
    );
}

#[test]
fn path_through_imported_module_is_an_edge_to_the_item() {
    let files =
        |a| [("src/lib.rs", "mod a; mod b;"), ("src/a.rs", a), ("src/b/mod.rs", "pub mod c;"), C];
    const C: (&str, &str) = ("src/b/c.rs", "pub fn go() {}");
    assert_eq!(edges(&files("use crate::b;\nfn f() { b::c::go() }")), ["a -> b/c: 2 b::c::go"]);
    assert_eq!(edges(&files("use crate::b::{self, c};\nfn f() { c::go(); b::made() }")).len(), 2);
    assert_eq!(edges(&files("use crate::b::c;")), ["a -> b/c: 1 crate::b::c"]);
}

#[test]
fn glob_import_is_an_edge_to_the_used_names() {
    assert_eq!(edges_of("use crate::b::*; fn f() { go() }"), ["a -> b: 1 go"]);
    assert_eq!(
        edges_of("use crate::b::Verdict::*; fn f() { Stay; }"),
        ["a -> b: 1 crate::b::Verdict"]
    );
    // With no use visible, the import may be for a trait's methods.
    assert_eq!(edges_of("use crate::b::*;"), ["a -> b: 1 crate::b"]);
    let facade = [
        ("src/lib.rs", "mod a; mod b; mod c; pub use b::*; pub use c::*;"),
        ("src/c.rs", "pub struct C;"),
    ];
    let tree = [
        &facade[..],
        &[("src/a.rs", "use super::*; fn f() -> B { B }"), ("src/b.rs", "pub struct B;")],
    ]
    .concat();
    assert_eq!(edges(&tree), ["a -> b: 1 B"]);
}

#[test]
fn function_named_like_a_module_has_no_segments() {
    let root = ("src/lib.rs", "mod a; mod b; fn b() {}");
    assert_eq!(
        edges(&[root, ("src/a.rs", "use crate::b::B;"), ("src/b.rs", "pub struct B;")]),
        ["a -> b: 1 crate::b::B"]
    );
}

#[test]
fn import_through_parent_is_an_edge_to_the_child() {
    let tree = [
        ("src/lib.rs", "mod queue; mod lock;"),
        ("src/queue/mod.rs", "mod node; pub(crate) use node::Node;"),
        ("src/queue/node.rs", "pub struct Node;"),
        ("src/lock.rs", "use crate::queue::Node; fn f() { crate::queue::Node::new() }"),
    ];
    assert_eq!(edges(&tree), ["lock -> queue/node: 1 crate::queue::Node"]);
}

#[test]
fn import_through_other_reexport_is_an_edge_to_both() {
    let tree = [
        ("src/lib.rs", "mod a; mod b; mod c;"),
        ("src/a.rs", "use crate::b::C;"),
        ("src/b.rs", "pub use crate::c::C;"),
        ("src/c.rs", "pub struct C;"),
    ];
    assert_eq!(
        edges(&tree),
        ["a -> b: 1 crate::b::C", "a -> c: 1 crate::b::C", "b -> c: 1 crate::c::C"]
    );
}

#[test]
fn parent_using_its_child_has_an_edge() {
    let tree = |lib| [("src/lib.rs", lib), ("src/a.rs", "pub fn go() { super::stop() }")];
    assert_eq!(edges(&tree("mod a; pub use a::go; pub fn stop() {}")), ["a -> lib: 1 super::stop"]);
    let both = ["a -> lib: 1 super::stop", "lib -> a: 1 a::go"];
    assert_eq!(edges(&tree("mod a; use a::go; pub fn stop() {}")), both);
    assert_eq!(edges(&tree("mod a; pub fn stop() { a::go() }")), both);
}

#[test]
fn path_in_macro_tokens_is_an_edge() {
    assert_eq!(edges_of("fn f() { println!(\"{}\", crate::b::go()) }"), ["a -> b: 1 crate::b::go"]);
    assert_eq!(
        edges_of("macro_rules! m { ($x:expr) => {\n $crate::b::go($x.b::go, $b::go) } }"),
        ["a -> b: 2 crate::b::go"]
    );
    assert_eq!(edges_of("use crate::b; fn f() { vec![0..b::go()]; }"), ["a -> b: 1 b::go"]);
    assert_eq!(
        edges_of(
            "struct A; macro_rules! m { () => { \
             mod x { static S: super::A = super::super::b::go(); } } }"
        ),
        ["a -> b: 1 super::b::go"]
    );
    assert_eq!(edges_of("m! { use crate::{b::{Node, self}}; }"), ["a -> b: 1 crate::b::Node"]);
    assert_eq!(
        edges_of("fn f() { println!(\"{}\", ::b::go() + x.b::<u8>() + <T>::b::go()) }"),
        [""; 0]
    );
}

#[test]
fn macro_call_is_an_edge_to_the_definition() {
    let rules = "macro_rules! twice { () => {} }";
    let textual = [
        ("src/lib.rs", "#[macro_use] mod b; mod a;"),
        ("src/b.rs", rules),
        ("src/a.rs", "twice!();"),
    ];
    assert_eq!(edges(&textual), ["a -> b: 1 twice"]);
    let exported = "#[macro_export] macro_rules! twice { () => {} }";
    assert_eq!(
        edges(&[ROOT, ("src/b.rs", exported), ("src/a.rs", "crate::twice!();")]),
        ["a -> b: 1 crate::twice"]
    );
    let imported = format!("{rules} pub(crate) use twice;");
    let by_name = [ROOT, ("src/b.rs", &imported), ("src/a.rs", "use crate::b::twice; twice!();")];
    assert_eq!(edges(&by_name), ["a -> b: 1 crate::b::twice"]);
}

#[test]
fn path_in_attribute_is_an_edge_unless_documentation() {
    assert_eq!(
        edges_of("struct S { #[arg(value_parser = crate::b::go)] x: u8 }"),
        ["a -> b: 1 crate::b::go"]
    );
    assert_eq!(
        edges_of("struct S { #[serde(with = \"crate::b\")] x: u8 }"),
        ["a -> b: 1 crate::b"]
    );
    assert_eq!(
        edges_of("struct S { #[serde(rename = \"b::go\", default = \"b\")] x: u8 }"),
        [""; 0]
    );
    assert_eq!(edges_of("struct S { #[serde(with = \"crate::b::inner::x\")] x: u8 }").len(), 1);
    assert_eq!(edges_of("/// As [`crate::b::go`].\npub(in crate::b) fn f() {}"), [""; 0]);
}

#[test]
fn test_only_import_is_not_an_edge() {
    assert_eq!(edges_of("#[cfg(test)] mod tests { use crate::b::go; }"), [""; 0]);
    assert_eq!(edges_of("#[cfg(all(test, not(loom)))] use crate::b::go;"), [""; 0]);
    assert_eq!(edges_of("impl S { #[cfg(test)] fn f() { crate::b::go() } }"), [""; 0]);
    assert_eq!(edges_of("#[cfg(not(test))] use crate::b::go;").len(), 1);
    assert_eq!(edges_of("#[cfg(any(test, loom))] use crate::b::go;").len(), 1);
    assert_eq!(edges_of("#[cfg(loom)] use crate::b::go;").len(), 1);
}

#[test]
fn module_with_two_configurations_has_both_edges() {
    let tree = [
        (
            "src/lib.rs",
            "mod user; #[cfg(loom)] #[path = \"c.rs\"] mod os; #[cfg(not(loom))] mod os;",
        ),
        ("src/c.rs", "pub fn park() {}"),
        ("src/os.rs", "pub fn park() {}"),
        ("src/user.rs", "use crate::os::park;"),
    ];
    assert_eq!(edges(&tree), ["user -> c: 1 crate::os::park", "user -> os: 1 crate::os::park"]);
}

#[test]
fn module_files_are_located_like_rustc() {
    let tree = [
        ("src/lib.rs", "mod load; pub struct Root;"),
        (
            "src/load/mod.rs",
            "#[path = \"yield.rs\"] pub mod yielding; pub mod control; \
             pub mod inline { mod deep; }",
        ),
        ("src/load/yield.rs", "mod beside; use crate::Root;"),
        ("src/load/beside.rs", "use super::super::control::Control;"),
        ("src/load/control.rs", "mod slots; pub struct Control; use super::yielding::Yield;"),
        ("src/load/control/slots.rs", "use crate::load::control::Control;"),
        ("src/load/inline/deep.rs", "use super::super::super::Root;"),
    ];
    assert_eq!(
        edges(&tree),
        [
            "load/beside -> load/control: 1 super::super::control::Control",
            "load/control -> load/yield: 1 super::yielding::Yield",
            "load/control/slots -> load/control: 1 crate::load::control::Control",
            "load/inline/deep -> lib: 1 super::super::super::Root",
            "load/yield -> lib: 1 crate::Root",
        ]
    );
}

#[test]
fn missing_file_and_syntax_error_are_reported() {
    let error = |files: &[(&str, &str)]| {
        let sources: BTreeMap<&str, &str> = files.iter().copied().collect();
        check::graph(&sources, &["src/lib.rs".to_string()]).unwrap_err().to_string()
    };
    assert_eq!(error(&[("src/lib.rs", "mod gone;")]), "module gone has no file in src");
    assert_eq!(error(&[("src/lib.rs", "fn")]), "cannot parse src/lib.rs");
    assert_eq!(
        error(&[("src/lib.rs", "#[path = \"lib.rs\"] mod x;")]),
        "src/lib.rs declares itself as a module"
    );
}
