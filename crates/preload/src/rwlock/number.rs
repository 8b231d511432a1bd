//! A reader-writer lock's number in a strategy, and the pair that serves the lock.

use core::sync::atomic::Ordering::Relaxed;

use super::RwLock;
use crate::chosen::pair;
use crate::config;
use crate::dispatch::Pair;
use crate::{profile, strategy};

impl RwLock {
    #[inline(always)]
    pub(super) fn number(&self) -> u8 {
        self.number.load(Relaxed) as u8
    }

    /// Whether a strategy has yet to decide how this lock is served. False for a lock of libc's,
    /// and while the service is not determined.
    #[inline(always)]
    pub(super) fn is_undecided(&self) -> bool {
        strategy::decides()
            && self.number() == strategy::UNDECIDED
            && self.shared.load(Relaxed) == 0
    }

    /// Decides how this lock is served, if that is undecided: its caller takes the lock for the
    /// first time. Returns whether it was undecided.
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
        self.set_number(strategy::number_at_first_use(strategy::Kind::RwLock, address));
    }

    /// Records in a profile where this lock of libc's is taken first, which its number remembers.
    pub(super) fn record_first_use(&self) {
        if profile::may_record()
            && self.number() == strategy::UNDECIDED
            && self.shared.load(Relaxed) == 0
            && profile::first_taken(core::ptr::from_ref(self).addr())
        {
            self.set_number(strategy::LIBC);
        }
    }

    /// Decides how this lock is served, if a strategy says so at its initialisation.
    #[cold]
    pub(crate) fn decide_at_initialisation(&self) {
        let address = core::ptr::from_ref(self).addr();
        let number = strategy::number_at_initialisation(strategy::Kind::RwLock, address);
        if let Some(number) = number.filter(|_| !self.is_libcs()) {
            self.set_number(number);
        }
    }

    /// Sets the number, unless another thread has set it.
    fn set_number(&self, number: u8) {
        let undecided = strategy::UNDECIDED.into();
        let _ = self.number.compare_exchange(undecided, number.into(), Relaxed, Relaxed);
    }

    /// The pair whose load manager serves this lock.
    pub(super) fn pair(&self) -> &'static Pair {
        match self.number() {
            strategy::UNDECIDED | strategy::DEFAULT => pair(),
            number => strategy::pair(number),
        }
    }
}
