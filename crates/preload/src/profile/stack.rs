//! Call stacks of the program.
//!
//! libgcc's unwinder finds a function's unwind information through `_dl_find_object`, which neither
//! locks nor allocates (glibc 2.35). An older libgcc takes the dynamic linker's lock, and a thread
//! that holds it may be waiting for a lock that the caller holds. With such a libgcc, no stacks are
//! recorded.
//!
//! Once the program has registered unwind information of generated code (just-in-time compilers),
//! libgcc takes a mutex in every look-up, and may call the program's `malloc` with that mutex held.
//! A thread that unwinds while it waits for a lock could then deadlock with the holder of libgcc's
//! mutex, which may wait for the same lock. The library therefore defines the registration
//! functions itself ([`stand_in`]), and records no stacks from the first registration on.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use core::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU32};

use unconvoy_locks::primitive::{Clock as _, Native, Threads as _};
use unconvoy_locks::runtime::{WaitSample, present_sample, sample_waits};
use unconvoy_profile::Profile;
use unconvoy_profile::layout::DEPTH;

use super::{modules, state};
use crate::real::stand_in;
use crate::{caller, real};

/// Whether the unwinder may be called: [`UNKNOWN`], [`YES`], or [`NO`] for good.
static UNWINDS: AtomicU32 = AtomicU32::new(UNKNOWN);
const UNKNOWN: u32 = 0;
const YES: u32 = 1;
const NO: u32 = 2;

/// Number of threads in the unwinder.
static UNWINDING_THREADS: AtomicU32 = AtomicU32::new(0);

/// Longest time that a registration waits for the threads in the unwinder. An unwinding takes some
/// 2 us, but a thread that is cancelled in the unwinder, or leaves it by `longjmp` in a signal
/// handler, stays counted.
const REGISTRATION_NS: u64 = 100_000_000;

/// Whether a registration has waited that long: the next ones do not wait.
static IS_STUCK: AtomicBool = AtomicBool::new(false);

/// Marks a thread that unwinds, in place of the sample of its wait. Waits in the unwinder are not
/// recorded.
static UNWINDING: WaitSample = WaitSample { at: u64::MAX, take: |_| {} };

/// Determines whether the unwinder may be called. Called from the constructor, or earlier.
///
/// Then unwinds once. The dynamic linker resolves the functions that libgcc calls at the first
/// call, and saves all registers meanwhile: 3 KB with AVX-512, too much for a signal handler's
/// stack of 8 KB.
pub(crate) fn begin() {
    if is_lock_free() {
        allow();
    }
    if unwinds() {
        caller::stack(&mut [0; 4]);
    }
}

/// Allows the unwinder to be called, after a reader has found out that it may.
pub(super) fn allow() {
    let _ = UNWINDS.compare_exchange(UNKNOWN, YES, SeqCst, Relaxed);
}

pub(super) fn unwinds() -> bool {
    UNWINDS.load(Relaxed) == YES
}

/// Whether the calling thread is inside [`record`].
pub(super) fn is_unwinding() -> bool {
    ptr::eq(present_sample(), &raw const UNWINDING)
}

/// Records the calling thread's stack without this library's frames. Returns the stack's number, or
/// 0 if none was recorded.
pub(super) fn record(profile: &Profile) -> u32 {
    let mut frames = [0; DEPTH];
    let Some(depth) = unwind(&mut frames) else { return 0 };
    let frames = &frames[..depth];
    let (mut mapped, is_known) = modules::of_code(profile, frames);
    if !is_known {
        modules::refresh_sometimes(profile);
        (mapped, _) = modules::of_code(profile, frames);
    }
    profile.stack(frames, mapped)
}

/// Fills `frames` with the calling thread's return addresses outside this library, innermost first.
/// Returns their number; `None` if the stack may not be unwound now.
pub(crate) fn unwind(frames: &mut [u64]) -> Option<usize> {
    if !unwinds() || is_unwinding() {
        return None;
    }
    let generation = state::generation();
    // SeqCst: this thread counts itself before it loads `UNWINDS`, and `before_registration` sets
    // `UNWINDS` before it loads the count, so one of the two threads sees the other.
    UNWINDING_THREADS.fetch_add(1, SeqCst);
    let mut depth = 0;
    if UNWINDS.load(SeqCst) == YES {
        // SAFETY: a static, and then the previous sample, which stays in place.
        unsafe {
            let before = sample_waits(&raw const UNWINDING);
            depth = caller::stack(frames);
            sample_waits(before);
        }
    }
    // A signal handler may have forked, and `after_fork` has reset the child's count.
    if generation != state::generation() {
        return None;
    }
    UNWINDING_THREADS.fetch_sub(1, Release);
    Some(depth)
}

/// Forgets the parent's other threads, in the child of a `fork`.
pub(super) fn after_fork() {
    UNWINDING_THREADS.store(0, Relaxed);
}

/// Marks a new profile if the process no longer records stacks.
pub(super) fn mark(profile: &Profile) {
    profile.header.registered.store(u64::from(IS_REGISTERED.load(Relaxed)), Relaxed);
}

static IS_REGISTERED: AtomicBool = AtomicBool::new(false);

stand_in! {
    fn __register_frame(begin: *const u32) -> () = |call| register(begin, call);
    fn __register_frame_info(begin: *const u32, object: *mut c_void) -> () =
        |call| register(begin, call);
    fn __register_frame_info_bases(
        begin: *const u32,
        object: *mut c_void,
        text: *mut c_void,
        data: *mut c_void,
    ) -> () = |call| register(begin, call);
    fn __register_frame_table(begin: *const u32) -> () = |call| register(begin, call);
    fn __register_frame_info_table(begin: *const u32, object: *mut c_void) -> () =
        |call| register(begin, call);
    fn __register_frame_info_table_bases(
        begin: *const u32,
        object: *mut c_void,
        text: *mut c_void,
        data: *mut c_void,
    ) -> () = |call| register(begin, call);
}

/// Registers unwind information by `call`. libgcc ignores information that starts with a zero,
/// which objects of old compilers register.
fn register(begin: *const u32, call: &dyn Fn()) {
    // SAFETY: null, or unwind information, which starts with a length.
    if unsafe { begin.as_ref() }.is_some_and(|length| *length != 0) {
        before_registration();
    }
    call();
}

/// Records no stacks from now on, and waits for the threads that are in the unwinder.
#[cold]
fn before_registration() {
    IS_REGISTERED.store(true, Relaxed);
    if let Some(profile) = state::get() {
        mark(profile);
    }
    UNWINDS.store(NO, SeqCst);
    if is_unwinding() {
        return;
    }
    let begin = Native::now();
    while UNWINDING_THREADS.load(SeqCst) != 0 && !IS_STUCK.load(Relaxed) {
        if Native::now() - begin >= REGISTRATION_NS {
            IS_STUCK.store(true, Relaxed);
        }
        Native::yield_now();
    }
}

/// Whether the unwinder is the loaded libgcc's, and that refers to `_dl_find_object`. Other
/// libraries have unwinders that take locks, such as libunwind.
fn is_lock_free() -> bool {
    unsafe extern "C" fn visit(
        info: *mut libc::dl_phdr_info,
        _: usize,
        found: *mut c_void,
    ) -> c_int {
        // SAFETY: the dynamic linker passes a valid description; `found` is below.
        unsafe {
            let name = (*info).dlpi_name;
            if name.is_null() || !CStr::from_ptr(name).to_bytes().ends_with(b"/libgcc_s.so.1") {
                return 0;
            }
            let is_called = real::object(caller::unwinder()).addr() == (*info).dlpi_addr as usize;
            *found.cast::<bool>() = is_called && imports(&*info, c"_dl_find_object");
        }
        1
    }
    let mut found = false;
    // SAFETY: `visit` accepts these arguments.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut found).cast()) };
    found
}

/// Whether a loaded object imports `name`. Imported symbols precede the first symbol of the hash
/// table (`DT_GNU_HASH`).
///
/// # Safety
///
/// The object stays loaded meanwhile.
unsafe fn imports(info: &libc::dl_phdr_info, name: &CStr) -> bool {
    const DT_GNU_HASH: u64 = 0x6fff_fef5;
    /// Entry of the dynamic section: tag and value.
    type Dynamic = (u64, u64);
    let (mut symbols, mut strings, mut hash) = (0, 0, 0);
    // SAFETY: the dynamic linker has relocated the dynamic section, which ends in a zero tag; the
    // tables that it names are mapped.
    unsafe {
        let headers = core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        let Some(dynamic) = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC) else {
            return false;
        };
        let at = |address: u64| ptr::with_exposed_provenance::<u8>(address as usize);
        let mut entry = at(info.dlpi_addr + dynamic.p_vaddr).cast::<Dynamic>();
        while (*entry).0 != 0 {
            match *entry {
                (5, value) => strings = value,
                (6, value) => symbols = value,
                (DT_GNU_HASH, value) => hash = value,
                _ => {}
            }
            entry = entry.add(1);
        }
        if symbols == 0 || strings == 0 || hash == 0 {
            return false;
        }
        let first_hashed = *at(hash).cast::<u32>().add(1) as usize;
        (1..first_hashed).any(|index| {
            let symbol = &*at(symbols).cast::<libc::Elf64_Sym>().add(index);
            let text = at(strings).add(symbol.st_name as usize).cast::<c_char>();
            CStr::from_ptr(text) == name
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libgcc_imports_what_it_is_known_to_import() {
        unsafe extern "C" fn visit(
            info: *mut libc::dl_phdr_info,
            _: usize,
            found: *mut c_void,
        ) -> c_int {
            // SAFETY: as in `is_lock_free`.
            unsafe {
                let name = CStr::from_ptr((*info).dlpi_name).to_bytes();
                if name.ends_with(b"/libgcc_s.so.1") {
                    *found.cast::<[bool; 2]>() =
                        [imports(&*info, c"abort"), imports(&*info, c"no_such_function")];
                }
            }
            0
        }
        let mut found = [false; 2];
        // SAFETY: `visit` accepts these arguments.
        unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut found).cast()) };
        assert_eq!(found, [true, false]);
    }
}
