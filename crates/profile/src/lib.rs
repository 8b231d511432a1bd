//! The format of lock profiles. The interposer maps the file and fills it while the program runs;
//! the command reads it.
//!
//! The file is one [`Profile`], which consists of tables of fixed size. So the file's size is known
//! before the program runs, and what a killed program has recorded stays in the file. Threads fill
//! the tables with atomic operations, without locks and without allocation.

pub mod histogram;
mod killed;
pub mod layout;
pub mod live;
mod mappings;
pub mod observation;
pub mod page;
pub mod read;
mod since;
mod tables;

pub use layout::{Kind, Profile, Source};
pub use mappings::Mapping;
pub use read::{Damage, Recorded};
pub use tables::{mix, weight};
