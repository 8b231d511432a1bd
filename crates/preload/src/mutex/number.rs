//! A mutex's number in a strategy.

use core::sync::atomic::Ordering::Relaxed;

use super::object::{Mutex, NUMBER, OWN_BITS};
use crate::config::{self, NUMBER_SHIFT};
use crate::{profile, strategy};

impl Mutex {
    /// The mutex's number in a strategy.
    #[inline(always)]
    pub(super) fn number(&self) -> u8 {
        ((self.kind.load(Relaxed) & NUMBER) >> NUMBER_SHIFT) as u8
    }

    /// Whether a strategy has yet to decide which algorithm serves this mutex. False for a mutex of
    /// libc's, and while the service is not determined.
    #[inline(always)]
    pub(super) fn is_undecided(&self) -> bool {
        strategy::decides() && self.kind.load(Relaxed) & !OWN_BITS == 0
    }

    /// Decides which algorithm serves this mutex, if that is undecided: its caller takes the mutex
    /// for the first time. Returns whether it was undecided.
    #[inline(always)]
    pub(super) fn decide(&self) -> bool {
        config::service(); // reads the strategy at the first call in a process
        let is_undecided = self.is_undecided();
        if is_undecided {
            self.decide_at_first_use();
        }
        is_undecided
    }

    #[cold]
    fn decide_at_first_use(&self) {
        let address = core::ptr::from_ref(self).addr();
        self.set_number(strategy::number_at_first_use(strategy::Kind::Mutex, address));
    }

    /// Records in a profile where this mutex of libc's is taken first, which its number remembers.
    #[inline(always)]
    pub(super) fn record_first_use(&self) {
        if self.kind.load(Relaxed) & !OWN_BITS == 0
            && profile::first_taken(core::ptr::from_ref(self).addr())
        {
            self.set_number(strategy::LIBC);
        }
    }

    /// Decides which algorithm serves this mutex, if a strategy says so at its initialisation.
    #[cold]
    pub(crate) fn decide_at_initialisation(&self) {
        let address = core::ptr::from_ref(self).addr();
        let number = strategy::number_at_initialisation(strategy::Kind::Mutex, address);
        if let Some(number) = number.filter(|_| !self.is_libcs()) {
            self.set_number(number);
        }
    }

    /// Sets the number, unless another thread has set it.
    fn set_number(&self, number: u8) {
        let kind = self.kind.load(Relaxed);
        let numbered = kind | i32::from(number) << NUMBER_SHIFT;
        if kind & NUMBER == 0 {
            let _ = self.kind.compare_exchange(kind, numbered, Relaxed, Relaxed);
        }
    }
}
