//! Every dependency that is linked into the shipped artefacts has a licence from a short list.

use std::process::Command;

use serde_json::Value;

/// Licences that require attribution at most.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Packages shipped under another licence as artefacts of their own, and the core that two of them
/// share. QEMU loads them or the command executes them; nothing else may link them.
const ARTEFACTS: &[&str] = &[
    "unconvoy-plugin-user",
    "unconvoy-plugin-system",
    "unconvoy-trace-collector",
    "unconvoy-sched-ext",
];

/// Returns whether an SPDX expression has an alternative whose parts are all allowed. Parentheses
/// are ignored, with `AND` binding tighter. For `(A OR B) AND C` the result is right only if C
/// is allowed, which is checked too.
fn is_allowed(expression: &str) -> bool {
    let flat = expression.replace(['(', ')'], "").replace('/', " OR ");
    flat.split(" OR ")
        .any(|choice| choice.split(" AND ").all(|part| ALLOWED.contains(&part.trim())))
        && flat
            .split(" AND ")
            .skip(1)
            .all(|part| part.split(" OR ").any(|choice| ALLOWED.contains(&choice.trim())))
}

fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO")).args(arguments).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("cargo writes text")
}

#[test]
fn dependencies_have_allowed_licences() {
    let version = cargo(&["-vV"]);
    let host = version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .expect("cargo prints its host");
    // Downloads the packages that only other targets build, such as Parquet's; not those for other
    // hosts.
    let metadata =
        cargo(&["metadata", "--format-version", "1", "--locked", "--filter-platform", host]);
    let metadata: Value = serde_json::from_str(&metadata).expect("cargo writes JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    assert!(packages.len() > 50, "only {} packages were found", packages.len());
    let wrong: Vec<_> = packages
        .iter()
        .filter(|package| !package["license"].as_str().is_some_and(is_allowed))
        .filter(|package| !package["name"].as_str().is_some_and(|name| ARTEFACTS.contains(&name)))
        .map(|package| {
            format!("{} {}: {}", package["name"], package["version"], package["license"])
        })
        // Build and test tools, which are executed and never linked into a shipped artefact.
        .filter(|wrong| !wrong.starts_with("\"cbindgen\""))
        .collect();
    assert!(wrong.is_empty(), "not on the list: {wrong:#?}");
    let links = |package: &&Value| {
        let dependencies = package["dependencies"].as_array().expect("dependencies");
        dependencies.iter().any(|dependency| {
            dependency["name"].as_str().is_some_and(|name| ARTEFACTS.contains(&name))
        })
    };
    let is_artefact =
        |package: &&Value| package["name"].as_str().is_some_and(|name| ARTEFACTS.contains(&name));
    let others = packages.iter().filter(|package| !is_artefact(package));
    let linked: Vec<_> = others.filter(links).map(|package| &package["name"]).collect();
    assert!(linked.is_empty(), "these link an artefact under another licence: {linked:?}");
}

#[test]
fn spdx_expressions_are_evaluated() {
    assert!(is_allowed("MIT OR Apache-2.0"));
    assert!(is_allowed("MIT/Apache-2.0"));
    assert!(is_allowed("GPL-3.0 OR MIT"));
    assert!(is_allowed("(MIT OR Apache-2.0) AND Unicode-3.0"));
    assert!(!is_allowed("GPL-2.0-only"));
    assert!(!is_allowed("MIT AND GPL-2.0-only"));
    assert!(!is_allowed("(MIT OR Apache-2.0) AND GPL-2.0-only"));
}
