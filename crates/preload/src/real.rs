//! libc's own functions, for what is handed to it: looked up when first needed, by name, behind
//! this library.

/// Where functions of libc are, and a function that looks all of them up.
macro_rules! addresses {
    ($($name:ident),*) => {
        /// Where each of the functions is, once it was looked up.
        #[allow(non_upper_case_globals, reason = "named as the functions are")]
        mod address {
            use crate::real::Address;

            $(pub(super) static $name: Address = Address::new(concat!(stringify!($name), "\0"));)*
        }

        /// Looks all of them up, so that no call needs the dynamic linker: its lock may be held by a
        /// thread that waits for the caller, as in a constructor of a library that is just being
        /// loaded.
        pub(crate) fn find_all() {
            $(address::$name.find();)*
        }
    };
}

/// Defines functions of libc for objects that are handed to it.
macro_rules! real {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        addresses!($($name),*);
        $(
            /// libc's function of this name.
            pub(crate) fn $name($($argument: $type),*) -> $result {
                // SAFETY: libc's function of that name has this type, and its arguments are the objects
                // and times of a caller of this library's (`object`, `Until`).
                unsafe {
                    let libcs: unsafe extern "C-unwind" fn($($type),*) -> $result = core::mem::transmute(address::$name.get());
                    libcs($($argument),*)
                }
            }
        )*
    };
}

/// Defines exported functions of libc's names that call libc's within another function, which is
/// handed the call.
macro_rules! stand_in {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty = $around:expr;)*) => {
        $crate::real::addresses!($($name),*);
        $(
            /// # Safety
            ///
            /// As libc says of the function of this name.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
                // SAFETY: libc's function of that name has this type, and gets what its caller meant for
                // it: by whichever way it is called, the caller has promised what it asks for.
                let call = || unsafe {
                    let libcs: unsafe extern "C-unwind" fn($($type),*) -> $result = core::mem::transmute(address::$name.get());
                    libcs($($argument),*)
                };
                ($around)(&call)
            }
        )*
    };
}

pub(crate) use {addresses, stand_in};

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::Relaxed;

use unconvoy_locks::primitive::native;

use libc::{clockid_t, pthread_cond_t, pthread_mutex_t, pthread_rwlock_t, pthread_spinlock_t, timespec};

use crate::object::{Libcs, Until};

real! {
    fn pthread_mutex_destroy(mutex: &Libcs<pthread_mutex_t>) -> c_int;
    fn pthread_mutex_lock(mutex: &Libcs<pthread_mutex_t>) -> c_int;
    fn pthread_mutex_trylock(mutex: &Libcs<pthread_mutex_t>) -> c_int;
    fn pthread_mutex_timedlock(mutex: &Libcs<pthread_mutex_t>, until: Until<'_>) -> c_int;
    fn pthread_mutex_clocklock(mutex: &Libcs<pthread_mutex_t>, clock: clockid_t, until: Until<'_>) -> c_int;
    fn pthread_mutex_unlock(mutex: &Libcs<pthread_mutex_t>) -> c_int;
    fn pthread_cond_destroy(cond: &Libcs<pthread_cond_t>) -> c_int;
    fn pthread_cond_wait(cond: &Libcs<pthread_cond_t>, mutex: &Libcs<pthread_mutex_t>) -> c_int;
    fn pthread_cond_timedwait(cond: &Libcs<pthread_cond_t>, mutex: &Libcs<pthread_mutex_t>, until: Until<'_>) -> c_int;
    fn pthread_cond_clockwait(cond: &Libcs<pthread_cond_t>, mutex: &Libcs<pthread_mutex_t>, clock: clockid_t, until: Until<'_>) -> c_int;
    fn pthread_cond_signal(cond: &Libcs<pthread_cond_t>) -> c_int;
    fn pthread_cond_broadcast(cond: &Libcs<pthread_cond_t>) -> c_int;
    fn pthread_rwlock_destroy(lock: &Libcs<pthread_rwlock_t>) -> c_int;
    fn pthread_rwlock_rdlock(lock: &Libcs<pthread_rwlock_t>) -> c_int;
    fn pthread_rwlock_tryrdlock(lock: &Libcs<pthread_rwlock_t>) -> c_int;
    fn pthread_rwlock_timedrdlock(lock: &Libcs<pthread_rwlock_t>, until: Until<'_>) -> c_int;
    fn pthread_rwlock_clockrdlock(lock: &Libcs<pthread_rwlock_t>, clock: clockid_t, until: Until<'_>) -> c_int;
    fn pthread_rwlock_wrlock(lock: &Libcs<pthread_rwlock_t>) -> c_int;
    fn pthread_rwlock_trywrlock(lock: &Libcs<pthread_rwlock_t>) -> c_int;
    fn pthread_rwlock_timedwrlock(lock: &Libcs<pthread_rwlock_t>, until: Until<'_>) -> c_int;
    fn pthread_rwlock_clockwrlock(lock: &Libcs<pthread_rwlock_t>, clock: clockid_t, until: Until<'_>) -> c_int;
    fn pthread_rwlock_unlock(lock: &Libcs<pthread_rwlock_t>) -> c_int;
    fn pthread_spin_lock(lock: &Libcs<pthread_spinlock_t>) -> c_int;
    fn pthread_spin_trylock(lock: &Libcs<pthread_spinlock_t>) -> c_int;
    fn pthread_spin_unlock(lock: &Libcs<pthread_spinlock_t>) -> c_int;
}

/// A function of libc, looked up when first asked for.
pub(crate) struct Address {
    name: &'static str,
    found: AtomicPtr<c_void>,
}

impl Address {
    /// `name` ends in a zero.
    pub(crate) const fn new(name: &'static str) -> Self {
        Address { name, found: AtomicPtr::new(ptr::null_mut()) }
    }

    #[inline]
    pub(crate) fn get(&self) -> *mut c_void {
        let found = self.found.load(Relaxed);
        if found.is_null() { self.must_be_found() } else { found }
    }

    /// Looks for the next definition after this library's. A lookup that succeeds does not
    /// allocate.
    pub(crate) fn find(&self) {
        // SAFETY: the name ends in a zero.
        let address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr().cast()) };
        self.found.store(address, Relaxed);
    }

    #[cold]
    fn must_be_found(&self) -> *mut c_void {
        self.find();
        let address = self.found.load(Relaxed);
        if address.is_null() {
            crate::message::say(&["libc has no ", self.name.trim_end_matches('\0'), "; cannot go on"]);
            // SAFETY: ends the process, which has called a function that its libc does not have.
            unsafe { libc::abort() };
        }
        address
    }
}

/// Whether the program's calls come here, and not to a definition in the program itself or in a
/// library before this one, such as a sanitizer's that is linked statically.
pub(crate) fn is_in_front() -> bool {
    /// Where the object begins that `address` lies in.
    fn object(address: *const c_void) -> *mut c_void {
        let mut info = core::mem::MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: fills `info` if the address is in a loaded object; else it stays zeroes.
        unsafe {
            libc::dladdr(address, info.as_mut_ptr());
            info.assume_init().dli_fbase
        }
    }
    // SAFETY: looks a name up.
    let called = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"pthread_mutex_lock".as_ptr()) };
    object(called) == object(is_in_front as *const c_void)
}

/// A library behind this one that fakes the time, and with it the deadlines of condition variables:
/// its `clock_gettime`.
static FAKED_CLOCK: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// What the program takes for the time, if that is not the time.
pub(crate) fn faked_time(clock: clockid_t) -> Option<timespec> {
    let read = FAKED_CLOCK.load(Relaxed);
    if read.is_null() {
        return None;
    }
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it is a `clock_gettime`, and fills `time`.
    let answer = unsafe { core::mem::transmute::<*mut c_void, native::ReadClock>(read)(clock, &raw mut time) };
    (answer == 0).then_some(time)
}

/// Has waiters read libc's clock, past any library that is preloaded to fake the time: such a
/// library takes locks to do so. If it lies behind this one, it never sees the program's deadlines,
/// which are then for this library to understand.
pub(crate) fn use_libcs_clock() {
    // SAFETY: libc is loaded, so that this only finds it; its `clock_gettime` is one.
    unsafe {
        let libc_itself = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY);
        if libc_itself.is_null() {
            return;
        }
        let clock = libc::dlsym(libc_itself, c"clock_gettime".as_ptr());
        if !clock.is_null() {
            native::read_clock_with(core::mem::transmute::<*mut c_void, native::ReadClock>(clock));
        }
        let believed = libc::dlsym(libc::RTLD_DEFAULT, c"clock_gettime".as_ptr());
        let wait_behind = address::pthread_cond_timedwait.found.load(Relaxed);
        if clock != believed && wait_behind != libc::dlsym(libc_itself, c"pthread_cond_timedwait".as_ptr()) {
            FAKED_CLOCK.store(believed, Relaxed);
        }
    }
}
