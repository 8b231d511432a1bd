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

use crate::model::{Guarded, explore, explore_for, time_that};

/// Two threads that wait, and one that leaves: each acquisition is exclusive, the leaver is not
/// handed the lock, and nobody waits for ever.
fn exclusion_with_a_leaver<C: Contention + 'static>() {
    explore(2, || {
        let shared = Guarded::<C>::new();
        assert!(shared.visit(u32::MAX)); // what the first use does beyond is another model's
        let threads: Vec<_> = [u32::MAX, 0]
            .map(|bound| {
                let shared = shared.clone();
                thread::spawn(move || shared.visit(bound))
            })
            .into();
        let mut visits = 1 + u32::from(shared.visit(u32::MAX));
        visits += threads.into_iter().map(|thread| u32::from(thread.join().expect("no panics"))).sum::<u32>();
        // SAFETY: all threads have ended.
        assert_eq!(shared.cell.with(|cell| unsafe { *cell }), visits);
        assert!(!shared.lock.is_locked());
        assert!(visits >= 3);
        shared.leaves_no_node();
    });
}

macro_rules! exclusive {
    ($($test:ident: $lock:ident, $hurries:literal;)*) => {
        $(
            #[test]
            fn $test() {
                let _time = time_that($hurries);
                exclusion_with_a_leaver::<$lock<Checked>>();
            }
        )*
    };
}

// The last column: whether time passes, for locks whose waits between polls are by the clock.
exclusive! {
    mcs_is_exclusive_and_forgets_nobody: Mcs, false;
    tpmcs_is_exclusive_and_forgets_nobody: TpMcs, false;
    clh_is_exclusive_and_forgets_nobody: Clh, false;
    ticket_is_exclusive_and_forgets_nobody: Ticket, false;
    ticket_backoff_is_exclusive_and_forgets_nobody: TicketBackoff, true;
    requester_is_exclusive_and_forgets_nobody: Requester, false;
    ttas_is_exclusive: Ttas, true;
    tas_is_exclusive: Tas, false;
}

/// Two that leave, one at once and one after a look, around one that stays.
#[test]
fn clh_leavers_meet_each_other_and_a_release() {
    let _time = time_that(false);
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
        shared.leaves_no_node();
    });
}

/// A parked bit that is set in the middle of a release, with a waiter behind and without: the release is
/// taken back, though the node is gone already.
#[test]
fn clh_releases_again_after_a_parked_bit() {
    let _time = time_that(false);
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
            shared.leaves_no_node();
        });
    }
}

/// Threads that meet at a lock which is all zeroes: one of them makes it this process's, and the tickets that the others
/// draw meanwhile stay theirs. (There are too many interleavings of three threads that poll. One in which tickets were lost,
/// because a late third one began the lock's life again, was among the first thousand.)
#[test]
fn the_first_users_of_a_ticket_lock_keep_their_tickets() {
    let _time = time_that(false);
    explore_for(Duration::from_secs(15), 2, || {
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

/// Two threads, of which one is always taken for preempted: it is skipped, finds itself removed,
/// and rejoins.
#[test]
fn tpmcs_skips_and_takes_back_stale_waiters() {
    let _time = time_that(true);
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

/// A waiter that leaves while a releaser takes it for stale: its node finds one owner. (Two
/// threads: where everybody is always stale, two waiters could make a releaser skip them for ever.)
#[test]
fn tpmcs_leaving_meets_skipping() {
    let _time = time_that(true);
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
