//! What the user asked for, from the environment: read once, by the first lock operation or the
//! constructor, whichever comes first.
//!
//! The variables, with their values and defaults, are in
//! [`environment`]. For a value that a variable cannot have,
//! the library prints one line on standard error and uses the default; a switch is on unless it is
//! `0`.

use core::ffi::{CStr, c_char};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};

use unconvoy_locks::catalogue::environment::{self, Values, Variable};
use unconvoy_locks::catalogue::{Availability, CONTENTION, Entry, LOAD, SENSOR, availability};
use unconvoy_locks::load::control::Control;
use unconvoy_locks::primitive::{Generation as _, Native};
use unconvoy_locks::runtime;
use unconvoy_locks::runtime::fork::OF_THIS_PROCESS;
use unconvoy_locks::runtime::load_control;
use unconvoy_locks::runtime::sensor::choice::Choice;

use crate::dispatch::{self, Pair};
use crate::{identity, real, stats, tally};

/// The load manager of the default pair, whose path is compiled in.
pub(crate) type DefaultLoad = Control;

/// How this process is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Service {
    /// The default pair, without statistics: the fast path.
    Default = 1,
    /// Through the chosen pair's table.
    Chosen = 2,
    /// Not at all: everything goes to libc.
    Declined = 3,
}

/// Nothing is known in this process yet; so also in the child of a fork, where the kernel empties
/// the page that the service stands on.
const UNKNOWN: u8 = 0;
const BEING_READ: u8 = 4;

#[inline(always)]
fn service_word() -> &'static AtomicU8 {
    &OF_THIS_PROCESS.byte
}

/// How this process is served.
#[inline(always)]
pub(crate) fn service() -> Service {
    match service_word().load(Acquire) {
        1 => Service::Default,
        2 => Service::Chosen,
        3 => Service::Declined,
        _ => settle(),
    }
}

/// Whether the fast path serves this process; false also before that is known.
#[inline(always)]
pub(crate) fn is_default() -> bool {
    service_word().load(Relaxed) == Service::Default as u8
}

unsafe extern "C" {
    fn unconvoy_sanitizer() -> *const c_char;
}

#[cold]
fn settle() -> Service {
    /// What the first process found.
    static FOUND: AtomicU8 = AtomicU8::new(UNKNOWN);
    if service_word().compare_exchange(UNKNOWN, BEING_READ, Acquire, Relaxed).is_err() {
        while service_word().load(Acquire) == BEING_READ {
            core::hint::spin_loop();
        }
        return service();
    }
    Native::generation(); // takes note of a fork
    match FOUND.load(Relaxed) {
        UNKNOWN => FOUND.store(read() as u8, Relaxed),
        _ => stats::after_fork(),
    }
    service_word().store(FOUND.load(Relaxed), Release);
    service()
}

/// Who else watches the locks of this process.
fn watcher() -> Option<&'static str> {
    // SAFETY: returns null or a string constant.
    let sanitizer = unsafe { unconvoy_sanitizer().as_ref().map(|name| CStr::from_ptr(name)) };
    // These two know only the locks of libc, whose functions they replace.
    let preloaded = variable(&environment::PRELOAD).unwrap_or_default();
    let tools = [("vgpreload_helgrind", "helgrind"), ("vgpreload_drd", "DRD")];
    let tool = || tools.iter().find(|(library, _)| preloaded.contains(library)).map(|&(_, name)| name);
    sanitizer.and_then(|name| name.to_str().ok()).or_else(tool)
}

fn read() -> Service {
    let control = load_control();
    control.interval.store(pair().interval_ns, Relaxed);
    read_milliseconds(&environment::INTERVAL, &control.interval);
    read_milliseconds(&environment::SLEEP, &control.sleep);
    read_milliseconds(&environment::BACKOFF, &control.backoff);
    runtime::use_sensor(sensor());
    control.set_policy(named(&environment::CONTROL_POLICY));
    control.wake_holders(is_on(&environment::NESTED));
    // Also where a chosen pair serves: whoever does not know asks the kernel at every lock.
    let identity_is_at_hand = identity::is_at_hand();
    if let Some(watcher) = watcher() {
        say(&["this program runs under ", watcher, ", which has locks of its own to watch: nothing is replaced"]);
        Service::Declined
    } else if !real::is_in_front() {
        say(&["this program has pthread functions of its own: nothing is replaced"]);
        Service::Declined
    } else if core::ptr::eq(pair(), default_pair()) && variable(&environment::STATS).is_none() && identity_is_at_hand {
        Service::Default
    } else {
        Service::Chosen
    }
}

/// The value of a variable that is set and not empty.
pub(crate) fn variable(variable: &Variable) -> Option<&'static str> {
    // `getenv` neither locks nor allocates, so that this can be called from within a malloc's lock.
    // SAFETY: the name ends in a zero; the value lives as long as nobody changes the environment, which
    // a program may not do while others read it (POSIX).
    let value = unsafe { libc::getenv(variable.c_name().as_ptr()).as_ref().map(|value| CStr::from_ptr(value)) };
    value.and_then(|value| value.to_str().ok()).filter(|value| !value.is_empty())
}

fn default_pair() -> &'static Pair {
    dispatch::find(CONTENTION[0].name, LOAD[0].name).expect("the catalogue's names are those of the pairs")
}

/// The pair that the environment names.
pub(crate) fn pair() -> &'static Pair {
    let lock = named(&environment::LOCK);
    let load = named(&environment::LOAD_MANAGER);
    if !is_usable(lock) {
        return default_pair();
    }
    dispatch::find(lock, load).unwrap_or_else(default_pair)
}

/// Whether this machine can run the contention manager `lock`; says so, once, if it cannot, or not in
/// full.
fn is_usable(lock: &'static str) -> bool {
    static SAID: AtomicBool = AtomicBool::new(false);
    let (reason, consequence, is_usable) = match availability(lock) {
        Availability::Full => return true,
        Availability::Reduced(reason) => (reason, "; running without", true),
        Availability::Refused(reason) => (reason, "; using the default lock", false),
    };
    if !SAID.swap(true, Relaxed) {
        say(&[lock, ": ", reason, consequence]);
    }
    is_usable
}

/// The sensor that the environment names, if it can be had.
fn sensor() -> Choice {
    let counted = tally::adopt();
    let Some(value) = variable(&environment::LOAD_SENSOR) else { return Choice::default() };
    let Some(choice) = Choice::parse(value) else {
        say_none_of(&environment::LOAD_SENSOR, value, SENSOR);
        return Choice::default();
    };
    match choice.missing() {
        None => choice,
        Some(why) => {
            // The programs that a counted one starts find its environment, and are not counted: no news to anybody.
            if counted != Some(tally::Whose::Another) {
                say(&[why]);
            }
            Choice::default()
        }
    }
}

/// Whether a switch is on.
pub(crate) fn is_on(switch: &Variable) -> bool {
    variable(switch) != Some("0")
}

/// The name that `choice` holds, or its default.
fn named(choice: &Variable) -> &'static str {
    static SAID: AtomicU64 = AtomicU64::new(0);
    let Values::Entry(entries) = choice.values else { unreachable!("only names are asked for") };
    let Some(value) = variable(choice) else {
        return entries[0].name;
    };
    if let Some(entry) = entries.iter().find(|entry| entry.name == value) {
        return entry.name;
    }
    // Asked for twice per process (service and pair), said once.
    let bit = 1 << (entries.len() % 64);
    if SAID.fetch_or(bit, Relaxed) & bit == 0 {
        say_none_of(choice, value, entries);
    }
    entries[0].name
}

fn say_none_of(variable: &Variable, value: &str, entries: &'static [Entry]) {
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

fn read_milliseconds(number: &Variable, setting: &AtomicU64) {
    let Values::Milliseconds(range) = &number.values else { unreachable!("only times are asked for") };
    let Some(value) = variable(number) else { return };
    match value.parse::<f64>() {
        Ok(ms) if range.contains(&ms) => setting.store((ms * 1e6) as u64, Relaxed),
        _ => say(&[number.name, "=", value, " is no number of milliseconds in its range; using the default"]),
    }
}

/// One line on standard error, without allocation or a lock.
pub(crate) fn say(parts: &[&str]) {
    let mut line = [0u8; 512];
    let mut len = 0;
    for part in ["unconvoy: "].iter().chain(parts).chain(&["\n"]) {
        let room = &mut line[len..];
        let fits = part.len().min(room.len());
        room[..fits].copy_from_slice(&part.as_bytes()[..fits]);
        len += fits;
    }
    // One line is one line, whatever a variable's value holds.
    line[..len.saturating_sub(1)].iter_mut().filter(|byte| byte.is_ascii_control()).for_each(|byte| *byte = b'?');
    // SAFETY: the buffer holds `len` bytes. Nothing can be done about a standard error that takes none.
    let _ = unsafe { syscalls::syscall!(syscalls::Sysno::write, 2, line.as_ptr(), len) };
}

/// Takes this library out of the environment that children get.
pub(crate) fn keep_from_children() {
    if is_on(&environment::CHILDREN) {
        return;
    }
    let Some(preloaded) = variable(&environment::PRELOAD) else { return };
    let others: Vec<&str> =
        preloaded.split([':', ' ']).filter(|path| !path.is_empty() && !path.ends_with("libunconvoy.so")).collect();
    // SAFETY: called from the constructor, before the program's threads.
    unsafe {
        if others.is_empty() {
            std::env::remove_var("LD_PRELOAD");
        } else {
            std::env::set_var("LD_PRELOAD", others.join(":"));
        }
    }
}
