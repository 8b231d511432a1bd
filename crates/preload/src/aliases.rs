//! The double-underscore names that glibc exports beside the standard ones. Old C++ libraries call
//! them on objects that other code uses by the standard names.

use core::ffi::c_int;

use crate::mutex::{self, Mutex};
use crate::rwlock::{self, RwLock};

macro_rules! aliases {
    ($($alias:ident = $module:ident::$function:ident($object:ty);)*) => {$(
        /// # Safety
        ///
        /// As for the standard function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $alias(object: &$object) -> c_int {
            const STANDARD: unsafe extern "C" fn(&$object) -> c_int = $module::$function;
            // SAFETY: a caller of either name makes the same promise.
            unsafe { STANDARD(object) }
        }
    )*};
}

aliases! {
    __pthread_mutex_destroy = mutex::pthread_mutex_destroy(Mutex);
    __pthread_mutex_lock = mutex::pthread_mutex_lock(Mutex);
    __pthread_mutex_trylock = mutex::pthread_mutex_trylock(Mutex);
    __pthread_mutex_unlock = mutex::pthread_mutex_unlock(Mutex);
    __pthread_rwlock_destroy = rwlock::pthread_rwlock_destroy(RwLock);
    __pthread_rwlock_rdlock = rwlock::pthread_rwlock_rdlock(RwLock);
    __pthread_rwlock_tryrdlock = rwlock::pthread_rwlock_tryrdlock(RwLock);
    __pthread_rwlock_trywrlock = rwlock::pthread_rwlock_trywrlock(RwLock);
    __pthread_rwlock_unlock = rwlock::pthread_rwlock_unlock(RwLock);
    __pthread_rwlock_wrlock = rwlock::pthread_rwlock_wrlock(RwLock);
}
