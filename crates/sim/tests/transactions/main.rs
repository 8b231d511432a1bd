//! The simulated machine's transactions.

mod aborts;
mod conflicts;
mod scenario;
mod sections;
