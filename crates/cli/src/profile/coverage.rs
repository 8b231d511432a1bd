//! Coverage of a profile: samples, taken from outside, of the futexes that the program's threads
//! wait in.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use unconvoy_profile::Recorded;

/// Shortest time between two samplings of all threads.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The observer sleeps at least this number of times as long as a sampling took, so that programs
/// with many threads cost little.
const MOST_PART: u32 = 200;

/// Size of the largest object that contains a futex: `pthread_rwlock_t`.
const OBJECT: u64 = 56;

/// A futex within this distance above a sleeping thread's stack pointer is the thread's own:
/// unconvoy keeps the futex of a wait for a signal on the waiter's stack.
const FRAMES: u64 = 4096;

/// A thread that samples a process.
pub struct Observer {
    pid: u32,
    stop: Sender<()>,
    thread: JoinHandle<HashMap<u64, u64>>,
}

/// The samples of a process.
pub struct Observed {
    pub pid: u32,
    /// Number of samples by the futex's address, which is 0 for a futex on the waiter's stack.
    futexes: HashMap<u64, u64>,
}

impl Observer {
    /// Starts to sample a process; `None` if the thread cannot be started.
    pub fn start(pid: u32) -> Option<Self> {
        let (stop, stopped) = channel();
        let builder = std::thread::Builder::new().name("coverage".into());
        let thread = builder.spawn(move || observe(pid, &stopped)).ok()?;
        Some(Observer { pid, stop, thread })
    }

    /// Ends the sampling.
    pub fn finish(self) -> Observed {
        drop(self.stop);
        Observed { pid: self.pid, futexes: self.thread.join().unwrap_or_default() }
    }
}

fn observe(pid: u32, stopped: &Receiver<()>) -> HashMap<u64, u64> {
    let tasks = PathBuf::from(format!("/proc/{pid}/task"));
    let mut futexes = HashMap::new();
    let mut pause = LOOK_EVERY;
    while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        let begin = Instant::now();
        for task in std::fs::read_dir(&tasks).into_iter().flatten().flatten() {
            let call = std::fs::read_to_string(task.path().join("syscall")).unwrap_or_default();
            if let Some(address) = futex(&call) {
                *futexes.entry(address).or_default() += 1;
            }
        }
        pause = LOOK_EVERY.max(begin.elapsed() * MOST_PART);
    }
    futexes
}

/// The address of the futex that a thread waits in, or 0 if that is on the thread's stack. `call`
/// is the thread's `/proc/PID/task/TID/syscall`: the number of the system call, its arguments, the
/// stack pointer and the program counter.
fn futex(call: &str) -> Option<u64> {
    let fields: Vec<&str> = call.split_whitespace().collect();
    let number: i64 = fields.first()?.parse().ok()?;
    let hexadecimal =
        |index: usize| u64::from_str_radix(fields.get(index)?.strip_prefix("0x")?, 16).ok();
    if number != libc::SYS_futex {
        return None;
    }
    let (address, operation, stack) = (hexadecimal(1)?, hexadecimal(2)?, hexadecimal(7)?);
    let is_wait = matches!(
        operation as i32 & libc::FUTEX_CMD_MASK,
        libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET | libc::FUTEX_LOCK_PI
    );
    let is_own = (stack..stack + FRAMES).contains(&address);
    is_wait.then_some(if is_own { 0 } else { address })
}

impl Observed {
    /// The number of samples at locks and condition variables of the profile, and of the others.
    pub fn samples_at(&self, recorded: &Recorded) -> [u64; 2] {
        // A thread may wait for a signal from the program's start to its end.
        let objects = &recorded.addresses;
        let interposer = |address: u64| {
            let mut files = recorded.mappings.iter();
            files.any(|one| {
                // Sleep slots are in zeroed variables, which follow the file's last mapping.
                let end = one.end + (1 << 20);
                one.path.ends_with("libunconvoy.so") && (one.start..end).contains(&address)
            })
        };
        let is_covered = |address: u64| {
            let before = objects.partition_point(|&object| object <= address);
            let object = before.checked_sub(1).map(|index| objects[index]);
            address == 0
                || object.is_some_and(|object| address < object + OBJECT)
                || interposer(address)
        };
        let mut samples = [0; 2];
        for (&address, &count) in &self.futexes {
            samples[usize::from(!is_covered(address))] += count;
        }
        samples
    }
}

#[cfg(test)]
mod tests {
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
    fn unended_wait_for_signal_is_covered() {
        use unconvoy_profile::layout::{MAGIC, VERSION};
        let profile = unconvoy_profile::read::zeroed();
        profile.header.magic.store(MAGIC, std::sync::atomic::Ordering::Relaxed);
        profile.header.version.store(VERSION, std::sync::atomic::Ordering::Relaxed);
        profile.lock(unconvoy_profile::Kind::Cond, 0x5000).expect("room");
        let recorded = Recorded::parse(&profile.to_bytes()).expect("valid");
        let futexes = HashMap::from([(0x5008, 3), (0x9000, 1)]);
        assert_eq!(Observed { pid: 1, futexes }.samples_at(&recorded), [3, 1]);
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
            found |= observer.finish().futexes.contains_key(&address);
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
}
