//! `unconvoy-study`: the program that `unconvoy bench`, `sim` and `papers` execute.

#![cfg_attr(not(test), no_main)]

use std::ffi::c_int;

/// Entry point of the process, as in `unconvoy`.
// SAFETY: the C runtime calls `main`, nothing else here defines it, and the signature is one that
// the runtime allows.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn main() -> c_int {
    unconvoy_papers::study::main()
}
