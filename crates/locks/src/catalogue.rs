//! The names of locks, load managers, policies and sensors: one table for the command, the
//! interposer, the benchmarks, the generic suite and the documentation. `make docs` generates the
//! tables in docs/reference/locks.md, docs/reference/sensors.md and docs/reference/environment.md.

#[doc(hidden)]
pub mod environment;
#[doc(hidden)]
pub mod strategy;

mod contention;
mod entry;
mod load;

pub use contention::{CONTENTION, CONTENTION_MANAGERS, Class, ContentionManager, Exception, Order};
pub use entry::{Entry, Purpose};
pub use load::{
    LOAD, LOAD_MANAGERS, LoadManager, POLICIES, POLICY, Policy, SENSOR, SENSORS, Sensor,
};

/// Whether this machine supports an entry.
///
/// ```
/// use unconvoy::catalogue::{Availability, availability};
///
/// if let Availability::Reduced(why) | Availability::Refused(why) = availability("elided") {
///     println!("elided: {why}");
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability {
    /// Fully supported.
    Full,
    /// The lock works, but without its special feature: cause and remedy.
    Reduced(&'static str),
    /// The lock would have no benefit and is not used: cause and remedy.
    Refused(&'static str),
}

/// Whether this machine supports the contention manager `name`. Determined once, with a few system
/// calls at most.
///
/// ```
/// use unconvoy::catalogue::{Availability, availability};
///
/// assert_eq!(availability("loiter"), Availability::Full); // on every machine
/// ```
#[cfg(not(loom))]
pub fn availability(name: &str) -> Availability {
    use crate::primitive::native;

    let needs = match name {
        "tpmcs-slice" => native::slice::extension().map_err(Availability::Reduced),
        "elided" => native::transaction::available().map_err(Availability::Refused),
        _ => Ok(()),
    };
    needs.err().unwrap_or(Availability::Full)
}

/// Calls `$callback!` with the rows of both tables as `[("name", type), ...] [("name", type),
/// ...]`: contention managers on the native machine or on `$machine`, and load managers. The
/// interposer, the generic suite, the benchmarks and the simulator are built from this list.
///
/// ```
/// macro_rules! names {
///     ([$(($lock:literal, $contention:ty)),*] [$(($load:literal, $manager:ty)),*]) => {
///         const LOCKS: &[&str] = &[$($lock),*];
///         const LOADS: &[&str] = &[$($load),*];
///     };
/// }
/// unconvoy::with_managers!(names);
///
/// assert_eq!((LOCKS[0], LOADS[0]), ("loiter", "control")); // the defaults
/// ```
#[macro_export]
macro_rules! with_managers {
    ($callback:path) => {
        $crate::with_managers!($callback, $crate::primitive::Native);
    };
    ($callback:path, $machine:ty) => {
        $callback! {
            [
                ("loiter", $crate::contention::loiter::Loiter<$machine>),
                ("tpmcs", $crate::contention::tpmcs::TpMcs<$machine>),
                ("tpmcs-yield", $crate::contention::tpmcs::TpMcsYield<$machine>),
                ("tpmcs-slice", $crate::contention::tpmcs::TpMcsSlice<$machine>),
                ("mcs", $crate::contention::mcs::Mcs<$machine>),
                ("clh", $crate::contention::clh::Clh<$machine>),
                ("ticket", $crate::contention::ticket::Ticket<$machine>),
                ("ticket-backoff", $crate::contention::ticket::TicketBackoff<$machine>),
                ("requester", $crate::contention::requester::Requester<$machine>),
                ("ttas", $crate::contention::ttas::Ttas<$machine>),
                ("tas", $crate::contention::tas::Tas<$machine>),
                ("elided", $crate::contention::elided::Elided<$machine>),
                ("futex", $crate::contention::futex::Futex<$machine>)
            ]
            [
                ("control", $crate::load::control::Control),
                ("published", $crate::load::published::Published),
                ("backoff", $crate::load::backoff::Backoff),
                ("adaptive", $crate::load::adaptive::Adaptive),
                ("gcr", $crate::load::restrict::Gcr),
                ("malthus", $crate::load::restrict::Malthus),
                ("park", $crate::load::park::Park),
                ("yield", $crate::load::yielding::Yield),
                ("none", $crate::load::none::NoManager)
            ]
        }
    };
}
