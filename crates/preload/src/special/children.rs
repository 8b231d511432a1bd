//! A thread or program inherits the mask of the thread that starts it. So a thread of the special
//! set leaves the set before it starts one, and returns at its next wait for a lock.
//!
//! A fork that runs no handlers (`_Fork`, a bare `clone`) copies the set's mask. Such a child
//! restores its own mask when it detects the fork (`threads::forked`), or here, when it executes
//! another program. A child of `vfork` runs on its parent's memory and restores its mask only here.
//! Not covered: direct system calls.
//!
//! The variants of `execl` are in `boundary.c`; they call the functions here.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;

use libc::{
    FILE, c_char, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t, pthread_attr_t, pthread_t,
};

use super::threads::{self, IS_ON};
use crate::config;
use crate::real::stand_in;

type Words = *const *mut c_char;
type Work = extern "C" fn(*mut c_void) -> *mut c_void;
/// The work of a thread of C11.
type Start = extern "C" fn(*mut c_void) -> c_int;

stand_in! {
    fn execve(path: *const c_char, arguments: Words, environment: Words) -> c_int = before;
    fn execv(path: *const c_char, arguments: Words) -> c_int = before;
    fn execvp(file: *const c_char, arguments: Words) -> c_int = before;
    fn execvpe(file: *const c_char, arguments: Words, environment: Words) -> c_int = before;
    fn fexecve(descriptor: c_int, arguments: Words, environment: Words) -> c_int = before;
    fn execveat(
        directory: c_int,
        path: *const c_char,
        arguments: Words,
        environment: Words,
        flags: c_int,
    ) -> c_int = before;
    // A cancellation may unwind these two, so nothing may be left to do after them.
    fn system(command: *const c_char) -> c_int = before;
    fn popen(command: *const c_char, kind: *const c_char) -> *mut FILE = before;
    fn pthread_create(
        thread: *mut pthread_t,
        attributes: *const pthread_attr_t,
        work: Work,
        argument: *mut c_void,
    ) -> c_int = beside;
    // libc's own function does not call the one above.
    fn thrd_create(thread: *mut pthread_t, work: Start, argument: *mut c_void) -> c_int = beside;
    fn posix_spawn(
        process: *mut pid_t,
        path: *const c_char,
        actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t,
        arguments: Words,
        environment: Words,
    ) -> c_int = during;
    fn posix_spawnp(
        process: *mut pid_t,
        file: *const c_char,
        actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t,
        arguments: Words,
        environment: Words,
    ) -> c_int = during;
}

/// Takes the calling thread out of the set before `call`.
fn before<R>(call: impl Fn() -> R) -> R {
    if IS_ON.load(Relaxed) {
        threads::step_outside();
    }
    call()
}

/// Keeps the calling thread out of the set during `call`.
fn during<R>(call: impl Fn() -> R) -> R {
    if IS_ON.load(Relaxed) { threads::outside(call) } else { call() }
}

/// As [`during`], for a `call` that starts a thread.
fn beside<R>(call: impl Fn() -> R) -> R {
    config::begin_threads();
    during(call)
}

/// Defines variadic libc functions, which Rust cannot define, as jumps to C.
macro_rules! variadic {
    ($($name:ident = $gathers:ident;)*) => {$(
        unsafe extern "C" {
            fn $gathers() -> c_int;
        }

        /// # Safety
        ///
        /// As for libc's function of this name.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() -> c_int {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!("jmp {}", sym $gathers);
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!("b {}", sym $gathers);
        }
    )*};
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
variadic! {
    execl = unconvoy_execl;
    execlp = unconvoy_execlp;
    execle = unconvoy_execle;
}
