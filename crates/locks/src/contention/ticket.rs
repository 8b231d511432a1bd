//! The ticket lock (Reed and Kanodia 1979; Mellor-Crummey and Scott 1991), with tickets that can be
//! given up.
//!
//! A waiter draws a ticket and spins until it is served. A ticket cannot be handed back, so a
//! waiter that abandons the lock strikes it out: one bit per ticket in a window, which the releaser steps
//! over. All of it is one word, so that every step is one compare-and-swap.
//!
//! ```text
//!  63 ....... 32    30      29 .... 15   14 ..... 0
//!  left, 32 bits   parked     serving       next
//!
//!  serving = 7, next = 11, left = { 9 }:  7 holds, 8 waits, 9 is gone, 10 waits
//! ```
//!
//! What a waiter does between two looks at the word is a [`WaitStrategy`].
//!
//! **Invariant 1.** `next - serving <= 32` (modulo 2^15, of which 32 is a divisor): a thread draws
//! a ticket only while the window has room, and else polls outside it. So no two tickets in use
//! share a bit of `left`.
//!
//! **Invariant 2.** A bit is set by the ticket's owner while the ticket is not served, and cleared
//! by the releaser that steps over it.
//!
//! **Invariant 3.** The word is used only while `generation` is the process's; the first to find it
//! otherwise, in the child of a `fork`, clears the tickets of waiters that do not exist there.
//!
//! **Memory orderings.** The releasing compare-and-swap pairs with the acquiring load that sees
//! one's ticket served.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};

use super::Contention;
use crate::primitive::turn::{Outcome, Turn, Verdict};
use crate::primitive::{Atomic, Primitive};

/// Tickets that may be out at a time: the bits of `left`.
const WINDOW: u64 = 32;
const TICKET_BITS: u32 = 15;
const TICKETS: u64 = (1 << TICKET_BITS) - 1;
const PARKED: u64 = 1 << 30;

/// Backoff per waiter ahead: some short critical sections' time. Shorter, the line is read more often
/// than it changes.
const BACKOFF_NS: u64 = 40;

/// What waiters do between two looks at the word.
pub trait WaitStrategy: Send + Sync {
    /// Passes some time, as one who has seen `word` hold `seen`, and by it `ahead` tickets before its
    /// own, the holder's included.
    fn wait<P: Primitive>(word: &P::U64, seen: u64, ahead: u64);
}

/// Look all the time: a release is seen at once, and its line read by every waiter.
pub struct Poll;

impl WaitStrategy for Poll {
    #[inline]
    fn wait<P: Primitive>(_word: &P::U64, _seen: u64, _ahead: u64) {
        P::pause();
    }
}

/// Look the more rarely the more are ahead: proportional backoff (Mellor-Crummey and Scott, ACM TOCS
/// 9(1), 1991, section 2.2).
pub struct Proportional;

impl WaitStrategy for Proportional {
    #[inline]
    fn wait<P: Primitive>(_word: &P::U64, _seen: u64, ahead: u64) {
        P::delay(BACKOFF_NS * ahead);
    }
}

/// No process's generation.
const BEING_DISOWNED: u32 = u32::MAX;

/// The word, taken apart.
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

    /// How many tickets are served before `ticket`.
    fn ahead_of(self, ticket: u64) -> u64 {
        ticket.wrapping_sub(self.serving()) & TICKETS
    }

    fn bit(ticket: u64) -> u64 {
        1 << (32 + ticket % WINDOW)
    }

    /// One more ticket drawn, if the window has room.
    fn drawn(self) -> Option<Word> {
        let next = (self.next() + 1) & TICKETS;
        (self.ahead_of(self.next()) < WINDOW).then_some(Word(self.0 & !TICKETS | next))
    }

    /// The holder's ticket done with: the next one that is not struck out is served.
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

/// A ticket lock whose waiters look at it as `W` says.
#[repr(C)]
pub struct TicketLock<P: Primitive, W> {
    word: P::U64,
    /// The process generation in which the tickets were drawn.
    generation: P::U32,
    strategy: PhantomData<W>,
}

/// The ticket lock whose waiters poll all the time.
pub type Ticket<P> = TicketLock<P, Poll>;

/// The ticket lock with proportional backoff.
pub type TicketBackoff<P> = TicketLock<P, Proportional>;

impl<P: Primitive, W> TicketLock<P, W> {
    /// In the child of a `fork`: the waiters stayed behind, so the tickets after the one being
    /// served are nobody's (Invariant 3). Also for the first to use a lock, which is of no generation yet.
    #[cold]
    fn disown(&self) {
        let old = self.generation.load(Acquire);
        if old == P::generation() {
            return; // somebody has just done it, and the tickets drawn since are of this process
        }
        if old == BEING_DISOWNED || self.generation.compare_exchange(old, BEING_DISOWNED, Acquire, Relaxed).is_err() {
            while self.generation.load(Acquire) == BEING_DISOWNED {
                P::yield_now();
            }
            return;
        }
        let word = Word(self.word.load(Relaxed));
        let next = if word.is_free() { word.serving() } else { (word.serving() + 1) & TICKETS };
        self.word.store(word.serving() << TICKET_BITS | next, Relaxed);
        self.generation.store(P::generation(), Release);
    }

    /// Replaces the word by what `change` makes of it, until that sticks or `change` says there is
    /// nothing to do.
    #[inline]
    fn update(&self, order: Ordering, change: impl Fn(Word) -> Option<Word>) -> Option<Word> {
        if self.generation.load(Acquire) != P::generation() {
            self.disown();
        }
        // Acquire also where nothing is changed: a waiter may learn here that it is being served.
        self.word.modify(order, Acquire, |seen| change(Word(seen)).map(|word| word.0)).ok().map(Word)
    }
}

// SAFETY: one ticket is served at a time, and a ticket that was struck out is served to nobody
// (Invariant 2).
unsafe impl<P: Primitive, W: WaitStrategy> Contention for TicketLock<P, W> {
    fn unlocked() -> Self {
        TicketLock { word: P::U64::new(0), generation: P::U32::new(0), strategy: PhantomData }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.update(Acquire, |word| if word.is_free() { word.drawn() } else { None }).is_some()
    }

    fn attempt(&self, turn: &mut impl Turn) -> Outcome {
        let ticket = loop {
            if let Some(before) = self.update(Acquire, Word::drawn) {
                break before.next();
            }
            if turn.turn(P::now()) == Verdict::Leave {
                return Outcome::Abandoned;
            }
            W::wait::<P>(&self.word, self.word.load(Relaxed), WINDOW);
        };
        loop {
            let word = Word(self.word.load(Acquire));
            let ahead = word.ahead_of(ticket);
            if ahead == 0 {
                return Outcome::Acquired;
            }
            if turn.turn(P::now()) == Verdict::Leave {
                let strike = |word: Word| (word.serving() != ticket).then(|| Word(word.0 | Word::bit(ticket)));
                return if self.update(Acquire, strike).is_some() { Outcome::Abandoned } else { Outcome::Acquired };
            }
            W::wait::<P>(&self.word, word.0, ahead);
        }
    }

    #[inline]
    unsafe fn unlock(&self) -> bool {
        // Of a free word nothing is released: a program's mistake, which libc bears, and so is borne here.
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
        // All tickets that are out, but the holder's and those that were struck.
        word.ahead_of(word.next()) > 1 + u64::from((word.0 >> 32).count_ones())
    }
}
