//! libc's own functions, for what is handed to it: looked up when first needed, by name, behind
//! this library.

/// Defines functions of libc that are found with `dlsym(RTLD_NEXT)`.
macro_rules! real {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        /// Where each of the functions is, once it was looked up.
        #[allow(non_upper_case_globals, reason = "named as the functions are")]
        mod address {
            $(pub(super) static $name: super::Address = super::Address::new(concat!(stringify!($name), "\0"));)*
        }

        /// Looks all of them up, so that no lock operation needs the dynamic linker: its lock may
        /// be held by a thread that waits for the caller, as in a constructor of a library that
        /// is just being loaded.
        pub(crate) fn find_all() {
            $(address::$name.find();)*
        }

        $(
            /// libc's function of this name.
            ///
            /// # Safety
            ///
            /// As libc's.
            pub(crate) unsafe fn $name($($argument: $type),*) -> $result {
                let address = address::$name.get();
                // SAFETY: libc's function of that name has this type.
                let function: unsafe extern "C-unwind" fn($($type),*) -> $result = unsafe { core::mem::transmute(address) };
                // SAFETY: passed on from the caller.
                unsafe { function($($argument),*) }
            }
        )*
    };
}

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::Relaxed;

use unconvoy_locks::platform::native;

use libc::{FILE, c_char, c_ulong, clockid_t, cpu_set_t, gid_t, pid_t, size_t, uid_t};
use libc::{posix_spawn_file_actions_t, posix_spawnattr_t, pthread_attr_t, pthread_t};
use libc::{pthread_cond_t, pthread_condattr_t, pthread_mutex_t, pthread_mutexattr_t};
use libc::{pthread_rwlock_t, pthread_rwlockattr_t, pthread_spinlock_t, timespec};

real! {
    fn pthread_mutex_init(mutex: *mut pthread_mutex_t, attributes: *const pthread_mutexattr_t) -> c_int;
    fn pthread_mutex_destroy(mutex: *mut pthread_mutex_t) -> c_int;
    fn pthread_mutex_lock(mutex: *mut pthread_mutex_t) -> c_int;
    fn pthread_mutex_trylock(mutex: *mut pthread_mutex_t) -> c_int;
    fn pthread_mutex_timedlock(mutex: *mut pthread_mutex_t, until: *const timespec) -> c_int;
    fn pthread_mutex_clocklock(mutex: *mut pthread_mutex_t, clock: clockid_t, until: *const timespec) -> c_int;
    fn pthread_mutex_unlock(mutex: *mut pthread_mutex_t) -> c_int;
    fn pthread_cond_init(cond: *mut pthread_cond_t, attributes: *const pthread_condattr_t) -> c_int;
    fn pthread_cond_destroy(cond: *mut pthread_cond_t) -> c_int;
    fn pthread_cond_wait(cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) -> c_int;
    fn pthread_cond_timedwait(cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, until: *const timespec) -> c_int;
    fn pthread_cond_clockwait(cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, clock: clockid_t, until: *const timespec) -> c_int;
    fn pthread_cond_signal(cond: *mut pthread_cond_t) -> c_int;
    fn pthread_cond_broadcast(cond: *mut pthread_cond_t) -> c_int;
    fn pthread_rwlock_init(lock: *mut pthread_rwlock_t, attributes: *const pthread_rwlockattr_t) -> c_int;
    fn pthread_rwlock_destroy(lock: *mut pthread_rwlock_t) -> c_int;
    fn pthread_rwlock_rdlock(lock: *mut pthread_rwlock_t) -> c_int;
    fn pthread_rwlock_tryrdlock(lock: *mut pthread_rwlock_t) -> c_int;
    fn pthread_rwlock_timedrdlock(lock: *mut pthread_rwlock_t, until: *const timespec) -> c_int;
    fn pthread_rwlock_clockrdlock(lock: *mut pthread_rwlock_t, clock: clockid_t, until: *const timespec) -> c_int;
    fn pthread_rwlock_wrlock(lock: *mut pthread_rwlock_t) -> c_int;
    fn pthread_rwlock_trywrlock(lock: *mut pthread_rwlock_t) -> c_int;
    fn pthread_rwlock_timedwrlock(lock: *mut pthread_rwlock_t, until: *const timespec) -> c_int;
    fn pthread_rwlock_clockwrlock(lock: *mut pthread_rwlock_t, clock: clockid_t, until: *const timespec) -> c_int;
    fn pthread_rwlock_unlock(lock: *mut pthread_rwlock_t) -> c_int;
    fn pthread_spin_lock(lock: *mut pthread_spinlock_t) -> c_int;
    fn pthread_spin_trylock(lock: *mut pthread_spinlock_t) -> c_int;
    fn pthread_spin_unlock(lock: *mut pthread_spinlock_t) -> c_int;
    fn setuid(user: uid_t) -> c_int;
    fn setgid(group: gid_t) -> c_int;
    fn seteuid(user: uid_t) -> c_int;
    fn setegid(group: gid_t) -> c_int;
    fn setreuid(real: uid_t, effective: uid_t) -> c_int;
    fn setregid(real: gid_t, effective: gid_t) -> c_int;
    fn setresuid(real: uid_t, effective: uid_t, saved: uid_t) -> c_int;
    fn setresgid(real: gid_t, effective: gid_t, saved: gid_t) -> c_int;
    fn setgroups(count: size_t, groups: *const gid_t) -> c_int;
    fn initgroups(user: *const c_char, group: gid_t) -> c_int;
    fn unshare(flags: c_int) -> c_int;
    fn setns(namespace: c_int, kind: c_int) -> c_int;
    fn prctl(option: c_int, second: c_ulong, third: c_ulong, fourth: c_ulong, fifth: c_ulong) -> c_int;
    fn sched_setaffinity(thread: pid_t, size: size_t, mask: *const cpu_set_t) -> c_int;
    fn sched_getaffinity(thread: pid_t, size: size_t, mask: *mut cpu_set_t) -> c_int;
    fn pthread_setaffinity_np(thread: pthread_t, size: size_t, mask: *const cpu_set_t) -> c_int;
    fn pthread_getaffinity_np(thread: pthread_t, size: size_t, mask: *mut cpu_set_t) -> c_int;
    fn pthread_create(thread: *mut pthread_t, attributes: *const pthread_attr_t, work: extern "C" fn(*mut c_void) -> *mut c_void, argument: *mut c_void) -> c_int;
    fn execve(path: *const c_char, arguments: Words, environment: Words) -> c_int;
    fn execv(path: *const c_char, arguments: Words) -> c_int;
    fn execvp(file: *const c_char, arguments: Words) -> c_int;
    fn execvpe(file: *const c_char, arguments: Words, environment: Words) -> c_int;
    fn fexecve(descriptor: c_int, arguments: Words, environment: Words) -> c_int;
    fn execveat(directory: c_int, path: *const c_char, arguments: Words, environment: Words, flags: c_int) -> c_int;
    fn posix_spawn(process: *mut pid_t, path: *const c_char, actions: *const posix_spawn_file_actions_t, attributes: *const posix_spawnattr_t, arguments: Words, environment: Words) -> c_int;
    fn posix_spawnp(process: *mut pid_t, file: *const c_char, actions: *const posix_spawn_file_actions_t, attributes: *const posix_spawnattr_t, arguments: Words, environment: Words) -> c_int;
    fn system(command: *const c_char) -> c_int;
    fn popen(command: *const c_char, kind: *const c_char) -> *mut FILE;
}

/// Arguments or an environment.
type Words = *const *mut c_char;

/// A function of libc, looked up when first asked for.
struct Address {
    name: &'static str,
    found: AtomicPtr<c_void>,
}

impl Address {
    /// `name` ends in a zero.
    const fn new(name: &'static str) -> Self {
        Address { name, found: AtomicPtr::new(ptr::null_mut()) }
    }

    #[inline]
    fn get(&self) -> *mut c_void {
        let found = self.found.load(Relaxed);
        if found.is_null() { self.must_be_found() } else { found }
    }

    /// Looks for the next definition after this library's. A lookup that succeeds does not
    /// allocate.
    fn find(&self) {
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
