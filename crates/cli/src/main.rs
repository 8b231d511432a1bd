//! The `unconvoy` command.
//!
//! `run` must hand the program exactly the process it would have had without unconvoy. The Rust
//! runtime would first set SIGPIPE to "ignored", which a program inherits through `exec`, so `main`
//! is C's here and that runtime does not start.

#![cfg_attr(not(test), no_main)]

use std::ffi::c_int;

/// Entry point of the process; the arguments come from `std::env::args_os`, which glibc fills
/// in before `main`.
// SAFETY: `main` is the name the C runtime looks for, nothing else here defines it, and the
// signature is one of those it may have.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn main() -> c_int {
    unconvoy_cli::main()
}
