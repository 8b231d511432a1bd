//! Aborts: their causes and effects.

use std::cell::Cell;
use std::rc::Rc;

use unconvoy::primitive::Abort;
use unconvoy_sim::machine::{self, Cause, Refusal, Word};
use unconvoy_sim::parameters::Policy;

use crate::scenario::{Scenario, lines, plain};

#[test]
fn abort_restores_cells_and_drops_owned_values() {
    let mut scenario = Scenario::new(&plain(Policy::Requester, 2));
    let words: [Word; 20] = scenario.words();
    let owned = Rc::new(());
    let kept = owned.clone();
    scenario.thread(0, move || {
        words.iter().for_each(|word| word.set(5));
        let result: Result<(), Refusal> = machine::transaction(|| {
            let mine = vec![owned.clone(); 100];
            for turn in 0..3 {
                words.iter().for_each(|word| word.set(turn));
            }
            words.iter().for_each(Word::increment);
            assert_eq!(words[0].get(), 3, "it sees its own writes");
            machine::abort_transaction(Abort::Held);
            unreachable!("{}", mine.len());
        });
        assert_eq!(result, Err(Refusal::Aborted(Cause::Explicit(Abort::Held))));
        assert!(words.iter().all(|word| word.get() == 5));
        assert_eq!(Rc::strong_count(&owned), 2, "the section's values are dropped");
        assert!(!machine::in_transaction());
        // A new transaction is unaffected.
        let result = machine::transaction(|| words.iter().for_each(Word::increment));
        assert_eq!(result, Ok(()));
    });
    let counts = scenario.finish();
    assert!(words.iter().all(|word| word.get() == 6));
    assert_eq!((counts.commits, counts.explicit, Rc::strong_count(&kept)), (1, 1, 1));
}

#[test]
fn nested_transaction_joins_the_outermost() {
    let mut scenario = Scenario::new(&plain(Policy::Requester, 2));
    let [word] = scenario.words();
    let tries = Rc::new(Cell::new((0, 0)));
    let own = tries.clone();
    scenario.thread(0, move || {
        let result = machine::transaction(|| {
            own.set((own.get().0 + 1, own.get().1));
            let inner = machine::transaction(|| {
                own.set((own.get().0, own.get().1 + 1));
                word.increment();
            });
            assert_eq!(inner, Ok(()));
            assert!(machine::in_transaction());
            if own.get().0 == 1 {
                machine::work(1_000); // aborted here, at 500
            }
        });
        assert_eq!(result, Ok(()));
    });
    scenario.thread(500, move || assert_eq!(word.get(), 0, "the inner one has not committed"));
    let counts = scenario.finish();
    assert_eq!((tries.get(), word.get(), counts.commits), ((2, 2), 1, 1));
}

#[test]
fn capacity_abort_is_not_retried() {
    // 64 cache sets of 8 lines.
    let written = |which: fn(usize) -> bool| {
        let mut scenario = Scenario::new(&plain(Policy::Requester, 1));
        let words: Rc<[Word; 640]> = Rc::new(scenario.words());
        let own = words.clone();
        let result = Rc::new(Cell::new(None));
        let cell = result.clone();
        scenario.thread(0, move || {
            let lines = || {
                own.iter()
                    .enumerate()
                    .filter(|(number, _)| which(*number))
                    .for_each(|(_, word)| word.set(1))
            };
            cell.set(Some(machine::transaction(lines)));
        });
        let counts = scenario.finish();
        let result = result.take().expect("ended");
        assert_eq!(result.is_err(), counts.capacity == 1, "{counts:?}");
        assert_eq!(words.iter().any(|word| word.get() != 0), result.is_ok());
        result
    };
    assert_eq!(written(|number| number < 512), Ok(()));
    assert_eq!(written(|number| number < 513), Err(Refusal::Aborted(Cause::Capacity)));
    assert_eq!(written(|number| number % 64 == 0 && number < 512), Ok(()), "eight of one set");
    assert_eq!(
        written(|number| number % 64 == 0 && number < 576),
        Err(Refusal::Aborted(Cause::Capacity)),
        "nine"
    );
    assert!(
        Cause::Capacity.abort() == Abort::Hopeless && Cause::Conflict.abort() == Abort::Conflict
    );

    let mut parameters = plain(Policy::Requester, 1);
    parameters.transactions.as_mut().expect("it has some").read_lines = lines(10);
    for (count, expected) in [(10, Ok(())), (11, Err(Refusal::Aborted(Cause::Capacity)))] {
        let mut scenario = Scenario::new(&parameters);
        let words: [Word; 11] = scenario.words();
        scenario.thread(0, move || {
            let result =
                machine::transaction(|| words[..count].iter().for_each(|word| _ = word.get()));
            assert_eq!(result, expected);
        });
        scenario.finish();
    }
}

#[test]
fn system_call_aborts_without_retry() {
    type Call = fn(Word);
    let calls: [Call; 3] =
        [|_| machine::sleep(10), |_| machine::wait_for_io(10), |word| word.wake_one()];
    for call in calls {
        let mut scenario = Scenario::new(&plain(Policy::Requester, 1));
        let [word] = scenario.words();
        scenario.thread(0, move || {
            let result = machine::transaction(|| {
                word.set(1);
                call(word);
            });
            assert_eq!(result, Err(Refusal::Aborted(Cause::Call)));
            assert_eq!(word.get(), 0);
            call(word); // allowed outside a transaction
        });
        assert_eq!(scenario.finish().calls, 1);
    }
}

#[test]
fn preempted_transaction_is_retried() {
    let parameters = plain(Policy::Requester, 1);
    let mut scenario = Scenario::new(&parameters);
    let [word] = scenario.words();
    let tries = Rc::new(Cell::new(0));
    let own = tries.clone();
    scenario.thread(0, move || {
        let result = machine::transaction(|| {
            word.increment();
            if own.replace(own.get() + 1) == 0 {
                machine::work(30_000_000); // ten slices
            }
        });
        assert_eq!(result, Ok(()));
    });
    let seen = Rc::new(Cell::new(1));
    let cell = seen.clone();
    scenario.thread(0, move || {
        machine::work(1_000_000);
        cell.set(word.get());
        (0..10).for_each(|_| machine::work(1_000_000));
    });
    let counts = scenario.finish();
    assert_eq!(
        (tries.get(), counts.preempted, counts.conflicts, counts.commits),
        (2, 1, 0, 1),
        "{counts:?}"
    );
    assert_eq!((seen.get(), word.get()), (0, 1));
}
