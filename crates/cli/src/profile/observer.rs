//! Samples of a process, taken from outside: the futexes that its threads wait in, what the holders
//! of mutexes do meanwhile, and the processor time that the process uses.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Pid, SysconfVar, sysconf};
use unconvoy_profile::layout::{HELD, RUNNABLE, SPANS};
use unconvoy_profile::observation::{HolderSamples, LockSpan, Observation, Usage};
use unconvoy_profile::{Kind, Recorded};

use super::glibc::OWNER;
use crate::process_file;

/// Shortest time between two samplings of all threads.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The observer sleeps at least this number of times as long as a sampling took of a processor, so
/// that programs with many threads cost little.
const MOST_PART: u32 = 200;

/// Size of the largest object that contains a futex.
const OBJECT: u64 = size_of_lock(Kind::RwLock);

/// A futex within this distance above a sleeping thread's stack pointer is the thread's own:
/// unconvoy keeps the futex of a wait for a signal on the waiter's stack.
const FRAMES: u64 = 4096;

/// Greatest number of futexes whose holders are read in each sample.
const WATCHED: usize = 64;

/// A thread that samples a process.
pub struct Observer {
    pid: u32,
    stop: Sender<()>,
    thread: JoinHandle<Seen>,
}

/// The samples of a process.
pub struct Observed {
    pub pid: u32,
    seen: Seen,
}

/// What the samples have in common.
#[derive(Default)]
struct Seen {
    /// By the futex's address, which is 0 for a futex on the waiter's stack.
    futexes: HashMap<u64, Waiting>,
    /// Samples of waiting threads by the futex's address and the system call of the holder.
    holders: HashMap<(u64, u32), u32>,
    processors: u64,
    threads: u64,
    whole: Span,
}

#[derive(Clone, Copy, Default)]
struct Waiting {
    /// Number of waiting threads, summed over the samples.
    samples: u64,
    span: Span,
    /// Samples since the first with a waiting thread, and those of them in which a thread held the
    /// mutex that may be at the address.
    looks: [u64; 2],
    /// `looks` at the last sample with a waiting thread.
    last_looks: [u64; 2],
}

/// The process's counters at two samples.
#[derive(Clone, Copy, Default)]
struct Span {
    first: Usage,
    last: Usage,
}

impl Span {
    fn usage(&self) -> Usage {
        self.last.since(&self.first)
    }
}

impl Observer {
    /// Starts to sample a process; `None` if the thread cannot be started.
    pub fn start(pid: u32) -> Option<Self> {
        let (stop, stopped) = channel();
        let builder = std::thread::Builder::new().name("observer".into());
        let thread = builder.spawn(move || observe(pid, &stopped)).ok()?;
        Some(Observer { pid, stop, thread })
    }

    /// Ends the sampling.
    pub fn finish(self) -> Observed {
        drop(self.stop);
        Observed { pid: self.pid, seen: self.thread.join().unwrap_or_default() }
    }
}

fn observe(pid: u32, stopped: &Receiver<()>) -> Seen {
    let mut process = Process::new(pid);
    let mut seen = Seen::default();
    let mut pause = LOOK_EVERY;
    while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        let begin = thread_time();
        process.look(&mut seen);
        pause = LOOK_EVERY.max(thread_time().saturating_sub(begin) * MOST_PART);
    }
    seen
}

/// Processor time of this thread. Elapsed time would include waits for a busy processor.
fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// The process and its counters.
struct Process {
    pid: Pid,
    begin: Instant,
    memory: Option<File>,
    /// Processor time of the whole process, which includes threads that have ended.
    clock: Option<ClockId>,
    tick_ns: u64,
    threads: HashMap<u32, Thread>,
    /// Futexes whose holders are read in each sample.
    watched: Vec<u64>,
}

struct Thread {
    /// In its own PID namespace.
    own_id: u32,
    /// Time that it has waited for a processor.
    delay: u64,
}

impl Thread {
    fn new(id: u32) -> Self {
        Thread { own_id: process_file::own_id(id).unwrap_or(id), delay: 0 }
    }
}

impl Process {
    fn new(pid: u32) -> Self {
        let process = Pid::from_raw(pid.cast_signed());
        let ticks = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100);
        Process {
            pid: process,
            begin: Instant::now(),
            memory: File::open(format!("/proc/{pid}/mem")).ok(),
            clock: ClockId::pid_cpu_clock_id(process).ok(),
            tick_ns: 1_000_000_000 / ticks.cast_unsigned().max(1),
            threads: HashMap::new(),
            watched: Vec::new(),
        }
    }

    /// Takes one sample of all threads.
    fn look(&mut self, seen: &mut Seen) {
        let mut waiting: BTreeMap<u64, u32> = BTreeMap::new();
        let mut by_own_id = HashMap::new();
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid));
        for task in tasks.into_iter().flatten().flatten() {
            let Ok(id) = task.file_name().to_string_lossy().parse() else { continue };
            let thread = self.threads.entry(id).or_insert_with(|| Thread::new(id));
            by_own_id.insert(thread.own_id, id);
            if let Some(delay) = delay(&read(task.path().join("schedstat"))) {
                thread.delay = delay;
            }
            if let Some(address) = futex(&read(task.path().join("syscall"))) {
                *waiting.entry(address).or_default() += 1;
            }
        }
        if by_own_id.is_empty() {
            return;
        }
        let now = self.usage();
        if seen.threads == 0 {
            seen.whole.first = now;
            seen.processors = self.processors();
        }
        seen.whole.last = now;
        seen.threads = seen.threads.max(by_own_id.len() as u64);
        for address in &self.watched {
            let is_held = self.owner(*address).is_some_and(|owner| owner != 0);
            let looks = seen.futexes.entry(*address).or_default();
            looks.looks[0] += 1;
            looks.looks[1] += u64::from(is_held);
        }
        for (address, count) in waiting {
            let span = Span { first: now, last: now };
            let new = Waiting { span, ..Waiting::default() };
            let entry = seen.futexes.entry(address).or_insert(new);
            if entry.samples == 0 && self.watched.len() < WATCHED {
                self.watched.push(address);
            }
            entry.samples += u64::from(count);
            entry.span.last = now;
            entry.last_looks = entry.looks;
            if let Some(call) = self.holder(address, &by_own_id) {
                *seen.holders.entry((address, call)).or_default() += count;
            }
        }
    }

    fn usage(&self) -> Usage {
        let cpu = self.clock.and_then(|clock| clock_gettime(clock).ok()).map(Duration::from);
        let ticks = system_ticks(&read(format!("/proc/{}/stat", self.pid)));
        Usage {
            wall_ns: self.begin.elapsed().as_nanos() as u64,
            cpu_ns: cpu.unwrap_or_default().as_nanos() as u64,
            system_ns: ticks.unwrap_or(0) * self.tick_ns,
            delay_ns: self.threads.values().map(|thread| thread.delay).sum(),
            idle_ns: idle_ticks(&read("/proc/stat")).unwrap_or(0) * self.tick_ns,
        }
    }

    /// Number of processors that the process may use. The command's own number includes the limit
    /// of its control group, which the process usually shares.
    fn processors(&self) -> u64 {
        let allowed = sched_getaffinity(self.pid).map_or(0, |set| {
            (0..CpuSet::count()).filter(|&processor| set.is_set(processor) == Ok(true)).count()
        });
        let limit = std::thread::available_parallelism().map_or(1, usize::from);
        if allowed == 0 { limit as u64 } else { allowed.min(limit) as u64 }
    }

    /// The word that has the owner's thread id, if the futex is a mutex of libc's.
    fn owner(&self, futex: u64) -> Option<u32> {
        let mut owner = [0; 4];
        self.memory.as_ref()?.read_exact_at(&mut owner, futex.checked_add(OWNER)?).ok()?;
        Some(u32::from_ne_bytes(owner))
    }

    /// The system call of the mutex's holder, or [`RUNNABLE`]; `None` if the futex is no mutex of
    /// libc's, or has another holder after the look. `by_own_id`: the ids of the threads by their
    /// ids in their own PID namespace.
    fn holder(&self, address: u64, by_own_id: &HashMap<u32, u32>) -> Option<u32> {
        let owner = || self.owner(address);
        let holder = owner()?;
        let thread = by_own_id.get(&holder)?;
        let line = read(format!("/proc/{}/task/{thread}/syscall", self.pid));
        let call = match line.split_whitespace().next()? {
            "running" => RUNNABLE,
            number => number.parse().ok()?,
        };
        (owner() == Some(holder) && futex(&line) != Some(address)).then_some(call)
    }
}

fn read(file: impl Into<PathBuf>) -> String {
    process_file::text(file.into()).unwrap_or_default()
}

/// The time that a thread waited for a processor, from its `schedstat`.
fn delay(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().nth(1)?.parse().ok()
}

/// The time in the kernel, from a process's `stat`: the fifteenth field. The second, a name in
/// parentheses, may contain blanks.
fn system_ticks(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(12)?.parse().ok()
}

/// The time that all processors were idle, or waited for a disk, from `/proc/stat`.
fn idle_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().skip(3);
    let idle: u64 = fields.next()?.parse().ok()?;
    Some(idle + fields.next().and_then(|waiting| waiting.parse::<u64>().ok()).unwrap_or(0))
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
    /// What was seen of the locks of a profile.
    pub fn of(&self, recorded: &Recorded) -> Observation {
        let mut spans: HashMap<u64, Waiting> = HashMap::new();
        for (&futex, waiting) in &self.seen.futexes {
            let of_lock = |lock: &&unconvoy_profile::read::WaitedLock| {
                let end = lock.address + size_of_lock(lock.kind);
                lock.kind.is_lock() && (lock.address..end).contains(&futex)
            };
            let locks = recorded.locks.iter().filter(of_lock);
            let Some(lock) = locks.max_by_key(|lock| lock.address) else { continue };
            let sum = spans.entry(lock.address).or_insert(Waiting { samples: 0, ..*waiting });
            sum.samples += waiting.samples;
            sum.last_looks = sum.last_looks.max(waiting.last_looks);
            sum.span.first = earlier(sum.span.first, waiting.span.first);
            sum.span.last = later(sum.span.last, waiting.span.last);
        }
        let mut locks: Vec<LockSpan> = spans
            .iter()
            .map(|(&address, waiting)| LockSpan {
                address,
                waiting: waiting.samples,
                looks: waiting.last_looks[0],
                held: if lock_is_mutex(recorded, address) { waiting.last_looks[1] } else { 0 },
                usage: waiting.span.usage(),
            })
            .collect();
        locks.sort_by_key(|span| (std::cmp::Reverse(span.waiting), span.address));
        locks.truncate(SPANS);
        let holders = self.seen.holders.iter();
        let holders = holders.filter(|((address, _), _)| spans.contains_key(address));
        let mut holders: Vec<HolderSamples> = holders
            .map(|(&(address, call), &samples)| HolderSamples { address, call, samples })
            .collect();
        holders.sort_by_key(|held| (std::cmp::Reverse(held.samples), held.address, held.call));
        holders.truncate(HELD);
        Observation {
            futex_samples: self.samples_at(recorded),
            processors: self.seen.processors,
            threads: self.seen.threads,
            whole: self.seen.whole.usage(),
            locks,
            holders,
        }
    }

    /// The number of samples at locks and condition variables of the profile, and of the others.
    fn samples_at(&self, recorded: &Recorded) -> [u64; 2] {
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
        for (&address, waiting) in &self.seen.futexes {
            samples[usize::from(!is_covered(address))] += waiting.samples;
        }
        samples
    }
}

/// Size of an object, which contains its futex.
const fn size_of_lock(kind: Kind) -> u64 {
    let size = match kind {
        Kind::Mutex => size_of::<libc::pthread_mutex_t>(),
        Kind::RwLock => size_of::<libc::pthread_rwlock_t>(),
        _ => size_of::<u32>(),
    };
    size as u64
}

fn lock_is_mutex(recorded: &Recorded, address: u64) -> bool {
    let mut locks = recorded.locks.iter();
    locks.any(|lock| lock.address == address && lock.kind == Kind::Mutex)
}

fn earlier(one: Usage, other: Usage) -> Usage {
    if one.wall_ns <= other.wall_ns { one } else { other }
}

fn later(one: Usage, other: Usage) -> Usage {
    if one.wall_ns > other.wall_ns { one } else { other }
}

#[cfg(test)]
#[path = "observer_tests.rs"]
mod tests;
