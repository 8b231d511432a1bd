//! The values of environment variables, checked against what
//! [`environment`](unconvoy_locks::catalogue::environment) says of them.
//!
//! For a value that a variable cannot have, the library prints one line on standard error and uses the
//! default; a switch is on unless it is `0`.

use core::ffi::CStr;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use unconvoy_locks::catalogue::Entry;
use unconvoy_locks::catalogue::environment::{Values, Variable};

use crate::message::say;

/// The value of a variable that is set and not empty.
pub(crate) fn variable(variable: &Variable) -> Option<&'static str> {
    // `getenv` neither locks nor allocates, so that this can be called from within a malloc's lock.
    // SAFETY: the name ends in a zero; the value lives as long as nobody changes the environment, which
    // a program may not do while others read it (POSIX).
    let value = unsafe { libc::getenv(variable.c_name().as_ptr()).as_ref().map(|value| CStr::from_ptr(value)) };
    value.and_then(|value| value.to_str().ok()).filter(|value| !value.is_empty())
}

/// Whether a switch is on.
pub(crate) fn is_on(switch: &Variable) -> bool {
    variable(switch) != Some("0")
}

/// The name that `choice` holds, or its default.
pub(crate) fn named(choice: &Variable) -> &'static str {
    static SAID: AtomicU64 = AtomicU64::new(0);
    let Values::Entry(entries) = choice.values else { unreachable!("only names are asked for") };
    let Some(value) = variable(choice) else {
        return entries[0].name;
    };
    if let Some(entry) = entries.iter().find(|entry| entry.name == value) {
        return entry.name;
    }
    // A process may ask more than once; said once.
    let bit = 1 << (entries.len() % 64);
    if SAID.fetch_or(bit, Relaxed) & bit == 0 {
        say_none_of(choice, value, entries);
    }
    entries[0].name
}

/// One line about a value that is none of `entries`.
pub(crate) fn say_none_of(variable: &Variable, value: &str, entries: &'static [Entry]) {
    let mut message = [""; 32];
    let head = [variable.name, "=", value, " is none of"];
    let parts = head.into_iter().chain(entries.iter().flat_map(|entry| [" ", entry.name]));
    let tail = ["; using ", entries[0].name];
    let mut len = 0;
    for (place, part) in message.iter_mut().zip(parts.chain(tail)) {
        *place = part;
        len += 1;
    }
    say(&message[..len]);
}

/// Stores the value of `number` in nanoseconds, if it has one.
pub(crate) fn read_milliseconds(number: &Variable, setting: &AtomicU64) {
    let Values::Milliseconds(range) = &number.values else { unreachable!("only times are asked for") };
    let Some(value) = variable(number) else { return };
    match value.parse::<f64>() {
        Ok(ms) if range.contains(&ms) => setting.store((ms * 1e6) as u64, Relaxed),
        _ => say(&[number.name, "=", value, " is no number of milliseconds in its range; using the default"]),
    }
}
