//! Transactions alone. Lines are plain numbers, and cells are local variables.

use core::num::NonZeroU32;

use unconvoy::primitive::Abort;

use super::*;

fn transactions(policy: Policy, threads: u32) -> Transactions {
    let count = |count| NonZeroU32::new(count).expect("not 0");
    let mut transactions = Transactions::new(Some(parameters::Transactions {
        policy,
        read_lines: count(3),
        write_lines: count(4),
        write_ways: count(2),
        begin_ns: 1,
        commit_ns: 2,
        abort_ns: 30,
        backoff_first_ns: 0,
        backoff_limit_ns: 0,
    }));
    (0..threads).for_each(|_| transactions.add_thread());
    transactions
}

fn begin(transactions: &mut Transactions, thread: u32, now: u64) {
    transactions.begin(thread, now, ThreadState::default());
}

/// An access without conflict.
fn access(
    transactions: &mut Transactions,
    thread: u32,
    line: usize,
    access: Access,
) -> Option<Cause> {
    assert_eq!(transactions.opponents(thread, line, access), Ok(Vec::new()));
    transactions.add(thread, line, access)
}

#[test]
fn conflict_winner_depends_on_policy() {
    for (policy, of_the_older) in
        [(Policy::Requester, Ok(vec![0])), (Policy::Timestamp, Err(Cause::Conflict))]
    {
        let mut transactions = transactions(policy, 3);
        begin(&mut transactions, 0, 10);
        begin(&mut transactions, 1, 20);
        access(&mut transactions, 0, 5, Access::Store);
        assert_eq!(transactions.opponents(1, 5, Access::Load), of_the_older, "{policy:?}");
        access(&mut transactions, 1, 6, Access::Load);
        assert_eq!(transactions.opponents(0, 6, Access::Load), Ok(vec![]), "{policy:?}");
        assert_eq!(transactions.opponents(0, 6, Access::Store), Ok(vec![1]), "{policy:?}");
        assert_eq!(
            transactions.opponents(2, 5, Access::Load),
            Ok(vec![0]),
            "{policy:?}: the non-transactional access wins"
        );
    }
}

#[test]
fn age_lasts_from_first_attempt_to_commit() {
    let mut transactions = transactions(Policy::Timestamp, 2);
    begin(&mut transactions, 0, 10);
    begin(&mut transactions, 1, 20);
    transactions.undo(0, Cause::Conflict, 30);
    transactions.restart(0, Cause::Conflict);
    begin(&mut transactions, 0, 40);
    access(&mut transactions, 0, 5, Access::Store);
    assert_eq!(
        transactions.opponents(1, 5, Access::Store),
        Err(Cause::Conflict),
        "the first attempt began at 10"
    );
    transactions.commit(0);
    begin(&mut transactions, 0, 50);
    access(&mut transactions, 0, 5, Access::Store);
    assert_eq!(transactions.opponents(1, 5, Access::Store), Ok(vec![0]), "it began at 50");
}

#[test]
fn full_set_aborts() {
    let mut transactions = transactions(Policy::Requester, 1);
    begin(&mut transactions, 0, 0);
    let reads = [1, 2, 2, 3, 4].map(|line| access(&mut transactions, 0, line, Access::Load));
    assert_eq!(reads, [None, None, None, None, Some(Cause::Capacity)], "the set has three lines");
    // The write set has two sets of two ways.
    let writes = [10, 12, 11, 12, 14]
        .map(|line| access(&mut transactions, 0, line, Access::ReadModifyWrite));
    assert_eq!(writes, [None, None, None, None, Some(Cause::Capacity)], "three lines of one set");
}

#[test]
fn undo_restores_cells_and_state_in_reverse() {
    let mut transactions = transactions(Policy::Requester, 1);
    let mut cells = [1_u32, 2];
    let [one, other] = [0, 1].map(|place| (&raw mut cells[place]).cast::<u8>());
    transactions.begin(0, 100, ThreadState { polled: 7, ..ThreadState::default() });
    for (place, value) in [(one, 10_u32), (other, 20), (one, 30)] {
        // SAFETY: each `place` is an element of `cells`.
        unsafe {
            transactions.remember(0, place, 4);
            place.cast::<u32>().write(value);
        }
    }
    let undone = transactions.undo(0, Cause::Call, 150);
    assert_eq!((cells, undone.state.polled), ([1, 2], 7));
    assert_eq!(undone.cells, [one, other, one].map(|place| place.addr()));
    let counts = transactions.counts();
    assert_eq!((counts.calls, counts.aborts(), counts.commits, counts.wasted_ns), (1, 1, 0, 50));
}

#[test]
fn commit_keeps_writes_and_frees_lines() {
    let mut transactions = transactions(Policy::Requester, 2);
    let mut cell = 1_u64;
    begin(&mut transactions, 0, 0);
    assert!(transactions.begin_part(0) && transactions.watch_accesses());
    access(&mut transactions, 0, 5, Access::Store);
    // SAFETY: a local variable.
    unsafe { transactions.remember(0, (&raw mut cell).cast(), 8) };
    cell = 9;
    assert!(transactions.end_part(0) && !transactions.end_part(0));
    transactions.commit(0);
    assert!(
        !transactions.is_live(0) && !transactions.watch_accesses() && !transactions.begin_part(0)
    );
    begin(&mut transactions, 0, 10);
    transactions.undo(0, Cause::Explicit(Abort::Held), 20);
    assert_eq!(cell, 9);
    begin(&mut transactions, 1, 30);
    assert_eq!(transactions.opponents(1, 5, Access::Store), Ok(vec![]));
}

#[test]
fn pending_abort_is_reported_once() {
    let mut transactions = transactions(Policy::Requester, 1);
    begin(&mut transactions, 0, 0);
    transactions.undo(0, Cause::Preempted, 5);
    transactions.defer_abort(0, Cause::Preempted);
    assert!(!transactions.is_live(0) && transactions.have_pending_aborts());
    assert_eq!(
        [transactions.take_pending_abort(0), transactions.take_pending_abort(0)],
        [Some(Cause::Preempted), None]
    );
    transactions.restart(0, Cause::Preempted);
    assert_eq!(transactions.attempts(0).aborts, [Cause::Preempted]);
    assert!(!transactions.have_pending_aborts());
}

#[test]
fn accesses_are_recorded_only_with_a_set() {
    let mut transactions = transactions(Policy::Requester, 1);
    assert_eq!(transactions.exchange_recorded(0, Some(Box::default())), None);
    assert!(transactions.watch_accesses());
    transactions.record(0, 64, 1, Access::Load);
    transactions.record(0, 136, 2, Access::ReadModifyWrite);
    let set = transactions.exchange_recorded(0, None).expect("recorded");
    transactions.record(0, 192, 3, Access::Load);
    assert_eq!((set.read_lines, set.written_words), ([1, 2].into(), [136].into()));
    assert!(!transactions.watch_accesses());
}
