//! Waiters that park at a lock or sit in its passive set.

use std::sync::Arc;
use std::time::Duration;

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

use crate::model::{Guarded, explore, explore_for, soon, time_that};

/// Parking: the releaser sees the parked bit or the parker sees the release; a wake-up that is lost would
/// be a deadlock here.
fn nobody_is_forgotten<C: Contention + 'static, L: LoadManager>() {
    let _time = time_that(true); // every turn is beyond every bound, so that every waiter parks
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
            nobody_is_forgotten::<$lock<Checked>, Park>();
        })*
    };
}

parking! {
    parking_on_ttas_loses_no_wake_up: Ttas;
    parking_on_tas_loses_no_wake_up: Tas;
    parking_on_tpmcs_loses_no_wake_up: TpMcs;
    parking_on_clh_loses_no_wake_up: Clh;
    parking_on_loiter_loses_no_wake_up: Loiter;
}

/// A holder, a waiter whose deadline passes while it polls or is parked, and one that waits for as
/// long as it takes: a wake-up that is spent on the first must get to the second.
fn a_waiter_that_gives_up_passes_its_wake_up_on<C, L>()
where
    C: Contention + 'static,
    L: LoadManager,
{
    let _time = time_that(true);
    explore_for(Duration::from_secs(10), 2, || {
        let shared = Arc::new((Guarded::<C>::new(), Eventcount::<Checked>::new()));
        let visit = |shared: &(Arc<Guarded<C>>, Eventcount<Checked>), deadline| {
            let (guarded, eventcount) = shared;
            let held = lock::acquire::<Checked, C, L>(&guarded.lock, eventcount, None, deadline).held;
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
        assert!(held[0], "nothing ends its wait but the lock");
        assert!(!shared.0.lock.is_locked());
    });
}

#[test]
fn giving_up_while_parked_loses_no_wake_up() {
    a_waiter_that_gives_up_passes_its_wake_up_on::<Ttas<Checked>, Park>();
}

#[test]
fn giving_up_while_parked_behind_a_queue_loses_no_wake_up() {
    a_waiter_that_gives_up_passes_its_wake_up_on::<Mcs<Checked>, Park>();
}

#[test]
fn giving_up_in_a_passive_set_loses_no_wake_up() {
    a_waiter_that_gives_up_passes_its_wake_up_on::<Ttas<Checked>, Gcr>();
}

/// A waiter that contends, and one that is kept from it or parks.
#[test]
fn restricted_waiters_get_the_lock() {
    nobody_is_forgotten::<Ttas<Checked>, Gcr>();
    nobody_is_forgotten::<Ttas<Checked>, Malthus>();
}

/// All who sit become the watcher or leave, whoever else leaves meanwhile; the set is empty in the end.
#[test]
fn a_passive_set_always_has_a_watcher() {
    let _time = time_that(false);
    for order in [Order::FirstComeFirstServed, Order::LastComeFirstServed] {
        explore(3, move || {
            let sets = Arc::new(PassiveSets::<Checked>::new());
            let sit = move |sets: &PassiveSets<Checked>, deadline| {
                if let Some(place) = sets.sit(0, order) {
                    assert!(sets.wait_to_watch(&place, deadline) || deadline.is_some());
                    sets.stand_up(place, order == Order::LastComeFirstServed);
                }
            };
            let others = [None, Some(0)].map(|deadline| {
                let sets = sets.clone();
                thread::spawn(move || sit(&sets, deadline))
            });
            sit(&sets, None);
            others.into_iter().for_each(|thread| thread.join().expect("no panics"));
            let place = sets.sit(0, order).expect("every seat was given back");
            assert!(sets.wait_to_watch(&place, Some(0)), "alone, hence the watcher");
            sets.stand_up(place, false);
        });
    }
}
