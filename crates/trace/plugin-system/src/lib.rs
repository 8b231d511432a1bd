//! A plug-in of QEMU's system mode (plug-in interface version 4, as QEMU 10.0 has it) that samples the address sets of the Linux kernel's critical sections under spin locks,
//! for Syncchar ("Predicting and Tuning the Performance of Multicore Systems", Porter, Hofmann and Witchel, 2008, sections 4 to 6).
//!
//! ```text
//! qemu-system-x86_64 -accel tcg,thread=multi -cpu max,-smap,-la57 -smp 8 ... -plugin libunconvoy_plugin_system.so,out=FILE,symbols=FILE
//! ```
//!
//! Collecting begins when the guest sets its host name to `unconvoy-begin`, and ends when it sets it to `unconvoy-end`. Until then, and from then on, the guest runs at QEMU's own speed.
//!
//! | file | idea |
//! | --- | --- |
//! | `api` | the interface's declarations |
//! | `state` | the emulated processor's registers |
//! | `memory`, `guest` | the guest's memory |
//! | `layout` | where its kernel keeps what is a processor's own |
//! | `symbols` | where the functions are that lock and free |
//! | `objects` | the kernel's heap |
//! | `decode` | what instructions mean |
//! | `translate` | what is inserted into the guest's code, and how code outside of sampled sections is spared |
//! | `processor` | what a virtual processor holds, and what it touches meanwhile |
//! | `collector` | what the processors share, and the course of collecting |
//!
//! What is not this interface's is in `unconvoy-trace-collector`, what is written in `unconvoy-trace-stream`.
//!
//! Not seen: bit spin locks, sequence locks, locks that sleep (mutexes, semaphores, RCU), and spin locks whose functions a kernel has inlined. Left out of sets: locks, the own stack, memory of
//! user space, what the locking functions themselves touch, and what is the processor's own, unless the lock lies there, too.

#![cfg(target_arch = "x86_64")]

mod api;
mod collector;
mod decode;
mod guest;
mod layout;
mod memory;
mod objects;
mod options;
mod processor;
mod state;
mod symbols;
mod translate;

use std::ffi::{CStr, c_char, c_int};

/// The interface's version: QEMU refuses what it does not support.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = 4;

/// Called by QEMU when it loads the plug-in, before the guest runs.
///
/// # Safety
///
/// As the interface has it: `info` is valid for the call, `argv` has `argc` strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: api::Id,
    info: *const api::Info,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    // SAFETY: by this function's contract.
    let (target, system, processors) =
        unsafe { (CStr::from_ptr((*info).target_name), (*info).system_emulation, (*info).smp_vcpus) };
    let arguments: Vec<String> = (0..argc as usize)
        // SAFETY: as above.
        .map(|index| unsafe { CStr::from_ptr(*argv.add(index)) }.to_string_lossy().into_owned())
        .collect();
    let installed = match (target.to_bytes(), usize::try_from(processors)) {
        (b"x86_64", Ok(processors @ 1..=translate::PROCESSORS)) if system => {
            options::parse(arguments.iter().map(String::as_str))
                .and_then(|options| collector::install(id, processors, options))
        }
        _ => Err(format!(
            "it is for qemu-system-x86_64 with up to {} processors, not for {processors} of {}",
            translate::PROCESSORS,
            target.to_string_lossy()
        )),
    };
    if let Err(error) = installed {
        eprintln!("unconvoy: the plug-in is not loaded: {error}");
        return 1;
    }
    0
}
