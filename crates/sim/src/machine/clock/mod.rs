//! The clock: simulated time, and what is going to happen when.
//!
//! A thread's announcements have a token. Its next announcement, or its
//! [cancellation](Clock::cancel), gives it another one, and what was announced with the old token
//! does not happen.

mod event;

pub(crate) use event::Event;
use event::Events;

/// What was announced for a thread.
#[derive(Debug, Clone, Copy, Default)]
struct Alarm {
    token: u32,
    resumes_at: u64,
}

/// A machine's clock.
#[derive(Default)]
pub(crate) struct Clock {
    /// The time: of the thread that runs, or of what happened last.
    pub(crate) now: u64,
    /// When something else happens than the thread that runs.
    horizon: u64,
    events: Events,
    /// By thread.
    alarms: Vec<Alarm>,
    handled: u64,
}

impl Clock {
    /// A thread more.
    pub(crate) fn add_thread(&mut self) {
        self.alarms.push(Alarm::default());
    }

    /// Announces what concerns no thread.
    #[inline]
    pub(crate) fn push(&mut self, time: u64, event: Event) {
        self.horizon = self.horizon.min(time);
        self.events.push(time, event);
    }

    /// Announces that `thread` goes on at the time `at` and at no other.
    #[inline]
    pub(crate) fn announce(&mut self, thread: u32, at: u64) {
        self.cancel(thread);
        let alarm = &mut self.alarms[thread as usize];
        alarm.resumes_at = at;
        let token = alarm.token;
        self.push(at, Event::Resume { thread, token });
    }

    /// Announces that the sleep of `thread` is over at the time `at`.
    pub(crate) fn set_timer(&mut self, thread: u32, at: u64) {
        let token = self.alarms[thread as usize].token;
        self.push(at, Event::Timer { thread, token });
    }

    /// What was announced for `thread` does not happen.
    #[inline]
    pub(crate) fn cancel(&mut self, thread: u32) {
        let alarm = &mut self.alarms[thread as usize];
        alarm.token = alarm.token.wrapping_add(1);
    }

    /// When `thread` goes on, as it was announced last.
    #[inline]
    pub(crate) fn resumes_at(&self, thread: u32) -> u64 {
        self.alarms[thread as usize].resumes_at
    }

    /// What happens next, not after the time `end`. It is now that time, or `end` if nothing
    /// happens until then.
    #[inline]
    pub(crate) fn next(&mut self, end: u64) -> Option<Event> {
        while self.events.next() <= end {
            let (time, event) = self.events.pop()?;
            self.now = time;
            self.handled += 1;
            match event {
                Event::Resume { thread, token } | Event::Timer { thread, token }
                    if self.alarms[thread as usize].token != token => {}
                event => return Some(event),
            }
        }
        self.now = end;
        None
    }

    /// A thread runs, until what happens next.
    #[inline]
    pub(crate) fn begin_run(&mut self) {
        self.horizon = self.events.next();
    }

    /// Whether the thread that runs is ahead of what happens next by more than `ns` nanoseconds.
    #[inline(always)]
    pub(crate) fn is_ahead(&self, ns: u64) -> bool {
        self.now > self.horizon.saturating_add(ns)
    }

    /// Events that have happened, or did not because of their tokens.
    pub(crate) fn handled(&self) -> u64 {
        self.handled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(threads: u32) -> Clock {
        let mut clock = Clock::default();
        (0..threads).for_each(|_| clock.add_thread());
        clock
    }

    fn thread_of(event: Option<Event>) -> Option<u32> {
        match event {
            Some(Event::Resume { thread, .. } | Event::Timer { thread, .. }) => Some(thread),
            _ => None,
        }
    }

    #[test]
    fn announcement_replaces_the_one_before() {
        let mut clock = clock(2);
        clock.announce(0, 100);
        clock.announce(1, 150);
        clock.announce(0, 200);
        assert_eq!(clock.resumes_at(0), 200);
        assert_eq!((thread_of(clock.next(500)), clock.now), (Some(1), 150));
        assert_eq!((thread_of(clock.next(500)), clock.now), (Some(0), 200));
        assert_eq!((clock.next(500), clock.now), (None, 500));
        assert_eq!(clock.handled(), 3, "the replaced one too");
    }

    #[test]
    fn cancelled_timer_does_not_ring() {
        let mut clock = clock(2);
        clock.set_timer(0, 10);
        clock.set_timer(1, 20);
        clock.cancel(0);
        assert_eq!((thread_of(clock.next(500)), clock.now), (Some(1), 20));
    }

    #[test]
    fn time_stops_at_the_end_and_later_events_stay() {
        let mut clock = clock(0);
        clock.push(70, Event::Balance);
        assert_eq!((clock.next(69), clock.now), (None, 69));
        assert_eq!((clock.next(70), clock.now), (Some(Event::Balance), 70));
    }

    #[test]
    fn thread_is_ahead_of_what_is_announced_while_it_runs() {
        let mut clock = clock(0);
        clock.push(100, Event::Balance);
        clock.begin_run();
        clock.now = 100;
        assert!(!clock.is_ahead(0));
        clock.push(50, Event::Tick { context: 0 });
        assert!(clock.is_ahead(0) && clock.is_ahead(49) && !clock.is_ahead(50));
    }
}
