//! Probes for tracers. Those with glibc's names are glibc's, with its arguments
//! (`nptl/DESIGN-systemtap-probes.txt`). They have two providers: `libc`, which glibc has used
//! since
//! 2.34, and `libpthread`, which it used before.
//!
//! The probes of objects that libc serves are libc's own, except those at the entry of a function.

use unconvoy_locks::sdt_probe;

use crate::object::Until;

/// An argument of a probe.
pub(crate) trait Word {
    fn word(self) -> usize;
}

impl<T> Word for &T {
    #[inline(always)]
    fn word(self) -> usize {
        core::ptr::from_ref(self).addr()
    }
}

impl<T> Word for *const T {
    #[inline(always)]
    fn word(self) -> usize {
        self.addr()
    }
}

impl<T> Word for *mut T {
    #[inline(always)]
    fn word(self) -> usize {
        self.addr()
    }
}

impl Word for i32 {
    #[inline(always)]
    fn word(self) -> usize {
        self as usize
    }
}

impl Word for Until<'_> {
    #[inline(always)]
    fn word(self) -> usize {
        self.address()
    }
}

/// Defines a probe with one of glibc's names.
macro_rules! probe {
    ($name:literal; $($argument:expr),+) => {
        unconvoy_locks::sdt_probe!(
            "libc", "libpthread"; $name; $($crate::probe::Word::word($argument)),+
        )
    };
}

pub(crate) use probe;

/// `unconvoy:wait_begin`: the lock of this kind is taken, and the thread begins to wait for it. The
/// kinds are those of a profile.
#[inline(never)]
pub(crate) extern "C" fn wait_begin(lock: usize, kind: usize) {
    sdt_probe!("unconvoy"; "wait_begin"; lock, kind);
}

/// `unconvoy:wait_end`: the wait for the lock has ended, and the thread holds the lock (1), or it
/// has timed out or failed (0).
#[inline(never)]
pub(crate) extern "C" fn wait_end(lock: usize, is_held: usize) {
    sdt_probe!("unconvoy"; "wait_end"; lock, is_held);
}
