//! The library's probes for tracers: their notes, their machine code, and what bpftrace counts.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use object::{Object, ObjectSection, ObjectSegment};
use rustix::process::Signal;
use serde_json::Value;
use support::{LIMIT, Running, compile, installed, library, plain, run};

/// The probes with glibc's names, and their numbers of arguments.
const OF_LIBC: [(&str, usize); 21] = [
    ("cond_broadcast", 1),
    ("cond_destroy", 1),
    ("cond_init", 2),
    ("cond_signal", 1),
    ("cond_wait", 2),
    ("mutex_acquired", 1),
    ("mutex_clocklock_entry", 3),
    ("mutex_destroy", 1),
    ("mutex_entry", 1),
    ("mutex_init", 1),
    ("mutex_release", 1),
    ("mutex_timedlock_acquired", 1),
    ("mutex_timedlock_entry", 2),
    ("rdlock_acquire_read", 1),
    ("rdlock_entry", 1),
    ("rwlock_destroy", 1),
    ("rwlock_unlock", 1),
    ("wrlock_acquire_write", 1),
    ("wrlock_entry", 1),
    ("wait_begin", 2),
    ("wait_end", 2),
];

/// A note: provider, name, arguments and the address of the no-op.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Probe {
    provider: String,
    name: String,
    arguments: usize,
    address: u64,
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Reads the notes of the library's file.
fn probes() -> Vec<Probe> {
    let bytes = fs::read(library()).expect("the library");
    let file = object::File::parse(&*bytes).expect("an ELF file");
    let base = file.section_by_name(".stapsdt.base").expect("debuggers need this section");
    let section = file.section_by_name(".note.stapsdt").expect("the notes");
    let mut rest = section.data().expect("data");
    let mut probes = Vec::new();
    while rest.len() > 12 {
        let number = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap()) as usize;
        let (owner, length) = (number(0).next_multiple_of(4), number(4));
        assert_eq!((&rest[12..12 + 8], number(8)), (&b"stapsdt\0"[..], 3));
        let content = &rest[12 + owner..12 + owner + length];
        assert_eq!((word(content, 8), word(content, 16)), (base.address(), 0));
        let texts: Vec<_> = content[24..].split(|&byte| byte == 0).collect();
        let text = |index: usize| String::from_utf8(texts[index].to_vec()).expect("text");
        probes.push(Probe {
            provider: text(0),
            name: text(1),
            arguments: text(2).split_whitespace().count(),
            address: word(content, 0),
        });
        rest = &rest[12 + owner + length.next_multiple_of(4)..];
    }
    probes
}

#[test]
fn notes_have_glibcs_names_and_arguments_under_both_providers() {
    let probes = probes();
    let of = |provider: &str| -> BTreeSet<(String, usize)> {
        let own = probes.iter().filter(|probe| probe.provider == provider);
        own.map(|probe| (probe.name.clone(), probe.arguments)).collect()
    };
    let (waits, glibcs): (BTreeSet<_>, BTreeSet<_>) = OF_LIBC
        .iter()
        .map(|&(name, arguments)| (name.to_string(), arguments))
        .partition(|(name, _)| name.starts_with("wait_"));
    assert_eq!(of("libc"), glibcs);
    assert_eq!(of("libpthread"), glibcs);
    let sleeps = [("sleep".to_string(), 2), ("wake".to_string(), 2)];
    assert_eq!(of("unconvoy"), waits.into_iter().chain(sleeps).collect());
}

#[test]
fn every_probe_is_a_five_byte_no_op() {
    let bytes = fs::read(library()).expect("the library");
    let file = object::File::parse(&*bytes).expect("an ELF file");
    for probe in probes() {
        let code = file.segments().find_map(|part| part.data_range(probe.address, 5).ok()?);
        assert_eq!(code, Some(&[0x0f, 0x1f, 0x44, 0, 0][..]), "{probe:?}");
    }
}

/// A tracer's call at a probe writes below the stack pointer.
#[test]
fn no_function_with_a_probe_uses_the_red_zone() {
    let Some(objdump) = installed("objdump", "binutils") else { return };
    let output = run(Command::new(objdump).args(["-d", "--no-show-raw-insn"]).arg(library()));
    let code = output.success("objdump").text();
    let probes: BTreeSet<u64> = probes().iter().map(|probe| probe.address).collect();
    // Between functions there is padding: int3 or a new label.
    let mut checked = 0;
    for function in code.split("int3").flat_map(|part| part.split("\n\n")) {
        let address = |line: &str| u64::from_str_radix(line.trim().split(':').next()?, 16).ok();
        let own = function.lines().filter_map(address).filter(|at| probes.contains(at)).count();
        if own > 0 {
            checked += own;
            // A function with a frame or a call does not use it.
            let is_leaf = !function.contains("call") && !function.contains("push");
            let is_below = |line: &str| {
                let mut operands = line.split([' ', ',']);
                operands.any(|operand| operand.starts_with("-0x") && operand.contains("(%rsp"))
            };
            assert!(!(is_leaf && function.lines().any(is_below)), "{function}");
        }
    }
    assert_eq!(checked, probes.len(), "some probes are in no function");
}

#[test]
fn readelf_lists_every_probe() {
    let Some(readelf) = installed("readelf", "binutils") else { return };
    let text = run(Command::new(readelf).env("LC_ALL", "C").arg("-n").arg(library()))
        .success("readelf")
        .text();
    for (name, _) in OF_LIBC {
        assert!(text.contains(&format!("Name: {name}\n")), "{name}");
    }
}

type Counts = BTreeMap<(String, u64), u64>;

/// The script: counts each probe by process and first argument. bpftrace attaches probes one by
/// one, so the first and the last one say when all are attached.
fn script() -> String {
    let path = library().display().to_string();
    let names: BTreeSet<(String, String)> =
        probes().into_iter().map(|probe| (probe.provider, probe.name)).collect();
    let counts: String = names
        .iter()
        .map(|(provider, name)| {
            let key = if provider == "unconvoy" { "u" } else { provider };
            format!("usdt:{path}:{provider}:{name} {{ @{key}_{name}[pid, arg0] = count(); }}\n")
        })
        .collect();
    let tick = |name: &str| format!("interval:ms:100 {{ printf(\"{name}\\n\"); }}\n");
    format!("{}{counts}{}", tick("first"), tick("last"))
}

/// Waits until bpftrace has attached all probes; false if it ends.
fn is_attached(bpftrace: &mut Running) -> bool {
    let end = Instant::now() + LIMIT;
    let mut printed = String::new();
    while !(printed.contains("first") && printed.contains("last")) {
        if bpftrace.poll().is_some() {
            return false;
        }
        assert!(Instant::now() < end, "bpftrace does not attach: {printed}");
        std::thread::sleep(Duration::from_millis(20));
        printed += &bpftrace.printed();
    }
    true
}

/// Counts the probes of a program by name and first argument. `None` if this system lets nobody
/// trace.
fn traced(settings: &[(&str, &str)]) -> Option<(Counts, Vec<u64>)> {
    let bpftrace = installed("bpftrace", "bpftrace")?;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = compile(directory.path(), "probes.c", &[]);
    let file = directory.path().join("count.bt");
    fs::write(&file, script()).expect("a script");
    let mut bpftrace =
        Running::start(Command::new(bpftrace).args(["-q", "-f", "json", "-B", "line"]).arg(&file));
    if !is_attached(&mut bpftrace) {
        let said = bpftrace.finish(LIMIT).stderr;
        let reasons = ["root", "permitted", "Permission", "BTF", "supported"];
        assert!(reasons.iter().any(|reason| said.contains(reason)), "{said}");
        println!("skipped: {}", said.trim());
        return None;
    }
    let mut command = plain(&program);
    command.env("LD_PRELOAD", library()).envs(settings.iter().copied());
    let running = Running::start(&mut command);
    let process = running.id().as_raw_nonzero().to_string();
    let printed = running.finish(LIMIT).success("the traced program").text();
    let addresses: Vec<u64> =
        printed.split_whitespace().map(|it| it.parse().expect("an address")).collect();
    bpftrace.signal_leader(Signal::INT);
    let text = bpftrace.finish(LIMIT).success("bpftrace").text();
    let mut counts = Counts::new();
    for value in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        for (map, keys) in value["data"].as_object().into_iter().flatten() {
            for (key, count) in keys.as_object().expect("keys") {
                let (owner, object) = key.split_once(',').expect("two keys");
                if owner == process {
                    let key = (map[1..].to_string(), object.parse().expect("an address"));
                    counts.insert(key, count.as_u64().expect("a count"));
                }
            }
        }
    }
    Some((counts, addresses))
}

/// What `c/probes.c` does: a probe, the index of the object, and a count.
const EXPECTED: [(&str, usize, u64); 22] = [
    ("mutex_init", 0, 1),
    ("mutex_entry", 0, 12345),
    ("mutex_acquired", 0, 12345),
    ("mutex_timedlock_entry", 0, 5),
    ("mutex_timedlock_acquired", 0, 5),
    ("mutex_release", 0, 12345 + 7 + 5),
    ("mutex_destroy", 0, 1),
    ("mutex_entry", 1, 2),
    ("mutex_acquired", 1, 2),
    ("mutex_release", 1, 2),
    ("rdlock_entry", 2, 11),
    ("rdlock_acquire_read", 2, 11),
    ("wrlock_entry", 2, 13),
    ("wrlock_acquire_write", 2, 13),
    ("rwlock_unlock", 2, 24),
    ("rwlock_destroy", 2, 1),
    ("cond_init", 3, 1),
    ("cond_wait", 3, 17),
    ("cond_signal", 3, 3),
    ("cond_broadcast", 3, 2),
    ("cond_destroy", 3, 1),
    ("mutex_acquired", 4, 1 + 17),
];

#[track_caller]
fn assert_counted(settings: &[(&str, &str)]) {
    let Some((counts, addresses)) = traced(settings) else { return };
    let count = |map: &str, object: usize| {
        counts.get(&(map.to_string(), addresses[object])).copied().unwrap_or(0)
    };
    for (probe, object, expected) in EXPECTED {
        for provider in ["libc", "libpthread"] {
            assert_eq!(count(&format!("{provider}_{probe}"), object), expected, "{probe} {object}");
        }
    }
    assert_eq!((count("u_wait_begin", 1), count("u_wait_end", 1)), (1, 1));
    assert_eq!(count("u_wait_begin", 0), 0);
    let total = |map: &str| -> u64 {
        counts.iter().filter(|((name, _), _)| name == map).map(|(_, count)| count).sum()
    };
    assert!(total("u_sleep") > 0 && total("u_wake") > 0, "{counts:?}");
}

#[test]
#[ignore = "make test-all: needs bpftrace"]
fn bpftrace_counts_each_operation_once() {
    assert_counted(&[]);
}

#[test]
#[ignore = "make test-all: needs bpftrace"]
fn bpftrace_counts_each_operation_once_under_chosen_pair() {
    assert_counted(&[("UNCONVOY_LOCK", "mcs"), ("UNCONVOY_LOAD", "park")]);
}
