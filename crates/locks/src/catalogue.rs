//! The names under which a user asks for a lock: one table for the command line, the interposer,
//! the benchmarks, the generic suite and the documentation. The tables in docs/reference/locks.md,
//! docs/reference/sensors.md and docs/reference/environment.md are generated from here (`make docs`).

pub mod environment;

mod contention;
mod entry;
mod load;

pub use contention::{CONTENTION, CONTENTION_MANAGERS, Class, ContentionManager};
pub use entry::{Entry, Purpose};
pub use load::{LOAD, LOAD_MANAGERS, LoadManager, POLICIES, POLICY, Policy, SENSOR, SENSORS, Sensor};

/// Whether this machine can do what an entry is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability {
    /// It can.
    Full,
    /// The lock works, but without what sets it apart: cause and remedy.
    Reduced(&'static str),
    /// Nothing would be left of it, and it is not to be used: cause and remedy.
    Refused(&'static str),
}

/// Whether this machine can do what the contention manager `name` is made for. Found out once, by a
/// few system calls at most.
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
/// ...]`: contention managers on the native machine, or on the one that is named, and load managers. The one
/// list of what there is; the interposer, the generic suite, the benchmarks and the simulator are made from it.
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
