//! Conflicts: which transaction aborts, when, and at what cost.

use std::cell::Cell;
use std::rc::Rc;

use unconvoy::primitive::Abort;
use unconvoy_sim::machine::{self, Cause, Refusal, TransactionCounts, Word};
use unconvoy_sim::pair;
use unconvoy_sim::parameters::{Parameters, Policy};

use crate::scenario::{POLICIES, START, Scenario, Times, once, plain, with_backoff};

/// Thread 0 writes a word at 90 and continues to work. Thread 1 begins at 500 and requests the word
/// at 530. Returns the beginnings of the attempts and the end for each thread, and the counts.
fn meeting(policy: Policy) -> (Vec<u64>, Vec<u64>, TransactionCounts) {
    let mut scenario = Scenario::new(&plain(policy, 2));
    let [word] = scenario.words();
    let (first, second) = (Times::default(), Times::default());
    let times = first.clone();
    scenario.thread(0, move || {
        once(&times, || {
            word.set(1); // 80, from memory
            machine::work(1_000);
        });
    });
    let times = second.clone();
    scenario.thread(500, move || {
        once(&times, || {
            word.set(2); // 20, from the neighbour
            machine::work(100);
        });
    });
    let counts = scenario.finish();
    let value = if policy == Policy::Requester { 2 } else { 1 };
    assert_eq!(word.get(), value, "{policy:?}");
    (first.take(), second.take(), counts)
}

#[test]
fn conflict_under_requester_policy_aborts_owner() {
    let (first, second, counts) = meeting(Policy::Requester);
    assert_eq!(first, [10, 530 + 30 + 10, 570 + 20], "aborted at 530, back after 30, begins again");
    assert_eq!(second, [510, 530 + 100 + 20]);
    assert_eq!((counts.commits, counts.conflicts, counts.wasted_ns), (2, 1, 520), "{counts:?}");
}

#[test]
fn conflict_under_timestamp_policy_aborts_younger_requester() {
    let (first, second, counts) = meeting(Policy::Timestamp);
    assert_eq!(first, [10, 10 + 80 + 1_000 + 20]);
    assert_eq!(second, [510, 530 + 30 + 10, 570 + 20], "requests at 530, and is aborted itself");
    assert_eq!((counts.commits, counts.conflicts, counts.wasted_ns), (2, 1, 20), "{counts:?}");
}

#[test]
fn older_requester_under_timestamp_policy_aborts_owner() {
    let mut scenario = Scenario::new(&plain(Policy::Timestamp, 2));
    let [word] = scenario.words();
    let (first, second) = (Times::default(), Times::default());
    let times = first.clone();
    scenario.thread(0, move || {
        once(&times, || {
            machine::work(500);
            word.set(1);
        });
    });
    let times = second.clone();
    scenario.thread(100, move || {
        once(&times, || {
            word.set(2); // at 190
            machine::work(1_000);
        });
    });
    scenario.finish();
    assert_eq!(first.take(), [10, 510 + 20 + 20]);
    assert_eq!(second.take(), [110, 530 + 30 + 10, 570 + 20]);
    assert_eq!(word.get(), 1);
}

#[test]
fn aborted_transaction_keeps_its_age() {
    let mut scenario = Scenario::new(&plain(Policy::Timestamp, 3));
    let [first, second] = scenario.words();
    let tries = Rc::new(Cell::new(0));
    let own = tries.clone();
    scenario.thread(0, move || {
        let result = machine::transaction(|| {
            if own.replace(own.get() + 1) == 0 {
                // An access outside transactions aborts the transaction shortly after 300.
                first.set(1);
                machine::work(1_000);
            }
            machine::work(500);
            second.set(1);
        });
        assert_eq!(result, Ok(()));
    });
    scenario.thread(200, move || {
        let result = machine::transaction(|| {
            second.set(2);
            machine::work(10_000);
        });
        assert_eq!(result, Ok(()));
    });
    scenario.thread(300, move || first.set(3));
    let counts = scenario.finish();
    assert_eq!(
        tries.get(),
        2,
        "the second attempt is younger than the other thread's, but the first was older"
    );
    assert_eq!((first.get(), second.get(), counts.conflicts), (3, 2, 2), "{counts:?}");
}

#[test]
fn non_transactional_access_wins_under_either_policy() {
    for policy in POLICIES {
        // The access in the transaction, the other access, whether they conflict, and the result.
        type Access = fn(Word);
        let (read, write): (Access, Access) = (|word| _ = word.get(), |word| word.set(7));
        for (inside, outside, aborts, left) in
            [(read, read, 0, 0), (read, write, 1, 7), (write, read, 1, 0), (write, write, 1, 7)]
        {
            let mut scenario = Scenario::new(&plain(policy, 2));
            let [word] = scenario.words();
            let times = Times::default();
            scenario.thread(0, move || {
                once(&times, || {
                    inside(word);
                    machine::work(1_000);
                });
            });
            let seen = Rc::new(Cell::new(0));
            let cell = seen.clone();
            scenario.thread(500, move || {
                outside(word);
                cell.set(word.get());
            });
            let counts = scenario.finish();
            assert_eq!((counts.conflicts, counts.commits), (aborts, 1), "{policy:?}");
            assert_eq!(
                (seen.get(), word.get()),
                (left, left),
                "{policy:?}: no thread sees an uncommitted write"
            );
        }
    }
}

#[test]
fn polling_waiter_aborts_transactional_release() {
    let mut scenario = Scenario::new(&plain(Policy::Requester, 2));
    let lock =
        scenario.simulation.lock(scenario.process, pair::named("ticket+none").expect("a pair"));
    let [word] = scenario.words();
    scenario.thread(0, move || {
        lock.lock();
        machine::work(1_000);
        let tries = Cell::new(0);
        let result = machine::transaction(|| {
            if tries.replace(tries.get() + 1) == 1 {
                machine::abort_transaction(Abort::Held);
            }
            word.set(1);
            lock.unlock();
            machine::work(5_000); // The other thread's next poll aborts it.
        });
        assert_eq!(result, Err(Refusal::Aborted(Cause::Explicit(Abort::Held))));
        lock.unlock();
    });
    scenario.thread(100, move || {
        lock.lock();
        assert_eq!(word.get(), 0);
        lock.unlock();
    });
    let counts = scenario.finish();
    assert_eq!((counts.conflicts, counts.explicit, counts.commits), (1, 1, 0), "{counts:?}");
}

#[test]
fn backoff_ends_livelock() {
    let commits = |parameters: &Parameters| {
        let mut scenario = Scenario::new(parameters);
        let [word] = scenario.words();
        for _ in 0..2 {
            scenario.thread(0, move || {
                for _ in 0..20 {
                    let section = || {
                        word.increment();
                        machine::work(2_000);
                    };
                    assert_eq!(machine::transaction(section), Ok(()));
                }
            });
        }
        scenario.simulation.run(START + 1_000_000).unwrap_or_else(|hang| panic!("{hang}"));
        scenario.simulation.transactions()
    };
    let without = commits(&plain(Policy::Requester, 2));
    assert!(
        without.commits == 0 && without.conflicts > 5_000,
        "they abort each other: {without:?}"
    );
    let with = commits(&with_backoff(plain(Policy::Requester, 2)));
    assert!(with.commits == 40 && with.conflicts < 400, "{with:?}");
    let older = commits(&plain(Policy::Timestamp, 2));
    assert_eq!(older.commits, 40, "the older one always succeeds: {older:?}");
}
