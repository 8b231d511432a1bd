//! `setuid` and related calls. libc changes the credentials of every thread that it knows, and it
//! does not know the load controller. So the controller stops first, and its successor starts with
//! the new credentials. The same holds for namespaces: the kernel grants some of them only to a
//! single-threaded process.

use core::ffi::c_int;

use libc::{c_char, c_ulong, gid_t, size_t, uid_t};
use unconvoy_locks::runtime::{confine, without_controller};

use crate::profile;
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
    // libc's function is variadic and reads four arguments after the option; the calling convention
    // is the same.
    fn prctl(
        option: c_int,
        second: c_ulong,
        third: c_ulong,
        fourth: c_ulong,
        fifth: c_ulong,
    ) -> c_int =
        |call| with_option(option, call);
}

/// Stops the controller and the profile's system calls for good at the first call that leads to a
/// system-call filter: `PR_SET_NO_NEW_PRIVS` is the prerequisite of an unprivileged filter, and
/// `PR_SET_SECCOMP` installs a filter.
fn with_option(option: c_int, call: &dyn Fn() -> c_int) -> c_int {
    let leads_to_filter = matches!(option, libc::PR_SET_NO_NEW_PRIVS | libc::PR_SET_SECCOMP);
    if leads_to_filter && confine() {
        profile::confine();
    }
    call()
}
