//! unconvoy: locks that keep their speed when threads outnumber processors.

pub mod catalogue;
