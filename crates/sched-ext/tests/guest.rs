//! The scheduler schedules a stock Debian kernel in QEMU.
//!
//! The guest does things and says what it sees (guest/machine.rs); what it must see is here. Who runs where
//! is the kernel's word, from its trace point `sched_switch`, and not the scheduler's.

#[path = "guest/loads.rs"]
mod loads;
#[path = "guest/machine.rs"]
mod machine;
#[path = "guest/overhead.rs"]
mod overhead;

use std::collections::{BTreeMap, BTreeSet};

use machine::{Machine, Said};

const PROCESSORS: u32 = 8;

/// The guest's own shell, and what it has just begun, may be lock-intensive: a processor whose lock another one waits for does not always have one of the host's.
const SHELLS: u64 = 2;

impl Said {
    fn metric(&self, name: &str) -> u64 {
        let prefix = format!("unconvoy_sched_{name} ");
        let line = self.file("metrics").lines().find_map(|line| line.strip_prefix(&prefix));
        line.unwrap_or_else(|| panic!("no metric {name}")).parse().expect("a number")
    }

    /// There was no load, and both sides agree on it.
    fn only_shells(&self, name: &str) {
        let (tasks, special) = (self.numbers(name)[0], self.numbers(name)[1]);
        assert!(tasks <= SHELLS && tasks == special, "{name}: {tasks}, {special}\n{}", self.console);
    }

    /// Operations of a load, the fewest of one thread, and its threads.
    fn load(&self, name: &str) -> (u64, u64, BTreeSet<u64>) {
        let mut numbers = self.file(name).split_whitespace().skip(1).map(|word| word.parse().expect("a number"));
        let mut next = || numbers.next().unwrap_or_else(|| panic!("{name} did not end:\n{}", self.console));
        (next(), next(), numbers.collect())
    }

    /// Each thread of a load had a part of what its threads had on average.
    fn nobody_starves(&self, loads: &[&str]) {
        for name in loads {
            let (operations, least, threads) = self.load(name);
            assert!(least * threads.len() as u64 * 8 > operations, "{name}: {least} of {operations}\n{}", self.console);
        }
    }

    /// Switches to each of `threads`, by processor.
    fn switches(&self, name: &str, threads: &BTreeSet<u64>) -> BTreeMap<u64, u64> {
        let mut switches = BTreeMap::new();
        for line in self.file(name).lines() {
            let numbers: Vec<u64> = line.split(' ').map(|word| word.parse().expect("a number")).collect();
            if threads.contains(&numbers[0]) {
                *switches.entry(numbers[1]).or_default() += numbers[2];
            }
        }
        switches
    }
}

#[test]
fn lock_intensive_tasks_keep_to_the_set() {
    let Some(said) = Machine::new("contention.sh", PROCESSORS).boot() else { return };
    assert_eq!(said.words("before"), ["disabled"]);
    assert_eq!(said.words("loaded")[0], "enabled", "{}", said.console);
    assert!(said.words("loaded")[1].starts_with("unconvoy"), "{}", said.console);
    said.only_shells("quiet");

    // Where they ran, in the kernel's words: all switches of one second, when all were known to be lock-intensive.
    assert!(said.numbers("found")[0] >= 8, "{}", said.console);
    assert_eq!(said.numbers("set.bound"), [3]);
    let switches = |name| said.switches("set.switches", &said.load(name).2);
    let special = switches("files");
    assert!(special.values().sum::<u64>() > 0, "they did not run:\n{}", said.console);
    assert!(special.keys().all(|&cpu| cpu < 3), "{special:?}");
    assert_eq!(switches("first").into_keys().collect::<Vec<_>>(), [0], "its mask is processor 0");
    assert_eq!(switches("last").into_keys().collect::<Vec<_>>(), [7], "its mask is processor 7");
    assert!(switches("apart").keys().all(|&cpu| cpu >= 6), "their mask is processors 6 and 7: {:?}", switches("apart"));

    // Whether in the set, outside of it, or bound to a processor of either.
    said.nobody_starves(&["files", "spin", "first", "last", "apart"]);
    assert_eq!(said.words("status"), ["0"], "Ctrl-C is no failure");
    assert_eq!(said.words("ended"), ["disabled"]);

    // The bound follows the load.
    for (load, fewest) in [("many", 8), ("four", 4)] {
        let tasks = said.numbers(load)[0];
        assert!((fewest..=fewest + SHELLS).contains(&tasks), "{tasks} tasks, not {fewest}:\n{}", said.console);
        let name = format!("{load}.bound");
        let &[bound, before, after] = &said.numbers(&name)[..] else { panic!("no {name}:\n{}", said.console) };
        assert!(bound <= tasks + SHELLS, "{tasks} tasks have {bound} cores");
        assert!(after > before, "the bound did not move:\n{}", said.console);
    }
    said.only_shells("drained");
    said.only_shells("drained.again");

    // Without its user-space side it goes on with what it knows.
    assert_eq!(said.words("stalled")[0], "enabled", "{}", said.console);
    assert_eq!(said.words("stalled.forked"), ["yes"]);
    assert!(said.load("stalled").1 > 0);
    said.only_shells("resumed");
    assert_eq!(said.words("awake")[0], "enabled", "{}", said.console);

    // Processors come and go.
    assert_eq!(said.words("offline")[0], "enabled", "{}", said.console);
    assert_eq!(said.words("offline.cores"), ["7"]);
    assert_eq!(said.words("online")[0], "enabled", "{}", said.console);
    assert_eq!(said.words("online.cores"), ["8"]);

    assert_eq!(said.words("killed"), ["disabled"], "killed, it leaves the default scheduler");
}

#[test]
fn each_memory_node_has_its_queue_and_none_is_forgotten() {
    let Some(said) = Machine { nodes: 2, ..Machine::new("nodes.sh", PROCESSORS) }.boot() else { return };
    assert_eq!(said.words("loaded")[0], "enabled", "{}", said.console);
    assert_eq!(said.numbers("nodes"), [2]);
    let cpus = |round: &str, load: &str| -> Vec<u64> {
        let threads = said.load(&format!("{round}.{load}")).2;
        said.switches(&format!("{round}.switches"), &threads).into_keys().collect()
    };

    // A set that leaves the first node no core, and one that leaves neither any.
    for (round, outside) in [("whole", 4..8), ("all", 0..8)] {
        assert!(said.numbers(&format!("{round}.found"))[0] >= 8, "{}", said.console);
        let spin = cpus(round, "spin");
        assert!(outside.clone().all(|cpu| spin.contains(&cpu)), "{round}: idle beside {spin:?}\n{}", said.console);
        assert!(cpus(round, "files").iter().all(|&cpu| cpu < said.numbers(&format!("{round}.bound"))[0]));
        assert!(cpus(round, "near").iter().all(|&cpu| cpu < 4), "their mask is the first node");
        assert!(cpus(round, "far").iter().all(|&cpu| cpu >= 4), "their mask is the second node");
        let loads = ["files", "spin", "near", "far", "one"].map(|load| format!("{round}.{load}"));
        said.nobody_starves(&loads.each_ref().map(String::as_str));
    }

    // A node goes with its last processor, and comes back.
    assert_eq!(said.words("gone")[0], "enabled", "{}", said.console);
    assert_eq!(said.numbers("gone.nodes"), [1]);
    said.nobody_starves(&["gone.spin"]);
    assert_eq!(said.words("back")[0], "enabled", "{}", said.console);
    assert_eq!(said.numbers("back.nodes"), [2]);
    assert_eq!(said.words("end")[0], "enabled", "{}", said.console);
}

#[test]
fn ten_thousand_forks_leave_nothing_behind() {
    let Some(said) = Machine::new("leaks.sh", PROCESSORS).boot() else { return };
    let rounds: Vec<Vec<u64>> = (0..5)
        .map(|round| {
            said.only_shells(&format!("tasks.{round}"));
            said.numbers(&format!("memory.{round}"))
        })
        .collect();
    assert!(said.metric("slices_told_total") > 0, "no task was lock-intensive");
    for kind in 0..4 {
        let kept: Vec<u64> = rounds.iter().map(|kinds| kinds[kind]).collect();
        // What is kept of a task takes some 200 bytes; a leak of 64 with each of 2,500 tasks would be 160 kB, every time. What the
        // kernel keeps for later grows in the beginning, by less and less.
        let least = kept.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).min();
        assert!(least < Some(160), "{kept:?} kB:\n{}", said.console);
    }
    assert_eq!(said.words("end")[0], "enabled", "{}", said.console);
    assert_eq!(said.words("status"), ["0"], "Ctrl-C is no failure");
    assert_eq!(said.words("ended"), ["disabled"]);
}

#[test]
fn children_of_shells_inherit_from_those_before_them() {
    let Some(said) = Machine::new("shells.sh", PROCESSORS).boot() else { return };
    let heirs = said.numbers("heirs")[0];
    assert!(heirs > 0, "none of 120 children was lock-intensive from its start:\n{}", said.console);
    said.only_shells("childless");
    assert_eq!(said.words("end")[0], "enabled", "{}", said.console);
}
