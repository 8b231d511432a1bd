//! Looking symbols up by libc's own `dlsym`.

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::Relaxed;

type LookUp = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The oldest version of `dlsym`, which every libc has.
const VERSION: &CStr = if cfg!(target_arch = "aarch64") { c"GLIBC_2.17" } else { c"GLIBC_2.2.5" };

static OWN: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Calls libc's `dlsym`. Another library may define that function, as some that count a process's
/// GPU memory do. Such a function takes locks, and the next definition is for it the next after its
/// own library.
#[allow(clippy::not_unsafe_ptr_arg_deref, reason = "a constant, or what `dlopen` returned")]
pub fn look_up(handle: *mut c_void, name: &CStr) -> *mut c_void {
    let mut own = OWN.load(Relaxed);
    if own.is_null() {
        // SAFETY: both names end in a zero.
        own = unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), VERSION.as_ptr()) };
        if own.is_null() {
            own = libc::dlsym as *mut c_void;
        }
        OWN.store(own, Relaxed);
    }
    // SAFETY: a `dlsym`; the name ends in a zero.
    unsafe { core::mem::transmute::<*mut c_void, LookUp>(own)(handle, name.as_ptr()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_up_finds_what_libc_has() {
        assert!(!look_up(libc::RTLD_DEFAULT, c"malloc").is_null());
        assert!(look_up(libc::RTLD_DEFAULT, c"no_such_function").is_null());
    }
}
