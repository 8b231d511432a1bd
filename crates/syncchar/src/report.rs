//! The report: locks ordered by time held, with their possible gain (Table 2 of the paper), the
//! program's projection, hot spots and advice. JSON by serde; [`Report::text`] for a terminal.

mod class;
mod join;
mod mean;
mod names;
mod record;
mod text;

pub use names::{Nameless, Names};
pub use record::{
    Advised, Average, ClassReport, Clock, LockReport, LockTimes, Report, Run, SCHEMA,
};
