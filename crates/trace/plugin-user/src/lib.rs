//! A plug-in of QEMU's user mode (plug-in interface version 1, as QEMU 7.2 of Debian 12 has it) that samples the address sets of an unmodified program's critical
//! sections, for Syncchar ("Predicting and Tuning the Performance of Multicore Systems", Porter, Hofmann and Witchel, 2008, section 4).
//!
//! ```text
//! qemu-x86_64 -plugin libunconvoy_plugin_user.so,out=FILE,rate=10 PROGRAM ARGUMENTS...
//! ```
//!
//! | file | idea |
//! | --- | --- |
//! | `api` | the interface's declarations |
//! | `guest` | the program's registers and memory |
//! | `translate` | what is inserted into its code, and how code outside of sampled sections is spared |
//! | `modules` | where the functions are that lock and allocate |
//! | `thread` | what a thread holds, and what it touches meanwhile |
//! | `locks`, `heap` | what the memory is that is touched |
//! | `collector` | what the threads share |
//! | `rhythm` | the plug-in's own thread, which writes when nobody else does |
//!
//! What is not this interface's is in `unconvoy-trace-collector`, what is written in `unconvoy-trace-stream`.
//!
//! Not seen: locks that are no functions of the C library (futexes of a program's own, Rust's and Go's), other processes than the first, and what runs after `exec`.

#![cfg(target_arch = "x86_64")]

mod api;
mod collector;
mod guest;
mod heap;
mod locks;
mod modules;
mod options;
mod rhythm;
mod system_calls;
mod thread;
mod translate;

use collector::{Collector, collector};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::Ordering;
use system_calls::number;
use translate::{guarded, thread_of};

/// The interface's version: QEMU refuses what it does not support.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = 1;

/// Called by QEMU when it loads the plug-in, before the program is.
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
    let (target, system) = unsafe { (CStr::from_ptr((*info).target_name), (*info).system_emulation) };
    let arguments: Vec<String> = (0..argc as usize)
        // SAFETY: as above.
        .map(|index| unsafe { CStr::from_ptr(*argv.add(index)) }.to_string_lossy().into_owned())
        .collect();
    let installed = match target.to_bytes() {
        b"x86_64" if !system => options::parse(arguments.iter().map(String::as_str)).and_then(collector::install),
        _ => Err(format!("it is for qemu-x86_64, not for {}", target.to_string_lossy())),
    };
    if let Err(error) = installed {
        eprintln!("unconvoy: the plug-in is not loaded: {error}");
        return 1;
    }
    // SAFETY: the functions live as long as the process, and so does what they use.
    unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
        api::qemu_plugin_register_vcpu_init_cb(id, translate::thread_ends);
        api::qemu_plugin_register_vcpu_exit_cb(id, translate::thread_ends);
        api::qemu_plugin_register_vcpu_tb_trans_cb(id, translate::translated);
        api::qemu_plugin_register_vcpu_syscall_cb(id, calls);
        api::qemu_plugin_register_vcpu_syscall_ret_cb(id, called);
        api::qemu_plugin_register_atexit_cb(id, exits, std::ptr::null_mut());
    }
    0
}

/// A forked child writes nothing: the stream is its parent's.
extern "C" fn in_child() {
    if let Some(collector) = collector() {
        collector.log.close();
    }
}

#[allow(clippy::too_many_arguments, reason = "the interface's own signature")]
extern "C" fn calls(
    _: api::Id,
    vcpu: c_uint,
    number: i64,
    a1: u64,
    a2: u64,
    a3: u64,
    a4: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
) {
    guarded(|| {
        let Some(collector) = collector() else { return };
        let thread = thread_of(vcpu);
        if let Some(thread) = thread {
            thread.tells_counts();
            if system_calls::is_io(number, [a1, a2, a3, a4]) {
                thread.does_io();
            }
            if is_copy(number) {
                thread.is_copied(true);
            }
        }
        match number {
            number::MMAP if a3 & libc::PROT_EXEC as u64 != 0 => collector.mapped.store(true, Ordering::Relaxed),
            number::RT_SIGACTION if a2 != 0 => handles(collector, a1, a2),
            number::KILL | number::TKILL | number::TGKILL | number::RT_SIGQUEUEINFO | number::RT_TGSIGQUEUEINFO => {
                signals(collector, number, [a1, a2, a3, a4]);
            }
            number::FORK | number::VFORK => collector.forked(),
            number::CLONE if a1 & libc::CLONE_THREAD as u64 == 0 => collector.forked(),
            number::EXIT_GROUP => collector.status.store(a1 as i32 & 0xff, Ordering::Relaxed),
            number::EXECVE if !executable(a1) => {}
            number::EXECVE | number::EXECVEAT => becomes_another(collector),
            _ => {}
        }
    });
}

extern "C" fn called(_: api::Id, vcpu: c_uint, number: i64, _: i64) {
    guarded(|| {
        if let (true, Some(_), Some(thread)) = (is_copy(number), collector(), thread_of(vcpu)) {
            thread.is_copied(false);
        }
    });
}

fn is_copy(call: i64) -> bool {
    matches!(call, number::CLONE | number::CLONE3 | number::FORK | number::VFORK)
}

/// Whether the program's string at `path` names something to execute.
fn executable(path: u64) -> bool {
    let mut path = guest::try_read_string(path, libc::PATH_MAX as usize);
    path.push(0);
    // SAFETY: a string.
    !path.starts_with(&[0]) && unsafe { libc::access(path.as_ptr().cast(), libc::X_OK) } == 0
}

/// What the program does about a signal; of interest is the one that `abort` sends.
fn handles(collector: &Collector, signal: u64, action: u64) {
    if signal == libc::SIGABRT as u64
        && let Some(handler) = guest::try_read::<8>(action)
    {
        let default = u64::from_le_bytes(handler) == libc::SIG_DFL as u64;
        collector.survives_abort.store(!default, Ordering::Relaxed);
    }
}

/// The program sends a signal. Of two that it sends itself it is known that it does not survive them: all is told. (A program that blocks SIGABRT and sends it to itself is
/// listened to no longer.) Of others nobody knows: what is there is written, and of those that programs end themselves by, counts too.
fn signals(collector: &Collector, number: i64, arguments: [u64; 4]) {
    match system_calls::signal_to_self(number, arguments) {
        Some(libc::SIGKILL) => return collector.finish(),
        Some(libc::SIGABRT) if !collector.survives_abort.load(Ordering::Relaxed) => return collector.finish(),
        Some(libc::SIGHUP | libc::SIGINT | libc::SIGQUIT | libc::SIGABRT | libc::SIGSEGV | libc::SIGTERM) => {
            collector.tell_counts();
        }
        _ => {}
    }
    collector.log.write();
}

/// Before an `exec`: the new program is not emulated, or by another QEMU, so that all is told now.
fn becomes_another(collector: &Collector) {
    translate::all_end();
    collector.note("the program replaced itself (exec): what came after was not seen".to_string());
    collector.finish();
}

extern "C" fn exits(_: api::Id, _: *mut c_void) {
    guarded(|| {
        if let Some(collector) = collector() {
            translate::all_end();
            collector.finish();
        }
    });
}
