//! `setuid` and its kin: libc changes the credentials of every thread that it knows, and the load
//! controller is not one of them. So it goes first; the next one comes with the new credentials. The same for
//! namespaces, of which the kernel grants some only to a process with one thread.

use core::ffi::c_int;

use libc::{c_char, c_ulong, gid_t, size_t, uid_t};
use unconvoy_locks::runtime::{confine, without_controller};

use crate::real::stand_in;

stand_in! {
    fn setuid(user: uid_t) -> c_int = without_controller;
    fn setgid(group: gid_t) -> c_int = without_controller;
    fn seteuid(user: uid_t) -> c_int = without_controller;
    fn setegid(group: gid_t) -> c_int = without_controller;
    fn setreuid(real: uid_t, effective: uid_t) -> c_int = without_controller;
    fn setregid(real: gid_t, effective: gid_t) -> c_int = without_controller;
    fn setresuid(real: uid_t, effective: uid_t, saved: uid_t) -> c_int = without_controller;
    fn setresgid(real: gid_t, effective: gid_t, saved: gid_t) -> c_int = without_controller;
    fn setgroups(count: size_t, groups: *const gid_t) -> c_int = without_controller;
    fn initgroups(user: *const c_char, group: gid_t) -> c_int = without_controller;
    fn unshare(flags: c_int) -> c_int = without_controller;
    fn setns(namespace: c_int, kind: c_int) -> c_int = without_controller;
    // libc's has a variable number of arguments, of which it takes four; they are passed alike.
    fn prctl(option: c_int, second: c_ulong, third: c_ulong, fourth: c_ulong, fifth: c_ulong) -> c_int =
        |call| with_option(option, call);
}

/// A process that can gain no privileges any more is about to install a filter of its system calls:
/// that takes this, or privilege. There will be no controller from here on.
fn with_option(option: c_int, call: &dyn Fn() -> c_int) -> c_int {
    if matches!(option, libc::PR_SET_NO_NEW_PRIVS | libc::PR_SET_SECCOMP) {
        confine();
    }
    call()
}
