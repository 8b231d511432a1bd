//! The packages for crates.io: what they say of themselves, what is in them, and that they build.

mod published;

use published::{PUBLISHED, cargo, metadata, package};

/// Greatest size of a package in bytes, compressed.
const GREATEST: u64 = 400_000;

/// What a package may contain. cargo adds the first four.
const CONTENTS: [&str; 11] = [
    ".cargo_vcs_info.json",
    "Cargo.lock",
    "Cargo.toml",
    "Cargo.toml.orig",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "build.rs",
    "include/",
    "src/",
    "templates/",
];

#[test]
fn published_packages_describe_themselves() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    // `null` is everywhere, and `publish = false` is an empty list.
    let published: Vec<_> =
        packages.iter().filter(|package| package["publish"].is_null()).collect();
    let mut names: Vec<_> = published.iter().filter_map(|one| one["name"].as_str()).collect();
    let mut expected = PUBLISHED.to_vec();
    names.sort_unstable();
    expected.sort_unstable();
    assert_eq!(names, expected, "`publish = false` is missing, or PUBLISHED");
    for package in published {
        let name = package["name"].as_str().expect("a name");
        for field in ["description", "license", "readme", "repository", "rust_version"] {
            assert!(package[field].is_string(), "{name} has no {field}");
        }
        for (field, most) in [("keywords", 5), ("categories", 5)] {
            let words = package[field].as_array().expect("a list").len();
            assert!((1..=most).contains(&words), "{name} has {words} {field}");
        }
        for dependency in package["dependencies"].as_array().expect("a list") {
            // Packages lose dependencies for tests that name no version.
            let is_shipped = dependency["kind"] != "dev";
            assert!(
                !is_shipped || dependency["req"] != "*",
                "{name} names no version of {}",
                dependency["name"]
            );
        }
    }
}

#[test]
fn packages_are_small_and_contain_sources_only() {
    for name in PUBLISHED {
        let listed = cargo(&["package", "--list", "--offline", "--allow-dirty", "-p", name]);
        let files: Vec<_> = listed.lines().collect();
        for needed in ["Cargo.toml", "README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
            assert!(files.contains(&needed), "{name} lacks {needed}");
        }
        let is_known = |file: &str| {
            CONTENTS.iter().any(|known| {
                if known.ends_with('/') { file.starts_with(known) } else { file == *known }
            })
        };
        let unknown: Vec<_> = files.iter().filter(|file| !is_known(file)).collect();
        assert!(unknown.is_empty(), "{name} contains {unknown:?}");
    }
    for file in package(&["--no-verify"], &PUBLISHED) {
        let size = std::fs::metadata(&file).expect("a package").len();
        println!("{}: {size} bytes", file.display());
        assert!(size < GREATEST, "{} has {size} bytes", file.display());
    }
}

/// cargo compiles the package outside the repository. The command is compiled in `install.rs`.
#[test]
fn package_of_the_library_builds() {
    package(&[], &["unconvoy"]);
}
