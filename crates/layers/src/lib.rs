//! A check of the workspace's own sources: the graph of file imports of every package has no
//! circle, and every arrow of it follows the layers.
//!
//! An arrow leads from a file to the file that defines a name which the first one uses: in a `use`,
//! in an inline path (`crate::a::b()`, `super::X`), in the tokens of a macro, in an attribute. A name
//! that a module re-exports from a child of its own is the child's: an import through the parent
//! is an arrow to the child, and the re-export is no arrow. A re-export of anything else is: whoever
//! imports through it depends on the file that holds the re-export, too. `mod x;` is no arrow.
//!
//! What `cfg(test)` guards is left out; every other configuration is taken to hold, so that one
//! graph has the native, the model-checked and the sanitised build. Method calls and trait
//! implementations without a path are not seen: they need types.
//!
//! `layers.toml` holds the architecture: each package's allowed dependencies, and the layers within
//! a package. `known.toml` holds the arrows that still break it, one a line, each with its reason.
//! The check fails for an arrow that is not there, and for a line without such an arrow.
//!
//! From the bottom up: [`source`], [`module`] and [`scan`]; [`collect`] and [`tree`] build the modules
//! of a target; [`resolve`] turns their paths into arrows; [`graph`] finds circles; [`rules`] reads the
//! two lists; [`check`] compares; [`workspace`] asks Cargo what there is to check.

pub mod check;
pub mod collect;
pub mod graph;
pub mod module;
pub mod resolve;
pub mod rules;
pub mod scan;
pub mod source;
pub mod tree;
pub mod workspace;
