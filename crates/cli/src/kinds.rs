//! What a thread waits for at a futex, by the functions on its stack.

use unconvoy_profile::Kind;

/// What a thread waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    pub kind: Kind,
    /// What to call it in a report.
    pub label: String,
}

/// The label of a futex whose waiters' functions are unknown: of a lock or of anything else.
pub const UNKNOWN: &str = "futex";

/// The label of `pthread_barrier_t`.
pub const BARRIER: &str = "barrier";

/// Start of the labels of locks inside libc.
pub const OF_LIBC: &str = "libc's lock";

/// Starts of C functions' names, without leading underscores. The innermost function decides.
const C_FUNCTIONS: [(&str, Kind, &str); 12] = [
    ("pthread_mutex_", Kind::Mutex, "mutex"),
    ("mtx_", Kind::Mutex, "mutex"),
    ("pthread_rwlock_", Kind::RwLock, "rwlock"),
    ("pthread_cond_", Kind::Cond, "cond"),
    ("cnd_", Kind::Cond, "cond"),
    ("pthread_barrier_", Kind::Event, BARRIER),
    ("pthread_once", Kind::Event, "initialisation"),
    ("pthread_", Kind::Event, "end of a thread"),
    ("thrd_join", Kind::Event, "end of a thread"),
    ("sem_", Kind::Event, "semaphore"),
    ("new_sem_", Kind::Event, "semaphore"),
    ("cxa_guard_", Kind::Event, "initialisation"),
];

/// Parts of other functions' names, likewise.
const FUNCTIONS: [(&str, Kind, &str); 19] = [
    ("std::sys::sync::mutex", Kind::Futex, "Rust mutex"),
    ("locks::futex_mutex", Kind::Futex, "Rust mutex"),
    ("std::sys::sync::rwlock", Kind::Futex, "Rust rwlock"),
    ("locks::futex_rwlock", Kind::Futex, "Rust rwlock"),
    ("std::sys::sync::condvar", Kind::Event, "Rust condvar"),
    ("locks::futex_condvar", Kind::Event, "Rust condvar"),
    ("std::sys::sync::once", Kind::Event, "initialisation"),
    ("std::sys::sync::thread_parking", Kind::Event, "parked Rust thread"),
    ("std::thread::park", Kind::Event, "parked Rust thread"),
    ("parking_lot::raw_mutex", Kind::Futex, "parking_lot mutex"),
    ("parking_lot::raw_rwlock", Kind::Futex, "parking_lot rwlock"),
    ("parking_lot::condvar", Kind::Event, "parking_lot condvar"),
    ("std::__atomic_wait", Kind::Event, "std::atomic"),
    ("std::__detail::__platform_wait", Kind::Event, "std::atomic"),
    ("runtime.lock2", Kind::Futex, "lock of Go's runtime"),
    ("runtime.notesleep", Kind::Event, "idle thread of Go's runtime"),
    ("runtime.notetsleep", Kind::Event, "idle thread of Go's runtime"),
    ("runtime.stopm", Kind::Event, "idle thread of Go's runtime"),
    ("runtime.mPark", Kind::Event, "idle thread of Go's runtime"),
];

/// Starts of the names of functions that implement locks or call them for others. Their callers
/// are the better places.
const RUNTIMES: [&str; 10] = [
    "std::sys::sync::",
    "std::sys::thread",
    "std::sync::",
    "std::thread::",
    "parking_lot::",
    "parking_lot_core::",
    "lock_api::",
    "runtime.",
    "sync.(",
    "internal/",
];

/// Decides what a thread waits for. `functions` are the names of the functions on its stack,
/// innermost first.
pub fn object(functions: &[String]) -> Object {
    let of = |kind, label: &str| Object { kind, label: label.to_string() };
    // Each thread of a JVM waits at condition variables of its own, for monitors and for all else.
    let is_in = |library: &str| functions.iter().any(|name| name.contains(library));
    let found = functions.iter().find_map(|name| recognised(name));
    match found {
        Some((Kind::Cond, _)) if is_in("libjvm.so") => of(Kind::Event, "Java thread"),
        Some((kind, label)) if is_in(" in libunconvoy.so") => {
            let kind = if kind.is_lock() { Kind::Futex } else { Kind::Event };
            of(kind, &format!("{label} under unconvoy"))
        }
        Some((kind, label)) => of(kind, label),
        None => {
            // A function of libc that takes a lock of libc, such as malloc.
            let in_libc = functions.iter().take_while(|name| name.contains(" in libc.so"));
            let entry = in_libc.last().and_then(|name| name.split(' ').next());
            match entry.filter(|name| !name.contains('+') && *name != "syscall") {
                Some(entry) => of(Kind::Futex, &format!("{OF_LIBC} in {entry}")),
                None => of(Kind::Futex, UNKNOWN),
            }
        }
    }
}

fn recognised(name: &str) -> Option<(Kind, &'static str)> {
    let c_name = name.trim_start_matches('_');
    let in_c = C_FUNCTIONS.iter().find(|(start, ..)| c_name.starts_with(start));
    let found = in_c.or_else(|| FUNCTIONS.iter().find(|(part, ..)| name.contains(part)));
    found.map(|(_, kind, label)| (*kind, *label))
}

/// Whether a futex is the waiting thread's own, whatever lock the thread waits for.
pub fn is_of_thread(object: &Object) -> bool {
    object.label.starts_with("parking_lot ")
}

/// Whether a function belongs to a language's runtime.
pub fn is_runtime(name: &str) -> bool {
    RUNTIMES.iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind_of(functions: &[&str]) -> (Kind, String) {
        let functions: Vec<String> = functions.iter().map(ToString::to_string).collect();
        let found = object(&functions);
        (found.kind, found.label)
    }

    #[test]
    fn innermost_known_function_decides() {
        let of = |kind, label: &str| (kind, label.to_string());
        assert_eq!(
            kind_of(&["libc.so.6+0x1", "pthread_mutex_lock in libc.so.6", "f (a.c:1)"]),
            of(Kind::Mutex, "mutex")
        );
        assert_eq!(
            kind_of(&["__new_sem_wait_slow64 in libc.so.6", "sem_wait in libc.so.6"]),
            of(Kind::Event, "semaphore")
        );
        assert_eq!(
            kind_of(&["__pthread_clockjoin_ex in libc.so.6", "main (a.c:1)"]),
            of(Kind::Event, "end of a thread")
        );
        assert_eq!(
            kind_of(&[
                "syscall in libc.so.6",
                "std::sys::sync::mutex::futex::Mutex::lock_contended in p",
                "std::sys::sync::condvar::futex::Condvar::wait in p"
            ]),
            of(Kind::Futex, "Rust mutex")
        );
        assert_eq!(
            kind_of(&["__lll_lock_wait_private in libc.so.6", "malloc in libc.so.6", "f (a.c:1)"]),
            of(Kind::Futex, "libc's lock in malloc")
        );
        assert_eq!(
            kind_of(&["pthread_cond_wait in libc.so.6", "libjvm.so+0x1"]),
            of(Kind::Event, "Java thread")
        );
        assert_eq!(kind_of(&["syscall in libc.so.6", "f (a.c:1)"]), of(Kind::Futex, "futex"));
        assert_eq!(kind_of(&[]), of(Kind::Futex, "futex"));
    }
}
