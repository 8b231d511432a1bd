//! Every interleaving, within loom's bounds, of the shipped sources of the queue locks, the gate
//! and the sleep-slot buffer.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p unconvoy --test loom --release`; without the flag there is
//! nothing here.
#![cfg(loom)]

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::thread;
use unconvoy::contention::Contention;
use unconvoy::contention::clh::Clh;
use unconvoy::contention::loiter::Loiter;
use unconvoy::contention::mcs::Mcs;
use unconvoy::contention::requester::Requester;
use unconvoy::contention::rw::{RwWord, Share};
use unconvoy::contention::tas::Tas;
use unconvoy::contention::ticket::{Ticket, TicketBackoff};
use unconvoy::contention::tpmcs::TpMcs;
use unconvoy::contention::ttas::Ttas;
use unconvoy::load::LoadControl;
use unconvoy::load::LoadManager;
use unconvoy::load::park::Park;
use unconvoy::load::passive::{Order, PassiveSets};
use unconvoy::load::restrict::{Gcr, Malthus};
use unconvoy::lock;
use unconvoy::parking::eventcount::Eventcount;
use unconvoy::parking::slots::SleepSlots;
use unconvoy::primitive::Clock as _;
use unconvoy::primitive::checked::{Checked, set_hurried};
use unconvoy::primitive::turn::{Outcome, Verdict};
use unconvoy::queue::checked::nodes_out;

/// Sets how time passes, and keeps the other tests of this process out until the guard goes: the
/// model's clock is one.
fn time_that(hurries: bool) -> std::sync::MutexGuard<'static, ()> {
    static CLOCK: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let guard = CLOCK.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    set_hurried(hurries);
    guard
}

/// Explores `body` with at most `preemptions` forced switches per execution: bugs of locks need few
/// (CHESS, Musuvathi and Qadeer 2007).
fn explore(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(body);
}

/// As [`explore`], of what comes first in `length`.
fn explore_for(length: Duration, preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.max_duration = Some(length);
    builder.check(body);
}

/// A lock and the cell that it guards; loom reports two accesses to the cell that nothing orders.
struct Guarded<C> {
    lock: C,
    cell: UnsafeCell<u32>,
}

// SAFETY: the cell is accessed under the lock, which is what is tested.
unsafe impl<C: Sync> Sync for Guarded<C> {}

impl<C: Contention> Guarded<C> {
    fn new() -> Arc<Self> {
        Arc::new(Guarded { lock: C::unlocked(), cell: UnsafeCell::new(0) })
    }

    fn section(&self) {
        // SAFETY: under the lock.
        self.cell.with_mut(|cell| unsafe { *cell += 1 });
        self.release();
    }

    /// Releases a lock that the caller holds, whoever marks it meanwhile.
    fn release(&self) {
        // SAFETY: held by the caller, also after an `unlock` that found it marked.
        unsafe {
            while !self.lock.unlock() {
                self.lock.clear_mark();
            }
        }
    }

    /// Locks with a waiter that leaves after `patience` turns; whether it ever held the lock.
    fn visit(&self, patience: u32) -> bool {
        let mut turns = 0;
        let outcome = self.lock.attempt(&mut |_| {
            turns += 1;
            if turns > patience { Verdict::Leave } else { Verdict::Spin }
        });
        if outcome == Outcome::Acquired {
            self.section();
        }
        outcome == Outcome::Acquired
    }

    /// All threads have ended: every node has been given back. (After one more visit, since a CLH
    /// lock may keep what was left behind its last holder for the next to find.)
    fn leaves_no_node(&self) {
        assert!(self.visit(u32::MAX));
        assert_eq!(nodes_out(), 0);
    }
}

/// Two threads that wait, and one that leaves: each acquisition is exclusive, the leaver is not
/// handed the lock, and nobody waits for ever.
fn exclusion_with_a_leaver<C: Contention + 'static>() {
    explore(2, || {
        let shared = Guarded::<C>::new();
        assert!(shared.visit(u32::MAX)); // what the first use does beyond is another model's
        let threads: Vec<_> = [u32::MAX, 0]
            .map(|patience| {
                let shared = shared.clone();
                thread::spawn(move || shared.visit(patience))
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

#[test]
fn mcs_is_exclusive_and_forgets_nobody() {
    let _time = time_that(false);
    exclusion_with_a_leaver::<Mcs<Checked>>();
}

#[test]
fn tpmcs_is_exclusive_and_forgets_nobody() {
    let _time = time_that(false);
    exclusion_with_a_leaver::<TpMcs<Checked>>();
}

#[test]
fn clh_is_exclusive_and_forgets_nobody() {
    let _time = time_that(false);
    exclusion_with_a_leaver::<Clh<Checked>>();
}

/// Two that leave, one at once and one after a look, around one that stays.
#[test]
fn clh_leavers_meet_each_other_and_a_release() {
    let _time = time_that(false);
    explore(4, || {
        let shared = Guarded::<Clh<Checked>>::new();
        let leavers: Vec<_> = [0, 1]
            .map(|patience| {
                let shared = shared.clone();
                thread::spawn(move || shared.visit(patience))
            })
            .into();
        assert!(shared.visit(u32::MAX));
        leavers.into_iter().for_each(|thread| _ = thread.join().expect("no panics"));
        assert!(!shared.lock.is_locked());
        shared.leaves_no_node();
    });
}

/// A mark that comes in the middle of a release, with a waiter behind and without: the release is
/// taken back, though the node is gone already.
#[test]
fn clh_releases_again_after_a_mark() {
    let _time = time_that(false);
    for waiters in [0, 1] {
        explore(3, move || {
            let shared = Guarded::<Clh<Checked>>::new();
            assert_eq!(shared.lock.attempt(&mut |_| Verdict::Spin), Outcome::Acquired);
            let marker = {
                let shared = shared.clone();
                thread::spawn(move || _ = shared.lock.mark())
            };
            let waiters: Vec<_> = (0..waiters)
                .map(|_| {
                    let shared = shared.clone();
                    thread::spawn(move || assert!(shared.visit(u32::MAX)))
                })
                .collect();
            shared.release();
            marker.join().expect("no panics");
            waiters.into_iter().for_each(|waiter| waiter.join().expect("no panics"));
            assert!(!shared.lock.is_locked());
            shared.leaves_no_node();
        });
    }
}

#[test]
fn ticket_is_exclusive_and_forgets_nobody() {
    let _time = time_that(false);
    exclusion_with_a_leaver::<Ticket<Checked>>();
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

#[test]
fn ticket_backoff_is_exclusive_and_forgets_nobody() {
    let _time = time_that(true); // its waits between polls are by the clock
    exclusion_with_a_leaver::<TicketBackoff<Checked>>();
}

#[test]
fn requester_is_exclusive_and_forgets_nobody() {
    let _time = time_that(false);
    exclusion_with_a_leaver::<Requester<Checked>>();
}

#[test]
fn ttas_is_exclusive() {
    let _time = time_that(true); // its backoff is by the clock
    exclusion_with_a_leaver::<Ttas<Checked>>();
}

#[test]
fn tas_is_exclusive() {
    let _time = time_that(false);
    exclusion_with_a_leaver::<Tas<Checked>>();
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

/// Parking: the releaser sees the mark or the parker sees the release; a wake-up that is lost would
/// be a deadlock here.
fn nobody_is_forgotten<C: Contention + 'static, L: LoadManager>() {
    let _time = time_that(true); // every turn is beyond all patience, so that every waiter parks
    explore(2, || {
        let shared = Arc::new((Guarded::<C>::new(), Eventcount::<Checked>::new()));
        let visit = |shared: &(Arc<Guarded<C>>, Eventcount<Checked>)| {
            let (guarded, gate) = shared;
            if !guarded.lock.try_lock() {
                assert!(lock::acquire::<Checked, C, L>(&guarded.lock, gate, None).held);
            }
            // SAFETY: under the lock.
            guarded.cell.with_mut(|cell| unsafe { *cell += 1 });
            // SAFETY: held.
            unsafe { lock::release::<Checked, C>(&guarded.lock, gate) };
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

fn no_parker_is_forgotten<C: Contention + 'static>() {
    nobody_is_forgotten::<C, Park>();
}

/// A deadline that passes after a few looks at a clock that hurries: a thread has time to park
/// before it.
fn soon() -> u64 {
    Checked::now() + 3_000_000_000
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
            let (guarded, gate) = shared;
            let held = lock::acquire::<Checked, C, L>(&guarded.lock, gate, deadline).held;
            if held {
                // SAFETY: under the lock.
                guarded.cell.with_mut(|cell| unsafe { *cell += 1 });
                // SAFETY: held.
                unsafe { lock::release::<Checked, C>(&guarded.lock, gate) };
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

/// A holder that goes to sleep for load while a waiter begins to expect it: no time passes and no controller comes, so
/// that a holder which slept on would be a deadlock.
#[test]
fn an_expected_holder_does_not_sleep() {
    const HOLDER: u32 = 7;
    let _time = time_that(false);
    explore(3, || {
        let control = Arc::new(LoadControl::<Checked>::new());
        control.slots.set_target(1);
        let holder = {
            let control = control.clone();
            thread::spawn(move || {
                let Some(claim) = control.slots.claim(HOLDER) else { return };
                if control.pinned.is_pinned(HOLDER, 0) {
                    control.slots.give_back(claim);
                } else {
                    control.slots.sleep(claim, u64::MAX);
                }
            })
        };
        let expected = control.pinned.pin(HOLDER, &control.slots, 1);
        holder.join().expect("no panics");
        control.pinned.end(expected);
        assert!(!control.pinned.is_pinned(HOLDER, 0));
        assert_eq!(control.slots.sleeping(), 0);
    });
}

#[test]
fn parking_on_ttas_loses_no_wake_up() {
    no_parker_is_forgotten::<Ttas<Checked>>();
}

#[test]
fn parking_on_tas_loses_no_wake_up() {
    no_parker_is_forgotten::<Tas<Checked>>();
}

#[test]
fn parking_on_tpmcs_loses_no_wake_up() {
    no_parker_is_forgotten::<TpMcs<Checked>>();
}

#[test]
fn parking_on_clh_loses_no_wake_up() {
    no_parker_is_forgotten::<Clh<Checked>>();
}

#[test]
fn parking_on_loiter_loses_no_wake_up() {
    no_parker_is_forgotten::<Loiter<Checked>>();
}

/// Claimers against a controller that raises and drops the target. Nobody times out in this model,
/// so that a thread which slept beyond a target of 0 would be a deadlock; and S and W agree in the
/// end.
#[test]
fn sleep_slots_lose_no_wake_up_and_keep_count() {
    let _time = time_that(false);
    explore(3, || {
        let slots = Arc::new(SleepSlots::<Checked>::new());
        let sleepers: Vec<_> = [1, 2]
            .map(|id| {
                let slots = slots.clone();
                thread::spawn(move || {
                    if slots.has_room()
                        && let Some(claim) = slots.claim(id)
                    {
                        slots.sleep(claim, u64::MAX);
                    }
                })
            })
            .into();
        slots.set_target(1);
        assert!(slots.target() == 1);
        slots.set_target(0);
        sleepers.into_iter().for_each(|thread| thread.join().expect("no panics"));
        let totals = slots.totals();
        assert_eq!(totals.slept, totals.left);
        assert_eq!(slots.sleeping(), 0);
    });
}

/// A claim that is given back while the controller clears it is counted once.
#[test]
fn giving_back_meets_waking() {
    let _time = time_that(false);
    explore(3, || {
        let slots = Arc::new(SleepSlots::<Checked>::new());
        slots.set_target(1);
        let claimer = {
            let slots = slots.clone();
            thread::spawn(move || slots.claim(7).map(|claim| slots.give_back(claim)).is_some())
        };
        slots.set_target(0);
        claimer.join().expect("no panics");
        let totals = slots.totals();
        assert_eq!(totals.slept, totals.left);
        assert!(totals.woken + totals.given_back <= totals.slept);
        slots.set_target(0);
        assert_eq!(slots.sleeping(), 0);
    });
}

/// A waiter that lets a sleeper go, again and again, while that one may be about to sleep: it is woken, or does not
/// sleep. Nobody else would wake it.
#[test]
fn letting_one_go_meets_a_claim() {
    let _time = time_that(false);
    explore(3, || {
        let slots = Arc::new(SleepSlots::<Checked>::new());
        let awake = Arc::new(loom::sync::atomic::AtomicBool::new(false));
        slots.raise_target(1);
        let sleeper = {
            let (slots, awake) = (slots.clone(), awake.clone());
            thread::spawn(move || {
                if let Some(claim) = slots.claim(7) {
                    slots.sleep(claim, u64::MAX);
                }
                awake.store(true, Release);
            })
        };
        while !awake.load(Acquire) {
            slots.let_one_go();
            thread::yield_now();
        }
        sleeper.join().expect("no panics");
        assert_eq!(slots.totals().slept, slots.totals().left);
        assert!(
            slots.target() + slots.totals().slept <= 1 + slots.totals().given_back,
            "a place that was let go is gone"
        );
    });
}

/// Two waiters that let one go at a time, and one that raises the target: it ends where somebody put it, and nobody
/// sleeps beyond it.
#[test]
fn letting_go_meets_raising() {
    let _time = time_that(false);
    explore(3, || {
        let slots = Arc::new(SleepSlots::<Checked>::new());
        slots.raise_target(1);
        let claim = slots.claim(7).expect("room for one");
        let others: Vec<_> = [false, true]
            .map(|raises| {
                let slots = slots.clone();
                thread::spawn(move || if raises { slots.raise_target(2) } else { slots.let_one_go() })
            })
            .into();
        slots.let_one_go();
        others.into_iter().for_each(|thread| thread.join().expect("no panics"));
        assert!(slots.sleeping() <= slots.target());
        slots.give_back(claim);
        assert_eq!((slots.sleeping(), slots.totals().slept, slots.totals().left), (0, 1, 1));
    });
}

/// The array wraps around: slots are used again, and never by two claims at a time.
#[test]
fn slots_are_used_again_after_the_array_wrapped_around() {
    let _time = time_that(false);
    explore(2, || {
        let slots = Arc::new(SleepSlots::<Checked>::new());
        slots.set_target(1);
        let claimer = {
            let slots = slots.clone();
            thread::spawn(move || (0..4).filter_map(|_| slots.claim(9)).map(|claim| slots.give_back(claim)).count())
        };
        slots.set_target(1);
        slots.set_target(1);
        assert!(claimer.join().expect("no panics") <= 4);
        assert_eq!(slots.totals().slept, slots.totals().left);
    });
}

/// A reader-writer lock and the cell that it guards.
struct Shared {
    lock: RwWord<Checked>,
    gate: Eventcount<Checked>,
    cell: UnsafeCell<u32>,
}

// SAFETY: the cell is accessed under the lock, which is what is tested.
unsafe impl Sync for Shared {}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Shared { lock: RwWord::unlocked(), gate: Eventcount::new(), cell: UnsafeCell::new(0) })
    }

    /// Looks or changes while the lock is held, and releases it.
    fn section(&self, share: Share) -> u32 {
        let seen = match share {
            // SAFETY: no reader and no other writer is inside.
            Share::Write => self.cell.with_mut(|cell| unsafe {
                *cell += 1;
                *cell
            }),
            // SAFETY: no writer is inside.
            _ => self.cell.with(|cell| unsafe { *cell }),
        };
        // SAFETY: held by the caller.
        unsafe { lock::release_shared(&self.lock, &self.gate) };
        seen
    }

    fn visit(&self, share: Share) -> u32 {
        assert!(lock::acquire_shared::<Checked, Park>(&self.lock, share, &self.gate, None).held);
        self.section(share)
    }

    fn try_visit(&self, share: Share) -> bool {
        let held = self.lock.try_acquire(share);
        if held {
            self.section(share);
        }
        held
    }
}

/// Readers that count themselves while a writer comes and goes: either they hold the lock or they
/// are out of it, and nothing is left behind.
#[test]
fn readers_that_meet_a_writer_hold_the_lock_or_are_out_of_it() {
    let _time = time_that(true);
    explore(3, || {
        let shared = Shared::new();
        let threads: Vec<_> = [Share::Read, Share::Write]
            .map(|share| {
                let shared = shared.clone();
                thread::spawn(move || shared.try_visit(share))
            })
            .into();
        let mine = shared.try_visit(Share::Write);
        let visits = threads.into_iter().map(|thread| thread.join().expect("no panics"));
        assert!(visits.fold(mine, |any, held| any | held), "somebody came first");
        assert!(!shared.lock.is_locked());
    });
}

/// A parked reader and a parked writer both come by the lock.
#[test]
fn parked_readers_and_writers_are_woken() {
    let _time = time_that(true);
    explore(2, || {
        let shared = Shared::new();
        let threads: Vec<_> = [Share::Read, Share::Write]
            .map(|share| {
                let shared = shared.clone();
                thread::spawn(move || shared.visit(share))
            })
            .into();
        shared.visit(Share::Write);
        threads.into_iter().for_each(|thread| assert!(thread.join().expect("no panics") <= 2));
        assert!(!shared.lock.is_locked());
    });
}

/// A writer gives up while a reader is parked behind it. The first reader releases only when the
/// second one has been inside: a reader that slept on would be a deadlock.
fn a_reader_joins_when_the_writers_give_up(writers: usize) {
    let _time = time_that(true);
    explore(2, move || {
        let shared = Shared::new();
        assert!(shared.lock.try_acquire(Share::Read));
        let writers: Vec<_> = (0..writers)
            .map(|_| {
                let shared = shared.clone();
                thread::spawn(move || {
                    let (lock, gate) = (&shared.lock, &shared.gate);
                    lock::acquire_shared::<Checked, Park>(lock, Share::Write, gate, Some(soon())).held
                })
            })
            .collect();
        let reader = {
            let shared = shared.clone();
            thread::spawn(move || shared.visit(Share::ReadAfterWriters))
        };
        assert_eq!(reader.join().expect("no panics"), 0);
        writers.into_iter().for_each(|writer| assert!(!writer.join().expect("no panics"), "a reader is inside"));
        // SAFETY: held since above.
        unsafe { lock::release_shared(&shared.lock, &shared.gate) };
        assert!(!shared.lock.is_locked());
    });
}

#[test]
fn a_writer_that_gives_up_lets_parked_readers_in() {
    a_reader_joins_when_the_writers_give_up(1);
}

/// A try to read that meets the writer's release gets the lock, and keeps it until a reader that
/// was parked meanwhile has been inside.
#[test]
fn a_try_that_meets_a_release_lets_parked_readers_in() {
    let _time = time_that(true);
    explore(3, || {
        let shared = Shared::new();
        assert!(shared.lock.try_acquire(Share::Write));
        let reader = {
            let shared = shared.clone();
            thread::spawn(move || shared.visit(Share::Read))
        };
        let writer = {
            let shared = shared.clone();
            // SAFETY: held since above.
            thread::spawn(move || unsafe { lock::release_shared(&shared.lock, &shared.gate) })
        };
        let held = shared.lock.try_acquire(Share::Read);
        writer.join().expect("no panics");
        reader.join().expect("no panics");
        if held {
            shared.section(Share::Read);
        }
        assert!(!shared.lock.is_locked());
    });
}

/// A contender gives up while another waiter goes to sleep on its account: the sleeper is woken, or
/// sees that nobody contends. No time passes and no controller comes.
#[test]
fn a_sleeper_does_not_rely_on_a_contender_that_gave_up() {
    const PLACE: u64 = 5;
    let _time = time_that(false);
    explore(3, || {
        let slots = Arc::new(SleepSlots::<Checked>::new());
        let contends = Arc::new(loom::sync::atomic::AtomicBool::new(true));
        slots.set_target(1);
        let sleeper = {
            let (slots, contends) = (slots.clone(), contends.clone());
            thread::spawn(move || {
                let claim = slots.claim(7).expect("room for one");
                slots.announce(&claim, PLACE);
                if contends.load(Acquire) {
                    slots.sleep(claim, u64::MAX);
                } else {
                    slots.give_back(claim);
                }
            })
        };
        contends.store(false, Release);
        slots.wake_waiter(PLACE);
        sleeper.join().expect("no panics");
        assert_eq!(slots.sleeping(), 0);
    });
}
