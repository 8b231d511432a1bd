//! The scheduler alone, but for a clock: threads that do nothing of their own.

use super::*;
use crate::presets;

/// A scheduler and the clock that it announces on.
struct Bench {
    scheduler: Scheduler,
    clock: Clock,
}

impl Bench {
    /// One socket of `cores` cores with a context each; round numbers. `threads` are blocked, and 0
    /// is on context 0.
    fn new(cores: u32, threads: u32, change: impl FnOnce(&mut parameters::Scheduler)) -> Self {
        let mut parameters = presets::named("server").expect("a preset");
        let topology = &mut parameters.topology;
        (topology.sockets, topology.caches_per_socket) = (parameters::Count::new(1), parameters::Count::new(1));
        (topology.cores_per_cache, topology.contexts_per_core) =
            (parameters::Count::new(cores), parameters::Count::new(1));
        let scheduler = &mut parameters.scheduler;
        (scheduler.slice_ns, scheduler.tick_ns, scheduler.switch_ns) = (3_000, 1_000, 10);
        (scheduler.idle_exit_ns, scheduler.wake_idle_ns, scheduler.wake_preempt_ns) = (5, 7, 500);
        (scheduler.switches_per_s, scheduler.sleeper_credit_ns, scheduler.extension_ns) = (0, 0, 0);
        change(scheduler);
        let scheduler = Scheduler::new(*topology, parameters.scheduler);
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
        self.scheduler.wake(thread, NOBODY, &mut self.clock)
    }

    fn leave(&mut self, thread: u32, state: State) {
        self.scheduler.leave(thread, state, &mut self.clock);
    }

    fn preempt(&mut self, context: usize) {
        self.scheduler.preempt(context, &mut self.clock);
    }

    /// The next event, which is a tick: when it is, and whether the slice is over.
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
fn woken_thread_runs_on_an_idle_context_after_the_switch() {
    let mut bench = Bench::new(2, 2, |_| {});
    bench.clock.now = 100;
    assert_eq!(bench.wake(0), None);
    assert_eq!((bench.scheduler.running_on(0), bench.clock.resumes_at(0)), (0, 115));
    let Bench { scheduler, clock } = &mut bench;
    assert_eq!(scheduler.wake(1, 0, clock), None);
    assert_eq!((clock.now, clock.resumes_at(1)), (107, 122), "the waker tells the idle context");
    assert!(!bench.scheduler.is_idle() && !bench.scheduler.has_waiting());
    assert_eq!(bench.scheduler.counts(), (2, 0));
    assert_eq!(bench.scheduler.accounts.runnable(0), 2);
}

#[test]
fn thread_waits_for_a_context_until_the_one_that_runs_leaves() {
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
fn thread_that_ran_much_longer_is_preempted_and_keeps_the_rest_of_its_work() {
    let mut bench = Bench::new(1, 2, |_| {});
    bench.wake(0);
    bench.clock.now = 1_000;
    bench.clock.announce(0, 1_400);
    assert_eq!(bench.wake(1), Some(0));
    assert_eq!(bench.scheduler.request_preemption(0), Some(0));
    bench.preempt(0);
    assert_eq!(bench.states(), [State::Ready, State::Running]);
    assert_eq!(bench.scheduler.task(0).flight(), Flight::Work(400));
    assert_eq!(bench.scheduler.counts(), (2, 1));
}

#[test]
fn preemption_is_put_off_while_it_is_forbidden() {
    let mut bench = Bench::new(1, 2, |_| {});
    bench.wake(0);
    bench.scheduler.task_mut(0).forbid_preemption();
    bench.clock.now = 1_000;
    assert_eq!(bench.wake(1), Some(0));
    assert_eq!(bench.scheduler.request_preemption(0), None);
    assert!(bench.scheduler.task_mut(0).allow_preemption());
    let Bench { scheduler, clock } = &mut bench;
    scheduler.give_way_late(0, clock);
    assert_eq!((bench.states(), bench.scheduler.counts()), (vec![State::Ready, State::Running], (2, 1)));
}

#[test]
fn slice_ends_at_a_tick_if_somebody_waits() {
    let mut bench = Bench::new(1, 2, |scheduler| scheduler.wake_preempt_ns = u64::MAX);
    bench.wake(0);
    bench.wake(1);
    assert_eq!([bench.tick(), bench.tick(), bench.tick()], [(1_000, false), (2_000, false), (3_000, false)]);
    assert_eq!(bench.tick(), (4_000, true), "the switch took a part of the first ones");
    bench.preempt(0);
    bench.scheduler.arm_tick(0, &mut bench.clock);
    assert_eq!(bench.scheduler.running_on(0), 1);
}

#[test]
fn slice_of_a_thread_that_asked_is_extended_once() {
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
fn yield_lets_the_others_run_first() {
    let mut bench = Bench::new(1, 2, |_| {});
    bench.wake(0);
    let Bench { scheduler, clock } = &mut bench;
    assert!(!scheduler.yield_now(0, clock), "nobody waits");
    assert_eq!(scheduler.wake(1, 0, clock), None);
    assert!(scheduler.yield_now(0, clock));
    assert_eq!(bench.states(), [State::Ready, State::Running]);
}

#[test]
fn free_context_takes_a_thread_from_a_queue() {
    let mut bench = Bench::new(2, 4, |_| {});
    (0..4).for_each(|thread| assert_eq!(bench.wake(thread), None));
    bench.leave(1, State::Blocked);
    bench.leave(3, State::Blocked);
    assert_eq!(bench.states(), [State::Running, State::Blocked, State::Running, State::Blocked]);
    assert_eq!(bench.scheduler.task(2).context(), 1, "it waited for context 0");
}

#[test]
fn queues_are_evened_out() {
    let mut bench = Bench::new(2, 4, |_| {});
    (0..4).for_each(|thread| _ = bench.wake(thread));
    let Bench { scheduler, clock } = &mut bench;
    // Both wait for context 1.
    scheduler.queues.remove(0, 0);
    scheduler.queues.enqueue(2, 1);
    scheduler.even_out(0, clock);
    assert_eq!([0, 1].map(|context| scheduler.queues.waiting(context)), [1, 1]);
}

#[test]
fn switches_pass_one_lock() {
    let mut bench = Bench::new(3, 3, |scheduler| scheduler.switches_per_s = 10_000_000);
    (0..3).for_each(|thread| _ = bench.wake(thread));
    assert_eq!([0, 1, 2].map(|thread| bench.clock.resumes_at(thread)), [15, 115, 215]);
}

#[test]
fn renewed_task_goes_where_there_is_least_to_do() {
    let mut bench = Bench::new(2, 3, |_| {});
    bench.wake(0);
    bench.wake(2);
    assert_eq!(bench.states(), [State::Running, State::Blocked, State::Running]);
    assert_eq!(bench.scheduler.renew(0), None, "each has a context");
    bench.leave(2, State::Blocked);
    bench.clock.now = 50;
    bench.wake(1);
    bench.leave(1, State::Done);
    let Bench { scheduler, clock } = &mut bench;
    scheduler.move_to(0, 1, 1_000, clock);
    assert_eq!((scheduler.running_on(0), scheduler.running_on(1)), (NOBODY, 0));
    assert_eq!(clock.resumes_at(0), 50 + 10 + 1_000);
}
