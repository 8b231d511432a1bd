//! `pthread_*_init` call libc's functions, which check the attributes, zero the object, and write
//! the bits that tell this library which kind the object is.

use core::ffi::c_int;

use libc::{pthread_cond_t, pthread_condattr_t, pthread_mutex_t, pthread_mutexattr_t};
use libc::{pthread_rwlock_t, pthread_rwlockattr_t};

use crate::profile;
use crate::real::stand_in;

stand_in! {
    fn pthread_mutex_init(
        mutex: *mut pthread_mutex_t,
        attributes: *const pthread_mutexattr_t,
    ) -> c_int = |call| recorded(mutex.addr(), call);
    fn pthread_cond_init(
        cond: *mut pthread_cond_t,
        attributes: *const pthread_condattr_t,
    ) -> c_int = |call| recorded(cond.addr(), call);
    fn pthread_rwlock_init(
        lock: *mut pthread_rwlock_t,
        attributes: *const pthread_rwlockattr_t,
    ) -> c_int = |call| recorded(lock.addr(), call);
}

/// Calls libc's function, and records for the profile where the object was initialised.
fn recorded(address: usize, call: impl Fn() -> c_int) -> c_int {
    let result = call();
    profile::initialised(address);
    result
}
