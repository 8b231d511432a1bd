//! Schedules under Solaris' time-sharing class, computed by hand from the default dispatch table.

use super::*;
use crate::machine::scheduler::class::{Class, SECOND_NS};
use crate::parameters::Order;

const TICK_NS: u64 = 10_000_000;
/// Level of a new thread, with a quantum of 12 ticks.
const INITIAL: u8 = 29;

/// `cores` contexts that tick together, and `threads` blocked threads with whole quanta.
fn bench(cores: u32, threads: u32) -> Bench {
    Bench::new(cores, threads, |scheduler| {
        (scheduler.order, scheduler.dispatch) = (Order::TimeSharing, None);
        (scheduler.tick_ns, scheduler.tick_skew_ns) = (TICK_NS, Some(0));
        scheduler.extension_ns = TICK_NS;
    })
}

impl Bench {
    fn set_level(&mut self, thread: u32, level: u8) {
        let class = self.scheduler.time_sharing.as_ref().expect("the order is time-sharing");
        let class = Class::at(level, &class.table);
        self.scheduler.task_mut(thread).class = class;
    }

    fn set_levels(&mut self, levels: &[(u32, u8)]) {
        levels.iter().for_each(|&(thread, level)| self.set_level(thread, level));
    }

    fn priorities(&self) -> Vec<u8> {
        self.scheduler.queues.tasks.iter().map(|task| task.priority()).collect()
    }

    /// Advances to the next tick and does what the machine does there.
    fn pass_tick(&mut self) -> u64 {
        let (now, is_over) = self.tick();
        if is_over {
            let context = 0;
            if self.scheduler.request_preemption(context).is_some() {
                self.scheduler.preempt_at_tick(context, &mut self.clock);
            }
            self.scheduler.arm_tick(context, &mut self.clock);
        }
        now
    }

    fn pass_second(&mut self) -> Vec<usize> {
        self.clock.now = self.clock.now.next_multiple_of(SECOND_NS);
        self.scheduler.raise_priorities(&mut self.clock)
    }
}

#[test]
fn two_computing_threads_take_turns_by_the_table() {
    let mut bench = bench(1, 2);
    (0..2).for_each(|thread| assert_eq!(bench.wake(thread), None));
    let mut turns = Vec::new();
    for _ in 0..100 {
        let before = bench.scheduler.running_on(0);
        let now = bench.pass_tick();
        if bench.scheduler.running_on(0) != before {
            turns.push((now / 1_000_000, bench.scheduler.running_on(0), bench.priorities()));
        }
    }
    let expected = [
        // Quanta of 120 ms at level 29, 160 ms at level 19, 200 ms at levels 9 and 0.
        (120, 1, vec![19, 29]),
        (240, 0, vec![19, 19]),
        (400, 1, vec![9, 19]),
        (560, 0, vec![9, 9]),
        (760, 1, vec![0, 9]),
        (960, 0, vec![0, 0]),
    ];
    assert_eq!(turns, expected);
    // A second has passed: the waiting thread rises to level 50 and preempts the other.
    assert_eq!((bench.clock.now, bench.pass_second()), (SECOND_NS, vec![0]));
    assert_eq!(bench.priorities(), [0, 50]);
    bench.preempt(0);
    assert_eq!(bench.scheduler.running_on(0), 1);
    // The running thread did not rise. It does when it next enters the kernel.
    bench.leave(1, State::Blocked);
    assert_eq!(bench.scheduler.running_on(0), 0);
    bench.scheduler.enter_kernel(0);
    assert_eq!(bench.priorities(), [50, 50]);
}

#[test]
fn woken_thread_preempts_lower_priority_only() {
    for (level, preempted) in [(28, None), (29, None), (30, Some(0))] {
        let mut bench = bench(1, 2);
        bench.wake(0);
        bench.set_level(1, level);
        bench.clock.now = 2 * TICK_NS;
        assert_eq!(bench.wake(1), preempted, "{level} against {INITIAL}");
    }
}

#[test]
fn preempted_thread_is_first_of_its_level() {
    let mut bench = bench(1, 3);
    (0..3).for_each(|thread| _ = bench.wake(thread));
    bench.set_level(2, 40);
    assert_eq!(bench.scheduler.request_preemption(0), Some(0));
    bench.preempt(0);
    assert_eq!(bench.scheduler.running_on(0), 2);
    bench.leave(2, State::Blocked);
    assert_eq!(bench.scheduler.running_on(0), 0, "before 1, which has waited longer");
}

#[test]
fn yield_never_runs_a_lower_priority() {
    let mut bench = bench(1, 2);
    (0..2).for_each(|thread| _ = bench.wake(thread));
    bench.set_level(1, INITIAL - 1);
    let Bench { scheduler, clock } = &mut bench;
    assert_eq!(scheduler.yield_now(0, clock), (false, None), "such as a preempted holder");
    bench.set_level(1, INITIAL);
    let Bench { scheduler, clock } = &mut bench;
    assert_eq!(scheduler.yield_now(0, clock), (true, None));
    assert_eq!(bench.states(), [State::Ready, State::Running]);
}

#[test]
fn idle_context_takes_the_best_waiting_thread() {
    let mut bench = bench(3, 7);
    (0..7).for_each(|thread| _ = bench.wake(thread));
    // 0, 3 and 6 belong to context 0; 1 and 4 to context 1; 2 and 5 to context 2.
    bench.set_levels(&[(3, 10), (6, 11), (5, 12)]);
    bench.leave(1, State::Blocked);
    assert_eq!(bench.scheduler.running_on(1), 4, "its own");
    bench.leave(4, State::Blocked);
    assert_eq!(bench.scheduler.running_on(1), 5, "not from the longest queue");
    bench.leave(5, State::Blocked);
    assert_eq!(bench.scheduler.running_on(1), 6);
}

#[test]
fn thread_returns_to_its_context_for_three_ticks() {
    for (ticks, context) in [(3, 0), (4, 2)] {
        let mut bench = bench(3, 5);
        (0..5).for_each(|thread| _ = bench.wake(thread));
        bench.leave(0, State::Blocked);
        assert_eq!(bench.scheduler.running_on(0), 3);
        // Contexts 0 and 1 run and queue threads of higher priority than context 2.
        bench.set_level(2, 5);
        bench.clock.now = ticks * TICK_NS;
        bench.wake(0);
        assert_eq!(bench.scheduler.task(0).context(), context, "after {ticks} ticks");
    }
}

#[test]
fn queues_of_low_priorities_match_in_length() {
    // Two threads of the yielding thread's level wait for context 0, none for context 1.
    for (level, context) in [(16, 0), (15, 1)] {
        let mut bench = bench(2, 6);
        (0..6).for_each(|thread| _ = bench.wake(thread));
        bench.leave(1, State::Blocked);
        bench.leave(5, State::Blocked);
        (0..6).for_each(|thread| bench.set_level(thread, level));
        assert_eq!([0, 1].map(|context| bench.scheduler.queues.waiting(context)), [2, 0]);
        let Bench { scheduler, clock } = &mut bench;
        assert_eq!(scheduler.yield_now(0, clock), (true, None));
        assert_eq!(scheduler.task(0).context(), context, "level {level}");
    }
}

#[test]
fn move_to_the_neighbour_preempts_its_thread() {
    let mut bench = bench(2, 4);
    (0..4).for_each(|thread| _ = bench.wake(thread));
    bench.leave(1, State::Blocked);
    bench.set_levels(&[(0, 15), (2, 15), (3, 3)]);
    let Bench { scheduler, clock } = &mut bench;
    assert_eq!(scheduler.yield_now(0, clock), (true, Some(1)));
    assert_eq!((scheduler.running_on(0), scheduler.task(0).context()), (2, 1));
}

#[test]
fn preemption_control_keeps_the_context_until_the_yield() {
    let mut bench = bench(1, 2);
    bench.wake(0);
    bench.scheduler.task_mut(0).ask_for_extension(true);
    bench.set_level(1, 50);
    assert_eq!(bench.wake(1), Some(0));
    assert_eq!(bench.scheduler.request_preemption(0), None);
    assert_eq!(bench.priorities(), [59, 50]);
    assert!(bench.scheduler.task_mut(0).ask_for_extension(false), "it has to yield");
    let Bench { scheduler, clock } = &mut bench;
    assert_eq!(scheduler.yield_now(0, clock), (true, None));
    assert_eq!((bench.scheduler.running_on(0), bench.priorities()), (1, vec![INITIAL, 50]));
}

#[test]
fn preemption_control_ends_two_ticks_after_the_quantum() {
    let mut bench = bench(1, 2);
    (0..2).for_each(|thread| _ = bench.wake(thread));
    bench.scheduler.task_mut(0).ask_for_extension(true);
    let ticks = (1..).find(|_| {
        bench.pass_tick();
        bench.scheduler.running_on(0) == 1
    });
    assert_eq!((ticks, bench.priorities()), (Some(12 + 2), vec![19, INITIAL]));
}

#[test]
fn machine_without_preemption_control_grants_none() {
    let mut bench = Bench::new(1, 2, |scheduler| scheduler.order = Order::TimeSharing);
    bench.wake(0);
    bench.scheduler.task_mut(0).ask_for_extension(true);
    bench.set_level(1, 50);
    assert_eq!(bench.wake(1), Some(0));
    assert_eq!(bench.scheduler.request_preemption(0), Some(0));
}
