//! The `unconvoy` command.
//!
//! `run` must start the program in the same process state as without unconvoy. The Rust runtime
//! would set SIGPIPE to "ignored", which a program inherits through `exec`. So `main` is a C
//! function, and that runtime does not start.

#![cfg_attr(not(test), no_main)]

use std::ffi::c_int;

/// Entry point of the process. Arguments come from `std::env::args_os`, which glibc fills in before
/// `main`.
// SAFETY: the C runtime calls the symbol `main`. Nothing else defines it here, and C allows this
// signature.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn main() -> c_int {
    unconvoy_cli::main()
}
