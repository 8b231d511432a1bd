//! libc's own functions, for objects that are handed to libc. They are looked up by name in the
//! objects loaded after this library, at load time or when first needed.

/// Defines the addresses of libc functions, and `find_all`, which looks all of them up.
macro_rules! addresses {
    ($($name:ident),*) => {
        /// The address of each function, once looked up.
        #[allow(non_upper_case_globals, reason = "named as the functions are")]
        mod address {
            use crate::real::Address;

            $(pub(super) static $name: Address = Address::new(concat!(stringify!($name), "\0"));)*
        }

        /// Looks all of them up at load time, so that no later call needs the dynamic linker. A
        /// later lookup could deadlock: a thread that waits for the caller may hold the linker's
        /// lock, as in a constructor of a library that is being loaded.
        pub(crate) fn find_all() {
            $(address::$name.find();)*
        }
    };
}

/// Defines safe functions that call libc's on objects that libc serves.
macro_rules! real {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        addresses!($($name),*);
        $(
            /// libc's function of this name.
            pub(crate) fn $name($($argument: $type),*) -> $result {
                // SAFETY: libc's function of that name has this type. Its arguments are objects and
                // times from a caller of this library (see `object` and `Until`).
                unsafe {
                    type Function = unsafe extern "C-unwind" fn($($type),*) -> $result;
                    let libcs: Function = core::mem::transmute(address::$name.get());
                    libcs($($argument),*)
                }
            }
        )*
    };
}

/// Defines exported functions under libc's names. Each passes a closure that calls libc's function
/// to `$around`, which runs the closure.
macro_rules! stand_in {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty = $around:expr;)*) => {
        $crate::real::addresses!($($name),*);
        $(
            /// # Safety
            ///
            /// As for libc's function of this name.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
                // SAFETY: libc's function of that name has this type. It gets the arguments of the
                // program, which promises what libc requires.
                let call = || unsafe {
                    type Function = unsafe extern "C-unwind" fn($($type),*) -> $result;
                    let libcs: Function = core::mem::transmute(address::$name.get());
                    libcs($($argument),*)
                };
                ($around)(&call)
            }
        )*
    };
}

pub(crate) use {addresses, stand_in};

use core::ffi::{CStr, c_int, c_void};
use core::ptr;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::Relaxed;

use unconvoy_locks::primitive::native;
use unconvoy_locks::primitive::native::symbol::look_up;

use libc::{
    clockid_t, pthread_cond_t, pthread_condattr_t, pthread_mutex_t, pthread_rwlock_t,
    pthread_spinlock_t, timespec,
};

use crate::object::{Libcs, Until};

real! {
    fn pthread_mutex_destroy(mutex: &Libcs<pthread_mutex_t>) -> c_int;
    fn pthread_mutex_lock(mutex: &Libcs<pthread_mutex_t>) -> c_int;
    fn pthread_mutex_trylock(mutex: &Libcs<pthread_mutex_t>) -> c_int;
    fn pthread_mutex_timedlock(mutex: &Libcs<pthread_mutex_t>, until: Until<'_>) -> c_int;
    fn pthread_mutex_clocklock(
        mutex: &Libcs<pthread_mutex_t>,
        clock: clockid_t,
        until: Until<'_>
    ) -> c_int;
    fn pthread_mutex_unlock(mutex: &Libcs<pthread_mutex_t>) -> c_int;
    fn pthread_cond_init(
        cond: &Libcs<pthread_cond_t>,
        attributes: &pthread_condattr_t
    ) -> c_int;
    fn pthread_cond_destroy(cond: &Libcs<pthread_cond_t>) -> c_int;
    fn pthread_cond_wait(cond: &Libcs<pthread_cond_t>, mutex: &Libcs<pthread_mutex_t>) -> c_int;
    fn pthread_cond_timedwait(
        cond: &Libcs<pthread_cond_t>,
        mutex: &Libcs<pthread_mutex_t>,
        until: Until<'_>
    ) -> c_int;
    fn pthread_cond_clockwait(
        cond: &Libcs<pthread_cond_t>,
        mutex: &Libcs<pthread_mutex_t>,
        clock: clockid_t,
        until: Until<'_>
    ) -> c_int;
    fn pthread_cond_signal(cond: &Libcs<pthread_cond_t>) -> c_int;
    fn pthread_cond_broadcast(cond: &Libcs<pthread_cond_t>) -> c_int;
    fn pthread_rwlock_destroy(lock: &Libcs<pthread_rwlock_t>) -> c_int;
    fn pthread_rwlock_rdlock(lock: &Libcs<pthread_rwlock_t>) -> c_int;
    fn pthread_rwlock_tryrdlock(lock: &Libcs<pthread_rwlock_t>) -> c_int;
    fn pthread_rwlock_timedrdlock(lock: &Libcs<pthread_rwlock_t>, until: Until<'_>) -> c_int;
    fn pthread_rwlock_clockrdlock(
        lock: &Libcs<pthread_rwlock_t>,
        clock: clockid_t,
        until: Until<'_>
    ) -> c_int;
    fn pthread_rwlock_wrlock(lock: &Libcs<pthread_rwlock_t>) -> c_int;
    fn pthread_rwlock_trywrlock(lock: &Libcs<pthread_rwlock_t>) -> c_int;
    fn pthread_rwlock_timedwrlock(lock: &Libcs<pthread_rwlock_t>, until: Until<'_>) -> c_int;
    fn pthread_rwlock_clockwrlock(
        lock: &Libcs<pthread_rwlock_t>,
        clock: clockid_t,
        until: Until<'_>
    ) -> c_int;
    fn pthread_rwlock_unlock(lock: &Libcs<pthread_rwlock_t>) -> c_int;
    fn pthread_spin_lock(lock: &Libcs<pthread_spinlock_t>) -> c_int;
    fn pthread_spin_trylock(lock: &Libcs<pthread_spinlock_t>) -> c_int;
    fn pthread_spin_unlock(lock: &Libcs<pthread_spinlock_t>) -> c_int;
}

/// The version that programs are linked with, for a function whose older version takes other
/// arguments or objects. Before glibc 2.36, `dlsym(RTLD_NEXT)` finds the oldest version (glibc bug
/// 14932).
fn version(name: &str) -> Option<&'static CStr> {
    if !cfg!(target_arch = "x86_64") {
        return None;
    }
    match name {
        "pthread_cond_broadcast"
        | "pthread_cond_destroy"
        | "pthread_cond_init"
        | "pthread_cond_signal"
        | "pthread_cond_timedwait"
        | "pthread_cond_wait" => Some(c"GLIBC_2.3.2"),
        "pthread_getaffinity_np"
        | "pthread_setaffinity_np"
        | "sched_getaffinity"
        | "sched_setaffinity" => Some(c"GLIBC_2.3.4"),
        "posix_spawn" | "posix_spawnp" => Some(c"GLIBC_2.15"),
        _ => None,
    }
}

/// A libc function, looked up on first use.
pub(crate) struct Address {
    name: &'static str,
    found: AtomicPtr<c_void>,
}

impl Address {
    /// `name` must end in a zero.
    pub(crate) const fn new(name: &'static str) -> Self {
        Address { name, found: AtomicPtr::new(ptr::null_mut()) }
    }

    #[inline]
    pub(crate) fn get(&self) -> *mut c_void {
        let found = self.found.load(Relaxed);
        if found.is_null() { self.find_or_abort() } else { found }
    }

    /// Looks for the next definition after this library's. A successful lookup does not allocate.
    pub(crate) fn find(&self) {
        let name = CStr::from_bytes_with_nul(self.name.as_bytes()).expect("ends in a zero");
        let next = look_up(libc::RTLD_NEXT, name);
        let versioned = version(self.name.trim_end_matches('\0')).map(|version| {
            // SAFETY: both strings end in a zero.
            unsafe { libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), version.as_ptr()) }
        });
        // A sanitizer's definition, which comes before libc's, has no version.
        let of_same_object = versioned.filter(|address| object(*address) == object(next));
        self.found.store(of_same_object.unwrap_or(next), Relaxed);
    }

    #[cold]
    fn find_or_abort(&self) -> *mut c_void {
        self.find();
        let address = self.found.load(Relaxed);
        if address.is_null() {
            crate::message::missing_libc_function(self.name.trim_end_matches('\0')).print();
            // SAFETY: `abort` has no preconditions. The program called a function that its libc
            // lacks.
            unsafe { libc::abort() };
        }
        address
    }
}

/// The base address of the object that contains `address`; null without one.
pub(crate) fn object(address: *const c_void) -> *mut c_void {
    let mut info = core::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: fills `info` if the address is in a loaded object; otherwise `info` stays zero.
    unsafe {
        libc::dladdr(address, info.as_mut_ptr());
        info.assume_init().dli_fbase
    }
}

/// Whether the `pthread_cond_init` that [`pthread_cond_init`] calls is libc's own.
pub(crate) fn initialises_conds_itself() -> bool {
    object(address::pthread_cond_init.get()) == object(libc::gnu_get_libc_version as *const c_void)
}

/// Whether the program's calls reach this library. A definition in the program itself, or in a
/// library loaded before this one, such as a statically linked sanitizer, takes precedence.
///
/// An earlier definition of a condition variable's function mostly looks for the next one by its
/// version, as libfaketime does. That lookup goes past this library, whose functions have no
/// versions, and libc's wait cannot release this library's mutexes.
pub(crate) fn is_in_front() -> bool {
    let names = [
        c"pthread_mutex_lock",
        c"pthread_mutex_unlock",
        c"pthread_rwlock_rdlock",
        c"pthread_cond_wait",
        c"pthread_cond_timedwait",
        c"pthread_cond_signal",
        c"pthread_cond_broadcast",
        c"pthread_cond_destroy",
    ];
    let own = object(is_in_front as *const c_void);
    let called = names.map(|name| look_up(libc::RTLD_DEFAULT, name));
    // If a program at fixed addresses takes a function's address, the lookup finds the program's
    // own entry, which only calls the definition in another object.
    called.into_iter().all(|address| object(address) == own || is_entry_for_other_object(address))
}

/// Whether the symbol at `address` is undefined in its object: an entry of its procedure linkage
/// table (System V ABI, AMD64 supplement, "Function Addresses").
fn is_entry_for_other_object(address: *const c_void) -> bool {
    unsafe extern "C" {
        fn dladdr1(
            address: *const c_void,
            info: *mut libc::Dl_info,
            extra: *mut *mut c_void,
            flags: c_int,
        ) -> c_int;
    }
    const RTLD_DL_SYMENT: c_int = 1;
    const SHN_UNDEF: u16 = 0;
    let mut info = core::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let mut symbol = ptr::null_mut();
    // SAFETY: fills both if the address is in a loaded object, whose symbols stay mapped.
    unsafe {
        dladdr1(address, info.as_mut_ptr(), &raw mut symbol, RTLD_DL_SYMENT) != 0
            && symbol.cast::<libc::Elf64_Sym>().as_ref().is_some_and(|it| it.st_shndx == SHN_UNDEF)
    }
}

/// The `clock_gettime` of a library that fakes both the time and the deadlines of condition
/// variables, if that library is loaded after this one; otherwise null.
static FAKED_CLOCK: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// The time that the program sees, if a library fakes it.
pub(crate) fn faked_time(clock: clockid_t) -> Option<timespec> {
    let read = FAKED_CLOCK.load(Relaxed);
    if read.is_null() {
        return None;
    }
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is a `clock_gettime`, which fills `time`.
    let answer = unsafe {
        core::mem::transmute::<*mut c_void, native::ReadClock>(read)(clock, &raw mut time)
    };
    (answer == 0).then_some(time)
}

/// Makes waiters read libc's clock, bypassing any preloaded library that fakes the time: such a
/// library takes locks when it reads the clock. If that library is loaded after this one, it never
/// sees the program's deadlines, so this library must translate them.
pub(crate) fn use_libcs_clock() {
    // SAFETY: libc is loaded, so `dlopen` only finds it. Its `clock_gettime` has that type.
    unsafe {
        let libc_itself = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY);
        if libc_itself.is_null() {
            return;
        }
        let clock = look_up(libc_itself, c"clock_gettime");
        if !clock.is_null() {
            native::read_clock_with(core::mem::transmute::<*mut c_void, native::ReadClock>(clock));
        }
        let believed = look_up(libc::RTLD_DEFAULT, c"clock_gettime");
        let wait_behind = address::pthread_cond_timedwait.found.load(Relaxed);
        if clock != believed && wait_behind != look_up(libc_itself, c"pthread_cond_timedwait") {
            FAKED_CLOCK.store(believed, Relaxed);
        }
    }
}
