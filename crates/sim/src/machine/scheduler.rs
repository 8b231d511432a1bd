//! The operating system's scheduler: a run queue per context, in the order of virtual run time, as in Linux; with long
//! slices and a large credit for sleepers it is a time-sharing scheduler such as Solaris'.
//!
//! A thread that wakes goes to the context that it ran on, or else to the nearest one that is idle. It preempts who has
//! run for much longer. A context that has nothing to do takes a thread from the longest queue; every `balance_ns` the
//! longest queue gives one to the shortest. The tick looks whether the running thread's slice is over, but only where
//! somebody waits for it to end. What is left of a slice when a thread blocks is still there when it wakes, as under
//! Solaris' time-sharing class (`ts_timeleft`) and under EEVDF (the deadline): who sleeps often is preempted too.
//!
//! All switches pass one lock that lets through `switches_per_s` (DaMoN 2009, section 4.2: 134,000 per second on the
//! papers' machine): beyond, threads wait although there are idle contexts.
//!
//! What is *not* modelled: scheduling domains (the search is for the nearest, the balancing for the whole machine),
//! priorities, groups, and what the cache loses by a migration beyond the lines that are shared.

use super::account::Place;
use super::event::Event;
use super::thread::{Flight, State};
use super::{Machine, NOBODY};

/// A hardware context and its run queue.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) core: usize,
    pub(super) current: u32,
    pub(super) queue: Vec<u32>,
    last: u32,
    tick_armed: bool,
    least_vruntime: u64,
}

impl Context {
    pub(super) fn new(core: usize) -> Self {
        Context { core, current: NOBODY, queue: Vec::new(), last: NOBODY, tick_armed: false, least_vruntime: 0 }
    }
}

impl Machine {
    /// `thread` can run from the time `now` on.
    pub(super) fn wake(&mut self, thread: u32, now: u64) {
        debug_assert_eq!(self.threads[thread as usize].state, State::Blocked);
        let context = self.choose_context(thread);
        let credit = self.parameters.scheduler.sleeper_credit_ns;
        let before = self.threads[thread as usize].context;
        let lag = self.contexts[before].least_vruntime;
        let known = &mut self.threads[thread as usize];
        let behind = (lag.saturating_sub(known.vruntime)).min(credit);
        let ahead = known.vruntime.saturating_sub(lag);
        known.vruntime = (self.contexts[context].least_vruntime + ahead).saturating_sub(behind);
        self.moves(thread, Place::Ready, now);
        self.enqueue(thread, context);
        if self.contexts[context].current == NOBODY {
            if self.current != NOBODY {
                self.now += self.parameters.scheduler.wake_idle_ns; // the waker's
            }
            self.dispatch(context, self.now.max(now), self.parameters.scheduler.idle_exit_ns);
            return;
        }
        self.arm_tick(context, now);
        let running = self.contexts[context].current;
        self.charge(running, now);
        let lead = self.threads[running as usize].vruntime.saturating_sub(self.threads[thread as usize].vruntime);
        if lead > self.parameters.scheduler.wake_preempt_ns {
            self.preempt(context, now);
        } else if self.threads[running as usize].flight == Flight::YieldingPoll && running != self.current {
            self.announce(running, now + self.parameters.scheduler.yield_ns);
        }
    }

    /// Where a thread that wakes is to run.
    fn choose_context(&self, thread: u32) -> usize {
        let before = self.threads[thread as usize].context;
        let is_allowed = |context: usize| self.may_wake_on(thread, context);
        if is_allowed(before) && (self.idle == 0 || self.contexts[before].current == NOBODY) {
            return before;
        }
        let count = self.contexts.len();
        let core = self.contexts[before].core;
        let rank = |context: usize| {
            let other = self.contexts[context].core;
            (self.busy_in_core[other], self.caches.distance(core, other))
        };
        (0..count)
            .map(|offset| (before + offset) % count)
            .filter(|&context| self.contexts[context].current == NOBODY && is_allowed(context))
            .min_by_key(|&context| rank(context))
            .or_else(|| is_allowed(before).then_some(before))
            .or_else(|| {
                (0..count)
                    .filter(|&context| is_allowed(context))
                    .min_by_key(|&context| self.contexts[context].queue.len())
            })
            .unwrap_or(before)
    }

    pub(super) fn enqueue(&mut self, thread: u32, context: usize) {
        let known = &mut self.threads[thread as usize];
        known.state = State::Ready;
        known.context = context;
        self.contexts[context].queue.push(thread);
        self.queued += 1;
    }

    /// Who is next on `context`, out of its queue.
    fn pick(&mut self, context: usize) -> Option<u32> {
        let queue = &self.contexts[context].queue;
        let first = (0..queue.len()).min_by_key(|&place| self.threads[queue[place] as usize].vruntime)?;
        self.queued -= 1;
        // In order, so that among equals the one that has waited longest is next.
        Some(self.contexts[context].queue.remove(first))
    }

    /// Takes a thread from the longest queue of another context.
    fn steal(&mut self, context: usize) -> Option<u32> {
        if self.queued == 0 {
            return None;
        }
        let count = self.contexts.len();
        let others =
            (1..count).map(|offset| (context + offset) % count).filter(|&other| self.same_side(context, other));
        let victim = others.rev().max_by_key(|&other| self.contexts[other].queue.len());
        if let Some((thread, victim)) = victim.and_then(|victim| Some((self.pick(victim)?, victim))) {
            self.move_vruntime(thread, victim, context);
            return Some(thread);
        }
        let (victim, place) = self.lets_out(context)?;
        let thread = self.contexts[victim].queue.remove(place);
        self.queued -= 1;
        self.move_vruntime(thread, victim, context);
        Some(thread)
    }

    pub(super) fn move_vruntime(&mut self, thread: u32, from: usize, to: usize) {
        let (from, to) = (self.contexts[from].least_vruntime, self.contexts[to].least_vruntime);
        let vruntime = &mut self.threads[thread as usize].vruntime;
        *vruntime = (*vruntime + to).saturating_sub(from);
    }

    /// `context`, which is free, goes on with the next thread if there is one; `extra` nanoseconds later than usual.
    pub(super) fn dispatch(&mut self, context: usize, now: u64, extra: u64) {
        debug_assert_eq!(self.contexts[context].current, NOBODY);
        let Some(thread) = self.pick(context).or_else(|| self.steal(context)) else {
            return;
        };
        self.idle -= 1;
        let core = self.contexts[context].core;
        self.busy_in_core[core] += 1;
        let is_switch = self.contexts[context].last != thread;
        let start =
            if is_switch { self.pass_switch(now) + self.parameters.scheduler.switch_ns + extra } else { now + extra };
        self.switches += u64::from(is_switch);
        let place = &mut self.contexts[context];
        (place.current, place.last) = (thread, thread);
        let known = &mut self.threads[thread as usize];
        (known.state, known.context, known.ran_since) = (State::Running, context, start);
        let at = match known.flight {
            Flight::Work(left) => start + left,
            Flight::Until(time) => start.max(time),
            Flight::Poll | Flight::YieldingPoll => start,
        };
        let vruntime = known.vruntime;
        place.least_vruntime = place.least_vruntime.max(vruntime);
        self.moves(thread, Place::Running, now);
        self.slice_begins(thread, start);
        self.announce(thread, at);
        self.arm_tick(context, now);
    }

    /// When a switch that begins at `now` gets through the scheduler's lock.
    fn pass_switch(&mut self, now: u64) -> u64 {
        let most = self.parameters.scheduler.switches_per_s;
        let start = now.max(self.switch_lock_free_at);
        if let Some(span) = 1_000_000_000_u64.checked_div(most) {
            self.switch_lock_free_at = start + span;
        }
        start
    }

    /// Adds to the virtual run time of `thread`, which runs, what it ran.
    fn charge(&mut self, thread: u32, now: u64) {
        let known = &mut self.threads[thread as usize];
        let ran = now.saturating_sub(known.ran_since);
        known.vruntime += ran;
        known.slice_used += ran;
        known.ran_since = known.ran_since.max(now);
        let context = &mut self.contexts[known.context];
        let least = context.queue.iter().map(|&other| self.threads[other as usize].vruntime).min();
        let vruntime = self.threads[thread as usize].vruntime;
        context.least_vruntime = context.least_vruntime.max(least.map_or(vruntime, |least| least.min(vruntime)));
    }

    /// Takes the running thread of `context` away from it; the context is free.
    pub(super) fn take_off(&mut self, context: usize, now: u64, place: Place) -> u32 {
        let thread = self.contexts[context].current;
        if self.attention != 0 {
            self.loses_processor(thread);
        }
        self.charge(thread, now);
        self.moves(thread, place, now);
        self.slice_ends(thread, now);
        self.contexts[context].current = NOBODY;
        self.idle += 1;
        self.busy_in_core[self.contexts[context].core] -= 1;
        let known = &mut self.threads[thread as usize];
        known.token = known.token.wrapping_add(1);
        thread
    }

    /// Has another thread run on `context`.
    fn preempt(&mut self, context: usize, now: u64) {
        let known = &mut self.threads[self.contexts[context].current as usize];
        if known.unpreemptible != 0 {
            known.preempt_due = true;
            return;
        }
        if self.contexts[context].current == self.current {
            self.resched = true; // in the middle of what it does: at the end of it
            return;
        }
        let thread = self.take_off(context, now, Place::Ready);
        let known = &mut self.threads[thread as usize];
        if let Flight::Work(_) = known.flight {
            known.flight = Flight::Work(known.resumes_at.saturating_sub(now));
        }
        known.extended = false;
        self.preemptions += 1;
        self.enqueue(thread, context);
        self.dispatch(context, now, 0);
    }

    /// The running thread, in a call to the machine, lets another one run. To be suspended.
    pub(super) fn give_way(&mut self) {
        let (thread, now) = (self.current, self.now);
        let context = self.threads[thread as usize].context;
        self.take_off(context, now, Place::Ready);
        self.threads[thread as usize].flight = Flight::Work(0);
        self.enqueue(thread, context);
        self.dispatch(context, now, 0);
    }

    /// The running thread yields; false if there is nobody to yield to. To be suspended if true.
    pub(super) fn yields(&mut self) -> bool {
        let (thread, now) = (self.current, self.now);
        let context = self.threads[thread as usize].context;
        if self.contexts[context].queue.is_empty() {
            return false;
        }
        self.charge(thread, now);
        let last = self.contexts[context].queue.iter().map(|&other| self.threads[other as usize].vruntime).max();
        let known = &mut self.threads[thread as usize];
        known.vruntime = known.vruntime.max(last.unwrap_or(0) + 1);
        self.give_way();
        true
    }

    /// The running thread blocks, or ends. To be suspended.
    pub(super) fn leaves(&mut self, state: State) {
        let (thread, now) = (self.current, self.now);
        let context = self.threads[thread as usize].context;
        self.take_off(context, now, Place::Blocked);
        let known = &mut self.threads[thread as usize];
        (known.state, known.flight) = (state, Flight::Work(0));
        self.dispatch(context, now, 0);
        self.forget_last(context);
    }

    /// If nobody has `context` now it is the kernel's idle thread that has it, from which to come back is a switch.
    pub(super) fn forget_last(&mut self, context: usize) {
        if self.contexts[context].current == NOBODY {
            self.contexts[context].last = NOBODY;
        }
    }

    pub(super) fn arm_tick(&mut self, context: usize, now: u64) {
        let is_special = self.is_special();
        let place = &mut self.contexts[context];
        if place.tick_armed || place.queue.is_empty() && !is_special {
            return;
        }
        place.tick_armed = true;
        let current = place.current;
        if current != NOBODY {
            // Slices that ended while nobody waited were followed by another one.
            self.charge(current, now);
            self.threads[current as usize].slice_used %= self.parameters.scheduler.slice_ns;
        }
        // Contexts tick one after the other, as in Linux without `skew_tick` they do by chance of their start.
        let period = self.parameters.scheduler.tick_ns;
        let phase = context as u64 * period / self.contexts.len() as u64;
        let next = (now + period - phase) / period * period + phase;
        self.push(next.max(now + 1), Event::Tick { context: context as u32 });
    }

    pub(super) fn tick(&mut self, context: usize, now: u64) {
        self.contexts[context].tick_armed = false;
        let current = self.contexts[context].current;
        let is_alone = self.contexts[context].queue.is_empty();
        if current == NOBODY || is_alone && !self.is_special() {
            return;
        }
        self.charge(current, now);
        if is_alone {
            self.slice_goes_on(current, now);
            self.arm_tick(context, now);
            return;
        }
        let is_over = self.threads[current as usize].slice_used >= self.parameters.scheduler.slice_ns;
        if is_over && !self.extend(context, now) {
            self.threads[current as usize].slice_used = 0;
            self.preempt(context, now);
        }
        self.arm_tick(context, now);
    }

    /// Lets the thread on `context` run on if it asked for that; once.
    fn extend(&mut self, context: usize, now: u64) -> bool {
        let extension = self.parameters.scheduler.extension_ns;
        let known = &mut self.threads[self.contexts[context].current as usize];
        if extension == 0 || !known.wants_extension || known.extended {
            return false;
        }
        known.extended = true;
        self.contexts[context].tick_armed = true;
        self.push(now + extension, Event::Tick { context: context as u32 });
        true
    }

    /// Moves a thread from the longest run queue to the shortest.
    pub(super) fn balance(&mut self, now: u64) {
        self.push(now + self.parameters.scheduler.balance_ns, Event::Balance);
        if self.queued == 0 {
            return;
        }
        let count = self.contexts.len();
        // From anywhere, so that the same contexts are not always the first to lose.
        let first = self.random.usize(0..count);
        let around = || (0..count).map(|offset| (first + offset) % count);
        // Where there are two sides a context may have nothing to do while somebody waits on the other; once one of them may
        // change sides, or the sides have changed, it looks again, as Linux' idle processors do at each tick.
        if self.is_special() {
            let idle: Vec<usize> = around().filter(|&context| self.contexts[context].current == NOBODY).collect();
            for context in idle {
                self.dispatch(context, now, self.parameters.scheduler.idle_exit_ns);
            }
        }
        if let Some((from, to)) = self.to_push_out() {
            self.push_out(from, to, now);
        }
        let load = |context: usize| self.contexts[context].queue.len();
        let pair = |is_part: &dyn Fn(&usize) -> bool| {
            let mut part: Vec<usize> = (0..count).filter(|context| is_part(context)).collect();
            let offset = first % part.len().max(1);
            part.rotate_left(offset);
            let part = || part.iter().copied();
            let pair = (part().max_by_key(|&context| load(context))?, part().min_by_key(|&context| load(context))?);
            (load(pair.0) != load(pair.1)).then_some(pair)
        };
        // The special set and the rest each for itself; without a set all are one.
        let first_of_all = self.same_side(0, count - 1);
        let pairs = [
            pair(&|&context| self.same_side(0, context)),
            if first_of_all { None } else { pair(&|&context| self.same_side(count - 1, context)) },
        ];
        for (longest, shortest) in pairs.into_iter().flatten() {
            self.even_out(longest, shortest, now);
        }
    }

    /// The thread that runs on `from` goes on on `to`, which has nothing to do.
    fn push_out(&mut self, from: usize, to: usize, now: u64) {
        let thread = self.take_off(from, now, Place::Ready);
        let known = &mut self.threads[thread as usize];
        if let Flight::Work(_) = known.flight {
            known.flight = Flight::Work(known.resumes_at.saturating_sub(now));
        }
        self.preemptions += 1;
        self.move_vruntime(thread, from, to);
        self.enqueue(thread, to);
        self.dispatch(to, now, self.parameters.scheduler.idle_exit_ns);
        self.dispatch(from, now, 0);
    }

    fn even_out(&mut self, longest: usize, shortest: usize, now: u64) {
        if let Some(thread) = self.pick(longest) {
            self.move_vruntime(thread, longest, shortest);
            self.enqueue(thread, shortest);
            if self.contexts[shortest].current == NOBODY {
                self.dispatch(shortest, now, self.parameters.scheduler.idle_exit_ns);
            } else {
                self.arm_tick(shortest, now);
            }
        }
    }
}
