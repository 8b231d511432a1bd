//! Names of locks and places, the same in every report.
//!
//! A lock's name is the first of these that is known: its static variable; the member of an object,
//! from the debug information of the code that initialised or took the lock; that code's place.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::images::Images;
use crate::kinds;
use crate::members::LockType;

/// The name of code outside all mapped files.
pub const GENERATED: &str = "generated code";

/// The place of a stack that was not recorded.
pub const UNKNOWN: &str = "unknown";

/// What the first acquisition of a lock did with it; see [`Use`].
pub const FIRST_TAKEN: &str = "first taken in";

/// A stack that used a lock: return addresses, innermost first, and what the code did with the
/// lock, such as "first taken in".
pub type Use<'a> = (&'a [u64], &'static str);

/// The functions that a return address is in, innermost first, each with whether it is in the
/// program's own code.
type Calls = Vec<(String, bool)>;

/// A stack, and the type of the lock that it takes.
type Taken = (Vec<u64>, LockType);

/// The name of a place, and its return address.
type Place = (String, Option<u64>);

/// Names from a program's files.
pub struct Names {
    images: Images,
    places: RefCell<HashMap<Vec<u64>, Place>>,
    calls: RefCell<HashMap<u64, Calls>>,
    members: RefCell<HashMap<Taken, Option<String>>>,
}

impl Names {
    pub fn new(images: Images) -> Self {
        Names {
            images,
            places: RefCell::default(),
            calls: RefCell::default(),
            members: RefCell::default(),
        }
    }

    pub fn images(&self) -> &Images {
        &self.images
    }

    /// Names a lock by its address, if that has a meaning in the files, and by stacks, the most
    /// telling one first. `label` says what it is, and `lock` its type if it is a pthread object.
    pub fn lock(
        &self,
        address: Option<u64>,
        lock: Option<LockType>,
        label: &str,
        uses: &[Use<'_>],
    ) -> Option<String> {
        let member = || uses.iter().find_map(|(frames, _)| self.member(frames, lock?));
        let place = || {
            let mut uses = uses.iter();
            uses.find_map(|(frames, verb)| {
                Some(format!("{label} {verb} {}", self.call_site(frames)?))
            })
        };
        address.and_then(|at| self.variable(at, lock)).or_else(member).or_else(place)
    }

    /// The static variable, or the member of a static object.
    fn variable(&self, address: u64, lock: Option<LockType>) -> Option<String> {
        let variable = self.images.variable(address)?;
        let is_whole = !variable.contains("+0x");
        let member = || self.images.static_member(address, lock?);
        Some(if is_whole { variable } else { member().unwrap_or(variable) })
    }

    /// The member that the innermost call of a stack locks or initialises.
    fn member(&self, frames: &[u64], lock: LockType) -> Option<String> {
        if frames.is_empty() {
            return None;
        }
        let mut members = self.members.borrow_mut();
        let found = members.entry((frames.to_vec(), lock));
        found.or_insert_with(|| self.images.locked_member(frames, lock)).clone()
    }

    /// The innermost place of a stack in the program's own code.
    pub fn place(&self, frames: &[u64]) -> Option<String> {
        Some(self.place_with_pc(frames)?.0)
    }

    /// The return address of the innermost place, if that is in a file.
    pub fn place_address(&self, frames: &[u64]) -> Option<u64> {
        self.place_with_pc(frames)?.1
    }

    /// As `place`, but different calls in one function have different names, even if the function's
    /// lines are unknown: a function may initialise many locks.
    fn call_site(&self, frames: &[u64]) -> Option<String> {
        let (place, pc) = self.place_with_pc(frames)?;
        let site = pc.and_then(|pc| self.images.call_site(pc));
        Some(site.unwrap_or(place))
    }

    /// The innermost place of a stack in the program's own code, and its return address; no address
    /// if the place is in no file.
    fn place_with_pc(&self, frames: &[u64]) -> Option<Place> {
        if frames.is_empty() {
            return None;
        }
        if let Some(known) = self.places.borrow().get(frames) {
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
        self.places.borrow_mut().insert(frames.to_vec(), place.clone());
        Some(place)
    }

    fn calls(&self, pc: u64) -> Calls {
        let mut known = self.calls.borrow_mut();
        known.entry(pc).or_insert_with(|| self.images.calls(pc)).clone()
    }

    /// The functions of a stack, outermost first, inlined ones included.
    pub fn functions(&self, frames: &[u64]) -> Vec<String> {
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
    // The program's own if it is static.
    let is_of_libc =
        ["pthread_", "lll_"].iter().any(|start| name.trim_start_matches('_').starts_with(start));
    if is_of_libc || kinds::is_runtime(name) {
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
            "__lll_lock_wake in server",
            "___pthread_mutex_lock in server",
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
