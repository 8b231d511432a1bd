//! libunconvoy.so: replaces pthread locks in place, in a program that is not rebuilt.
//!
//! Loaded with `LD_PRELOAD`, it defines the functions of mutexes, condition variables,
//! reader-writer locks and spin locks. State lives inside the program's own objects, and acquiring
//! a lock allocates nothing. libc serves the objects that the library does not take over. The
//! library writes nothing to those objects, except one count (`mutex::wait::Use`).
//!
//! No function here changes `errno`: system calls bypass libc's wrappers.

mod aliases;
mod aligned;
mod bpf_count;
mod caller;
mod cancel;
mod checkpoint;
mod chosen;
mod cond;
mod cond_layout;
mod config;
mod credentials;
mod dispatch;
mod held;
mod identity;
mod init;
mod live;
mod message;
mod mutex;
mod numbered;
mod object;
mod object_file;
mod output;
mod probe;
mod profile;
mod real;
mod route;
mod rwlock;
mod special;
mod spin;
mod stats;
mod strategy;
mod time;
mod variables;

/// Runs when the library is loaded: after libc's constructors, before the program's.
extern "C" fn begin() {
    // SAFETY: the calling thread's own `errno`, which is 0 when `main` starts.
    let errno = unsafe { &mut *libc::__errno_location() };
    let before = *errno;
    set_up();
    *errno = before;
}

fn set_up() {
    runtime::remember_standard_error();
    real::find_all();
    init::find_all();
    credentials::find_all();
    special::find_all();
    profile::find_all();
    real::use_libcs_clock();
    runtime::claim_memory();
    config::service();
    config::keep_from_children();
    // SAFETY: the handlers are async-signal-safe: they store to atomics and set the thread's
    // affinity mask.
    unsafe {
        libc::pthread_atfork(Some(before_fork), Some(after_fork_in_parent), Some(after_fork))
    };
    let pair = chosen::pair();
    live::publish(pair.lock, pair.load, config::service() == config::Service::Declined);
    output::find_owner();
    stats::begin();
    if config::service() != config::Service::Declined || config::only_observes() {
        profile::begin(config::only_observes());
        hook::observe(&OBSERVER);
    }
    special::begin();
}

static OBSERVER: Observer = Observer {
    interval: |now| profile::interval(now, special::confined),
    end: profile::controller_ended,
};

extern "C" fn end() {
    special::print_pending_warning();
    profile::end();
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
    runtime::forget_other_readers();
    config::service();
    cond::end_interrupted_wait();
    bpf_count::close_inherited();
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;
use unconvoy_locks::runtime;
use unconvoy_locks::runtime::hook::{self, Observer};
