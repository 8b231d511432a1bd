//! The names with two underscores that glibc exports beside the standard ones. Old C++ libraries
//! call them, on objects that other code uses by the standard names.

use core::ffi::c_int;

use libc::{pthread_mutex_t, pthread_rwlock_t};

use crate::{mutex, rwlock};

macro_rules! aliases {
    ($($alias:ident = $module:ident::$function:ident($object:ty);)*) => {$(
        /// # Safety
        ///
        /// As of the standard function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $alias(object: *mut $object) -> c_int {
            // SAFETY: passed on from the caller.
            unsafe { $module::$function(object) }
        }
    )*};
}

aliases! {
    __pthread_mutex_destroy = mutex::pthread_mutex_destroy(pthread_mutex_t);
    __pthread_mutex_lock = mutex::pthread_mutex_lock(pthread_mutex_t);
    __pthread_mutex_trylock = mutex::pthread_mutex_trylock(pthread_mutex_t);
    __pthread_mutex_unlock = mutex::pthread_mutex_unlock(pthread_mutex_t);
    __pthread_rwlock_destroy = rwlock::pthread_rwlock_destroy(pthread_rwlock_t);
    __pthread_rwlock_rdlock = rwlock::pthread_rwlock_rdlock(pthread_rwlock_t);
    __pthread_rwlock_tryrdlock = rwlock::pthread_rwlock_tryrdlock(pthread_rwlock_t);
    __pthread_rwlock_trywrlock = rwlock::pthread_rwlock_trywrlock(pthread_rwlock_t);
    __pthread_rwlock_unlock = rwlock::pthread_rwlock_unlock(pthread_rwlock_t);
    __pthread_rwlock_wrlock = rwlock::pthread_rwlock_wrlock(pthread_rwlock_t);
}
