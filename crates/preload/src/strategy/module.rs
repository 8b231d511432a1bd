//! The loaded module that contains an address, found without locks and without allocation.

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::Relaxed;

use unconvoy_locks::catalogue::strategy::{Segment, module_identity};
use unconvoy_locks::primitive::native::symbol::look_up;

/// A loaded module.
pub(super) struct Module {
    /// See [`module_identity`].
    pub(super) identity: u64,
    /// Difference between addresses in memory and in the file.
    pub(super) bias: u64,
}

/// Bytes at the start of a module that are certainly mapped, if any are.
const PAGE: usize = 4096;

/// glibc's `struct dl_find_object` (dl_find_object(3)), on machines where it has no further fields.
#[repr(C)]
struct Found {
    flags: u64,
    start: *const u8,
    end: *const u8,
    /// Points to a `struct link_map`, which begins with the difference of addresses.
    link_map: *const u64,
    unwind_information: *const c_void,
    _reserved: [u64; 7],
}

type FindObject = unsafe extern "C" fn(*const c_void, *mut Found) -> c_int;

/// glibc's `_dl_find_object`, which neither locks nor allocates; null before glibc 2.35.
static FIND_OBJECT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Looks the function up that [`at`] needs; false if libc has none.
pub(super) fn begin() -> bool {
    let found = look_up(libc::RTLD_DEFAULT, c"_dl_find_object");
    FIND_OBJECT.store(found, Relaxed);
    !found.is_null()
}

/// The module that contains an address.
pub(super) fn at(address: usize) -> Option<Module> {
    let find = FIND_OBJECT.load(Relaxed);
    if find.is_null() {
        return None;
    }
    let mut found = MaybeUninit::<Found>::zeroed();
    // SAFETY: glibc's function of that name has this type, and fills `found` if it returns 0. The
    // module stays loaded: the caller runs in it, or uses a lock in it. Its image begins with its
    // ELF header, and its notes are mapped where its program headers say.
    unsafe {
        let find = core::mem::transmute::<*mut c_void, FindObject>(find);
        if find(ptr::without_provenance(address), found.as_mut_ptr()) != 0 {
            return None;
        }
        let Found { start, end, link_map, .. } = found.assume_init();
        let bias = *link_map;
        let note = |segment: Segment| {
            let at = bias.wrapping_add(segment.address) as usize;
            let is_mapped = at >= start.addr() && at + segment.size as usize <= end.addr();
            is_mapped
                .then(|| core::slice::from_raw_parts(start.with_addr(at), segment.size as usize))
        };
        let identity = module_identity(core::slice::from_raw_parts(start, PAGE), note)?;
        Some(Module { identity, bias })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_module_has_the_identity_of_its_file() {
        assert!(begin(), "glibc 2.35 or later");
        let file = std::fs::read("/proc/self/exe").unwrap();
        let note = |segment: Segment| {
            file.get(segment.offset as usize..(segment.offset + segment.size) as usize)
        };
        let code = at(own_module_has_the_identity_of_its_file as fn() as usize).unwrap();
        let data = at((&raw const FIND_OBJECT).addr()).unwrap();
        assert_eq!(Some(code.identity), module_identity(&file, note));
        assert_eq!((data.identity, data.bias), (code.identity, code.bias));
        let libcs = at(libc::getpid as *const () as usize).unwrap();
        assert_ne!(libcs.identity, code.identity);
        assert!(at(8).is_none());
    }
}
