//! `pthread_*_init` are libc's: they check the attributes, zero the object, and write the bits by which
//! this library tells the kinds apart.

use core::ffi::c_int;

use libc::{pthread_cond_t, pthread_condattr_t, pthread_mutex_t, pthread_mutexattr_t};
use libc::{pthread_rwlock_t, pthread_rwlockattr_t};

use crate::real::stand_in;

stand_in! {
    fn pthread_mutex_init(mutex: *mut pthread_mutex_t, attributes: *const pthread_mutexattr_t) -> c_int = as_it_is;
    fn pthread_cond_init(cond: *mut pthread_cond_t, attributes: *const pthread_condattr_t) -> c_int = as_it_is;
    fn pthread_rwlock_init(lock: *mut pthread_rwlock_t, attributes: *const pthread_rwlockattr_t) -> c_int = as_it_is;
}

fn as_it_is(call: impl Fn() -> c_int) -> c_int {
    call()
}
