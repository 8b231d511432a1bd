//! `pthread_*_init` call libc's functions, which check the attributes, zero the object, and write
//! the bits that tell this library which kind the object is. A strategy may choose the object's
//! algorithm here.

use core::ffi::c_int;

use libc::{pthread_cond_t, pthread_condattr_t, pthread_mutex_t, pthread_mutexattr_t};
use libc::{pthread_rwlock_t, pthread_rwlockattr_t};

use crate::config::{self, Service};
use crate::mutex::Mutex;
use crate::numbered::Numbered as _;
use crate::probe::probe;
use crate::profile;
use crate::real::stand_in;
use crate::rwlock::RwLock;
use crate::strategy;

stand_in! {
    fn pthread_mutex_init(
        mutex: *mut pthread_mutex_t,
        attributes: *const pthread_mutexattr_t,
    ) -> c_int = |call| {
        let result = recorded(mutex.addr(), call);
        probe!("mutex_init"; mutex);
        if result == 0 && has_strategy() {
            // SAFETY: libc has initialised the mutex, which no other thread uses yet.
            unsafe { &*mutex.cast::<Mutex>() }.decide_at_initialisation();
        }
        result
    };
    fn pthread_cond_init(
        cond: *mut pthread_cond_t,
        attributes: *const pthread_condattr_t,
    ) -> c_int = |call| {
        let result = recorded(cond.addr(), call);
        probe!("cond_init"; cond, attributes);
        result
    };
    fn pthread_rwlock_init(
        lock: *mut pthread_rwlock_t,
        attributes: *const pthread_rwlockattr_t,
    ) -> c_int = |call| {
        let result = recorded(lock.addr(), call);
        if result == 0 {
            // SAFETY: as above.
            let lock = unsafe { &*lock.cast::<RwLock>() };
            lock.forget_published();
            if has_strategy() {
                lock.decide_at_initialisation();
            }
        }
        result
    };
}

/// Whether a strategy may choose an algorithm. Determines this process's service first: a library's
/// constructor may initialise locks before this library's constructor has run. While the service is
/// being determined, perhaps by the caller, no strategy chooses.
fn has_strategy() -> bool {
    !config::is_being_determined() && config::service() != Service::Declined && strategy::decides()
}

/// Calls libc's function, and records for the profile where the object was initialised.
fn recorded(address: usize, call: impl Fn() -> c_int) -> c_int {
    let result = call();
    profile::initialised(address);
    result
}
