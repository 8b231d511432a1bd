//! Checks the workspace's own sources: the graph of file imports of every package is acyclic, and
//! every edge follows the layers.
//!
//! An edge leads from a file that uses a name to the file that defines the name. Uses are found in
//! `use` items, in inline paths (`crate::a::b()`, `super::X`), in the tokens of macros, and in
//! attributes. A name that a module re-exports from its own child belongs to the child: an import
//! through the parent is an edge to the child, and the re-export is not an edge. Any other
//! re-export is an edge, and a file that imports through it also depends on the file with the
//! re-export. `mod x;` is not an edge.
//!
//! Items under `cfg(test)` are ignored. Every other configuration is assumed to hold, so one graph
//! covers the native, the model-checked and the sanitized build. The check does *not* see method
//! calls and trait implementations without a path, because finding them requires type information.
//!
//! `layers.toml` holds the architecture: the allowed dependencies of each package, and the layers
//! within a package. `known.toml` lists the edges that still violate it, one per line, each with
//! its reason. The check fails for a violation that is not listed, and for a listed edge that is no
//! longer a violation.
//!
//! From the bottom up: [`source`], [`module`] and [`scan`]; [`collect`] and [`tree`] build the
//! modules of a target; [`resolve`] turns their paths into edges; [`graph`] finds cycles; [`rules`]
//! reads the two lists; [`check`] compares the graph with them; [`workspace`] asks Cargo for the
//! packages.

pub mod check;
pub mod collect;
pub mod graph;
mod messages;
pub mod module;
pub mod resolve;
pub mod rules;
pub mod scan;
pub mod source;
pub mod tree;
pub mod workspace;
