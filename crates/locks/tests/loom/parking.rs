//! Waiters that park at a lock or join its passive set.

use std::sync::Arc;
use std::time::Duration;

use loom::sync::atomic::AtomicU32;
use loom::sync::atomic::Ordering::AcqRel;
use loom::thread;
use unconvoy::contention::Contention;
use unconvoy::contention::clh::Clh;
use unconvoy::contention::loiter::Loiter;
use unconvoy::contention::mcs::Mcs;
use unconvoy::contention::tas::Tas;
use unconvoy::contention::tpmcs::TpMcs;
use unconvoy::contention::ttas::Ttas;
use unconvoy::load::LoadManager;
use unconvoy::load::park::Park;
use unconvoy::load::passive::{Order, PassiveSets};
use unconvoy::load::restrict::{Gcr, Malthus};
use unconvoy::lock;
use unconvoy::parking::eventcount::Eventcount;
use unconvoy::primitive::Checked;
use unconvoy::queue::checked::nodes_out;

use crate::model::{Guarded, explore, explore_for, set_time, soon};

/// The releaser sees the parked bit, or the parker sees the release. A lost wake-up would be a
/// deadlock.
fn assert_both_threads_acquire<C: Contention + 'static, L: LoadManager>() {
    let _time = set_time(true); // every turn exceeds every bound, so every waiter parks
    explore(2, || {
        let shared = Arc::new((Guarded::<C>::new(), Eventcount::<Checked>::new()));
        let visit = |shared: &(Arc<Guarded<C>>, Eventcount<Checked>)| {
            let (guarded, eventcount) = shared;
            if !guarded.lock.try_lock() {
                assert!(lock::acquire::<Checked, C, L>(&guarded.lock, eventcount, None, None).held);
            }
            // SAFETY: under the lock.
            guarded.cell.with_mut(|cell| unsafe { *cell += 1 });
            // SAFETY: held.
            unsafe { lock::release::<Checked, C>(&guarded.lock, eventcount) };
        };
        let other = {
            let shared = shared.clone();
            thread::spawn(move || visit(&shared))
        };
        visit(&shared);
        other.join().expect("no panics");
        // SAFETY: the other thread has ended.
        assert_eq!(shared.0.cell.with(|cell| unsafe { *cell }), 2);
    });
}

macro_rules! parking {
    ($($test:ident: $lock:ident;)*) => {
        $(#[test]
        fn $test() {
            assert_both_threads_acquire::<$lock<Checked>, Park>();
        })*
    };
}

parking! {
    ttas_parked_waiter_is_woken: Ttas;
    tas_parked_waiter_is_woken: Tas;
    tpmcs_parked_waiter_is_woken: TpMcs;
    clh_parked_waiter_is_woken: Clh;
    loiter_parked_waiter_is_woken: Loiter;
}

/// A holder, a waiter with a deadline that passes while it polls or is parked, and a waiter without
/// a deadline: a wake-up that reaches the first waiter must pass to the second.
fn assert_timed_out_waiter_passes_its_wake_up_on<C, L>()
where
    C: Contention + 'static,
    L: LoadManager,
{
    let _time = set_time(true);
    explore_for(Some(Duration::from_secs(10)), 2, || {
        let shared = Arc::new((Guarded::<C>::new(), Eventcount::<Checked>::new()));
        let visit = |shared: &(Arc<Guarded<C>>, Eventcount<Checked>), deadline| {
            let (guarded, eventcount) = shared;
            let held =
                lock::acquire::<Checked, C, L>(&guarded.lock, eventcount, None, deadline).held;
            if held {
                // SAFETY: under the lock.
                guarded.cell.with_mut(|cell| unsafe { *cell += 1 });
                // SAFETY: held.
                unsafe { lock::release::<Checked, C>(&guarded.lock, eventcount) };
            }
            held
        };
        assert!(shared.0.lock.try_lock());
        let threads = [None, Some(soon())].map(|deadline| {
            let shared = shared.clone();
            thread::spawn(move || visit(&shared, deadline))
        });
        // SAFETY: held since above.
        unsafe { lock::release::<Checked, C>(&shared.0.lock, &shared.1) };
        let held = threads.map(|thread| thread.join().expect("no panics"));
        assert!(held[0], "a wait without a deadline ends with the lock");
        assert!(!shared.0.lock.is_locked());
    });
}

#[test]
fn time_out_while_parked_loses_no_wake_up() {
    assert_timed_out_waiter_passes_its_wake_up_on::<Ttas<Checked>, Park>();
}

#[test]
fn time_out_while_parked_behind_a_queue_loses_no_wake_up() {
    assert_timed_out_waiter_passes_its_wake_up_on::<Mcs<Checked>, Park>();
}

#[test]
fn time_out_in_a_passive_set_loses_no_wake_up() {
    assert_timed_out_waiter_passes_its_wake_up_on::<Ttas<Checked>, Gcr>();
}

/// One waiter contends; another is kept out or parks.
#[test]
fn restricted_waiters_acquire_the_lock() {
    assert_both_threads_acquire::<Ttas<Checked>, Gcr>();
    assert_both_threads_acquire::<Ttas<Checked>, Malthus>();
}

/// Every thread of a passive set becomes the watcher or leaves, and the set is empty at the end.
///
/// A third thread stays out while two are members: loom lets three threads that wait for one latch
/// yield to each other without end.
#[test]
fn passive_set_with_leavers_always_has_a_watcher() {
    let _time = set_time(false);
    for order in [Order::FirstComeFirstServed, Order::LastComeFirstServed] {
        explore(3, move || {
            let shared = Arc::new((PassiveSets::<Checked>::new(), AtomicU32::new(0)));
            let wait = move |shared: &(PassiveSets<Checked>, AtomicU32), deadline| {
                let (sets, members) = shared;
                if members.fetch_add(1, AcqRel) < 2 {
                    let membership = sets.join_set(0, order);
                    assert!(sets.wait_for_front(&membership, deadline) || deadline.is_some());
                    sets.leave_set(membership, order == Order::LastComeFirstServed);
                }
                members.fetch_sub(1, AcqRel);
            };
            let others = [None, Some(0)].map(|deadline| {
                let shared = shared.clone();
                thread::spawn(move || wait(&shared, deadline))
            });
            wait(&shared, None);
            others.into_iter().for_each(|thread| thread.join().expect("no panics"));
            let (sets, _) = &*shared;
            let membership = sets.join_set(0, order);
            assert!(sets.wait_for_front(&membership, Some(0)), "the only member is the watcher");
            sets.leave_set(membership, false);
            assert_eq!(nodes_out(), 0);
        });
    }
}
