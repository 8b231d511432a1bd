//! The core of the QEMU plug-ins that collect address sets: everything that does not depend on
//! QEMU's mode or on the version of its interface. A front end ([`front::FrontEnd`]) adds the rest:
//! `unconvoy-plugin-user` for programs, `unconvoy-plugin-system` for a kernel.
//!
//! | module | purpose |
//! | --- | --- |
//! | [`front`] | the interface between QEMU and a front end: installation and common callbacks |
//! | [`recorder`] | samples sections of one thread or virtual processor |
//! | [`vcpus`] | threads or virtual processors by QEMU's numbers |
//! | [`collection`] | the shared state: the stream from its first record to its last |
//! | [`counts`] | a thread's counts of lock acquisitions |
//! | [`set`] | an address set |
//! | [`places`] | numbers of places in the code |
//! | [`locks`] | the locks used so far, and which bytes belong to them |
//! | [`shadow`] | a table over the program's memory |
//! | [`log`] | writes the stream in one order, without a mutex on the path of a section |
//! | [`messages`] | errors and notes |
//! | [`notes`] | what the collector could not see |
//! | [`options`] | the options that QEMU passes to a plug-in |
//! | [`state`] | the emulated processor's registers; switches memory callbacks on and off |
//! | [`memory`] | reads memory that may be unmapped |
//! | [`decode`] | classifies instructions |
//! | [`api`] | declarations of QEMU's interface |

pub mod api;
pub mod collection;
pub mod counts;
pub mod decode;
pub mod front;
pub mod locks;
pub mod log;
pub mod memory;
pub mod messages;
pub mod notes;
pub mod options;
pub mod places;
pub mod recorder;
pub mod set;
pub mod shadow;
pub mod state;
pub mod vcpus;
