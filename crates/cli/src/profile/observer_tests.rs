//! What the observer sees, and which locks it counts for.

use super::*;

#[test]
fn futex_reads_waits_only() {
    let line = |number: i64, operation: i32, address: u64| {
        format!(
            "{number} {address:#x} {operation:#x} 0x2 0x0 0x0 0x0 0x7ffc00001000 0x7f0000001234"
        )
    };
    let wait = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    assert_eq!(futex(&line(libc::SYS_futex, wait, 0x5000)), Some(0x5000));
    let bitset = libc::FUTEX_WAIT_BITSET | libc::FUTEX_CLOCK_REALTIME;
    assert_eq!(futex(&line(libc::SYS_futex, bitset, 0x5000)), Some(0x5000));
    assert_eq!(futex(&line(libc::SYS_futex, wait, 0x7ffc_0000_1100)), Some(0));
    assert_eq!(futex(&line(libc::SYS_futex, libc::FUTEX_WAKE, 0x5000)), None);
    assert_eq!(futex(&line(libc::SYS_read, wait, 0x5000)), None);
    assert_eq!((futex("running"), futex(""), futex("-1 0x7ffc 0x12")), (None, None, None));
}

#[test]
fn counters_are_read_from_the_kernels_lines() {
    assert_eq!(delay("123 456 7\n"), Some(456));
    let stat = "42 (a (b) c) S 1 1 1 0 -1 4194560 9 0 0 0 12 34 0 0 20 0 1 0 5 6 7";
    assert_eq!((system_ticks(stat), system_ticks("")), (Some(34), None));
    assert_eq!(idle_ticks("cpu  1 2 3 40 5 6 7 0 0 0\ncpu0 1 2"), Some(45));
}

#[test]
fn unended_wait_for_signal_is_covered() {
    use unconvoy_profile::layout::{MAGIC, VERSION};
    let profile = unconvoy_profile::layout::zeroed();
    profile.header.magic.store(MAGIC, std::sync::atomic::Ordering::Relaxed);
    profile.header.version.store(VERSION, std::sync::atomic::Ordering::Relaxed);
    profile.lock(unconvoy_profile::Kind::Cond, 0x5000).expect("room");
    let recorded = Recorded::parse(&profile.to_bytes()).expect("valid");
    let waiting = |samples| Waiting { samples, ..Waiting::default() };
    let futexes = HashMap::from([(0x5008, waiting(3)), (0x9000, waiting(1))]);
    let seen = Seen { futexes, ..Seen::default() };
    assert_eq!(Observed { pid: 1, seen }.of(&recorded).futex_samples, [3, 1]);
}

/// Two mutexes and a semaphore of one struct, without room between them.
#[test]
fn futex_counts_for_the_mutex_that_contains_it() {
    let size = size_of::<libc::pthread_mutex_t>() as u64;
    let [first, second, semaphore] = [0, 1, 2].map(|at| 0x5000 + at * size);
    let profile = unconvoy_profile::layout::zeroed();
    for (address, ns) in [(first, 9_000), (second, 5_000)] {
        let (_, lock) = profile.lock(Kind::Mutex, address as usize).expect("room");
        profile.record_wait(lock, ns, 1, false);
    }
    let waiting = |samples| Waiting { samples, ..Waiting::default() };
    let seen = Seen {
        futexes: HashMap::from([
            (first, waiting(2)),
            (second, waiting(7)),
            (semaphore, waiting(30)),
        ]),
        holders: HashMap::from([((second, RUNNABLE), 7)]),
        ..Seen::default()
    };
    let observation = Observed { pid: 1, seen }.of(&Recorded::of(&profile));
    let waiting = observation.locks.iter().map(|span| (span.address, span.waiting));
    assert_eq!(waiting.collect::<Vec<_>>(), [(second, 7), (first, 2)]);
    let holders = observation.holders.iter().map(|held| (held.address, held.samples));
    assert_eq!(holders.collect::<Vec<_>>(), [(second, 7)]);
}

#[test]
fn observer_sees_thread_that_waits_in_futex() {
    let word = Box::leak(Box::new(1_u32));
    let address = std::ptr::from_ref(word).expose_provenance() as u64;
    let (sender, receiver) = channel();
    let waiter = std::thread::spawn(move || {
        let word = std::ptr::with_exposed_provenance::<u32>(address as usize);
        let limit = libc::timespec { tv_sec: 30, tv_nsec: 0 };
        sender.send(()).expect("the test waits");
        // SAFETY: the word is leaked, and the time lives during the call.
        unsafe {
            libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, 1, &raw const limit);
        }
    });
    receiver.recv().expect("the thread starts");
    let mut found = false;
    for _ in 0..100 {
        let observer = Observer::start(std::process::id()).expect("a thread");
        std::thread::sleep(3 * LOOK_EVERY);
        found |= observer.finish().seen.futexes.contains_key(&address);
        if found {
            break;
        }
    }
    // SAFETY: wakes the thread; the word is leaked.
    unsafe {
        libc::syscall(libc::SYS_futex, std::ptr::from_ref(word), libc::FUTEX_WAKE, 1);
    }
    waiter.join().expect("the waiter ends");
    assert!(found);
}
