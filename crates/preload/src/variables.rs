//! Reads environment variables and checks their values against their descriptions in
//! [`environment`](unconvoy_locks::catalogue::environment).
//!
//! For an invalid value, the library prints one line on standard error and uses the default. A
//! switch is on unless its value is `0`.

use core::ffi::{CStr, c_char};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use unconvoy_locks::catalogue::environment::{Values, Variable};

use crate::message;

unsafe extern "C" {
    fn secure_getenv(name: *const c_char) -> *const c_char;
}

/// The value of `variable`, if it is set and not empty. A program that runs with more privilege
/// than its caller (set-user-ID, file capabilities) ignores the caller's settings, which name files
/// to write. Only for the start: later, the program may have changed its environment.
pub(crate) fn variable(variable: &Variable) -> Option<&'static str> {
    // This neither locks nor allocates, so a malloc may reach this call while holding its own lock.
    // SAFETY: the name ends in a zero. The value lives until the environment changes: the
    // constructor, or an earlier lock operation, uses it at once and copies what is needed later.
    let value = unsafe {
        secure_getenv(variable.c_name().as_ptr()).as_ref().map(|value| CStr::from_ptr(value))
    };
    value.and_then(|value| value.to_str().ok()).filter(|value| !value.is_empty())
}

/// A file's name that stays the same after the program has changed its directory.
pub(crate) fn absolute(path: &str) -> String {
    let absolute = std::path::absolute(path).map(|path| path.into_os_string().into_string());
    absolute.ok().and_then(Result::ok).unwrap_or_else(|| path.to_owned())
}

pub(crate) fn is_on(switch: &Variable) -> bool {
    variable(switch) != Some("0")
}

/// The name that `choice` is set to, or the default.
pub(crate) fn named(choice: &Variable) -> &'static str {
    static WARNED: AtomicU64 = AtomicU64::new(0);
    let Values::Entry(entries) = choice.values else {
        unreachable!("only choices are read by name")
    };
    let Some(value) = variable(choice) else {
        return entries[0].name;
    };
    if let Some(entry) = entries.iter().find(|entry| entry.name == value) {
        return entry.name;
    }
    // A process may read a variable more than once; warn once.
    let bit = 1 << (entries.len() % 64);
    if WARNED.fetch_or(bit, Relaxed) & bit == 0 {
        message::unknown_name(choice.name, value, entries).print();
    }
    entries[0].name
}

/// Stores the value of `number`, converted to nanoseconds, if the variable is set.
pub(crate) fn read_milliseconds(number: &Variable, setting: &AtomicU64) {
    let Values::Milliseconds(range) = &number.values else {
        unreachable!("only times are read as milliseconds")
    };
    let Some(value) = variable(number) else { return };
    match value.parse::<f64>() {
        Ok(ms) if range.contains(&ms) => setting.store((ms * 1e6) as u64, Relaxed),
        _ => {
            message::invalid_milliseconds(number.name, value, *range.start(), *range.end()).print()
        }
    }
}
