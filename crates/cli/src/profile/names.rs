//! Names of locks and places.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

use unconvoy_profile::read::WaitedLock;
use unconvoy_profile::{Kind, Recorded};

use crate::images::{Images, Mapping};
use crate::members::LockType;

use super::kinds;

/// The place of a stack that was not recorded.
const UNKNOWN: &str = "unknown";

/// The name of code outside all mapped files.
const GENERATED: &str = "generated code";

/// Names for one profile.
pub struct Names<'a> {
    recorded: &'a Recorded,
    images: Images,
    places: RefCell<HashMap<u32, (String, Option<u64>)>>,
    calls: RefCell<HashMap<u64, Vec<(String, bool)>>>,
    members: RefCell<BTreeMap<(u32, Kind), Option<String>>>,
}

impl<'a> Names<'a> {
    /// Reads the files that were mapped in the process.
    pub fn new(recorded: &'a Recorded) -> Self {
        let mappings: Vec<Mapping> = recorded
            .mappings
            .iter()
            .map(|one| Mapping {
                base: one.start,
                end: one.end,
                offset: one.offset,
                path: one.path.clone(),
            })
            .collect();
        Names {
            recorded,
            images: Images::new(&mappings),
            places: RefCell::default(),
            calls: RefCell::default(),
            members: RefCell::default(),
        }
    }

    /// A lock's name, which is the first of these that is known: its static variable; the member of
    /// an object, from the debug information of the code that initialised the lock or waited for
    /// it; the place that initialised it; the place that first waited for it.
    pub fn lock(&self, lock: &WaitedLock) -> String {
        let kind = &match lock.kind {
            Kind::Futex | Kind::Event => kinds::object(&self.functions(lock.first_stack)).label,
            kind => kind.name().to_string(),
        };
        let initialised = || {
            let place = self.call_site(lock.origin)?;
            Some(format!("{kind} initialised in {place}"))
        };
        let waited = || {
            let place = self.call_site(lock.first_stack)?;
            Some(format!("{kind} first waited for in {place}"))
        };
        // An address in libc says less than the function that waited.
        let variable = || self.variable(lock).filter(|_| !kind.starts_with(kinds::OF_LIBC));
        let name = variable()
            .or_else(|| self.member(lock.origin, lock.kind))
            .or_else(|| self.member(lock.first_stack, lock.kind))
            .or_else(initialised)
            .or_else(waited);
        name.unwrap_or_else(|| format!("{kind} without a sampled wait"))
    }

    /// The static variable, or the member of a static object.
    fn variable(&self, lock: &WaitedLock) -> Option<String> {
        let variable = self.images.variable(lock.address)?;
        let is_whole = !variable.contains("+0x");
        let member = || self.images.static_member(lock.address, lock_type(lock.kind)?);
        Some(if is_whole { variable } else { member().unwrap_or(variable) })
    }

    /// The member that the innermost call of a stack locks or initialises.
    fn member(&self, stack: u32, kind: Kind) -> Option<String> {
        let frames = self.recorded.stack(stack);
        if frames.is_empty() {
            return None;
        }
        let lock_type = lock_type(kind)?;
        let mut members = self.members.borrow_mut();
        let found = members.entry((stack, kind));
        found.or_insert_with(|| self.images.locked_member(frames, lock_type)).clone()
    }

    /// The innermost place of a stack in the program's own code.
    pub fn place(&self, stack: u32) -> String {
        self.known_place(stack).unwrap_or_else(|| UNKNOWN.to_string())
    }

    fn known_place(&self, stack: u32) -> Option<String> {
        Some(self.place_with_pc(stack)?.0)
    }

    /// As `known_place`, but different calls in one function have different names, even if the
    /// function's lines are unknown: a function may initialise many locks.
    fn call_site(&self, stack: u32) -> Option<String> {
        let (place, pc) = self.place_with_pc(stack)?;
        let site = pc.and_then(|pc| self.images.call_site(pc));
        Some(site.unwrap_or(place))
    }

    /// The innermost place of a stack in the program's own code, and its return address; no address
    /// if the place is in no file.
    fn place_with_pc(&self, stack: u32) -> Option<(String, Option<u64>)> {
        let frames = self.recorded.stack(stack);
        if frames.is_empty() {
            return None;
        }
        if let Some(known) = self.places.borrow().get(&stack) {
            return Some(known.clone());
        }
        let mut calls = Vec::new();
        for &pc in frames {
            calls.extend(self.calls(pc).into_iter().map(|call| (call, pc)));
            if calls.iter().any(|((name, is_own), _)| *is_own && !is_wrapper(name)) {
                break;
            }
        }
        let place = match place_of(&calls) {
            Some(((name, _), pc)) => (name.clone(), Some(*pc)),
            None => (GENERATED.to_string(), None),
        };
        self.places.borrow_mut().insert(stack, place.clone());
        Some(place)
    }

    /// The names of the functions of a stack, innermost first.
    fn functions(&self, stack: u32) -> Vec<String> {
        let calls = self.recorded.stack(stack).iter().flat_map(|&pc| self.calls(pc));
        calls.map(|(name, _)| name).collect()
    }

    fn calls(&self, pc: u64) -> Vec<(String, bool)> {
        let mut known = self.calls.borrow_mut();
        known.entry(pc).or_insert_with(|| self.images.calls(pc)).clone()
    }

    /// The functions of a stack, outermost first, inlined ones included.
    pub fn frames(&self, stack: u32) -> Vec<String> {
        let frames = self.recorded.stack(stack);
        if frames.is_empty() {
            return vec![UNKNOWN.to_string()];
        }
        let mut names = Vec::new();
        for &pc in frames.iter().rev() {
            let calls = self.calls(pc);
            if calls.is_empty() {
                names.push(GENERATED.to_string());
            }
            names.extend(calls.into_iter().rev().map(|(name, _)| name));
        }
        names
    }
}

/// The innermost function of the program's own code that does not wrap a lock. Without one, the
/// innermost function of its own code; without that, the innermost of all. Each call has its name,
/// whether it is the program's own, and its return address.
fn place_of(calls: &[((String, bool), u64)]) -> Option<&((String, bool), u64)> {
    let own = || calls.iter().filter(|((_, is_own), _)| *is_own);
    let place = own().find(|((name, _), _)| !is_wrapper(name)).or_else(|| own().next());
    place.or(calls.first())
}

/// Whether a function's name says that it only wraps a lock's operation: `port::Mutex::Lock`, or
/// the constructor or destructor of a guard. Its caller is the better place.
fn is_wrapper(name: &str) -> bool {
    if kinds::is_runtime(name) {
        return true;
    }
    let function = name.split(" (").next().unwrap_or(name);
    let function = function.split(" in ").next().unwrap_or(function);
    let mut parts = function.rsplit("::");
    let last = parts.next().unwrap_or_default();
    let class = parts.next().map(|class| class.split('<').next().unwrap_or(class));
    let plain = last.to_lowercase().replace('_', "");
    if OPERATIONS.contains(&&*plain) {
        return plain.contains("lock") || class.is_some_and(is_lock_class);
    }
    // A part of an operation, such as HotSpot's `Mutex::lock_contended`.
    let first_word = last.split('_').next().unwrap_or(last).to_lowercase();
    if last.contains('_') && OPERATIONS.contains(&&*first_word) && class.is_some_and(is_lock_class)
    {
        return true;
    }
    // A C function, such as `queue_mutex_release`.
    let operation = last.rsplit('_').next().unwrap_or(last).to_lowercase();
    if last.contains('_') && OPERATIONS.contains(&&*operation) && is_lock_class(last) {
        return true;
    }
    let class_name = last.trim_start_matches('~').split('<').next().unwrap_or(last);
    let is_own_class = class == Some(class_name);
    is_own_class
        && GUARDS
            .iter()
            .any(|part| class_name.ends_with(part) || class_name.eq_ignore_ascii_case(part))
}

/// Whether a class's name says that it is a lock, a guard or a condition variable.
fn is_lock_class(class: &str) -> bool {
    let class = class.to_lowercase();
    ["lock", "mutex", "latch", "guard", "cond", "monitor"].iter().any(|part| class.contains(part))
}

/// Methods that take or release a lock or wait for a signal: lower-case names without underscores.
const OPERATIONS: [&str; 25] = [
    "lock",
    "unlock",
    "trylock",
    "lockslow",
    "unlockslow",
    "lockshared",
    "unlockshared",
    "lockexclusive",
    "unlockexclusive",
    "readlock",
    "readunlock",
    "writelock",
    "writeunlock",
    "rdlock",
    "wrlock",
    "rdunlock",
    "wrunlock",
    "acquire",
    "release",
    "enter",
    "leave",
    "wait",
    "waitfor",
    "mutexlock",
    "mutexunlock",
];

/// Ends of the names of locks' classes and guards: their constructors and destructors initialise,
/// take or release a lock for their callers.
const GUARDS: [&str; 9] =
    ["Lock", "_lock", "Locker", "Guard", "_guard", "Mutex", "_mutex", "Latch", "Monitor"];

/// The type of a pthread object.
fn lock_type(kind: Kind) -> Option<LockType> {
    match kind {
        Kind::Mutex => Some(LockType::Mutex),
        Kind::RwLock => Some(LockType::RwLock),
        Kind::Spin => Some(LockType::Spin),
        Kind::Cond => Some(LockType::Cond),
        Kind::Futex | Kind::Event => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrappers_of_locks_are_recognised() {
        for name in [
            "leveldb::port::Mutex::Lock (port_stdcxx.h:55)",
            "leveldb::MutexLock::MutexLock (mutexlock.h:28)",
            "leveldb::MutexLock::~MutexLock (mutexlock.h:31)",
            "Guard<int>::Guard (guard.h:3)",
            "mutex_lock (mutex.c:10)",
            "any_lock_release (lock_kind.h:86)",
            "CondVar::Wait in libdb.so",
            "Mutex::lock_contended in libjvm.so",
            "os::PlatformMonitor::PlatformMonitor in libjvm.so",
        ] {
            assert!(is_wrapper(name), "{name}");
        }
        for name in [
            "DBImpl::Get (db.cc:4)",
            "Clock::Clock (clock.h:1)",
            "wait (a.c:1)",
            "LRUCache::Release (c.cc:9)",
            "MDL_lock::remove_ticket in mariadbd",
            "ThreadsSMRSupport::wait_until_not_protected in libjvm.so",
        ] {
            assert!(!is_wrapper(name), "{name}");
        }
    }

    #[test]
    fn place_is_own_code_that_uses_lock() {
        let call = |name: &str, is_own| ((name.to_string(), is_own), 0);
        let place_of = |calls: &[_]| place_of(calls).map(|((name, _), _)| name.clone());
        let calls = [
            call("std::mutex::lock (std_mutex.h:100)", false),
            call("port::Mutex::Lock (port.h:55)", true),
            call("DBImpl::Get (db.cc:4)", true),
            call("main (main.c:1)", true),
        ];
        assert_eq!(place_of(&calls).unwrap(), "DBImpl::Get (db.cc:4)");
        assert_eq!(place_of(&calls[..2]).unwrap(), "port::Mutex::Lock (port.h:55)");
        assert_eq!(place_of(&calls[..1]).unwrap(), "std::mutex::lock (std_mutex.h:100)");
        assert_eq!(place_of(&[]), None);
    }
}
