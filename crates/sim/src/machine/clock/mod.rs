//! The clock: simulated time and the future events.
//!
//! An event of a thread carries a token. Scheduling another event, or a
//! [cancellation](Clock::cancel), gives the thread a new token. Events with an old token are
//! ignored.

mod event;

pub(crate) use event::Event;
use event::Events;

/// The scheduled events of a thread.
#[derive(Debug, Clone, Copy, Default)]
struct Alarm {
    token: u32,
    resumes_at: u64,
}

#[derive(Default)]
pub(crate) struct Clock {
    /// The running thread's time, or the time of the last event.
    pub(crate) now: u64,
    /// Time of the next event other than the running thread's progress, or `end` if that is
    /// earlier.
    horizon: u64,
    /// When the simulation pauses.
    end: u64,
    events: Events,
    /// Indexed by thread.
    alarms: Vec<Alarm>,
    handled: u64,
}

impl Clock {
    pub(crate) fn add_thread(&mut self) {
        self.alarms.push(Alarm::default());
    }

    /// Schedules an event that belongs to no thread.
    #[inline]
    pub(crate) fn push(&mut self, time: u64, event: Event) {
        self.horizon = self.horizon.min(time);
        self.events.push(time, event);
    }

    /// Schedules the resumption of `thread` at `at`, and cancels its earlier events.
    #[inline]
    pub(crate) fn schedule_resume(&mut self, thread: u32, at: u64) {
        self.cancel(thread);
        let alarm = &mut self.alarms[thread as usize];
        alarm.resumes_at = at;
        let token = alarm.token;
        self.push(at, Event::Resume { thread, token });
    }

    /// Schedules the end of the sleep of `thread`.
    pub(crate) fn set_timer(&mut self, thread: u32, at: u64) {
        let token = self.alarms[thread as usize].token;
        self.push(at, Event::Timer { thread, token });
    }

    #[inline]
    pub(crate) fn cancel(&mut self, thread: u32) {
        let alarm = &mut self.alarms[thread as usize];
        alarm.token = alarm.token.wrapping_add(1);
    }

    /// When `thread` resumes, by its last scheduled event.
    #[inline]
    pub(crate) fn resumes_at(&self, thread: u32) -> u64 {
        self.alarms[thread as usize].resumes_at
    }

    /// Advances to the next event and returns it. Advances to `end` if no event happens until then.
    #[inline]
    pub(crate) fn next(&mut self, end: u64) -> Option<Event> {
        self.end = end;
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

    /// Starts a thread's run, which lasts until the next event or the simulation's pause.
    #[inline]
    pub(crate) fn begin_run(&mut self) {
        self.horizon = self.events.next().min(self.end);
    }

    /// Whether the running thread is ahead of the next event by more than `ns` nanoseconds.
    #[inline(always)]
    pub(crate) fn is_ahead(&self, ns: u64) -> bool {
        self.now > self.horizon.saturating_add(ns)
    }

    /// Number of events that happened, cancelled ones included.
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
    fn new_resumption_replaces_earlier_one() {
        let mut clock = clock(2);
        clock.schedule_resume(0, 100);
        clock.schedule_resume(1, 150);
        clock.schedule_resume(0, 200);
        assert_eq!(clock.resumes_at(0), 200);
        assert_eq!((thread_of(clock.next(500)), clock.now), (Some(1), 150));
        assert_eq!((thread_of(clock.next(500)), clock.now), (Some(0), 200));
        assert_eq!((clock.next(500), clock.now), (None, 500));
        assert_eq!(clock.handled(), 3, "the cancelled event counts too");
    }

    #[test]
    fn cancelled_timer_does_not_fire() {
        let mut clock = clock(2);
        clock.set_timer(0, 10);
        clock.set_timer(1, 20);
        clock.cancel(0);
        assert_eq!((thread_of(clock.next(500)), clock.now), (Some(1), 20));
    }

    #[test]
    fn clock_stops_at_end_and_keeps_later_events() {
        let mut clock = clock(0);
        clock.push(70, Event::Balance);
        assert_eq!((clock.next(69), clock.now), (None, 69));
        assert_eq!((clock.next(70), clock.now), (Some(Event::Balance), 70));
    }

    #[test]
    fn thread_runs_no_longer_than_to_the_pause() {
        let mut clock = clock(1);
        clock.schedule_resume(0, 10);
        clock.push(1_000_000, Event::Balance);
        assert_eq!(thread_of(clock.next(100)), Some(0));
        clock.begin_run();
        clock.now = 100;
        assert!(!clock.is_ahead(0));
        clock.now = 101;
        assert!(clock.is_ahead(0));
    }

    #[test]
    fn event_scheduled_during_run_moves_the_horizon() {
        let mut clock = Clock { end: 1_000, ..Clock::default() };
        clock.push(100, Event::Balance);
        clock.begin_run();
        clock.now = 100;
        assert!(!clock.is_ahead(0));
        clock.push(50, Event::Tick { context: 0 });
        assert!(clock.is_ahead(0) && clock.is_ahead(49) && !clock.is_ahead(50));
    }
}
