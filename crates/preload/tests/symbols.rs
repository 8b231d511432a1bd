//! Checks that programs' calls reach every function that the library exports. No export is
//! misspelt, no export is bypassed because a program's reference carries a symbol version, and the
//! documentation names every export.

#[path = "symbols/functions.rs"]
mod functions;
#[path = "../../locks/tests/generated/mod.rs"]
mod generated;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use object::{Object, ObjectSection, ObjectSymbol};
use support::{compile_file, library, plain, preloaded, run};

/// The names that `path` defines for other objects.
fn exports(path: &Path) -> BTreeSet<String> {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let file = object::File::parse(&*bytes).expect("an ELF file");
    file.dynamic_symbols()
        .filter(|symbol| symbol.is_definition() && !symbol.is_local())
        .filter_map(|symbol| symbol.name().ok().map(str::to_owned))
        .filter(|name| !name.is_empty())
        .collect()
}

/// The libc of this process, which this machine's programs also use.
fn libc_file() -> PathBuf {
    mapped("/libc.so.6")
}

/// The path of a library of this process.
fn mapped(name: &str) -> PathBuf {
    let maps = fs::read_to_string("/proc/self/maps").expect("our own maps");
    maps.lines()
        .filter_map(|line| line.split_whitespace().nth(5))
        .find(|path| path.ends_with(name))
        .map(PathBuf::from)
        .expect("the tests are linked with it")
}

/// Exports that new programs can link against; this excludes the aliases, which libc keeps for old
/// programs.
fn exported_pthread_functions() -> Vec<String> {
    exports(library()).into_iter().filter(|name| name.starts_with("pthread_")).collect()
}

/// The library's exports that are functions of libc.
fn exported_functions() -> BTreeSet<String> {
    exports(library()).into_iter().filter(|name| !name.starts_with("unconvoy_")).collect()
}

#[test]
fn exports_match_documented_functions() {
    let (exported, documented) = (exported_functions(), functions::defined());
    let missing: Vec<_> = documented.difference(&exported).collect();
    assert!(missing.is_empty(), "in tests/symbols/functions.rs, but not exported: {missing:?}");
    let undocumented: Vec<_> = exported.difference(&documented).collect();
    assert!(
        undocumented.is_empty(),
        "exported, but not in tests/symbols/functions.rs: {undocumented:?}"
    );
    let contradicted: Vec<_> =
        exported.iter().filter(|name| functions::is_left_alone(name)).collect();
    assert!(contradicted.is_empty(), "exported, but documented as left alone: {contradicted:?}");
}

#[test]
fn page_on_pthread_functions_is_up_to_date() {
    let table = generated::table(["functions", "whose", "why"], functions::cells());
    generated::assert_up_to_date("reference/pthread.md", &[("functions", table)]);
}

/// A name that libc and libgcc lack is misspelt, or pollutes the program's name space.
#[test]
fn every_export_is_a_function_of_libc() {
    let mut known = exports(&libc_file());
    known.extend(exports(&mapped("/libgcc_s.so.1")));
    let unknown: Vec<_> =
        exported_functions().into_iter().filter(|name| !known.contains(name)).collect();
    assert!(unknown.is_empty(), "exported, but not functions of libc: {unknown:?}");
}

/// An uncontended pair whose functions begin within a cache line is up to 13 % slower.
#[test]
fn functions_of_uncontended_pairs_begin_at_cache_lines() {
    let source = include_str!("../src/aligned.rs").split_once("at_cache_line! {").expect("names").1;
    let names: BTreeSet<_> = source.split('"').filter(|word| word.contains("pthread_")).collect();
    let bytes = fs::read(library()).expect("the library");
    let file = object::File::parse(&*bytes).expect("an ELF file");
    let mut unseen = names.clone();
    for symbol in file.dynamic_symbols() {
        let name = symbol.name().expect("a name");
        if names.contains(name) {
            assert_eq!(symbol.address() % 64, 0, "{name} begins at {:#x}", symbol.address());
            unseen.remove(name);
        }
    }
    assert!(unseen.is_empty(), "not exported: {unseen:?}");
}

/// The newest version of glibc's symbols that a file needs, as minor number of 2.
fn newest_glibc(path: &Path) -> u32 {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let file = object::File::parse(&*bytes).expect("an ELF file");
    // The names of needed versions are among those of dynamic symbols.
    let names = file.section_by_name(".dynstr").and_then(|section| section.data().ok());
    let names = names.expect("names of dynamic symbols");
    let versions = names.split(|byte| *byte == 0).filter_map(|name| {
        let minor = std::str::from_utf8(name).ok()?.strip_prefix("GLIBC_2.")?;
        minor.split('.').next()?.parse().ok()
    });
    versions.max().expect("symbols of glibc")
}

#[test]
fn glibc_needed_is_the_documented_one() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/supported.md");
    let page = fs::read_to_string(page).expect("a page");
    let documented = page.split_once("| `make` | Debian 12 | 2.").expect("a version").1;
    let documented: String = documented.chars().take_while(char::is_ascii_digit).collect();
    // A build against a newer glibc takes newer versions of some symbols.
    let own = newest_glibc(&std::env::current_exe().expect("our own program"));
    let documented = documented.parse::<u32>().expect("a number");
    if own > documented {
        println!("skipped: this machine's programs need glibc 2.{own}");
        return;
    }
    let programs = ["unconvoy", "unconvoy-top"].map(|name| library().with_file_name(name));
    for file in programs.iter().map(PathBuf::as_path).chain([library()]) {
        let needed = newest_glibc(file);
        assert!(needed <= documented, "{} needs glibc 2.{needed}", file.display());
    }
}

/// The table of `version` in src/real.rs: names, and the version that the library looks up.
fn versions_looked_up() -> BTreeMap<String, String> {
    let source = include_str!("../src/real.rs").split_once("match name {").expect("a table").1;
    let table = source.split_once("_ => None").expect("its end").0;
    let mut versions = BTreeMap::new();
    for arm in table.split("\"),").filter_map(|arm| arm.split_once("Some(c\"")) {
        let names = arm.0.split('"').skip(1).step_by(2);
        versions.extend(names.map(|name| (name.to_owned(), arm.1.to_owned())));
    }
    versions
}

/// Before glibc 2.36, a lookup without a version finds the oldest one, which may be another
/// function.
#[test]
fn functions_with_another_older_version_are_looked_up_by_version() {
    use std::ffi::CString;

    if !cfg!(target_arch = "x86_64") {
        println!("skipped: the versions are those of x86-64");
        return;
    }
    let address = |name: &str, version: Option<&str>| {
        let name = CString::new(name).expect("a name");
        let version = version.map(|version| CString::new(version).expect("a version"));
        // SAFETY: both strings end in a zero.
        unsafe {
            match version {
                Some(version) => libc::dlvsym(libc::RTLD_DEFAULT, name.as_ptr(), version.as_ptr()),
                None => libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()),
            }
        }
    };
    let known = versions_looked_up();
    for (name, version) in &known {
        assert_eq!(address(name, Some(version)), address(name, None), "{name} {version}");
    }
    let older = ["2.2.5", "2.3.2", "2.3.3", "2.3.4", "2.15", "2.17", "2.30", "2.32"];
    for name in exported_functions() {
        let current = address(&name, None);
        // libc keeps some names for old programs only.
        if current.is_null() {
            continue;
        }
        for version in older.map(|version| format!("GLIBC_{version}")) {
            let other = address(&name, Some(&version));
            let is_same = other.is_null() || other == current;
            assert!(is_same || known.contains_key(&name), "{name} differs in {version}");
        }
    }
}

/// The source of a program that references each of `names` and prints the object that its reference
/// is bound to. It includes no header with these names: a declaration may come with a symbol
/// version or an inline definition.
fn reporter(names: &[String]) -> String {
    let mut source = String::from("#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stdio.h>\n");
    for name in names {
        source += &format!("extern void {name}(void);\n");
    }
    source += "static void report(const char *name, void (*function)(void)) {\n\
               \tDl_info info;\n\
               \tint found = dladdr(*(void **)&function, &info);\n\
               \tprintf(\"%s %s\\n\", name, found ? info.dli_fname : \"nowhere\");\n\
               }\n\
               int main(void) {\n";
    for name in names {
        source += &format!("\treport(\"{name}\", {name});\n");
    }
    source + "\treturn 0;\n}\n"
}

fn destinations(text: &str) -> BTreeMap<String, PathBuf> {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, path)| {
            (name.to_owned(), fs::canonicalize(path).unwrap_or_else(|_| PathBuf::from(path)))
        })
        .collect()
}

#[test]
fn references_bind_to_library() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let names = exported_pthread_functions();
    let defined = functions::defined().iter().filter(|name| name.starts_with("pthread_")).count();
    assert_eq!(names.len(), defined, "number of pthread functions: exported, documented");
    let source = directory.path().join("reporter.c");
    fs::write(&source, reporter(&names)).expect("a temporary file");
    // -z now and lazy binding take different paths through the dynamic linker.
    for flags in [["-fPIE", "-pie", "-Wl,-z,now"], ["-fPIE", "-pie", "-Wl,-z,lazy"]] {
        let program = compile_file(directory.path(), &source, &flags);
        let without = destinations(&run(&mut plain(&program)).success("reporter").text());
        let libc = fs::canonicalize(libc_file()).expect("libc exists");
        for name in &names {
            assert_eq!(without[name], libc, "{name} without the library");
        }
        let with = destinations(&run(&mut preloaded(&program)).success("reporter").text());
        let elsewhere: Vec<_> = names
            .iter()
            .filter(|name| with.get(*name).map(PathBuf::as_path) != Some(library()))
            .map(|name| format!("{name} -> {:?}", with.get(name)))
            .collect();
        assert!(elsewhere.is_empty(), "{flags:?}: not bound to the library: {elsewhere:#?}");
    }
}

/// Checks the dynamic linker's log of bindings, with the version that the program asks for. On
/// x86-64 libc has two versions of the condition functions, and programs are linked with the newer
/// one.
#[test]
fn versioned_references_bind_to_library() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let names = exported_pthread_functions();
    let source = directory.path().join("versioned.c");
    fs::write(&source, reporter(&names)).expect("a temporary file");
    let program = compile_file(directory.path(), &source, &[]);
    let log = directory.path().join("bindings");
    run(preloaded(&program)
        .env("LD_DEBUG", "bindings")
        .env("LD_DEBUG_OUTPUT", &log)
        .env("LD_BIND_NOW", "1"))
    .success("versioned");
    // The linker appends the process id to the name.
    let text: String = fs::read_dir(directory.path())
        .expect("our directory")
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("bindings"))
        })
        .map(|path| fs::read_to_string(path).expect("a log of the dynamic linker"))
        .collect();
    let from = format!("binding file {} ", program.display());
    // Format: ... binding file PROGRAM [0] to LIBRARY [0]: normal symbol `NAME' [VERSION]
    let bound: BTreeMap<&str, (&str, &str)> = text
        .lines()
        .filter_map(|line| line.split_once(&from)?.1.split_once(" to "))
        .filter_map(|(_, rest)| {
            let (to, rest) = rest.split_once(" [")?;
            let (_, rest) = rest.split_once('`')?;
            let (name, rest) = rest.split_once('\'')?;
            Some((name, (to, rest.trim().trim_start_matches('[').trim_end_matches(']'))))
        })
        .collect();
    for name in &names {
        let Some((to, version)) = bound.get(name.as_str()) else {
            panic!("{name} is not among the bindings of the program:\n{text}");
        };
        assert_eq!(Path::new(to), library(), "{name} [{version}]");
        assert!(
            version.starts_with("GLIBC_"),
            "{name} is referenced without a version: {version:?}"
        );
        let two_versions = [
            "pthread_cond_init",
            "pthread_cond_destroy",
            "pthread_cond_wait",
            "pthread_cond_timedwait",
            "pthread_cond_signal",
            "pthread_cond_broadcast",
        ];
        if cfg!(target_arch = "x86_64") && two_versions.contains(&name.as_str()) {
            assert_eq!(*version, "GLIBC_2.3.2", "{name}");
        }
    }
}
