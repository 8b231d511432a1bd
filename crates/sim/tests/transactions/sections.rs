//! Many concurrent sections: no update is lost, and the shipped elision takes the lock only when it
//! must.

use std::cell::Cell;
use std::rc::Rc;

use unconvoy_sim::machine::{self, TransactionCounts, Word};
use unconvoy_sim::pair::{self, TRANSACTIONAL};
use unconvoy_sim::parameters::{Parameters, Policy};
use unconvoy_sim::simulation::Simulation;

use crate::scenario::{POLICIES, Scenario, plain, with_backoff};

#[test]
fn conflicting_transactions_lose_no_update() {
    for policy in POLICIES {
        let mut scenario = Scenario::new(&with_backoff(plain(policy, 16)));
        let counters: [Word; 4] = scenario.words();
        for _ in 0..16 {
            scenario.thread(0, move || {
                for _ in 0..200 {
                    let chosen = [machine::random(4), machine::random(4)]
                        .map(|which| counters[which as usize]);
                    let section = || {
                        chosen[0].increment();
                        machine::work(50);
                        chosen[1].increment();
                    };
                    assert_eq!(machine::transaction(section), Ok(()));
                }
            });
        }
        let counts = scenario.finish();
        assert_eq!(counters.iter().map(Word::get).sum::<u32>(), 16 * 200 * 2, "{policy:?}");
        assert_eq!(counts.commits, 16 * 200);
        assert!(counts.conflicts > 500, "{policy:?}: too few conflicts for a test: {counts:?}");
    }
}

/// Runs 16 threads on 16 cores with sections of 200 ns under one lock. Each section increments two
/// of `words` words. Returns the sections in a simulated millisecond and the machine's
/// transactions.
fn sections(lock: &str, words: usize, parameters: &Parameters) -> (u64, TransactionCounts) {
    let mut simulation = Simulation::new(parameters, 3).expect("memory");
    let process = simulation.process();
    let lock = simulation.lock(process, pair::named(lock).expect("a lock"));
    let words: Rc<[Word]> = (0..words).map(|_| simulation.word()).collect();
    let finished = Rc::new(Cell::new(0));
    let ended = Rc::new(Cell::new(0));
    for thread in 0..16 {
        let (words, finished, ended) = (words.clone(), finished.clone(), ended.clone());
        simulation.spawn(process, "thread", move || {
            while machine::now() < 1_000_000 {
                lock.section(|| {
                    words[thread % words.len()].increment();
                    machine::work(200);
                    words[(thread + 16) % words.len()].increment();
                });
                finished.set(finished.get() + 1);
                machine::work(machine::random(200));
            }
            ended.set(ended.get() + 1);
        });
    }
    simulation.run(1_000_000_000).unwrap_or_else(|hang| panic!("{hang}"));
    assert_eq!(ended.get(), 16, "{}", simulation.threads());
    assert_eq!(
        u64::from(words.iter().map(Word::get).sum::<u32>()),
        2 * finished.get(),
        "an update was lost"
    );
    (finished.get(), simulation.transactions())
}

#[test]
fn elision_of_disjoint_sections_scales() {
    let machine = plain(Policy::Requester, 16);
    let (locked, none) = sections("ttas+none", 32, &machine);
    assert_eq!(none, TransactionCounts::default());
    for lock in ["elided+none", "elided+control", TRANSACTIONAL] {
        let (elided, counts) = sections(lock, 32, &machine);
        println!("{lock}: {elided} sections, ttas+none {locked}; {counts:?}");
        assert!(elided > 8 * locked, "{lock}: {elided} sections, and {locked} under the lock");
        assert!(counts.commits > elided * 9 / 10, "{lock}: {counts:?}");
    }
}

#[test]
fn elision_of_conflicting_sections_excludes() {
    for policy in POLICIES {
        for lock in ["elided+none", "elided+control", "elided+park", TRANSACTIONAL] {
            let (finished, counts) = sections(lock, 1, &with_backoff(plain(policy, 16)));
            println!("{lock} under {policy:?}: {finished} sections, {counts:?}");
            assert!(
                counts.conflicts > 0 && finished > 1_000,
                "{lock}: {finished} sections, {counts:?}"
            );
        }
    }
}

#[test]
fn preempted_sections_lose_no_update() {
    for policy in POLICIES {
        for lock in ["elided+none", "elided+control", "elided+park", TRANSACTIONAL] {
            for words in [1, 32] {
                let mut parameters = with_backoff(plain(policy, 4));
                (parameters.scheduler.slice_ns, parameters.scheduler.tick_ns) = (20_000, 10_000);
                let (finished, counts) = sections(lock, words, &parameters);
                assert!(
                    finished > 500,
                    "{lock} under {policy:?}, {words} words: {finished} sections, {counts:?}"
                );
                assert!(
                    counts.preempted > 0 || words == 1,
                    "{lock} under {policy:?}, {words} words: {counts:?}"
                );
            }
        }
    }
}

#[test]
fn elision_without_transactions_takes_the_lock() {
    let mut machine = plain(Policy::Requester, 16);
    machine.transactions = None;
    let (elided, counts) = sections("elided+none", 32, &machine);
    let (locked, _) = sections("ttas+none", 32, &machine);
    assert_eq!(counts, TransactionCounts::default());
    assert!(elided.abs_diff(locked) < locked / 5, "{elided} and {locked}");
}

#[test]
fn section_with_system_call_takes_the_lock() {
    let mut scenario = Scenario::new(&plain(Policy::Requester, 2));
    let lock =
        scenario.simulation.lock(scenario.process, pair::named("elided+none").expect("a pair"));
    let [word] = scenario.words();
    for _ in 0..2 {
        scenario.thread(0, move || {
            for _ in 0..50 {
                lock.section(|| {
                    word.increment();
                    machine::wait_for_io(1_000);
                });
            }
        });
    }
    let counts = scenario.finish();
    assert_eq!((word.get(), counts.commits), (100, 0));
    // The elision adapts: each failure doubles the number of acquisitions without an attempt.
    assert!((5..40).contains(&counts.aborts()), "{counts:?}");
}
