//! Every error and fault that this check reports.

/// An edge of the graph, with the first place in the source that causes it.
pub(crate) fn site(from: &str, to: &str, line: usize, path: &str) -> String {
    format!("  \"{from} -> {to}\": line {line}, {path}\n")
}

pub(crate) fn layer_violated(package: &str, site: &str, reason: &str) -> String {
    format!("{package}: import violates the layers:\n{site}    {reason}")
}

pub(crate) fn import_of_unlayered_file(folder: &str, file: &str) -> String {
    format!("{folder} is a layer, and {file} is above all layers")
}

pub(crate) fn import_of_higher_layer(folder: &str, above: &str) -> String {
    format!("{folder} is below {above}")
}

pub(crate) fn import_within_row(folder: &str, beside: &str) -> String {
    format!("{folder} and {beside} are in one row")
}

pub(crate) fn layer_without_file(package: &str, folder: &str) -> String {
    format!("layers.toml: {package} has no file in {folder}: rename or delete the layer")
}

/// `cut` and `rest` are lines of [`site`].
pub(crate) fn cycle(package: &str, files: &[&str], cut: &str, rest: &str) -> String {
    let count = files.len();
    let files = files.join(", ");
    format!("{package}: cycle of {count} files: {files}\n  remove\n{cut}  other imports\n{rest}")
}

pub(crate) fn package_dependency(from: &str, to: &str) -> String {
    format!("packages: dependency \"{from} -> {to}\" violates layers.toml")
}

pub(crate) fn unlisted_package(package: &str) -> String {
    format!("layers.toml, [packages]: no entry for {package}: add one")
}

pub(crate) fn unknown_table(table: &str) -> String {
    format!("known.toml, [{table}]: no such package: delete the table")
}

pub(crate) fn stale_entry(table: &str, from: &str, to: &str, why: &str) -> String {
    format!("known.toml, [{table}]: \"{from} -> {to}\" {why}: delete the entry")
}

pub(crate) fn malformed_entry(table: &str, key: &str) -> String {
    format!("known.toml, [{table}], {key:?}: an entry is \"FROM -> TO\" = \"REASON\"")
}

pub(crate) fn invalid_list(file: &str) -> String {
    format!("invalid {file}")
}

pub(crate) fn syntax_error(file: &str) -> String {
    format!("cannot parse {file}")
}

pub(crate) fn missing_file(file: &str) -> String {
    format!("{file}: no such file")
}

pub(crate) fn module_without_file(module: &str, folder: &str) -> String {
    format!("module {module} has no file in {folder}")
}

pub(crate) fn self_declaring_module(file: &str) -> String {
    format!("{file} declares itself as a module")
}

pub(crate) fn path_not_utf8(path: &str) -> String {
    format!("path is not UTF-8: {path}")
}

pub(crate) fn cargo_not_started() -> String {
    "cannot run cargo metadata".to_string()
}

pub(crate) fn cargo_failed(output: &str) -> String {
    format!("cargo metadata failed: {output}")
}

pub(crate) fn unexpected_metadata() -> String {
    "unexpected output of cargo metadata".to_string()
}

pub(crate) fn manifest_without_folder(manifest: &str) -> String {
    format!("manifest has no parent folder: {manifest}")
}

pub(crate) fn target_outside_package(target: &str) -> String {
    format!("target outside its package: {target}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message() {
        let site = site("src/a.rs", "src/b.rs", 1, "crate::b::B");
        let messages = [
            site.clone(),
            layer_violated("unconvoy", &site, "src/queue is below src/lock"),
            import_of_unlayered_file("src/queue", "src/lib.rs"),
            import_of_higher_layer("src/queue", "src/lock"),
            import_within_row("src/queue", "src/parking"),
            layer_without_file("unconvoy", "src/queue"),
            cycle("unconvoy", &["src/a.rs", "src/b.rs"], &site, &site),
            package_dependency("unconvoy-sim", "unconvoy-bench"),
            unlisted_package("unconvoy-sim"),
            unknown_table("unconvoy-gone"),
            stale_entry("unconvoy", "src/a.rs", "src/b.rs", "is not an import"),
            malformed_entry("unconvoy", "src/b.rs"),
            invalid_list("layers.toml"),
            syntax_error("src/a.rs"),
            missing_file("src/a.rs"),
            module_without_file("queue", "src"),
            self_declaring_module("src/a.rs"),
            path_not_utf8("src/\u{FFFD}.rs"),
            cargo_not_started(),
            cargo_failed("error: could not find `Cargo.toml`"),
            unexpected_metadata(),
            manifest_without_folder("/"),
            target_outside_package("/elsewhere/main.rs"),
        ];
        for message in &messages {
            println!("{message}");
            assert!(message.lines().all(|line| line.len() <= 120), "over 120 columns: {message}");
            assert!(!message.ends_with('.'), "trailing full stop: {message}");
        }
        let source = include_str!("messages.rs");
        let functions = source.lines().filter(|line| line.starts_with("pub(crate) fn ")).count();
        assert_eq!(messages.len(), functions, "messages not listed here");
    }
}
