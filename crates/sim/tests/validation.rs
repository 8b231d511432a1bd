//! The programs of Syncchar's validation: correctness, and speed-up by transactions.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use unconvoy_sim::machine;
use unconvoy_sim::pair::{self, TRANSACTIONAL};
use unconvoy_sim::parameters::{Parameters, Policy};
use unconvoy_sim::presets;
use unconvoy_sim::simulation::Simulation;
use unconvoy_sim::workload::red_black::RedBlackTree;
use unconvoy_sim::workload::validation::{Completion, Execution, Program, THREADS};

const POLICIES: [Policy; 2] = [Policy::Requester, Policy::Timestamp];

fn metatm(processors: u32, policy: Policy) -> Parameters {
    let mut machine = presets::named(&format!("metatm-{processors}")).expect("a preset");
    let transactions = machine.transactions.as_mut().expect("it has some");
    transactions.policy = policy;
    if policy == Policy::Requester {
        // If the requester wins, transactions with short waits abort each other forever.
        transactions.backoff_limit_ns = 10_000;
    }
    machine
}

fn execution<'a>(
    machine: &'a Parameters,
    program: Program,
    lock: &str,
    sections: u32,
    seed: u64,
) -> Execution<'a> {
    let pair = pair::named(lock).expect("a lock");
    Execution { machine, program, pair, in_kernel: false, threads: THREADS, sections, seed }
}

fn completed(
    machine: &Parameters,
    program: Program,
    lock: &str,
    sections: u32,
    seed: u64,
) -> Completion {
    execution(machine, program, lock, sections, seed)
        .complete()
        .unwrap_or_else(|error| panic!("{program:?} under {lock}: {error}"))
}

#[test]
fn tree_after_random_changes_stays_valid() {
    let machine = presets::named("host").expect("a preset");
    let mut simulation = Simulation::new(&machine, 1).expect("memory");
    let (tree, mut spare) = RedBlackTree::new(&mut simulation, 101);
    let mut random = fastrand::Rng::with_seed(1);
    let mut expected = BTreeSet::new();
    for turn in 0..20_000 {
        let key = random.u32(0..100);
        // Alternate between mostly insertions and mostly removals.
        if random.u32(0..100) < [75, 25][turn / 500 % 2] {
            let node = *spare.last().expect("more nodes than keys");
            assert_eq!(tree.insert(key, node), expected.insert(key));
            if tree.check().is_ok_and(|keys| keys.len() == 101 - spare.len() + 1) {
                spare.pop();
            }
        } else {
            let removed = tree.remove(key);
            assert_eq!(removed.is_some(), expected.remove(&key));
            spare.extend(removed);
        }
        assert_eq!(tree.check().as_ref(), Ok(&expected), "after {turn} changes");
    }
}

#[test]
fn tree_under_32_threads_stays_valid() {
    for policy in POLICIES {
        for processors in [8, 32] {
            let machine = metatm(processors, policy);
            let mut simulation = Simulation::new(&machine, 5).expect("memory");
            let process = simulation.process();
            let (tree, mut nodes) = RedBlackTree::new(&mut simulation, 201 + 32);
            let tree = Rc::new(tree);
            // Insertions minus removals, by key.
            let net = Rc::new(RefCell::new(vec![0_i32; 201]));
            let removed = Rc::new(RefCell::new(Vec::new()));
            for thread in 0..32 {
                let (tree, net, removed) = (tree.clone(), net.clone(), removed.clone());
                let mut own = nodes.pop();
                if thread == 31 {
                    removed.borrow_mut().append(&mut nodes);
                }
                simulation.spawn(process, format!("thread {thread}"), move || {
                    for _ in 0..300 {
                        let key = machine::random(201) as u32;
                        let inserts = machine::random(2) == 0;
                        own = own.or_else(|| removed.borrow_mut().pop());
                        if let (true, Some(node)) = (inserts, own) {
                            let inserted =
                                machine::transaction(|| tree.insert(key, node)).expect("it fits");
                            if inserted {
                                own = None;
                                net.borrow_mut()[key as usize] += 1;
                            }
                        } else if let Some(node) =
                            machine::transaction(|| tree.remove(key)).expect("it fits")
                        {
                            removed.borrow_mut().push(node);
                            net.borrow_mut()[key as usize] -= 1;
                        }
                        machine::work(machine::random(100));
                    }
                });
            }
            simulation.run(u64::MAX - 1).unwrap_or_else(|hang| panic!("{hang}"));
            let counts = simulation.transactions();
            let keys = tree
                .check()
                .unwrap_or_else(|error| panic!("{policy:?} with {processors}: {error}"));
            for (key, net) in net.borrow().iter().enumerate() {
                assert_eq!(
                    *net,
                    i32::from(keys.contains(&(key as u32))),
                    "{policy:?} with {processors}: key {key}"
                );
            }
            assert!(
                counts.conflicts > 100 && counts.commits == 32 * 300,
                "{policy:?} with {processors}: {counts:?}"
            );
        }
    }
}

#[test]
fn programs_with_transactions_speed_up() {
    for policy in POLICIES {
        for program in [Program::Prob, Program::Rw, Program::RbTree] {
            let mut speed_ups = Vec::new();
            for processors in [8, 16, 32] {
                let machine = metatm(processors, policy);
                let locked = completed(&machine, program, "ttas+none", 100, 1);
                let transacted = completed(&machine, program, TRANSACTIONAL, 100, 1);
                let speed_up = locked.ns as f64 / transacted.ns as f64;
                println!(
                    "{policy:?}, {processors:2} processors, {program:?}: ttas+none {:.0}/s, \
                     transactions {:.0}, speed-up {speed_up:.2}, {:.2} aborts per commit, {:?}",
                    locked.per_s(),
                    transacted.per_s(),
                    transacted.aborts_per_commit(),
                    transacted.transactions
                );
                assert!(transacted.transactions.commits >= transacted.sections * 9 / 10);
                assert!(
                    speed_up > 2.0,
                    "{policy:?}, {processors} processors, {program:?}: {speed_up}"
                );
                speed_ups.push(speed_up);
            }
            // Prob's shared line takes 200 ns per transfer: 16 processors saturate it.
            let grows = speed_ups.is_sorted_by(|fewer, more| 1.2 * fewer < *more);
            assert!(
                grows || program == Program::Prob || policy == Policy::Requester,
                "{program:?}: {speed_ups:?}"
            );
        }
    }
}

#[test]
fn equal_seeds_give_equal_results() {
    let machine = metatm(16, Policy::Requester);
    for program in [Program::Prob, Program::Rw, Program::RbTree] {
        for lock in [TRANSACTIONAL, "elided+none", "elided+control"] {
            let run = |seed| completed(&machine, program, lock, 30, seed);
            assert_eq!(run(1), run(1), "{program:?} under {lock}");
            assert_ne!(run(1), run(2), "{program:?} under {lock}");
        }
    }
}

#[test]
fn address_sets_exclude_the_lock() {
    let machine = metatm(8, Policy::Timestamp);
    let recorded =
        |program| execution(&machine, program, "ttas+none", 40, 1).address_sets().expect("it ends");
    // Prob writes one word: a shared one in half of the sections, the thread's own in the others.
    let sets = recorded(Program::Prob);
    assert_eq!(sets.len(), 32 * 40);
    assert!(
        sets.iter().all(|one| one.set.written_words.len() == 1 && one.set.read_words.is_empty())
    );
    let words: BTreeSet<u64> = sets.iter().flat_map(|one| one.set.written_words.clone()).collect();
    assert_eq!(words.len(), 1 + 32, "the shared one and one per thread");
    let shared = sets
        .iter()
        .filter(|one| one.set.written_words.contains(words.first().expect("some")))
        .count();
    assert!((500..780).contains(&shared), "about half of 1280: {shared}");

    // RW: the first thread writes four lines; the others read them and write one of their own.
    let sets = recorded(Program::Rw);
    let written = &sets.iter().find(|one| one.thread == 0).expect("it wrote").set.written_lines;
    assert_eq!(written.len(), 4);
    for one in &sets {
        assert_eq!(one.set.written_lines.is_disjoint(written), one.thread != 0);
        assert_eq!(one.set.read_lines.is_superset(written), one.thread != 0);
    }

    // RB-Tree: every section first reads the root.
    let sets = recorded(Program::RbTree);
    let common = sets
        .iter()
        .map(|one| one.set.read_words.clone())
        .reduce(|all, one| &all & &one)
        .expect("some");
    assert!(!common.is_empty(), "the root");
    let writers = sets.iter().filter(|one| !one.set.written_words.is_empty()).count();
    assert!((200..800).contains(&writers), "few change the tree: {writers} of 1280");
}
