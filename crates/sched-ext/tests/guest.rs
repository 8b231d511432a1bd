//! Tests of the scheduler on a stock Debian kernel in QEMU.
//!
//! The guest runs a script and reports observations (guest/machine.rs); the assertions are here.
//! Placement is judged by the kernel's trace point `sched_switch`, not by the scheduler's own
//! reports.

#[path = "guest/loads.rs"]
mod loads;
#[path = "guest/machine.rs"]
mod machine;
#[path = "guest/overhead.rs"]
mod overhead;

use std::collections::{BTreeMap, BTreeSet};

use machine::{Machine, Output};

const PROCESSORS: u32 = 8;

/// Number of the guest's own processes that may be lock-intensive: a shell and its latest child. If
/// the host preempts a virtual processor that holds a lock, every waiter of that lock waits long.
const SHELLS: u64 = 2;

impl Output {
    fn metric(&self, name: &str) -> u64 {
        let prefix = format!("unconvoy_sched_{name} ");
        let line = self.file("metrics").lines().find_map(|line| line.strip_prefix(&prefix));
        line.unwrap_or_else(|| panic!("no metric {name}")).parse().expect("a number")
    }

    /// Asserts that at most the guest's own processes are lock-intensive, and that the policy and
    /// the kernel side count the same number.
    fn assert_only_shells(&self, name: &str) {
        let (tasks, special) = (self.numbers(name)[0], self.numbers(name)[1]);
        assert!(
            tasks <= SHELLS && tasks == special,
            "{name}: {tasks}, {special}\n{}",
            self.console
        );
    }

    /// A load's total operations, the smallest count of a thread, and its thread ids.
    fn load(&self, name: &str) -> (u64, u64, BTreeSet<u64>) {
        let mut numbers =
            self.file(name).split_whitespace().skip(1).map(|word| word.parse().expect("a number"));
        let mut next =
            || numbers.next().unwrap_or_else(|| panic!("{name} did not end:\n{}", self.console));
        (next(), next(), numbers.collect())
    }

    /// Asserts that each thread of a load reached at least an eighth of the average.
    fn assert_no_starvation(&self, loads: &[&str]) {
        for name in loads {
            let (operations, least, threads) = self.load(name);
            assert!(
                least * threads.len() as u64 * 8 > operations,
                "{name}: {least} of {operations}\n{}",
                self.console
            );
        }
    }

    /// Context switches to each of `threads`, by processor.
    fn switches(&self, name: &str, threads: &BTreeSet<u64>) -> BTreeMap<u64, u64> {
        let mut switches = BTreeMap::new();
        for line in self.file(name).lines() {
            let numbers: Vec<u64> =
                line.split(' ').map(|word| word.parse().expect("a number")).collect();
            if threads.contains(&numbers[0]) {
                *switches.entry(numbers[1]).or_default() += numbers[2];
            }
        }
        switches
    }
}

#[test]
fn lock_intensive_tasks_stay_in_the_set() {
    let Some(output) = Machine::new("contention.sh", PROCESSORS).boot() else { return };
    assert_eq!(output.words("before"), ["disabled"]);
    assert_eq!(output.words("loaded")[0], "enabled", "{}", output.console);
    assert!(output.words("loaded")[1].starts_with("unconvoy"), "{}", output.console);
    // CAP_NET_BIND_SERVICE, CAP_PERFMON and CAP_BPF.
    let kept = format!("{:016x}", 1_u64 << 10 | 1 << 38 | 1 << 39);
    assert_eq!(output.words("privilege"), [kept], "{}", output.console);
    output.assert_only_shells("quiet");

    // `set` holds the context switches of one second, after every task was recognized.
    assert!(output.numbers("found")[0] >= 8, "{}", output.console);
    assert_eq!(output.numbers("set.bound"), [3]);
    let switches = |name| output.switches("set.switches", &output.load(name).2);
    let special = switches("files");
    assert!(special.values().sum::<u64>() > 0, "the tasks did not run:\n{}", output.console);
    assert!(special.keys().all(|&cpu| cpu < 3), "{special:?}");
    assert_eq!(switches("first").into_keys().collect::<Vec<_>>(), [0], "its mask is processor 0");
    assert_eq!(switches("last").into_keys().collect::<Vec<_>>(), [7], "its mask is processor 7");
    assert!(
        switches("apart").keys().all(|&cpu| cpu >= 6),
        "their mask is processors 6 and 7: {:?}",
        switches("apart")
    );

    // Tasks in the set, outside it, or pinned to a processor in or outside it.
    output.assert_no_starvation(&["files", "spin", "first", "last", "apart"]);
    assert_eq!(output.words("status"), ["0"], "Ctrl-C counts as success");
    assert_eq!(output.words("ended"), ["disabled"]);

    // The bound follows the load.
    for (load, fewest) in [("many", 8), ("four", 4)] {
        let tasks = output.numbers(load)[0];
        assert!(
            (fewest..=fewest + SHELLS).contains(&tasks),
            "{tasks} tasks, not {fewest}:\n{}",
            output.console
        );
        let name = format!("{load}.bound");
        let &[bound, before, after] = &output.numbers(&name)[..] else {
            panic!("no {name}:\n{}", output.console)
        };
        assert!(bound <= tasks + SHELLS, "{tasks} tasks have {bound} cores");
        assert!(after > before, "the bound did not move:\n{}", output.console);
    }
    output.assert_only_shells("drained");
    output.assert_only_shells("drained.again");

    // While the loader is stopped, the kernel side continues.
    assert_eq!(output.words("stalled")[0], "enabled", "{}", output.console);
    assert_eq!(output.words("stalled.forked"), ["yes"]);
    assert!(output.load("stalled").1 > 0);
    output.assert_only_shells("resumed");
    assert_eq!(output.words("awake")[0], "enabled", "{}", output.console);

    // Processors go offline and online.
    assert_eq!(output.words("offline")[0], "enabled", "{}", output.console);
    assert_eq!(output.words("offline.cores"), ["7"]);
    assert_eq!(output.words("online")[0], "enabled", "{}", output.console);
    assert_eq!(output.words("online.cores"), ["8"]);

    assert_eq!(output.words("killed"), ["disabled"], "the default scheduler must take over");
}

#[test]
fn memory_nodes_serve_their_queues_and_each_others() {
    let Some(output) = Machine { nodes: 2, ..Machine::new("nodes.sh", PROCESSORS) }.boot() else {
        return;
    };
    assert_eq!(output.words("loaded")[0], "enabled", "{}", output.console);
    assert_eq!(output.numbers("nodes"), [2]);
    let cpus = |round: &str, load: &str| -> Vec<u64> {
        let threads = output.load(&format!("{round}.{load}")).2;
        output.switches(&format!("{round}.switches"), &threads).into_keys().collect()
    };

    // A set that covers the first node, and one that covers both.
    for (round, outside) in [("whole", 4..8), ("all", 0..8)] {
        assert!(output.numbers(&format!("{round}.found"))[0] >= 8, "{}", output.console);
        let spin = cpus(round, "spin");
        assert!(
            outside.clone().all(|cpu| spin.contains(&cpu)),
            "{round}: idle beside {spin:?}\n{}",
            output.console
        );
        assert!(
            cpus(round, "files")
                .iter()
                .all(|&cpu| cpu < output.numbers(&format!("{round}.bound"))[0])
        );
        assert!(cpus(round, "near").iter().all(|&cpu| cpu < 4), "their mask is the first node");
        assert!(cpus(round, "far").iter().all(|&cpu| cpu >= 4), "their mask is the second node");
        let loads = ["files", "spin", "near", "far", "one"].map(|load| format!("{round}.{load}"));
        output.assert_no_starvation(&loads.each_ref().map(String::as_str));
    }

    // A node disappears with its last processor, and returns.
    assert_eq!(output.words("gone")[0], "enabled", "{}", output.console);
    assert_eq!(output.numbers("gone.nodes"), [1]);
    output.assert_no_starvation(&["gone.spin"]);
    assert_eq!(output.words("back")[0], "enabled", "{}", output.console);
    assert_eq!(output.numbers("back.nodes"), [2]);
    assert_eq!(output.words("end")[0], "enabled", "{}", output.console);
}

#[test]
fn core_with_a_runnable_task_of_the_set_is_not_lent() {
    let Some(output) = Machine::new("lending.sh", PROCESSORS).boot() else { return };
    assert!(output.numbers("found")[0] >= 4, "{}", output.console);
    let switches = output.switches("busy.switches", &output.load("spin").2);
    let all: u64 = switches.values().sum();
    let lent: u64 = switches.iter().filter(|&(&cpu, _)| cpu < 4).map(|(_, count)| count).sum();
    // A set whose cores alternate between both kinds of tasks would get a third of the switches.
    assert!(all > 0 && lent * 8 < all, "{lent} of {all}:\n{}", output.console);
    output.assert_no_starvation(&["files", "spin"]);
    assert_eq!(output.words("end")[0], "enabled", "{}", output.console);
}

#[test]
fn task_with_offline_processors_in_its_mask_runs_on_the_sets_cores() {
    let Some(output) = Machine::new("masks.sh", PROCESSORS).boot() else { return };
    assert_eq!(output.words("loaded")[0], "enabled", "{}", output.console);
    for cpu in 4..8 {
        let cores = output.numbers(&format!("offline.{cpu}.cores"));
        assert_eq!(cores, [cpu], "a processor that is offline counts:\n{}", output.console);
    }
    assert!(output.numbers("found")[0] >= 6, "{}", output.console);
    // The kernel unloads a scheduler under which a task waits for 30 seconds.
    assert_eq!(output.words("end")[0], "enabled", "{}", output.console);
    assert!(output.load("masked").1 > 0, "{}", output.console);
}

#[test]
fn ten_thousand_forks_leak_no_memory() {
    let Some(output) = Machine::new("leaks.sh", PROCESSORS).boot() else { return };
    let rounds: Vec<Vec<u64>> = (0..5)
        .map(|round| {
            output.assert_only_shells(&format!("tasks.{round}"));
            output.numbers(&format!("memory.{round}"))
        })
        .collect();
    assert!(output.metric("slices_recorded_total") > 0, "no task was lock-intensive");
    for kind in 0..4 {
        let kept: Vec<u64> = rounds.iter().map(|kinds| kinds[kind]).collect();
        // The state of a task takes about 200 bytes. A leak of 64 bytes for each of 2,500 tasks
        // would add 160 kB in every round. The kernel's caches grow only in the first rounds.
        let least = kept.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).min();
        assert!(least < Some(160), "{kept:?} kB:\n{}", output.console);
    }
    assert_eq!(output.words("end")[0], "enabled", "{}", output.console);
    assert_eq!(output.words("status"), ["0"], "Ctrl-C counts as success");
    assert_eq!(output.words("ended"), ["disabled"]);
}

#[test]
fn children_of_shells_inherit_from_earlier_children() {
    let Some(output) = Machine::new("shells.sh", PROCESSORS).boot() else { return };
    let inherited = output.numbers("inherited")[0];
    assert!(inherited > 0, "none of 120 children started lock-intensive:\n{}", output.console);
    output.assert_only_shells("childless");
    assert_eq!(output.words("end")[0], "enabled", "{}", output.console);
}
