//! The ticket lock (Reed and Kanodia 1979; Mellor-Crummey and Scott 1991), with tickets that can be
//! abandoned.
//!
//! A waiter draws a ticket and spins until the ticket is served. A ticket cannot be returned. A
//! waiter that abandons the lock instead marks its ticket, in a window of one bit per ticket, and
//! the releaser skips it. One word holds everything, so every step is one compare-and-swap.
//!
//! ```text
//!  63 .... 32   30       29 .... 15   14 .... 0
//!  abandoned    parked   serving      next
//!
//!  serving = 7, next = 11, abandoned = { 9 }:  7 holds, 8 waits, 9 has left, 10 waits
//! ```
//!
//! A [`WaitStrategy`] determines how a waiter spends the time between two reads of the word.
//!
//! **Invariant 1.** `next - serving <= 32` (modulo 2^15, a multiple of 32): a thread draws a ticket
//! only while the window has room, and polls otherwise. So no two outstanding tickets share a bit
//! of `abandoned`.
//!
//! **Invariant 2.** The ticket's owner sets its bit before the ticket is served. The releaser that
//! skips the ticket clears the bit.
//!
//! **Invariant 3.** The word is used only while `generation` is the process's. In the child of a
//! `fork`, the first thread to find another generation drops the tickets of waiters that stayed in
//! the parent. If the `fork` interrupted a thread of the parent that did the same, the child starts
//! over ([`ObjectGeneration`]).
//!
//! **Memory orderings.** The releasing compare-and-swap pairs with the acquiring load by which a
//! waiter sees its ticket served.

use core::cell::Cell;
use core::marker::PhantomData;
use core::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};

use super::Contention;
use crate::primitive::generation::ObjectGeneration;
use crate::primitive::turn::{Outcome, Turn, Verdict};
use crate::primitive::{Atomic, Primitive};

/// Most tickets outstanding at a time: the bits of `abandoned`.
const WINDOW: u64 = 32;
const TICKET_BITS: u32 = 15;
const TICKETS: u64 = (1 << TICKET_BITS) - 1;
const PARKED: u64 = 1 << 30;

/// Backoff per waiter ahead: the length of a few short critical sections. With less, waiters read
/// the line more often than it changes.
const BACKOFF_NS: u64 = 40;

/// How waiters spend the time between two reads of the word.
#[doc(hidden)]
pub trait WaitStrategy: Send + Sync {
    /// Waits for a moment after `word` was read as `seen`, with `ahead` tickets before the
    /// caller's, the holder's included.
    fn wait<P: Primitive>(word: &P::U64, seen: u64, ahead: u64);
}

/// Polls continuously: sees a release at once, at the cost of every waiter reading the line.
#[doc(hidden)]
pub struct Poll;

impl WaitStrategy for Poll {
    #[inline]
    fn wait<P: Primitive>(_word: &P::U64, _seen: u64, _ahead: u64) {
        P::pause();
    }
}

/// Polls less often with more tickets ahead: proportional backoff (Mellor-Crummey and Scott, ACM
/// TOCS 9(1), 1991, section 2.2).
#[doc(hidden)]
pub struct Proportional;

impl WaitStrategy for Proportional {
    #[inline]
    fn wait<P: Primitive>(_word: &P::U64, _seen: u64, ahead: u64) {
        P::delay(BACKOFF_NS * ahead);
    }
}

/// The word, decoded.
#[derive(Clone, Copy)]
struct Word(u64);

impl Word {
    fn next(self) -> u64 {
        self.0 & TICKETS
    }

    fn serving(self) -> u64 {
        self.0 >> TICKET_BITS & TICKETS
    }

    fn is_free(self) -> bool {
        self.next() == self.serving()
    }

    /// Number of tickets served before `ticket`.
    fn ahead_of(self, ticket: u64) -> u64 {
        ticket.wrapping_sub(self.serving()) & TICKETS
    }

    fn bit(ticket: u64) -> u64 {
        1 << (32 + ticket % WINDOW)
    }

    /// The word with one more ticket drawn, if the window has room.
    fn drawn(self) -> Option<Word> {
        let next = (self.next() + 1) & TICKETS;
        (self.ahead_of(self.next()) < WINDOW).then_some(Word(self.0 & !TICKETS | next))
    }

    /// The word after a release: serves the next ticket that was not abandoned.
    fn released(self) -> Word {
        let mut word = self.0;
        let mut serving = self.serving();
        loop {
            serving = (serving + 1) & TICKETS;
            if serving == self.next() || word & Self::bit(serving) == 0 {
                return Word(word & !(TICKETS << TICKET_BITS) | serving << TICKET_BITS);
            }
            word &= !Self::bit(serving);
        }
    }
}

/// A ticket lock that waits as `W` specifies.
#[doc(hidden)]
#[repr(C)]
pub struct TicketLock<P: Primitive, W> {
    word: P::U64,
    /// The process generation in which the tickets were drawn.
    generation: ObjectGeneration<P>,
    strategy: PhantomData<W>,
}

/// The ticket lock whose waiters poll continuously.
///
#[doc = example_of_pair!("ticket::Ticket", "control::Control")]
pub type Ticket<P> = TicketLock<P, Poll>;

/// The ticket lock with proportional backoff.
///
#[doc = example_of_pair!("ticket::TicketBackoff", "control::Control")]
pub type TicketBackoff<P> = TicketLock<P, Proportional>;

impl<P: Primitive, W> TicketLock<P, W> {
    /// Drops the tickets after the one being served (Invariant 3).
    fn drop_waiting_tickets(&self) {
        let word = Word(self.word.load(Relaxed));
        let next = if word.is_free() { word.serving() } else { (word.serving() + 1) & TICKETS };
        self.word.store(word.serving() << TICKET_BITS | next, Relaxed);
    }

    /// Replaces the word by the result of `change` until a compare-and-swap succeeds or `change`
    /// returns `None`.
    #[inline]
    fn update(&self, order: Ordering, change: impl Fn(Word) -> Option<Word>) -> Option<Word> {
        self.generation.adopt(|| self.drop_waiting_tickets());
        // Acquire on failure too: the caller may learn from the unchanged word that its ticket is
        // served.
        self.word
            .modify(order, Acquire, |seen| change(Word(seen)).map(|word| word.0))
            .ok()
            .map(Word)
    }
}

// SAFETY: one ticket is served at a time, and an abandoned ticket is never served (Invariant 2).
unsafe impl<P: Primitive, W: WaitStrategy> Contention for TicketLock<P, W> {
    fn unlocked() -> Self {
        TicketLock {
            word: P::U64::new(0),
            generation: ObjectGeneration::unused(),
            strategy: PhantomData,
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.update(Acquire, |word| if word.is_free() { word.drawn() } else { None }).is_some()
    }

    fn attempt(&self, turn: &mut impl Turn) -> Outcome {
        // The word without room: a wait for a change of a later one might miss the last change.
        let seen = Cell::new(0);
        let ticket = loop {
            let draw = |word: Word| {
                seen.set(word.0);
                word.drawn()
            };
            if let Some(before) = self.update(Acquire, draw) {
                break before.next();
            }
            if turn.turn(P::now()) == Verdict::Leave {
                return Outcome::Abandoned;
            }
            W::wait::<P>(&self.word, seen.get(), WINDOW);
        };
        loop {
            let word = Word(self.word.load(Acquire));
            let ahead = word.ahead_of(ticket);
            if ahead == 0 {
                return Outcome::Acquired;
            }
            if turn.turn(P::now()) == Verdict::Leave {
                let strike = |word: Word| {
                    (word.serving() != ticket).then(|| Word(word.0 | Word::bit(ticket)))
                };
                return if self.update(Acquire, strike).is_some() {
                    Outcome::Abandoned
                } else {
                    Outcome::Acquired
                };
            }
            W::wait::<P>(&self.word, word.0, ahead);
        }
    }

    #[inline]
    unsafe fn unlock(&self) -> bool {
        // Unlocking a free lock, a bug that libc tolerates, has no effect.
        let release = |word: Word| if word.is_free() { word } else { word.released() };
        self.update(Release, |word| (word.0 & PARKED == 0).then(|| release(word))).is_some()
    }

    unsafe fn clear_parked_bit(&self) {
        self.update(Relaxed, |word| Some(Word(word.0 & !PARKED)));
    }

    fn set_parked_bit(&self) -> bool {
        self.update(Acquire, |word| (!word.is_free()).then_some(Word(word.0 | PARKED))).is_some()
    }

    fn is_locked(&self) -> bool {
        !Word(self.word.load(Relaxed)).is_free()
    }

    fn has_contender(&self) -> bool {
        let word = Word(self.word.load(Relaxed));
        // The outstanding tickets, less the holder's and the abandoned ones.
        word.ahead_of(word.next()) > 1 + u64::from((word.0 >> 32).count_ones())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::primitive::Native;

    /// Checks that every wait is for a change of a word that has already changed.
    struct SeesTheChange;

    impl WaitStrategy for SeesTheChange {
        fn wait<P: Primitive>(word: &P::U64, seen: u64, _: u64) {
            assert_ne!(word.load(Relaxed), seen, "no thread would ever change the word again");
        }
    }

    /// A child of a `fork` has the word with the tickets of its parent's threads.
    #[test]
    fn waiting_tickets_are_dropped() {
        let lock = Ticket::<Native>::unlocked();
        let word = |serving: u64, next: u64| serving << TICKET_BITS | next;
        for (serving, next, kept) in [(3, 6, 4), (TICKETS, 2, 0), (5, 5, 5)] {
            lock.word.store(word(serving, next) | Word::bit(next), Relaxed);
            lock.drop_waiting_tickets();
            assert_eq!(lock.word.load(Relaxed), word(serving, kept));
        }
    }

    /// A release between the look for a free ticket and the wait for one was missed: the thread
    /// waited for the change after it.
    #[test]
    fn arrival_without_a_ticket_does_not_miss_the_release_before_its_wait() {
        let lock = TicketLock::<Native, SeesTheChange>::unlocked();
        assert!(lock.try_lock());
        for _ in 1..WINDOW {
            assert_eq!(lock.attempt(&mut |_| Verdict::Leave), Outcome::Abandoned);
        }
        let mut release = |_| {
            // SAFETY: the test holds the lock.
            assert!(unsafe { lock.unlock() });
            Verdict::Spin
        };
        assert_eq!(lock.attempt(&mut release), Outcome::Acquired);
    }
}
