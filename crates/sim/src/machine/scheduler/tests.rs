//! The scheduler with only a clock. Its threads do nothing by themselves.

mod dispatcher;

use super::*;
use crate::machine::clock::Event;
use crate::presets;
use crate::quantiles::Quantiles;

/// A scheduler and its clock.
struct Bench {
    scheduler: Scheduler,
    clock: Clock,
}

impl Bench {
    /// One socket with `cores` cores of one context each, and costs in round numbers. All `threads`
    /// are blocked; thread 0 belongs to context 0.
    fn new(cores: u32, threads: u32, change: impl FnOnce(&mut parameters::Scheduler)) -> Self {
        let mut parameters = presets::named("server").expect("a preset");
        let topology = &mut parameters.topology;
        (topology.sockets, topology.caches_per_socket) =
            (parameters::Count::new(1), parameters::Count::new(1));
        (topology.cores_per_cache, topology.contexts_per_core) =
            (parameters::Count::new(cores), parameters::Count::new(1));
        let scheduler = &mut parameters.scheduler;
        (scheduler.slice_ns, scheduler.tick_ns, scheduler.switch_ns) = (3_000, 1_000, 10);
        (scheduler.idle_exit_ns, scheduler.wake_idle_ns, scheduler.wake_preempt_ns) = (5, 7, 500);
        (scheduler.switches_per_s, scheduler.sleeper_credit_ns, scheduler.extension_ns) = (0, 0, 0);
        change(scheduler);
        let scheduler = Scheduler::new(*topology, parameters.scheduler, 1);
        let mut bench = Bench { scheduler, clock: Clock::default() };
        bench.scheduler.accounts.add_process();
        for _ in 0..threads {
            bench.scheduler.add_thread(0);
            bench.clock.add_thread();
            bench.scheduler.accounts.add_thread(0, Some(0));
        }
        bench
    }

    fn wake(&mut self, thread: u32) -> Option<usize> {
        self.scheduler.wake(thread, NO_THREAD, &mut self.clock)
    }

    fn leave(&mut self, thread: u32, state: State) {
        self.scheduler.leave(thread, state, &mut self.clock);
    }

    fn preempt(&mut self, context: usize) {
        self.scheduler.preempt(context, &mut self.clock);
    }

    /// Advances to the next tick. Returns its time and whether the slice is over.
    fn tick(&mut self) -> (u64, bool) {
        loop {
            match self.clock.next(u64::MAX - 1) {
                Some(Event::Tick { context }) => {
                    let is_over = self.scheduler.tick(context as usize, &mut self.clock);
                    return (self.clock.now, is_over);
                }
                Some(Event::Resume { .. }) => {}
                other => panic!("{other:?} instead of a tick"),
            }
        }
    }

    fn states(&self) -> Vec<State> {
        self.scheduler.queues.tasks.iter().map(|task| task.state).collect()
    }
}

#[test]
fn woken_thread_runs_on_idle_context_after_switch() {
    let mut bench = Bench::new(2, 2, |_| {});
    bench.clock.now = 100;
    assert_eq!(bench.wake(0), None);
    assert_eq!((bench.scheduler.running_on(0), bench.clock.resumes_at(0)), (0, 115));
    let Bench { scheduler, clock } = &mut bench;
    assert_eq!(scheduler.wake(1, 0, clock), None);
    assert_eq!(
        (clock.now, clock.resumes_at(1)),
        (107, 122),
        "the waker interrupts the idle context"
    );
    assert!(!bench.scheduler.is_idle() && !bench.scheduler.has_waiting());
    assert_eq!(bench.scheduler.counts(), (2, 0));
    assert_eq!(bench.scheduler.accounts.runnable(0), 2);
}

#[test]
fn waiting_thread_runs_when_the_running_one_leaves() {
    let mut bench = Bench::new(1, 2, |_| {});
    bench.wake(0);
    assert_eq!(bench.wake(1), None);
    assert_eq!(bench.states(), [State::Running, State::Ready]);
    bench.clock.now = 200;
    bench.leave(0, State::Done);
    assert_eq!(bench.states(), [State::Done, State::Running]);
    assert_eq!(bench.clock.resumes_at(1), 210);
    assert_eq!(bench.scheduler.accounts.run_times(None, 300), (300, 200));
}

#[test]
fn preempted_thread_keeps_its_remaining_work() {
    let mut bench = Bench::new(1, 2, |_| {});
    bench.wake(0);
    bench.clock.now = 1_000;
    bench.clock.schedule_resume(0, 1_400);
    assert_eq!(bench.wake(1), Some(0));
    assert_eq!(bench.scheduler.request_preemption(0), Some(0));
    bench.preempt(0);
    assert_eq!(bench.states(), [State::Ready, State::Running]);
    assert_eq!(bench.scheduler.task(0).flight(), Flight::Work(400));
    assert_eq!(bench.scheduler.counts(), (2, 1));
}

#[test]
fn preemption_in_mwait_takes_the_exit_latency() {
    let mut bench = Bench::new(1, 2, |_| {});
    bench.wake(0);
    bench.clock.now = 1_000;
    bench.scheduler.begin_mwait(0, 7, 300, 1_000);
    assert_eq!(bench.scheduler.active_in_core(0), 0);
    assert_eq!([7, 8].map(|line| bench.scheduler.task(0).waits_for_write(line)), [Some(300), None]);
    assert_eq!(bench.wake(1), Some(0));
    bench.preempt(0);
    assert_eq!(bench.clock.resumes_at(1), 1_000 + 300 + 10);
    assert_eq!(bench.scheduler.active_in_core(0), 1);
    assert_eq!(bench.scheduler.task(0).flight(), Flight::Poll, "it then looks at its line");
    assert_eq!(bench.scheduler.end_mwait(0, 1_500), 0, "the wait has ended");
}

#[test]
fn forbidden_preemption_is_deferred() {
    let mut bench = Bench::new(1, 2, |_| {});
    bench.wake(0);
    bench.scheduler.task_mut(0).forbid_preemption();
    bench.clock.now = 1_000;
    assert_eq!(bench.wake(1), Some(0));
    assert_eq!(bench.scheduler.request_preemption(0), None);
    assert!(bench.scheduler.task_mut(0).allow_preemption());
    let Bench { scheduler, clock } = &mut bench;
    scheduler.give_way_late(0, clock);
    assert_eq!(
        (bench.states(), bench.scheduler.counts()),
        (vec![State::Ready, State::Running], (2, 1))
    );
}

#[test]
fn slice_with_waiting_thread_ends_at_a_tick() {
    let mut bench = Bench::new(1, 2, |scheduler| scheduler.wake_preempt_ns = u64::MAX);
    bench.wake(0);
    bench.wake(1);
    assert_eq!(
        [bench.tick(), bench.tick(), bench.tick()],
        [(1_000, false), (2_000, false), (3_000, false)]
    );
    assert_eq!(bench.tick(), (4_000, true), "the switch used up part of the first tick");
    bench.preempt(0);
    bench.scheduler.arm_tick(0, &mut bench.clock);
    assert_eq!(bench.scheduler.running_on(0), 1);
}

#[test]
fn tick_that_preempts_delays_the_next_thread() {
    let mut bench = Bench::new(1, 2, |scheduler| {
        scheduler.wake_preempt_ns = u64::MAX;
        scheduler.tick_switch_ns = Quantiles::always(60);
    });
    bench.wake(0);
    bench.wake(1);
    while !bench.tick().1 {}
    let Bench { scheduler, clock } = &mut bench;
    scheduler.preempt_at_tick(0, clock);
    assert_eq!(scheduler.running_on(0), 1);
    assert_eq!(clock.resumes_at(1), clock.now + 60, "the switch is a part of the time");
    clock.now += 9_000;
    scheduler.preempt(0, clock);
    assert_eq!(clock.resumes_at(0), clock.now + 10, "a switch elsewhere takes its own time");
}

#[test]
fn tick_keeps_the_running_thread_from_its_context() {
    let mut bench = Bench::new(1, 1, |scheduler| scheduler.tick_work_ns = Quantiles::always(40));
    bench.wake(0);
    for (flight, resumes_at) in [
        (Flight::Work(0), 5_540), // The rest of its work follows the tick.
        (Flight::Until(5_500), 5_500),
        (Flight::Poll, 5_500),
    ] {
        bench.scheduler.task_mut(0).set_flight(flight);
        bench.clock.schedule_resume(0, 5_500);
        let (now, is_over) = bench.tick();
        assert_eq!((now % 1_000, is_over), (0, false), "no other thread waits");
        assert_eq!(bench.scheduler.back_at(0), now + 40);
        assert_eq!(bench.clock.resumes_at(0), resumes_at, "{flight:?}");
    }
    bench.clock.schedule_resume(0, bench.clock.now + 1_010);
    let (now, _) = bench.tick();
    assert_eq!(bench.clock.resumes_at(0), now + 40, "a poll during the tick follows it");
}

#[test]
fn contexts_tick_together_or_apart() {
    let ticks = |skew: Option<u64>| {
        let mut bench = Bench::new(2, 4, |scheduler| {
            (scheduler.tick_skew_ns, scheduler.wake_preempt_ns) = (skew, u64::MAX);
        });
        (0..4).for_each(|thread| _ = bench.wake(thread));
        [bench.tick().0, bench.tick().0]
    };
    assert_eq!(ticks(Some(0)), [1_000, 1_000]);
    assert_eq!(ticks(Some(30)), [30, 1_000]);
    assert_eq!(ticks(None), [500, 1_000]);
}

#[test]
fn balancing_hesitates_once_before_it_moves_the_only_difference() {
    let mut bench = Bench::new(2, 3, |scheduler| scheduler.balance_hesitates = true);
    (0..3).for_each(|thread| _ = bench.wake(thread));
    let Bench { scheduler, clock } = &mut bench;
    let mut waiting = || {
        scheduler.balance_queues(0, clock);
        [0, 1].map(|context| scheduler.queues.waiting(context))
    };
    assert_eq!([waiting(), waiting()], [[1, 0], [0, 1]]);
    assert_eq!([waiting(), waiting()], [[0, 1], [1, 0]]);
}

#[test]
fn requested_extension_is_granted_once() {
    let change = |scheduler: &mut parameters::Scheduler| {
        (scheduler.wake_preempt_ns, scheduler.extension_ns) = (u64::MAX, 50);
    };
    let mut bench = Bench::new(1, 2, change);
    bench.wake(0);
    bench.wake(1);
    bench.scheduler.task_mut(0).ask_for_extension(true);
    (0..3).for_each(|_| _ = bench.tick());
    assert_eq!([bench.tick(), bench.tick()], [(4_000, false), (4_050, true)]);
}

#[test]
fn yield_runs_waiting_threads_first() {
    let mut bench = Bench::new(1, 2, |_| {});
    bench.wake(0);
    let Bench { scheduler, clock } = &mut bench;
    assert!(!scheduler.yield_now(0, clock).0, "no thread waits");
    assert_eq!(scheduler.wake(1, 0, clock), None);
    assert!(scheduler.yield_now(0, clock).0);
    assert_eq!(bench.states(), [State::Ready, State::Running]);
}

#[test]
fn free_context_steals_queued_thread() {
    let mut bench = Bench::new(2, 4, |_| {});
    (0..4).for_each(|thread| assert_eq!(bench.wake(thread), None));
    bench.leave(1, State::Blocked);
    bench.leave(3, State::Blocked);
    assert_eq!(bench.states(), [State::Running, State::Blocked, State::Running, State::Blocked]);
    assert_eq!(bench.scheduler.task(2).context(), 1, "it waited for context 0");
}

#[test]
fn uneven_queues_are_balanced() {
    let mut bench = Bench::new(2, 4, |_| {});
    (0..4).for_each(|thread| _ = bench.wake(thread));
    let Bench { scheduler, clock } = &mut bench;
    // Make both waiting threads wait for context 1.
    scheduler.queues.remove(0, 0);
    scheduler.queues.enqueue(2, 1);
    scheduler.balance_queues(0, clock);
    assert_eq!([0, 1].map(|context| scheduler.queues.waiting(context)), [1, 1]);
}

#[test]
fn switch_cap_delays_switches() {
    let mut bench = Bench::new(3, 3, |scheduler| scheduler.switches_per_s = 10_000_000);
    (0..3).for_each(|thread| _ = bench.wake(thread));
    assert_eq!([0, 1, 2].map(|thread| bench.clock.resumes_at(thread)), [15, 115, 215]);
}

#[test]
fn renewed_task_moves_to_least_loaded_context() {
    let mut bench = Bench::new(2, 3, |_| {});
    bench.wake(0);
    bench.wake(2);
    assert_eq!(bench.states(), [State::Running, State::Blocked, State::Running]);
    assert_eq!(bench.scheduler.renew(0), None, "every thread has a context");
    bench.leave(2, State::Blocked);
    bench.clock.now = 50;
    bench.wake(1);
    bench.leave(1, State::Done);
    let Bench { scheduler, clock } = &mut bench;
    scheduler.move_to(0, 1, 1_000, clock);
    assert_eq!((scheduler.running_on(0), scheduler.running_on(1)), (NO_THREAD, 0));
    assert_eq!(clock.resumes_at(0), 50 + 10 + 1_000);
}
