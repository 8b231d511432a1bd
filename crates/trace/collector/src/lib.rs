//! The version-neutral core of the collectors of address sets: what a plug-in of an emulator needs, whatever the emulator's interface is, to
//! write the stream of `unconvoy-trace-stream` from many threads at a time.
//!
//! | module | idea |
//! | --- | --- |
//! | [`set`] | an address set |
//! | [`shadow`] | a table over the program's memory |
//! | [`locks`] | the locks that were used, and which bytes are theirs |
//! | [`log`] | the stream, in one order, without a lock on a section's path |
//! | [`argument`] | what QEMU hands to a plug-in |
//! | [`draw`] | which sections are sampled |
//! | [`places`] | the numbers of places in the code |
//! | [`end`] | the stream's last record |

pub mod argument;
pub mod draw;
pub mod end;
pub mod locks;
pub mod log;
pub mod places;
pub mod set;
pub mod shadow;
