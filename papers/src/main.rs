//! `unconvoy-study`: what `unconvoy bench`, `sim` and `papers` become.

#![cfg_attr(not(test), no_main)]

use std::ffi::c_int;

/// Entry point of the process, as of `unconvoy`.
// SAFETY: `main` is the name the C runtime looks for, nothing else here defines it, and the
// signature is one of those it may have.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn main() -> c_int {
    unconvoy_papers::study::main()
}
