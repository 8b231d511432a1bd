//! The user's settings from the environment. They are read once: by the constructor or by the first
//! lock operation, whichever comes first.
//!
//! The variables, with their values and defaults, are in [`environment`].

use core::ffi::{CStr, c_char};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32};

use unconvoy_locks::catalogue::{SENSOR, environment};
use unconvoy_locks::contention::bias::BYTE_AND_MODE;
use unconvoy_locks::load::control::Control;
use unconvoy_locks::load::rules::choose;
use unconvoy_locks::primitive::{Generation as _, Native, Parking as _};
use unconvoy_locks::runtime;
use unconvoy_locks::runtime::fork::PROCESS_STATE;
use unconvoy_locks::runtime::load_control;
use unconvoy_locks::runtime::sensor::choice::Choice;

use crate::chosen::{default_pair, pair};
use crate::message;
use crate::route::Route;
use crate::variables::{is_on, named, read_milliseconds, variable};
use crate::{bpf_count, cond_layout, identity, live, output, profile, real, stats, strategy};

/// The load manager of the default pair, which is called directly and not through its table.
pub(crate) type DefaultLoad = Control;

/// How the library serves this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Service {
    /// By the default pair, without statistics: the fast path.
    Default = FAST,
    /// Through the chosen pair's table, with a count of the locks that each thread holds.
    Chosen = 2,
    /// Not at all: libc serves every call.
    Declined = 4,
    /// Through the chosen pair's table, whose lock elides plain mutexes. Statistics and profile are
    /// off, because they count only sections that take the lock. The fast path serves the process
    /// until it starts a second thread ([`begin_threads`]): a transaction costs more than a lock
    /// that nobody else wants.
    Elided = 6,
}

/// The bit of the service byte that says whether mutexes and reader-writer locks take the fast
/// path.
const FAST: u8 = 1;

/// [`Service::Default`] with a profile: a spin lock, whose word has no room for a request to its
/// holder, does not take the fast path.
const FAST_PROFILED: u8 = FAST | 8;

/// Not yet determined in this process. This is also the value in the child of a fork, where the
/// kernel zeroes the page that holds the service byte.
const UNKNOWN: u8 = 0;
const BEING_READ: u8 = 16;

impl Service {
    #[inline(always)]
    fn of(byte: u8) -> Option<Self> {
        Some(match byte {
            FAST | FAST_PROFILED => Service::Default,
            2 => Service::Chosen,
            4 => Service::Declined,
            6 => Service::Elided,
            _ => return None,
        })
    }
}

#[inline(always)]
fn service_word() -> &'static AtomicU8 {
    &PROCESS_STATE.byte
}

#[inline(always)]
pub(crate) fn service() -> Service {
    Service::of(service_word().load(Acquire)).unwrap_or_else(determine_service)
}

/// How this process serves a lock with this strategy number, unless the lock is libc's by its
/// attributes.
#[inline(always)]
pub(crate) fn route(number: u8) -> Route {
    known_route(number).unwrap_or_else(|| determine_route(number))
}

/// As [`route`]; `None` while the service is not determined. The load pairs with the store in
/// [`publish`].
#[inline(always)]
pub(crate) fn known_route(number: u8) -> Option<Route> {
    Route::from_byte(PROCESS_STATE.bytes[usize::from(number)].load(Acquire))
}

#[cold]
#[inline(never)]
fn determine_route(number: u8) -> Route {
    loop {
        let service = service(); // publishes the routes of this process
        if let Some(route) = known_route(number) {
            return route;
        }
        if service == Service::Declined {
            return Route::LIBC; // a call by the thread that determines the service
        }
    }
}

/// Whether the fast path serves this process; false also while the service is not determined.
#[inline(always)]
pub(crate) fn is_default() -> bool {
    service_word().load(Relaxed) & FAST != 0
}

/// The strategy number ([`strategy`]) of the locks that take the fast path, in the form of
/// [`is_fast_number`]; 0 for none, also while the service is not determined. Without a strategy,
/// this is the number of all locks, [`strategy::UNDECIDED`]. With a strategy, undecided locks have
/// yet to be looked up, so this is [`strategy::DEFAULT`].
#[inline(always)]
fn fast_number() -> &'static AtomicU32 {
    &PROCESS_STATE.words[0]
}

/// [`fast_number`] in the form of [`is_fast_kind`].
#[inline(always)]
fn fast_kind() -> &'static AtomicU32 {
    &PROCESS_STATE.words[1]
}

/// The strategy number of the mutexes that are elided, in the form of [`is_elided_kind`]; 0 for
/// none, also while the service is not determined. Only one of several such numbers is here.
#[inline(always)]
fn elided_kind() -> &'static AtomicU32 {
    &PROCESS_STATE.words[2]
}

/// The bits of a bias's version, which [`is_fast_number`] ignores.
const VERSION: u32 = !BYTE_AND_MODE;

/// Whether the fast path serves a reader-writer lock with this word: its strategy number in the
/// lowest byte, and the [state of its bias](unconvoy_locks::contention::bias). It does not serve
/// biased locks. False also while the service is not determined.
#[inline(always)]
pub(crate) fn is_fast_number(word: u32) -> bool {
    word | VERSION == fast_number().load(Relaxed)
}

/// Whether the fast path serves a mutex with these bits in its `kind`: its strategy number, from
/// bit [`NUMBER_SHIFT`] on, and nothing else. False also while the service is not determined.
#[inline(always)]
pub(crate) fn is_fast_kind(bits: i32) -> bool {
    bits.cast_unsigned() | 1 == fast_kind().load(Relaxed)
}

/// Whether a mutex with this `kind`, less the bits that do not matter, is known to be elided. True
/// for most elided mutexes; [`Route::is_elided`] is slower, and true for all.
#[inline(always)]
pub(crate) fn is_elided_kind(kind: i32) -> bool {
    kind.cast_unsigned().wrapping_add(1) == elided_kind().load(Relaxed)
}

/// The lowest of the eight bits of a mutex's `kind` that hold its strategy number. glibc uses the
/// bits below and, for priority ceilings, those from bit 19 on.
pub(crate) const NUMBER_SHIFT: u32 = 10;

/// Whether this process, or the one that it was forked from, has started a thread.
static HAS_THREADS: AtomicBool = AtomicBool::new(false);

/// Takes elided mutexes off the fast path. Call before this process starts a thread.
pub(crate) fn begin_threads() {
    if HAS_THREADS.load(Relaxed) {
        return;
    }
    HAS_THREADS.store(true, Relaxed);
    // Locks that are held now may be released either way.
    if service_word().load(Relaxed) == Service::Elided as u8 {
        publish(Service::Elided as u8);
    }
}

/// Publishes how a process with this service serves which locks.
fn publish(service: u8) {
    let is_elided = service == Service::Elided as u8;
    let has_one_thread = !HAS_THREADS.load(Relaxed) && identity::is_in_tcb();
    let is_fast = service & FAST != 0 || is_elided && has_one_thread;
    let number = match (is_fast, strategy::decides()) {
        (false, _) => None,
        (true, false) => Some(u32::from(strategy::UNDECIDED)),
        (true, true) => Some(u32::from(strategy::DEFAULT)),
    };
    let elided = match (is_elided, is_fast) {
        (true, true) => None, // the fast path takes all locks
        (true, false) => Some(strategy::UNDECIDED),
        (false, _) => strategy::elided_number(),
    };
    let kind = elided.map_or(0, |number| (u32::from(number) << NUMBER_SHIFT) + 1);
    elided_kind().store(kind, Relaxed);
    fast_number().store(number.map_or(0, |number| number | VERSION), Relaxed);
    fast_kind().store(number.map_or(0, |number| number << NUMBER_SHIFT | 1), Relaxed);
    let service = Service::of(service).expect("determined");
    for (number, route) in (0..=u8::MAX).zip(&PROCESS_STATE.bytes) {
        route.store(route_by(service, number).byte(), Release);
    }
}

fn route_by(service: Service, number: u8) -> Route {
    match (service, number) {
        (Service::Declined, _) | (_, strategy::LIBC) => Route::LIBC,
        (_, strategy::UNDECIDED) if strategy::decides() => Route::UNDECIDED,
        (Service::Default, strategy::UNDECIDED | strategy::DEFAULT) => Route::DIRECT,
        _ => {
            let is_elided = service == Service::Elided || strategy::elides(number);
            Route::by_pair(service != Service::Default, is_elided)
        }
    }
}

/// Whether readers of reader-writer locks on the fast path may set a bias. Not if the process
/// records a profile, because a profile shows the releases of the readers that others wait for.
pub(crate) fn may_bias() -> bool {
    is_default_for_spin_locks()
}

/// Whether the fast path serves the spin locks of this process; false also while the service is not
/// determined.
#[inline(always)]
pub(crate) fn is_default_for_spin_locks() -> bool {
    service_word().load(Relaxed) == Service::Default as u8
}

/// Whether libc serves every call only because the user wants that.
pub(crate) fn only_observes() -> bool {
    ONLY_OBSERVES.load(Relaxed)
}

static ONLY_OBSERVES: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    fn unconvoy_sanitizer() -> *const c_char;
}

/// The service of the first process; forked children reuse it.
static FOUND: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Counts the locks that threads hold from now on, in this process and its children: serves a
/// process of the default pair through that pair's table. Locks that are held now may be released
/// either way.
#[cold]
pub(crate) fn count_held_locks() {
    let counted = Service::Chosen as u8;
    for default in [FAST, FAST_PROFILED] {
        let _ = FOUND.compare_exchange(default, counted, Relaxed, Relaxed);
        let _ = service_word().compare_exchange(default, counted, Release, Relaxed);
    }
    publish(counted);
}

/// Whether a thread is determining the service. A function that this thread calls must not wait for
/// the result.
pub(crate) fn is_being_determined() -> bool {
    service_word().load(Relaxed) == BEING_READ
}

/// The thread that determines the service, by the kernel's id.
static READER: AtomicI32 = AtomicI32::new(0);

/// Whether that thread has called a function of this library meanwhile: another library's function
/// that it called takes locks. libc serves such calls, and therefore all later ones, too.
static IS_REENTERED: AtomicBool = AtomicBool::new(false);

#[cold]
fn determine_service() -> Service {
    // Detects a fork. Comes first: from here on the kernel clears the service's word in children,
    // so none inherits `BEING_READ`.
    Native::generation();
    let own = rustix::thread::gettid().as_raw_nonzero().get();
    if service_word().compare_exchange(UNKNOWN, BEING_READ, Acquire, Relaxed).is_err() {
        while service_word().load(Acquire) == BEING_READ {
            if READER.load(Relaxed) == own {
                IS_REENTERED.store(true, Relaxed);
                return Service::Declined;
            }
            // No yield lets a thread of lower real-time priority run.
            Native::sleep_shortly(&AtomicU32::new(0));
        }
        return service();
    }
    READER.store(own, Relaxed);
    match FOUND.load(Relaxed) {
        UNKNOWN => FOUND.store(read(), Relaxed),
        _ => {
            output::after_fork();
            stats::after_fork();
            profile::after_fork();
        }
    }
    let found = FOUND.load(Relaxed);
    READER.store(0, Relaxed);
    publish(found);
    service_word().store(found, Release);
    service()
}

/// The sanitizer or tool that already watches the locks of this process.
fn watcher() -> Option<&'static str> {
    // SAFETY: returns null or a string constant.
    let sanitizer = unsafe { unconvoy_sanitizer().as_ref().map(|name| CStr::from_ptr(name)) };
    // Helgrind and DRD know only libc's locks, whose functions they replace.
    let preloaded = variable(&environment::PRELOAD).unwrap_or_default();
    let tools = [("vgpreload_helgrind", "helgrind"), ("vgpreload_drd", "DRD")];
    let tool =
        || tools.iter().find(|(library, _)| preloaded.contains(library)).map(|&(_, name)| name);
    sanitizer.and_then(|name| name.to_str().ok()).or_else(tool)
}

fn read() -> u8 {
    let control = load_control();
    control.interval.store(pair().interval_ns, Relaxed);
    read_milliseconds(&environment::INTERVAL, &control.interval);
    read_milliseconds(&environment::SLEEP, &control.sleep);
    read_milliseconds(&environment::BACKOFF, &control.backoff);
    runtime::use_sensor(sensor());
    control.set_policy(named(&environment::CONTROL_POLICY));
    control.wake_holders(is_on(&environment::NESTED));
    if let Some(rules) = variable(&environment::RULES)
        && !choose(rules)
    {
        message::no_such_rules(rules).print();
    }
    // Call this for a chosen pair too: otherwise `me` asks the kernel at every lock.
    let tcb_has_id = identity::tcb_has_id();
    let recordings = [&environment::PROFILE, &environment::METRICS];
    let is_profiled = recordings.iter().any(|recording| variable(recording).is_some());
    let is_counted = variable(&environment::STATS).is_some() || is_profiled || live::is_wanted();
    let service = if let Some(watcher) = watcher() {
        message::watched_program(watcher).print();
        Service::Declined
    } else if !real::is_in_front() {
        message::program_with_own_functions().print();
        Service::Declined
    } else if !cond_layout::is_known() {
        message::unknown_condition_variables().print();
        Service::Declined
    } else if !is_on(&environment::REPLACE) {
        ONLY_OBSERVES.store(true, Relaxed);
        Service::Declined
    } else if core::ptr::eq(pair(), default_pair())
        && variable(&environment::STATS).is_none()
        && !live::is_wanted()
        && tcb_has_id
    {
        Service::Default
    } else if pair().elides && !is_counted {
        Service::Elided
    } else {
        Service::Chosen
    };
    if service != Service::Declined {
        strategy::read(!is_counted);
    }
    match service {
        Service::Declined => Service::Declined as u8,
        _ if IS_REENTERED.load(Relaxed) => {
            message::interfering_library().print();
            Service::Declined as u8
        }
        Service::Default if is_profiled => FAST_PROFILED,
        // In a process with a strategy, each lock says whether it is elided.
        Service::Elided if strategy::decides() => Service::Chosen as u8,
        service => service as u8,
    }
}

/// The sensor that the environment names, if this process can use it.
fn sensor() -> Choice {
    let counted = bpf_count::adopt();
    let Some(value) = variable(&environment::LOAD_SENSOR) else { return Choice::default() };
    let Some(choice) = Choice::parse(value) else {
        message::unknown_name(environment::LOAD_SENSOR.name, value, SENSOR).print();
        return Choice::default();
    };
    match choice.missing() {
        None => choice,
        Some(why) => {
            // A program that a BPF-counted process starts inherits the variable but is not counted.
            // That is expected: no warning.
            if counted != Some(bpf_count::Whose::Another) {
                message::missing_sensor(why).print();
            }
            Choice::default()
        }
    }
}

/// Removes this library from the environment that child processes inherit.
pub(crate) fn keep_from_children() {
    if is_on(&environment::CHILDREN) {
        return;
    }
    let Some(preloaded) = variable(&environment::PRELOAD) else { return };
    let others: Vec<&str> = preloaded
        .split([':', ' '])
        .filter(|path| !path.is_empty() && !path.ends_with("libunconvoy.so"))
        .collect();
    // SAFETY: called from the constructor, before the program starts threads.
    unsafe {
        if others.is_empty() {
            std::env::remove_var("LD_PRELOAD");
        } else {
            std::env::set_var("LD_PRELOAD", others.join(":"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_and_service_give_the_route() {
        let counted = Route::by_pair(true, false);
        assert_eq!(route_by(Service::Default, strategy::UNDECIDED), Route::DIRECT);
        assert_eq!(route_by(Service::Default, strategy::DEFAULT), Route::DIRECT);
        assert_eq!(route_by(Service::Default, 2), Route::by_pair(false, false));
        assert_eq!(route_by(Service::Chosen, strategy::UNDECIDED), counted);
        assert_eq!(route_by(Service::Elided, strategy::UNDECIDED), Route::by_pair(true, true));
        for number in 0..=u8::MAX {
            assert_eq!(route_by(Service::Declined, number), Route::LIBC);
        }
        assert_eq!(route_by(Service::Chosen, strategy::LIBC), Route::LIBC);
    }
}
