//! Locations in loaded files, for the statistics.

use core::ptr;

use serde_json::json;

/// The program's path, with a replacement for each byte that is not UTF-8; `None` if it is unknown.
pub(crate) fn program() -> Option<String> {
    std::env::current_exe().ok().map(|path| path.to_string_lossy().into_owned())
}

/// A location in a loaded file.
pub(crate) struct Place {
    /// The file's name as the dynamic linker has it; the absolute path for the program itself.
    object: String,
    /// Offset in bytes from the lowest address at which the file is mapped.
    pub(crate) offset: usize,
    symbol: Option<String>,
}

impl Place {
    /// The location of `address`; `None` if no file contains it: heap, stack.
    pub(crate) fn of(address: usize) -> Option<Self> {
        let info = object_at(address)?;
        // SAFETY: strings that live as long as the object is loaded.
        let name = |text: *const core::ffi::c_char| unsafe {
            (!text.is_null())
                .then(|| core::ffi::CStr::from_ptr(text).to_string_lossy().into_owned())
        };
        // For the program itself, the linker has only the name that the caller of `exec` passed.
        // SAFETY: no preconditions.
        let entry = unsafe { libc::getauxval(libc::AT_ENTRY) } as usize;
        let is_program =
            object_at(entry).is_some_and(|program| program.dli_fbase == info.dli_fbase);
        Some(Self {
            object: is_program
                .then(program)
                .flatten()
                .or_else(|| name(info.dli_fname))
                .unwrap_or_default(),
            offset: address - info.dli_fbase.addr(),
            symbol: name(info.dli_sname),
        })
    }

    /// For people: the variable's name, if known, and the file's.
    pub(crate) fn name(&self) -> String {
        let object = self.object.rsplit('/').next().unwrap_or_default();
        match &self.symbol {
            Some(symbol) => format!("{symbol} in {object}"),
            None => object.to_owned(),
        }
    }

    pub(crate) fn as_json(&self) -> serde_json::Value {
        json!({ "object": self.object, "offset": format!("{:#x}", self.offset) })
    }
}

fn object_at(address: usize) -> Option<libc::Dl_info> {
    let mut info = core::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: fills `info` if the address is in a loaded object; all zeroes is a valid `Dl_info`.
    unsafe {
        (libc::dladdr(ptr::without_provenance(address), info.as_mut_ptr()) != 0)
            .then(|| info.assume_init())
    }
}
