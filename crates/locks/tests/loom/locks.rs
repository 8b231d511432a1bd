//! The contention managers.

use std::time::Duration;

use loom::thread;
use unconvoy::contention::Contention;
use unconvoy::contention::clh::Clh;
use unconvoy::contention::mcs::Mcs;
use unconvoy::contention::requester::Requester;
use unconvoy::contention::tas::Tas;
use unconvoy::contention::ticket::{Ticket, TicketBackoff};
use unconvoy::contention::tpmcs::TpMcs;
use unconvoy::contention::ttas::Ttas;
use unconvoy::primitive::Checked;
use unconvoy::primitive::turn::{Outcome, Verdict};

use crate::model::{Guarded, explore, explore_for, set_time};

/// Two waiters and a thread that leaves: acquisitions are exclusive, the leaver is not handed the
/// lock, and no thread waits forever.
fn assert_exclusion_with_a_leaver<C: Contention + 'static>() {
    explore(2, || {
        let shared = Guarded::<C>::new();
        assert!(shared.visit(u32::MAX)); // the first use of a lock has a model of its own
        let threads: Vec<_> = [u32::MAX, 0]
            .map(|bound| {
                let shared = shared.clone();
                thread::spawn(move || shared.visit(bound))
            })
            .into();
        let mut visits = 1 + u32::from(shared.visit(u32::MAX));
        visits += threads
            .into_iter()
            .map(|thread| u32::from(thread.join().expect("no panics")))
            .sum::<u32>();
        // SAFETY: all threads have ended.
        assert_eq!(shared.cell.with(|cell| unsafe { *cell }), visits);
        assert!(!shared.lock.is_locked());
        assert!(visits >= 3);
        shared.assert_no_node_is_out();
    });
}

macro_rules! exclusive {
    ($($test:ident: $lock:ident, $hurries:literal;)*) => {
        $(
            #[test]
            fn $test() {
                let _time = set_time($hurries);
                assert_exclusion_with_a_leaver::<$lock<Checked>>();
            }
        )*
    };
}

// The last column: whether time passes, for locks that time their waits between polls.
exclusive! {
    mcs_with_a_leaver_is_exclusive: Mcs, false;
    tpmcs_with_a_leaver_is_exclusive: TpMcs, false;
    clh_with_a_leaver_is_exclusive: Clh, false;
    ticket_with_a_leaver_is_exclusive: Ticket, false;
    ticket_backoff_with_a_leaver_is_exclusive: TicketBackoff, true;
    requester_with_a_leaver_is_exclusive: Requester, false;
    ttas_with_a_leaver_is_exclusive: Ttas, true;
    tas_with_a_leaver_is_exclusive: Tas, false;
}

/// One thread leaves at once and another after one turn, while a third stays.
#[test]
fn clh_leavers_during_a_release_leak_no_node() {
    let _time = set_time(false);
    explore(4, || {
        let shared = Guarded::<Clh<Checked>>::new();
        let leavers: Vec<_> = [0, 1]
            .map(|bound| {
                let shared = shared.clone();
                thread::spawn(move || shared.visit(bound))
            })
            .into();
        assert!(shared.visit(u32::MAX));
        leavers.into_iter().for_each(|thread| _ = thread.join().expect("no panics"));
        assert!(!shared.lock.is_locked());
        // A node that was left behind in the tail does not look like a waiter.
        assert!(shared.lock.try_lock());
        shared.release();
        shared.assert_no_node_is_out();
    });
}

/// A `try_lock` that finds a queue joins it, and leaves it again while others hold, wait and leave.
#[test]
fn clh_try_lock_beside_a_waiter_and_a_leaver_is_exclusive() {
    let _time = set_time(false);
    explore(3, || {
        let shared = Guarded::<Clh<Checked>>::new();
        let others: Vec<_> = [u32::MAX, 0]
            .map(|bound| {
                let shared = shared.clone();
                thread::spawn(move || _ = shared.visit(bound))
            })
            .into();
        if shared.lock.try_lock() {
            shared.release();
        }
        others.into_iter().for_each(|thread| thread.join().expect("no panics"));
        assert!(!shared.lock.is_locked());
        assert!(shared.lock.try_lock(), "no thread is left in the queue");
        shared.release();
        shared.assert_no_node_is_out();
    });
}

/// The parked bit is set during a release, with and without a waiter: the release is undone
/// although the node is already gone.
#[test]
fn clh_release_with_concurrent_parked_bit_is_retried() {
    let _time = set_time(false);
    for waiters in [0, 1] {
        explore(3, move || {
            let shared = Guarded::<Clh<Checked>>::new();
            assert_eq!(shared.lock.attempt(&mut |_| Verdict::Spin), Outcome::Acquired);
            let parker = {
                let shared = shared.clone();
                thread::spawn(move || _ = shared.lock.set_parked_bit())
            };
            let waiters: Vec<_> = (0..waiters)
                .map(|_| {
                    let shared = shared.clone();
                    thread::spawn(move || assert!(shared.visit(u32::MAX)))
                })
                .collect();
            shared.release();
            parker.join().expect("no panics");
            waiters.into_iter().for_each(|waiter| waiter.join().expect("no panics"));
            assert!(!shared.lock.is_locked());
            shared.assert_no_node_is_out();
        });
    }
}

/// The first of several threads to meet an all-zero lock sets its generation; tickets drawn
/// meanwhile stay valid. Three polling threads have too many interleavings to explore. The
/// regression that this test guards against (a late third thread reset the lock again, and tickets
/// were lost) appears within the first thousand.
#[test]
fn ticket_first_users_keep_their_tickets() {
    let _time = set_time(false);
    explore_for(Some(Duration::from_secs(15)), 2, || {
        let shared = Guarded::<Ticket<Checked>>::new();
        let tries = {
            let shared = shared.clone();
            thread::spawn(move || {
                if shared.lock.try_lock() {
                    shared.section();
                }
            })
        };
        let waits = {
            let shared = shared.clone();
            thread::spawn(move || shared.visit(u32::MAX))
        };
        assert!(shared.visit(u32::MAX) && waits.join().expect("no panics"));
        tries.join().expect("no panics");
        assert!(!shared.lock.is_locked());
    });
}

/// One of two threads always looks preempted: it is skipped, finds itself removed, and rejoins.
#[test]
fn tpmcs_stale_waiter_is_skipped_and_rejoins() {
    let _time = set_time(true);
    explore(3, || {
        let shared = Guarded::<TpMcs<Checked>>::new();
        let other = {
            let shared = shared.clone();
            thread::spawn(move || shared.visit(u32::MAX))
        };
        assert!(shared.visit(u32::MAX));
        assert!(other.join().expect("no panics"));
    });
}

/// A waiter leaves while a releaser skips it as stale: its node is returned once. With more than
/// two threads, two waiters that are always stale could make a releaser skip them forever.
#[test]
fn tpmcs_leaver_during_a_skip_returns_one_node() {
    let _time = set_time(true);
    explore(4, || {
        let shared = Guarded::<TpMcs<Checked>>::new();
        let leaver = {
            let shared = shared.clone();
            thread::spawn(move || shared.visit(1))
        };
        assert!(shared.visit(u32::MAX));
        let visits = 1 + u32::from(leaver.join().expect("no panics"));
        // SAFETY: the other thread has ended.
        assert_eq!(shared.cell.with(|cell| unsafe { *cell }), visits);
        assert!(!shared.lock.is_locked());
    });
}
