//! libunconvoy.so: pthread locks replaced in place, in a program nobody rebuilt.
//!
//! Loaded with `LD_PRELOAD`, it defines the functions of mutexes, condition variables,
//! reader-writer locks and spin locks. State lives inside the program's own objects; nothing is
//! allocated on the way to a lock. What it does not take over goes to libc, which then sees objects
//! that this library never wrote to, but for one count (`mutex::wait::Use`).
//!
//! No function here changes `errno`: the kernel is called without it.

mod aliases;
mod caller;
mod chosen;
mod cond;
mod config;
mod credentials;
mod dispatch;
mod identity;
mod init;
mod message;
mod mutex;
mod object;
mod real;
mod rwlock;
mod special;
mod spin;
mod stats;
mod tally;
mod time;
mod variables;

/// Runs when the library is loaded, after libc's constructors and before the program's.
extern "C" fn begin() {
    for find_all in [real::find_all, init::find_all, credentials::find_all, special::find_all] {
        find_all();
    }
    real::use_libcs_clock();
    runtime::claim_memory();
    config::service();
    config::keep_from_children();
    // SAFETY: the handlers are async-signal-safe: they store to atomics, and set the thread's mask of processors.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork_in_parent), Some(after_fork)) };
    stats::begin();
    special::begin();
}

extern "C" fn end() {
    special::say_what_is_unsaid();
    stats::write(chosen::pair(), special::report);
}

unsafe extern "C" fn before_fork() {
    special::before_fork();
}

unsafe extern "C" fn after_fork_in_parent() {
    special::after_fork_in_parent();
}

unsafe extern "C" fn after_fork() {
    runtime::fork::after_fork();
    config::service();
    tally::leave();
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;
use unconvoy_locks::runtime;
