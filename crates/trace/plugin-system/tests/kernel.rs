//! Boots a kernel that runs a short workload, and checks the stream.

mod support;

use std::process::Command;
use std::sync::OnceLock;
use support::{Machine, Run, machine, plugin, qemu};
use unconvoy_trace_stream::flag;

const MODEL: &str = "max,-smap,-la57";

/// Two processors, every section sampled.
fn all(machine: &Machine) -> &'static Run {
    static RUN: OnceLock<Run> = OnceLock::new();
    RUN.get_or_init(|| machine.run(2, "work", MODEL, "rate=1"))
}

fn check_balance(run: &Run, processors: u64) {
    assert!(run.log().contains("the workload is done"), "{}", run.log());
    assert_eq!((run.number("lost"), run.number("abandoned")), (0, 0), "{}", run.end);
    // Processors may hold locks when the collection starts or ends. Of such a lock, the collector
    // saw only the acquisition or only the release.
    assert!(
        run.number("unmatched_unlocks") <= 4 * processors && run.number("open") <= 4 * processors,
        "{}",
        run.end
    );
    let seen: u64 = run.locks.values().map(|entry| entry.counts.acquisitions).sum();
    let sampled: u64 = run.locks.values().map(|entry| entry.counts.sampled).sum();
    assert_eq!((seen, sampled), (run.number("seen"), run.sections.len() as u64));
    assert!(run.end.contains("\"notes\":[]"), "{}", run.end);
}

#[test]
fn acquisitions_and_releases_balance() {
    let Some(machine) = machine() else { return };
    let run = all(machine);
    check_balance(run, 2);
    assert!(
        run.context.contains("\"source\":\"qemu-system\"")
            && run.context.contains("\"processors\":2")
    );
    // Every section of every lock was sampled, except those that did not end.
    let missing: u64 =
        run.locks.values().map(|entry| entry.counts.acquisitions - entry.counts.sampled).sum();
    assert_eq!(missing, run.number("open"));
    let kernel = run.number("kernel");
    assert!(kernel > 10_000_000 && run.number("user") > 10_000_000, "{}", run.end);
    assert!(run.locks.values().all(|entry| entry.held.held < kernel));
    assert!(run.locks.values().all(|entry| entry.counts.contended > 0 || entry.held.waited == 0));
    assert!(run.number("threads") > 4);
}

#[test]
fn locks_have_slab_objects_and_symbols() {
    let Some(machine) = machine() else { return };
    let run = all(machine);
    let dentries = run.locks_in("dentry");
    assert!(dentries.len() > 100, "{}", dentries.len());
    assert!(
        run.locks_in("inode_cache").len() > 100 && run.locks_in("shmem_inode_cache").len() > 10
    );
    for symbol in ["inode_hash_lock", "tasklist_lock"] {
        let address = machine.symbol(symbol);
        assert!(
            run.locks
                .values()
                .filter(|entry| entry.lock.region.address == address)
                .any(|entry| entry.counts.acquisitions > 10),
            "{symbol}"
        );
    }
    // A dentry's lock protects above all that dentry.
    let numbers: Vec<u32> = dentries.iter().map(|entry| entry.lock.number).collect();
    let of_dentries = run.sections.iter().filter(|(section, _)| numbers.contains(&section.lock));
    let (mut own, mut count) = (0, 0);
    for (section, words) in of_dentries {
        let dentry = run.object(run.locks[&section.lock].lock.region.address);
        own += usize::from(words.iter().any(|word| run.object(*word) == dentry));
        count += 1;
    }
    assert!(count > 1000 && own * 10 > count * 9, "{own} of {count}");
    // Some locks lie in memory that was freed and allocated again.
    assert!(run.locks.values().any(|entry| entry.lock.incarnation > 0));
}

#[test]
fn sets_are_small_kernel_memory() {
    let Some(machine) = machine() else { return };
    let run = all(machine);
    assert!(
        run.sections.iter().flat_map(|(_, words)| words).all(|word| *word >> 63 == 1),
        "kernel addresses"
    );
    // Some sections program the timer or wake other processors.
    let io = run.sections.iter().filter(|(section, _)| section.flags & flag::IO != 0).count();
    assert!(io > 0 && io * 2 < run.sections.len(), "{io}");
    // Most sections touch some words, but not many.
    let empty = run.sections.iter().filter(|(_, words)| words.is_empty()).count();
    assert!(empty * 4 < run.sections.len(), "{empty} of {}", run.sections.len());
    let words: usize = run.sections.iter().map(|(_, words)| words.len()).sum();
    assert!((2..200).contains(&(words / run.sections.len())), "{words}");
}

/// A 10 % sample has the same counts as a full one.
#[test]
fn ten_percent_sample_keeps_counts() {
    let Some(machine) = machine() else { return };
    let options = "rate=10,seed=7,sampling=independent";
    let (every, some) = (all(machine), machine.run(2, "work", MODEL, options));
    check_balance(&some, 2);
    let (seen, sampled) = (some.number("seen") as f64, some.sections.len() as f64);
    // Four standard deviations.
    let deviation = (seen * 0.1 * 0.9).sqrt() * 4.0;
    assert!((sampled - seen / 10.0).abs() < deviation + 8.0, "{sampled} of {seen}");
    // The guest takes this lock once per file below /proc/sys, the same number of times in each
    // run.
    let acquisitions = |run: &Run| {
        let address = machine.symbol("sysctl_lock");
        let of = run.locks.values().filter(|entry| entry.lock.region.address == address);
        of.map(|entry| entry.counts.acquisitions).sum::<u64>() as f64
    };
    let (all, part) = (acquisitions(every), acquisitions(&some));
    assert!(all > 1000.0 && (all - part).abs() < all * 0.05, "{all} {part}");
}

/// A single processor never waits. Per-processor memory is left out of sets, unless the lock lies
/// there, too.
#[test]
fn per_processor_memory_is_only_in_per_processor_sections() {
    let Some(machine) = machine() else { return };
    let run = machine.run(1, "work", MODEL, "rate=3");
    check_balance(&run, 1);
    assert_eq!(run.number("waited"), 0, "{}", run.end);
    let offset = run.end.split("\"per_cpu\":[\"0x").nth(1).and_then(|rest| rest.split('"').next());
    let offset = u64::from_str_radix(offset.expect("one"), 16).expect("an address");
    let unit = machine.symbol("__per_cpu_start").wrapping_add(offset);
    let end = machine.symbol("__per_cpu_end").wrapping_add(offset);
    let is_own = |address: u64| (unit..end).contains(&address);
    // Static variables; dynamically allocated ones follow in the same unit.
    let is_in_unit = |address: u64| (unit..end + (256 << 10)).contains(&address);
    let (mut of_processor, mut touched) = (0, 0);
    for (section, words) in &run.sections {
        let own = words.iter().filter(|word| is_own(**word)).count();
        if is_in_unit(run.locks[&section.lock].lock.region.address) {
            of_processor += 1;
            touched += own;
        } else {
            assert_eq!(own, 0, "{section:?}");
        }
    }
    assert!(of_processor > 100 && touched > of_processor, "{touched} in {of_processor}");
}

#[test]
fn guest_with_smap_is_counted_not_sampled() {
    let Some(machine) = machine() else { return };
    let run = machine.run(1, "work", "max,-la57", "rate=1");
    assert!(run.log().contains("the workload is done"), "{}", run.log());
    assert!(run.end.contains("-cpu max,-smap"), "{}", run.end);
    assert!(run.number("seen") > 1000 && run.sections.is_empty());
}

#[test]
fn guest_without_start_signal_is_noted() {
    let Some(machine) = machine() else { return };
    let run = machine.run(1, "nothing", MODEL, "rate=1");
    assert!(run.end.contains("never began"), "{}", run.end);
    assert_eq!((run.number("seen"), run.number("kernel")), (0, 0));
}

/// The plug-in rejects bad options before the guest runs, with one line.
#[test]
fn bad_options_are_rejected_with_one_line() {
    let Some(qemu) = qemu() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let symbols = folder.path().join("symbols");
    std::fs::write(
        &symbols,
        "ffffffff81000000 T _raw_spin_lock\nffffffff81000040 T __x64_sys_sethostname\n",
    )
    .expect("a file");
    let rejected = |options: &str| {
        let plugin = format!("{},{options}", plugin().display());
        let mut command = Command::new("timeout");
        command
            .arg("20")
            .arg(&qemu)
            .args(["-machine", "none", "-display", "none", "-plugin", &plugin]);
        let output = command.output().expect("timeout");
        assert!(!output.status.success() && output.status.code() != Some(124));
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        error
            .lines()
            .find(|line| line.starts_with("unconvoy: cannot load the plug-in: "))
            .expect(&error)
            .to_string()
    };
    let out = folder.path().join("out");
    let given = format!("out={},symbols={}", out.display(), symbols.display());
    assert!(rejected(&given).contains("the kernel's symbols lack _raw_spin_unlock"));
    assert!(rejected("symbols=x").contains("pass out=FILE"));
    assert!(rejected(&format!("{given},rate=0")).contains("rate=0"));
    assert!(rejected("out=x,symbols=/nowhere/symbols").contains("/nowhere/symbols: No such file"));
}
