//! Threads and programs that a thread of the special set begins would inherit its mask. So it leaves the set before, and
//! goes back when it waits for a lock again.
//!
//! A child by a fork that runs no handlers (`_Fork`, a bare `clone`) gives itself the mask that it should have, when it takes
//! note (`threads::forked`) or here, when it becomes another program; so does one by `vfork`, which runs on its parent's memory.
//! Not seen: who does so by a system call of its own.
//!
//! The variants of `execl` are in `boundary.c`, and come here.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;

use libc::{FILE, c_char, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t, pthread_attr_t, pthread_t};

use super::threads::{self, IS_ON};
use crate::real::stand_in;

type Words = *const *mut c_char;
type Work = extern "C" fn(*mut c_void) -> *mut c_void;

stand_in! {
    fn execve(path: *const c_char, arguments: Words, environment: Words) -> c_int = before;
    fn execv(path: *const c_char, arguments: Words) -> c_int = before;
    fn execvp(file: *const c_char, arguments: Words) -> c_int = before;
    fn execvpe(file: *const c_char, arguments: Words, environment: Words) -> c_int = before;
    fn fexecve(descriptor: c_int, arguments: Words, environment: Words) -> c_int = before;
    fn execveat(directory: c_int, path: *const c_char, arguments: Words, environment: Words, flags: c_int) -> c_int =
        before;
    // A cancellation may unwind these two, so that nothing is left to do after them.
    fn system(command: *const c_char) -> c_int = before;
    fn popen(command: *const c_char, kind: *const c_char) -> *mut FILE = before;
    fn pthread_create(
        thread: *mut pthread_t,
        attributes: *const pthread_attr_t,
        work: Work,
        argument: *mut c_void,
    ) -> c_int = during;
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

/// The calling thread leaves the set before `call`.
fn before<R>(call: impl Fn() -> R) -> R {
    if IS_ON.load(Relaxed) {
        threads::step_outside();
    }
    call()
}

/// The calling thread is outside of the set for the length of `call`.
fn during<R>(call: impl Fn() -> R) -> R {
    if IS_ON.load(Relaxed) { threads::outside(call) } else { call() }
}

/// Defines functions of libc with a variable number of arguments, which Rust cannot take, as jumps to C.
macro_rules! variadic {
    ($($name:ident = $gathers:ident;)*) => {$(
        unsafe extern "C" {
            fn $gathers() -> c_int;
        }

        /// # Safety
        ///
        /// As libc says of the function of this name.
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
