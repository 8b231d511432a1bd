//! unconvoy: locks that keep their speed when threads outnumber processors.

pub mod catalogue;
pub mod contention;
pub mod load;
pub mod lock;
pub mod platform;
