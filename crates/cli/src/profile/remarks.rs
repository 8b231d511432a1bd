//! Remarks on what a report does not cover.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use unconvoy_measure::arguments::counted;
use unconvoy_profile::{Recorded, Source};

use crate::debug_files;
use crate::process_file;

use super::report::Report;
use super::sources;

/// Libraries that implement locks without pthread objects, and names of these locks.
const OWN_LOCKS: [(&str, &str); 2] =
    [("libjvm.so", "Java's monitors"), ("libcoreclr.so", "the locks of .NET")];

/// Parts of the symbols of such locks in a program, and names of these locks.
const OWN_SYMBOLS: [(&str, &str); 2] = [
    ("std::sys::sync::mutex::futex", "std::sync's locks (Rust)"),
    ("parking_lot_core", "parking_lot's locks (Rust)"),
];

/// Shares from fewer samples may differ much in another run: with 100 samples, a share of one half
/// has a standard deviation of 5 %.
const ENOUGH_SAMPLES: u64 = 100;

/// The name of the locks in a profile that was recorded from outside.
pub const OWN: &str = "own";

/// The name of the locks in a profile of the kernel.
pub const KERNEL: &str = "kernel";

/// The remarks on a profile.
pub fn of(recorded: &Recorded, report: &Report) -> Vec<String> {
    let mut remarks = Vec::new();
    let is_inside = recorded.source == Source::Interposer;
    if recorded.was_killed {
        remarks.push(
            "The program ended by a signal or by _exit: its last waits may be missing.".into(),
        );
    } else if !recorded.has_ended && is_inside {
        remarks
            .push("The program was killed or is still running: this is its profile so far.".into());
    }
    if !recorded.unwinds {
        remarks.push(
            "No call stacks: this system's libgcc takes a lock while it unwinds. With glibc 2.35 \
             and GCC 12 or later it does not."
                .into(),
        );
    }
    if recorded.has_registered {
        remarks.push(
            "Waits without a call stack: the program registered generated code, and from then on \
             libgcc takes a lock while it unwinds."
                .into(),
        );
    }
    let lost = ["waits at locks", "stacks", "samples"];
    for (what, count) in lost.iter().zip(recorded.lost).filter(|(_, count)| *count > 0) {
        remarks.push(format!("{count} {what} did not fit into the file's tables."));
    }
    let has_waits = recorded.locks.iter().any(|lock| lock.waits > 0);
    if has_waits && recorded.samples.is_empty() {
        remarks.push(
            "No wait was sampled, so no place is known: record for longer, or with a smaller \
             --period."
                .into(),
        );
    }
    let samples = recorded
        .samples
        .iter()
        .filter(|sample| sample.waiter != 0 && recorded.locks[sample.lock].kind.is_lock());
    let samples: u64 = samples.map(|sample| sample.samples).sum();
    if (1..ENOUGH_SAMPLES).contains(&samples) {
        remarks.push(format!(
            "The shares of places are estimates from only {}: record for longer, or \
             with a smaller --period.",
            counted(samples, "sample")
        ));
    }
    if let Some(share) = report.coverage {
        remarks.push(coverage(share, recorded.observed.futex_samples, report.classes.is_empty()));
    }
    if recorded.source == Source::Kernel {
        remarks.push(
            "The kernel does not report who held a lock. Not seen: waits for pages, bits and \
             events, which are no locks to the kernel."
                .into(),
        );
    } else if recorded.source == Source::Outside {
        remarks.push(
            "Recorded from outside: only waits in the kernel. Not seen: spinning, and locks that \
             were free. A thread that wakes and finds the lock taken counts as another wait."
                .into(),
        );
        remarks.extend(runtimes(recorded, report).map(String::from));
    } else {
        for locks in own_locks(recorded) {
            remarks.push(format!("Not in this profile: {locks}, which are not pthread objects."));
        }
    }
    let gone = match recorded.source {
        Source::Kernel => BTreeSet::new(),
        Source::Interposer | Source::Outside => sources::gone(recorded, Path::to_path_buf),
    };
    for name in shown_by_offset(report, &gone) {
        remarks.push(format!(
            "No names for {name}, which was replaced or removed since the process mapped it: \
             record again."
        ));
    }
    for name in files_without_symbols(report).difference(&gone) {
        let paths = recorded.mappings.iter().map(|mapping| &*mapping.path);
        let mut paths = paths.chain([&*recorded.program]);
        let path = paths.find(|path| path.file_name().is_some_and(|it| *it == **name));
        remarks.push(match path.and_then(|path| Some((path, package_of(path)?))) {
            Some((path, package)) => format!(
                "No symbols for {name}: install {package}-dbgsym from the debug archive, or run \
                 debuginfod-find debuginfo {}. A profile kept with --output then has the names.",
                process_file::own_path(path).display()
            ),
            None => format!("No symbols for {name}: build it with -g, and do not strip it."),
        });
    }
    remarks
}

/// What the samples of futex waits were for. `samples`: at locks and condition variables of the
/// profile, and elsewhere.
fn coverage(share: f64, samples: [u64; 2], is_empty: bool) -> String {
    if is_empty && samples[0] > 0 {
        return format!(
            "{} found threads in waits for locks or signals that had not ended, which this profile \
             does not list. `unconvoy run --watchdog` reports such waits, and `unconvoy profile \
             --pid` counts them.",
            counted(samples[0], "sample")
        );
    }
    let percent = format!("{:.0}", 100.0 * share);
    let others = if percent == "100" {
        ""
    } else {
        " The others were for semaphores, for threads to end, or for locks of the program's own."
    };
    format!(
        "Coverage: {percent} % of the futex waits ({}) were for the locks and \
         signals above.{others}",
        counted(samples.iter().sum(), "sample")
    )
}

/// What the runtimes of some languages hide.
fn runtimes(recorded: &Recorded, report: &Report) -> impl Iterator<Item = &'static str> {
    let is_go = report.classes.iter().any(|row| row.name.contains("Go's runtime"));
    let go = is_go.then_some(
        "Go: a goroutine that waits for a sync.Mutex does not wait in the kernel, and is not seen. \
         Use Go's mutex profile.",
    );
    let java = is_mapped(recorded, "libjvm.so").then_some(
        "Java: each thread waits at an object of its own, for monitors and for all else. This \
         profile cannot tell which. Use JDK Flight Recorder.",
    );
    let other = is_mapped(recorded, "libunconvoy.so").then_some(
        "The process runs under unconvoy, whose waits have other addresses than its locks: use \
         `unconvoy profile -- PROGRAM`.",
    );
    go.into_iter().chain(java).chain(other)
}

fn is_mapped(recorded: &Recorded, name: &str) -> bool {
    let mut mappings = recorded.mappings.iter();
    mappings.any(|mapping| mapping.path.file_name().is_some_and(|it| it == name))
}

/// The kinds of locks in the program that the interposer does not see.
fn own_locks(recorded: &Recorded) -> Vec<&'static str> {
    let mapped = OWN_LOCKS.iter().filter(|(library, _)| is_mapped(recorded, library));
    let mapped = mapped.map(|own| own.1);
    mapped.chain(own_symbols(&recorded.program)).collect()
}

fn own_symbols(program: &Path) -> Vec<&'static str> {
    use object::{Object, ObjectSymbol, ReadCache};
    let Some(opened) = debug_files::open(program).map(ReadCache::new) else { return Vec::new() };
    let Ok(file) = object::File::parse(&opened) else { return Vec::new() };
    let mut found = BTreeSet::new();
    for symbol in file.symbols().chain(file.dynamic_symbols()) {
        let Ok(name) = symbol.name() else { continue };
        if !name.starts_with("_ZN") && !name.starts_with("_R") {
            continue;
        }
        let name = addr2line::demangle_auto(name.into(), None);
        let known = OWN_SYMBOLS.iter().filter(|(part, _)| name.contains(part));
        found.extend(known.map(|own| own.1));
    }
    found.into_iter().collect()
}

/// The Debian package that a file belongs to.
fn package_of(file: &Path) -> Option<String> {
    let file = file.canonicalize().ok()?;
    // The package may list the file under /lib or under /usr/lib, which may be the same directory.
    let without_usr = file.strip_prefix("/usr").ok().map(|rest| Path::new("/").join(rest));
    [Some(file.clone()), without_usr].into_iter().flatten().find_map(|name| {
        let output = Command::new("dpkg-query").arg("-S").arg(name).output().ok()?;
        package_in(&String::from_utf8(output.stdout).ok()?).map(String::from)
    })
}

/// The package in the output of `dpkg-query -S`, which begins with lines on diversions.
fn package_in(output: &str) -> Option<&str> {
    let mut packages = output.lines().filter_map(|line| Some(line.split_once(':')?.0));
    packages.find(|package| !package.contains(' '))
}

/// The files that have an address without a name in the report.
pub fn shown_by_offset<'a>(report: &Report, files: &'a BTreeSet<String>) -> Vec<&'a String> {
    let places = report.waiters.iter().chain(&report.holders).map(|place| &place.place);
    let shown: Vec<&String> = places.chain(report.locks.iter().map(|row| &row.name)).collect();
    let is_shown = |name: &&String| {
        let start = format!("{name}+0x");
        shown.iter().any(|text| text.contains(&start))
    };
    files.iter().filter(is_shown).collect()
}

/// The files of places without a symbol.
fn files_without_symbols(report: &Report) -> BTreeSet<String> {
    let places = report.waiters.iter().chain(&report.holders);
    places
        .filter_map(|place| {
            let (file, offset) = place.place.rsplit_once("+0x")?;
            let is_offset = offset.chars().all(|digit| digit.is_ascii_hexdigit());
            (is_offset && !file.contains(' ')).then(|| file.to_string())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_of_a_deadlock_are_in_no_row() {
        let stuck = coverage(1.0, [175, 0], true);
        assert!(stuck.starts_with("175 samples found threads in waits"), "{stuck}");
        assert!(stuck.contains("`unconvoy run --watchdog`") && !stuck.contains("above"), "{stuck}");
        let listed = coverage(0.5, [100, 100], false);
        assert!(listed.starts_with("Coverage: 50 % of the futex waits (200 samples)"), "{listed}");
        assert!(coverage(0.0, [0, 3], true).contains("Coverage: 0 %"));
    }

    #[test]
    fn diversion_is_no_package() {
        let diverted = "diversion by dash from: /usr/bin/sh\n\
                        diversion by dash to: /usr/bin/sh.distrib\n\
                        dash: /usr/bin/sh\n";
        assert_eq!(package_in(diverted), Some("dash"));
        assert_eq!(package_in("libc6:amd64: /lib/libc.so.6\n"), Some("libc6"));
        assert_eq!((package_in("local diversion from: /a\n"), package_in("")), (None, None));
    }
}
