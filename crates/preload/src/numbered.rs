//! Locks with a number in a [`strategy`], which decides it at the lock's initialisation or when a
//! thread takes the lock for the first time.

use core::ptr;

use crate::config;
use crate::dispatch::Pair;
use crate::held;
use crate::profile;
use crate::route::Route;
use crate::strategy::{self, Kind};

pub(crate) trait Numbered: Sized {
    const KIND: Kind;

    /// The lock's number; `None` if the lock is libc's by its attributes.
    fn number(&self) -> Option<u8>;

    /// Sets the number, unless another thread has set it.
    fn set_number(&self, number: u8);

    #[inline(always)]
    fn address(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    /// How the lock is served now.
    #[inline(always)]
    fn route(&self) -> Route {
        self.number().map_or(Route::LIBC, config::route)
    }

    /// As [`Self::route`]; `None` while the process's service is not determined.
    #[inline(always)]
    fn known_route(&self) -> Option<Route> {
        self.number().map_or(Some(Route::LIBC), config::known_route)
    }

    /// The route of a lock whose sections are not elided, in a process whose service is determined
    /// and without a watchdog. Such locks skip the first steps of the slow paths.
    #[inline(always)]
    fn usual_route(&self) -> Option<Route> {
        self.known_route().filter(|route| !route.is_elided() && !held::is_kept())
    }

    #[inline(always)]
    fn is_libcs(&self) -> bool {
        self.route() == Route::LIBC
    }

    /// The pair that serves the lock.
    #[inline(always)]
    fn pair(&self) -> &'static Pair {
        strategy::pair(self.number().unwrap_or(strategy::DEFAULT))
    }

    /// Begins a wait through the table of the lock's pair, which it returns.
    fn begin_wait(&self) -> &'static Pair {
        strategy::bound_spin(self.number().unwrap_or(strategy::DEFAULT));
        self.pair()
    }

    /// How the lock is served from now on: its caller takes the lock, perhaps for the first time.
    #[inline(always)]
    fn decided_route(&self) -> Route {
        match self.known_route() {
            None | Some(Route::UNDECIDED) => self.decide(),
            Some(route) => route,
        }
    }

    /// Decides how the lock is served, if that is undecided.
    #[cold]
    #[inline(never)]
    fn decide(&self) -> Route {
        if self.route() == Route::UNDECIDED {
            self.set_number(strategy::number_at_first_use(Self::KIND, self.address()));
        }
        self.route()
    }

    /// Records in a profile where this lock of libc's is taken first, which its number remembers.
    #[inline]
    fn record_first_use(&self) {
        if self.number() == Some(strategy::UNDECIDED)
            && profile::may_record()
            && profile::first_taken(self.address())
        {
            self.set_number(strategy::LIBC);
        }
    }

    /// Decides how the lock is served, if a strategy says so at its initialisation.
    #[cold]
    fn decide_at_initialisation(&self) {
        let number = strategy::number_at_initialisation(Self::KIND, self.address());
        if let Some(number) = number.filter(|_| !self.is_libcs()) {
            self.set_number(number);
        }
    }
}
