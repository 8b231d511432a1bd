//! How the library serves a lock's operations, in one byte: the process's
//! [service](crate::config::Service) and the lock's number in a [strategy](crate::strategy) taken
//! together, so that an operation reads one word for both.

/// How the operations of a lock are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Route(u8);

impl Route {
    /// By libc.
    pub(crate) const LIBC: Route = Route(1);
    /// As a [strategy](crate::strategy) will decide when a thread takes the lock.
    pub(crate) const UNDECIDED: Route = Route(2);
    /// By the default pair, called directly and without a count.
    pub(crate) const DIRECT: Route = Route(3);

    /// Through the table of the lock's pair.
    const PAIR: u8 = 4;
    const COUNTED: u8 = 8;
    const ELIDED: u8 = 16;

    /// Through the table of the lock's pair. `is_counted` says whether acquisitions are counted,
    /// and `is_elided` whether the sections of mutexes without a set type, and those of
    /// reader-writer locks, may be elided.
    pub(crate) fn by_pair(is_counted: bool, is_elided: bool) -> Route {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        Route(Self::PAIR | flag(is_counted, Self::COUNTED) | flag(is_elided, Self::ELIDED))
    }

    /// The route in a byte; `None` for 0.
    #[inline(always)]
    pub(crate) fn from_byte(byte: u8) -> Option<Route> {
        (byte != 0).then_some(Route(byte))
    }

    /// A byte other than 0.
    pub(crate) fn byte(self) -> u8 {
        self.0
    }

    #[inline(always)]
    pub(crate) fn is_counted(self) -> bool {
        self.0 & Self::COUNTED != 0
    }

    #[inline(always)]
    pub(crate) fn is_elided(self) -> bool {
        self.0 & Self::ELIDED != 0
    }
}
