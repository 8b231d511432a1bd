//! The core of the plug-ins of QEMU that collect address sets: all that they do in either mode, in
//! any version of QEMU's interface. A front end adds what its mode needs ([`front::FrontEnd`]):
//! `unconvoy-plugin-user` for programs, `unconvoy-plugin-system` for a kernel.
//!
//! | module | idea |
//! | --- | --- |
//! | [`front`] | between QEMU and a front end: how a plug-in is installed, and the callbacks that are the same in all modes |
//! | [`recorder`] | what a thread or virtual processor needs to sample sections |
//! | [`vcpus`] | threads or processors by QEMU's numbers |
//! | [`collection`] | what all of them share: the stream from its beginning to its end |
//! | [`counts`] | what a thread has counted of locks |
//! | [`set`] | an address set |
//! | [`draw`] | which sections are sampled |
//! | [`places`] | the numbers of places in the code |
//! | [`locks`] | the locks that were used, and which bytes are theirs |
//! | [`shadow`] | a table over the program's memory |
//! | [`log`] | the stream, in one order, without a lock on a section's path |
//! | [`notes`] | what could not be seen |
//! | [`options`] | what QEMU hands to a plug-in |
//! | [`state`] | the emulated processor's registers, and the switch between code with and without memory callbacks |
//! | [`memory`] | memory that need not be there |
//! | [`decode`] | what instructions mean |
//! | [`api`] | declarations of QEMU's interface |

pub mod api;
pub mod collection;
pub mod counts;
pub mod decode;
pub mod draw;
pub mod front;
pub mod locks;
pub mod log;
pub mod memory;
pub mod notes;
pub mod options;
pub mod places;
pub mod recorder;
pub mod set;
pub mod shadow;
pub mod state;
pub mod vcpus;
