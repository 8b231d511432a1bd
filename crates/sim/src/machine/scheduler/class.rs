//! Solaris' time-sharing class: how the priority of a thread changes.
//!
//! | event | priority, by the [dispatch table](crate::dispatch) | rest of the quantum |
//! | --- | --- | --- |
//! | its quantum ends, at a tick | `tqexp` | a new one |
//! | each second, if runnable or asleep | `lwait` if it has waited longer than `maxwait` | a new one if runnable |
//! | it enters the kernel, falls asleep or wakes | `slpret` if it has waited longer than `maxwait` | a new one |
//! | a thread of higher priority preempts it | the same; it is the first of its level | kept |
//!
//! "Waited" counts the seconds' ends since the last of these changes, whatever the thread did
//! meanwhile. The default table allows no wait, so each thread rises to level 50 or above once a
//! second. A thread that computes then falls by ten levels at the end of each quantum.
//!
//! Preemption control (`schedctl`): a thread that asked not to be preempted keeps its context at
//! the end of its quantum, and when a thread of higher priority comes, for which it gets the
//! highest priority until it yields. Two ticks after the end of the quantum it is preempted anyway.
//!
//! Source: `usr/src/uts/common/disp/ts.c` of OpenSolaris and illumos, with the kernel functions
//! `ts_tick`, `ts_update`, `ts_trapret`, `ts_sleep`, `ts_wakeup`, `ts_preempt` and `ts_yield`.
//! *Not* modelled: kernel priorities of threads that sleep with a kernel lock, the interactive
//! class, and `nice` values.

use crate::dispatch::{Dispatch, LEVELS};
use crate::parameters::Scheduler;

/// How many ticks preemption control can delay the end of a quantum (`SC_MAX_TICKS`, `schedctl.h`).
const CONTROL_TICKS: i64 = 2;
const HIGHEST: u8 = LEVELS as u8 - 1;
/// The level of a new thread: the middle of the table (`ts_enterclass`).
const INITIAL: u8 = HIGHEST / 2;

/// Period of `ts_update`.
pub(super) const SECOND_NS: u64 = 1_000_000_000;

/// The class on one machine.
pub(super) struct TimeSharing {
    pub(super) table: Table,
    pub(super) tick_ns: u64,
    /// Whether a thread may ask not to be preempted.
    pub(super) has_control: bool,
    pub(super) next_second: u64,
}

impl TimeSharing {
    /// `None` if the machine has another order.
    pub(super) fn new(parameters: &Scheduler) -> Option<Self> {
        let dispatch = parameters.time_sharing()?;
        Some(TimeSharing {
            table: Table::new(dispatch, parameters.tick_ns),
            tick_ns: parameters.tick_ns,
            has_control: parameters.extension_ns != 0,
            next_second: SECOND_NS,
        })
    }
}

/// The dispatch table with its quanta in ticks.
pub(super) struct Table {
    dispatch: Dispatch,
    tick_ns: u64,
}

impl Table {
    pub(super) fn new(dispatch: Dispatch, tick_ns: u64) -> Self {
        Table { dispatch, tick_ns }
    }

    fn quantum(&self, level: u8) -> i64 {
        let ns = u64::from(self.dispatch.level(level).quantum_ms) * 1_000_000;
        ns.div_ceil(self.tick_ns).max(1) as i64
    }
}

/// A thread's place among the threads of its level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    First,
    Last,
}

/// What a tick does to the running thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tick {
    GoesOn,
    /// Its quantum has ended. It goes on, and yields when its request ends.
    Deferred,
    /// It gives way to a thread of the same or a higher priority.
    GivesWay,
}

/// What a second's end does to a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Second {
    Stays,
    /// Its priority has changed.
    Moves,
}

/// A thread's state in the class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Class {
    level: u8,
    /// Whether it runs at the highest priority, because its preemption was deferred.
    is_raised: bool,
    ticks_left: i64,
    waited_s: u32,
    /// Whether it goes behind the threads of its level when it is preempted.
    to_back: bool,
}

impl Default for Class {
    fn default() -> Self {
        Class { level: INITIAL, is_raised: false, ticks_left: 0, waited_s: 0, to_back: false }
    }
}

impl Class {
    /// A thread that has used `part` of `whole` of its first quantum.
    pub(super) fn begin(&mut self, table: &Table, part: u64, whole: u64) {
        let quantum = table.quantum(INITIAL);
        self.ticks_left = quantum - (part % whole * quantum as u64 / whole) as i64;
    }

    /// A thread at `level` with a whole quantum.
    #[cfg(test)]
    pub(super) fn at(level: u8, table: &Table) -> Class {
        let mut class = Class { level, ..Class::default() };
        class.renew_quantum(table);
        class
    }

    pub(super) fn priority(&self) -> u8 {
        if self.is_raised { HIGHEST } else { self.level }
    }

    fn set_level(&mut self, level: u8) {
        (self.level, self.is_raised, self.waited_s) = (level, false, 0);
    }

    fn renew_quantum(&mut self, table: &Table) {
        self.ticks_left = table.quantum(self.level);
    }

    /// A tick while it runs. `best` is the highest priority that waits for its context.
    pub(super) fn tick(&mut self, table: &Table, best: Option<u8>, is_protected: bool) -> Tick {
        self.ticks_left -= 1;
        if self.ticks_left > 0 {
            if best.is_none_or(|best| best <= self.priority()) {
                return Tick::GoesOn;
            }
        } else {
            if is_protected && self.ticks_left > -CONTROL_TICKS {
                return Tick::Deferred;
            }
            self.set_level(table.dispatch.level(self.level).tqexp);
        }
        self.to_back = true;
        if best.is_some_and(|best| best >= self.priority()) {
            return Tick::GivesWay;
        }
        // It goes to the back of its level's queue, and is at once the first thread again.
        self.end_turn(table);
        Tick::GoesOn
    }

    fn end_turn(&mut self, table: &Table) {
        self.to_back = false;
        self.waited_s = 0;
        self.renew_quantum(table);
    }

    /// Whether it keeps its context although it should be preempted. It then has to yield when
    /// its request ends.
    pub(super) fn defers_preemption(&mut self) -> bool {
        self.is_raised = self.ticks_left > -CONTROL_TICKS;
        self.is_raised
    }

    pub(super) fn preempted(&mut self, table: &Table) -> Place {
        if !self.to_back {
            return Place::First;
        }
        self.end_turn(table);
        Place::Last
    }

    pub(super) fn yields(&mut self, table: &Table) -> Place {
        self.is_raised = false;
        if self.ticks_left <= 0 {
            self.set_level(table.dispatch.level(self.level).tqexp);
            self.renew_quantum(table);
        }
        self.to_back = false;
        Place::Last
    }

    fn has_waited(&self, table: &Table) -> bool {
        self.waited_s > u32::from(table.dispatch.level(self.level).maxwait_s)
    }

    /// It enters the kernel, or falls asleep.
    pub(super) fn enters_kernel(&mut self, table: &Table) {
        if self.has_waited(table) {
            self.set_level(table.dispatch.level(self.level).slpret);
            self.renew_quantum(table);
        }
    }

    /// It wakes. `is_same_tick` means that it has lost its context since the last tick.
    pub(super) fn wakes(&mut self, table: &Table, is_same_tick: bool) -> Place {
        self.enters_kernel(table);
        self.to_back = false;
        if is_same_tick { Place::First } else { Place::Last }
    }

    /// A second has passed.
    pub(super) fn second(&mut self, table: &Table, state: Running, is_protected: bool) -> Second {
        self.waited_s += 1;
        if state == Running::Yes || is_protected || !self.has_waited(table) {
            return Second::Stays;
        }
        let before = self.priority();
        self.set_level(table.dispatch.level(self.level).lwait);
        if self.priority() == before {
            return Second::Stays;
        }
        if state == Running::Ready {
            self.renew_quantum(table);
        }
        Second::Moves
    }
}

/// Whether a thread has a context, waits for one, or sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Running {
    Yes,
    Ready,
    Asleep,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        Table::new(Dispatch::SOLARIS, 10_000_000)
    }

    fn at(level: u8) -> Class {
        Class::at(level, &table())
    }

    /// Ticks until the priority changes, and the new priority.
    fn run_out(class: &mut Class) -> (u32, u8) {
        let before = class.priority();
        for ticks in 1.. {
            class.tick(&table(), None, false);
            if class.priority() != before {
                return (ticks, class.priority());
            }
        }
        unreachable!("the priority falls")
    }

    #[test]
    fn computing_thread_falls_by_the_table() {
        let mut class = at(59);
        // Quanta of 20, 40, 40, 80, 120 and 160 ms.
        let falls: Vec<_> = (0..6).map(|_| run_out(&mut class)).collect();
        assert_eq!(falls, [(2, 49), (4, 39), (8, 29), (12, 19), (16, 9), (20, 0)]);
        (0..100).for_each(|_| _ = class.tick(&table(), None, false));
        assert_eq!(class.priority(), 0);
    }

    #[test]
    fn end_of_quantum_gives_way_to_equal_priority_only() {
        let end = |best| {
            let mut class = at(58);
            let ticks = [(); 4].map(|()| class.tick(&table(), best, false));
            (ticks[3], class.priority(), class.preempted(&table()))
        };
        assert_eq!(end(Some(48)), (Tick::GivesWay, 48, Place::Last));
        assert_eq!(end(Some(47)), (Tick::GoesOn, 48, Place::First));
    }

    #[test]
    fn thread_of_higher_priority_waits_until_the_next_tick_at_most() {
        let mut class = at(30);
        assert_eq!(class.tick(&table(), Some(30), false), Tick::GoesOn);
        assert_eq!(class.tick(&table(), Some(31), false), Tick::GivesWay);
        assert_eq!((class.preempted(&table()), class.ticks_left), (Place::Last, 8));
    }

    #[test]
    fn preempted_thread_keeps_place_and_quantum() {
        let mut class = at(30);
        (0..3).for_each(|_| _ = class.tick(&table(), None, false));
        assert_eq!((class.preempted(&table()), class.ticks_left), (Place::First, 5));
    }

    #[test]
    fn ready_thread_rises_each_second() {
        let mut class = at(10);
        assert_eq!(class.second(&table(), Running::Ready, false), Second::Moves);
        assert_eq!((class.priority(), class.ticks_left), (51, 4));
        assert_eq!(class.second(&table(), Running::Ready, false), Second::Moves);
        assert_eq!((class.priority(), class.ticks_left), (59, 2));
        assert_eq!(class.second(&table(), Running::Ready, false), Second::Stays, "32000 s");
    }

    #[test]
    fn running_thread_rises_when_it_enters_the_kernel() {
        let mut class = at(10);
        class.enters_kernel(&table());
        assert_eq!(class.priority(), 10, "no second has passed");
        assert_eq!(class.second(&table(), Running::Yes, false), Second::Stays);
        assert_eq!(class.priority(), 10);
        class.enters_kernel(&table());
        assert_eq!((class.priority(), class.ticks_left, class.waited_s), (51, 4, 0));
    }

    #[test]
    fn end_of_quantum_forgets_the_wait() {
        let mut class = at(50);
        class.second(&table(), Running::Yes, false);
        assert_eq!(run_out(&mut class), (4, 40));
        class.enters_kernel(&table());
        assert_eq!(class.priority(), 40);
    }

    #[test]
    fn sleeper_rises_when_a_second_has_passed() {
        let mut class = at(29);
        class.ticks_left = 3;
        assert_eq!(class.wakes(&table(), false), Place::Last);
        assert_eq!((class.priority(), class.ticks_left), (29, 3), "a short sleep changes nothing");
        assert_eq!(class.second(&table(), Running::Asleep, false), Second::Moves);
        assert_eq!((class.priority(), class.ticks_left), (52, 3));
        assert_eq!(class.wakes(&table(), true), Place::First);
    }

    #[test]
    fn preemption_control_lasts_two_ticks_beyond_the_quantum() {
        let mut class = at(50);
        let ticks: Vec<_> = (0..6).map(|_| class.tick(&table(), Some(45), true)).collect();
        assert_eq!(ticks[..3], [Tick::GoesOn; 3]);
        assert_eq!(ticks[3..], [Tick::Deferred, Tick::Deferred, Tick::GivesWay]);
        assert!(!class.defers_preemption(), "its time is over");
        assert_eq!((class.priority(), class.preempted(&table())), (40, Place::Last));
    }

    #[test]
    fn deferred_preemption_raises_until_the_yield() {
        let mut class = at(20);
        assert!(class.defers_preemption());
        assert_eq!(class.priority(), 59);
        assert_eq!((class.yields(&table()), class.priority()), (Place::Last, 20));
        (0..12).for_each(|_| _ = class.tick(&table(), None, true));
        assert_eq!((class.priority(), class.ticks_left), (20, 0));
        class.yields(&table());
        assert_eq!((class.priority(), class.ticks_left), (10, 16), "the quantum had ended");
    }

    #[test]
    fn protected_thread_does_not_rise() {
        let mut class = at(10);
        assert_eq!(class.second(&table(), Running::Ready, true), Second::Stays);
        assert_eq!(class.priority(), 10);
    }

    #[test]
    fn first_quanta_end_at_different_ticks() {
        let left = |part| {
            let mut class = Class::default();
            class.begin(&table(), part, 100);
            class.ticks_left
        };
        assert_eq!([0, 49, 99].map(left), [12, 7, 1]);
    }
}
