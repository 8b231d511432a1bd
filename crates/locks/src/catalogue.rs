//! The names under which a user asks for a lock: one table for the command line, the interposer,
//! the benchmarks, the generic suite and the documentation. The tables in docs/locks.md,
//! docs/sensors.md and docs/environment.md are generated from here (`make docs`).

pub mod environment;

mod contention;
mod load;

pub use contention::{CONTENTION_MANAGERS, Class, ContentionManager, Purpose};
pub use load::{LOAD_MANAGERS, LoadManager, POLICIES, Policy, SENSORS, Sensor};

/// One nameable half of a lock, or a sensor of the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// What a user writes: `--lock NAME`, `--load NAME` or `--sensor NAME`.
    pub name: &'static str,
    /// One sentence for `--help` and `unconvoy locks`.
    pub summary: &'static str,
}

/// The entries of a table, in its order.
macro_rules! entries {
    ($table:ident) => {
        &{
            let mut entries = [$table[0].entry; $table.len()];
            let mut place = 0;
            while place < entries.len() {
                entries[place] = $table[place].entry;
                place += 1;
            }
            entries
        }
    };
}

/// The contention managers, the default first.
pub const CONTENTION: &[Entry] = entries!(CONTENTION_MANAGERS);

/// The load managers, the default first.
pub const LOAD: &[Entry] = entries!(LOAD_MANAGERS);

/// The control policies of load control, the default first.
pub const POLICY: &[Entry] = entries!(POLICIES);

/// The sensors of load control, the default first. `N` stands for a number.
pub const SENSOR: &[Entry] = entries!(SENSORS);

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
    use crate::platform::native;

    let needs = match name {
        "tpmcs-slice" => native::slice::extension().map_err(Availability::Reduced),
        "elided" => native::transaction::available().map_err(Availability::Refused),
        _ => Ok(()),
    };
    needs.err().unwrap_or(Availability::Full)
}

/// Calls `$callback!` with the rows of both tables as `[("name", type), ...] [("name", type),
/// ...]`: contention managers on the native platform, or on the one that is named, and load managers. The one
/// list of what there is; the interposer, the generic suite, the benchmarks and the simulator are made from it.
#[macro_export]
macro_rules! with_managers {
    ($callback:path) => {
        $crate::with_managers!($callback, $crate::platform::Native);
    };
    ($callback:path, $platform:ty) => {
        $callback! {
            [
                ("loiter", $crate::contention::loiter::Loiter<$platform>),
                ("tpmcs", $crate::contention::tpmcs::TpMcs<$platform>),
                ("tpmcs-yield", $crate::contention::tpmcs::TpMcsYield<$platform>),
                ("tpmcs-slice", $crate::contention::tpmcs::TpMcsSlice<$platform>),
                ("mcs", $crate::contention::mcs::Mcs<$platform>),
                ("clh", $crate::contention::clh::Clh<$platform>),
                ("ticket", $crate::contention::ticket::Ticket<$platform>),
                ("ticket-backoff", $crate::contention::ticket::TicketBackoff<$platform>),
                ("requester", $crate::contention::requester::Requester<$platform>),
                ("ttas", $crate::contention::ttas::Ttas<$platform>),
                ("tas", $crate::contention::tas::Tas<$platform>),
                ("elided", $crate::contention::elided::Elided<$platform>),
                ("futex", $crate::contention::futex::Futex<$platform>)
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
