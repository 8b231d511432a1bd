//! Advice on a program's locks: what is wrong, what would help, and how much.
//!
//! [`entry`] names a lock for a strategy file.

pub mod entry;
