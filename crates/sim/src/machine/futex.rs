//! Parking, waking and sleeping.

use super::Machine;
use super::event::Event;
use super::thread::State;

impl Machine {
    /// The running thread blocks on `place`, until it is woken there or until `deadline`. To be suspended.
    pub(super) fn blocks(&mut self, place: usize, deadline: Option<u64>) {
        let thread = self.current;
        self.threads[thread as usize].parked_on = Some(place);
        self.parked.entry(place).or_default().push_back(thread);
        self.leaves(State::Blocked);
        self.set_timer(thread, deadline);
    }

    /// The running thread sleeps until the time `deadline`. To be suspended.
    pub(super) fn sleeps(&mut self, deadline: u64) {
        let thread = self.current;
        self.leaves(State::Blocked);
        self.set_timer(thread, Some(deadline));
    }

    /// The same, whatever the resolution of timers.
    pub(super) fn sleeps_exactly(&mut self, end: u64) {
        let thread = self.current;
        self.leaves(State::Blocked);
        self.announce_timer(thread, end);
    }

    fn set_timer(&mut self, thread: u32, deadline: Option<u64>) {
        if let Some(deadline) = deadline {
            let scheduler = &self.parameters.scheduler;
            let late = (deadline + scheduler.timer_slack_ns).max(self.now + 1);
            // A controller has a timer of high resolution where others have not (ASPLOS 2010, section 3.2.1).
            let is_exact = scheduler.timer_tick_ns == 0 || !self.threads[thread as usize].is_load;
            let at = if is_exact { late } else { late.next_multiple_of(scheduler.timer_tick_ns) };
            self.announce_timer(thread, at);
        }
    }

    fn announce_timer(&mut self, thread: u32, at: u64) {
        let known = &mut self.threads[thread as usize];
        known.is_timed = true;
        let token = known.token;
        self.push(at, Event::Timer { thread, token });
    }

    /// The running thread wakes up to `count` threads that are parked on `place`.
    pub(super) fn wakes(&mut self, place: usize, count: u32) {
        for _ in 0..count {
            let Some(thread) = self.parked.get_mut(&place).and_then(std::collections::VecDeque::pop_front) else {
                self.parked.remove(&place);
                return;
            };
            self.now += self.parameters.scheduler.wake_thread_ns;
            self.unblock(thread, self.now);
        }
        if self.parked.get(&place).is_some_and(std::collections::VecDeque::is_empty) {
            self.parked.remove(&place);
        }
    }

    /// A blocked thread's time is up.
    pub(super) fn timer(&mut self, thread: u32, token: u32, now: u64) {
        let known = &self.threads[thread as usize];
        if known.token != token || known.state != State::Blocked {
            return;
        }
        if let Some(place) = known.parked_on
            && let Some(queue) = self.parked.get_mut(&place)
        {
            queue.retain(|&parked| parked != thread);
        }
        self.unblock(thread, now);
    }

    fn unblock(&mut self, thread: u32, now: u64) {
        let known = &mut self.threads[thread as usize];
        known.parked_on = None;
        known.is_timed = false;
        known.token = known.token.wrapping_add(1);
        self.wake(thread, now);
    }

    /// A line for each thread that has not ended: what it is at.
    pub(super) fn describe(&self) -> String {
        let alive = self.threads.iter().filter(|thread| thread.state != State::Done);
        alive
            .map(|thread| {
                let parked = thread.parked_on.and_then(|place| self.arena.offset_of(place));
                let parked = parked.map_or(String::new(), |place| format!(" on {place:#x}"));
                let (activity, place) = thread.account.whereabouts();
                format!(
                    "  {}: {activity:?}, {place:?}{parked}, context {}, {:?}\n",
                    thread.name, thread.context, thread.flight
                )
            })
            .collect()
    }
}
