//! A running process. Its memory is read through `/proc`, without stopping it.
//!
//! Only a thread that waits for a lock of libc's is stopped, to read its registers: for the time of
//! two system calls, if no debugger has stopped it already. The kernel restarts such a wait by
//! itself, but at the end of the futex's queue. Threads in other system calls are left alone,
//! because some of those calls would fail with `EINTR`.

use std::ffi::c_void;
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::ensure;
use nix::time::{ClockId, clock_gettime};

use super::subject::{Futex, Region, Subject, Thread};
use crate::live_thread::{has_ended, live_thread};
use crate::messages::inspect as messages;
use crate::process_file::{self, MappedFile};
use crate::profile::outside::target::{Mapping, Target, UNKNOWN_FILE};
use crate::profile::outside::unwind::Registers;

/// Longest wait for a thread to stop.
const STOP: Duration = Duration::from_millis(200);

/// Longest wait for a thread that was stopped to sleep again.
const AGAIN: Duration = Duration::from_millis(50);

/// A running process.
pub struct Process {
    target: Target,
    regions: Vec<Region>,
    threads: Vec<Thread>,
}

impl Process {
    /// Opens a process.
    ///
    /// # Errors
    ///
    /// There is no such process, or this command may not look into it.
    pub fn open(pid: u32) -> anyhow::Result<Self> {
        let target = Target::open(pid)?;
        ensure!(target.has_memory(), messages::not_permitted(pid));
        let regions = target.mapped_files().into_iter().map(region).collect();
        // The main thread stays in the list as a zombie if it ends before the others.
        let threads = target.threads().into_iter().filter(|&(_, outer)| !has_ended(outer));
        let threads = threads.map(|(id, outer)| thread(pid, id, outer)).collect();
        Ok(Process { target, regions, threads })
    }

    /// A descriptor that becomes readable when the process ends.
    pub fn handle(&self) -> BorrowedFd<'_> {
        self.target.handle()
    }

    /// The process without its threads, which are as they were when it was opened.
    pub fn without_threads(self) -> Self {
        Process { threads: Vec::new(), ..self }
    }

    /// Whether another process traces this thread.
    fn is_traced(&self, thread: &Thread) -> bool {
        self.status(thread, "TracerPid:") != Some(0)
    }

    /// A number in the thread's status (proc(5)).
    fn status(&self, thread: &Thread, key: &str) -> Option<u64> {
        let status = format!("/proc/{}/task/{}/status", self.target.pid, thread.outer);
        let status = process_file::text(status).unwrap_or_default();
        status.lines().find_map(|line| line.strip_prefix(key))?.trim().parse().ok()
    }
}

fn region(line: MappedFile) -> Region {
    let MappedFile { start, end, access, offset, path, .. } = line;
    let (is_code, is_writable) = (access.contains('x'), access.contains('w'));
    Region { start, end, offset, is_code, is_writable, path }
}

fn thread(pid: u32, id: u32, outer: u32) -> Thread {
    let read = |name: &str| process_file::text(format!("/proc/{pid}/task/{outer}/{name}"));
    // Programs choose the names of their threads; a line end in a name would forge a line.
    let name = read("comm").unwrap_or_default().trim().replace(char::is_control, "?");
    let call = read("syscall").unwrap_or_default();
    let number = |number: &str| match number.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => number.parse().ok(),
    };
    // The call's number and six arguments, or -1; then the stack pointer and the next instruction.
    let fields: Vec<&str> = call.split_whitespace().collect();
    let at = |index: usize| fields.get(index).and_then(|field| number(field));
    let futex = match (at(0), at(1), at(2)) {
        (Some(call), Some(address), Some(operation)) if fields.len() == 9 => {
            Futex::of_call(call, address, operation)
        }
        _ => None,
    };
    let registers = match fields[..] {
        [.., sp, ip] => number(sp).zip(number(ip)).map(|(sp, ip)| Registers { ip, sp, bp: 0 }),
        _ => None,
    };
    Thread { id, outer, name, futex, registers }
}

impl Subject for Process {
    fn title(&self) -> String {
        format!("process {} ({})", self.target.pid, self.target.program.display())
    }

    fn read(&self, address: u64, to: &mut [u8]) -> usize {
        self.target.read(address, to)
    }

    fn regions(&self) -> &[Region] {
        &self.regions
    }

    fn file(&self, region: &Region) -> Option<PathBuf> {
        let path = self.target.readable(&region.path);
        if path.exists() {
            return Some(path);
        }
        // Deleted or replaced since: the kernel still has it.
        let Region { start, end, .. } = region;
        let mapped = format!("/proc/{}/map_files/{start:x}-{end:x}", live_thread(self.target.pid));
        Some(PathBuf::from(mapped)).filter(|path| path.exists())
    }

    fn open(&self, region: &Region) -> Option<File> {
        let Region { start, end, offset, is_code, path, .. } = region.clone();
        let file = UNKNOWN_FILE.into();
        self.target.open_mapped(&Mapping { start, end, offset, is_code, path, file })
    }

    fn threads(&self) -> &[Thread] {
        &self.threads
    }

    fn now(&self) -> Option<u64> {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).ok()?;
        Some(now.as_nanos() as u64)
    }

    fn stop_and_read(&self, thread: &Thread) -> Option<(Registers, Vec<u8>)> {
        let futex = thread.futex?;
        // Since the process was opened, the thread may have begun another system call.
        if self.is_traced(thread) || !self.target.waits_at(thread.outer, futex.address) {
            return None;
        }
        let stopped = Stopped::stop(thread.outer)?;
        let registers = stopped.registers()?;
        let stack = (self as &dyn Subject).read_stack(registers.sp);
        Some((registers, stack))
    }

    fn sleeps(&self, thread: &Thread) -> Option<u64> {
        let futex = thread.futex?.address;
        // A thread that was stopped takes a moment to sleep again.
        let begin = Instant::now();
        while !self.target.waits_at(thread.outer, futex) {
            if begin.elapsed() > AGAIN {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.status(thread, "voluntary_ctxt_switches:")
    }

    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A thread that is stopped until this value is dropped.
struct Stopped {
    thread: i32,
    /// The signal whose delivery stopped the thread, which still has to receive it; else 0.
    signal: i32,
}

fn trace(request: libc::c_uint, thread: i32, data: *mut c_void) -> bool {
    // SAFETY: the requests below have no address, and `data` is null, the number of a signal, or a
    // buffer of the kernel's type.
    unsafe { libc::ptrace(request, thread, std::ptr::null_mut::<c_void>(), data) == 0 }
}

impl Stopped {
    fn stop(thread: u32) -> Option<Self> {
        Self::seize(thread)?.interrupt()
    }

    fn seize(thread: u32) -> Option<Self> {
        let thread = thread.cast_signed();
        trace(libc::PTRACE_SEIZE, thread, std::ptr::null_mut())
            .then(|| Stopped { thread, signal: 0 })
    }

    /// Waits until the thread has stopped.
    fn interrupt(mut self) -> Option<Self> {
        trace(libc::PTRACE_INTERRUPT, self.thread, std::ptr::null_mut());
        let end = Instant::now() + STOP;
        while Instant::now() < end {
            let mut status = 0;
            // SAFETY: the kernel fills `status`.
            let id = unsafe {
                libc::waitpid(self.thread, &raw mut status, libc::WNOHANG | libc::__WALL)
            };
            if id == self.thread {
                // The stop for a signal has no event number; the one for `PTRACE_INTERRUPT` has.
                if libc::WIFSTOPPED(status) && status >> 16 == 0 {
                    self.signal = libc::WSTOPSIG(status);
                }
                return Some(self);
            }
            std::thread::sleep(Duration::from_micros(20));
        }
        None
    }

    #[cfg(target_arch = "x86_64")]
    fn registers(&self) -> Option<Registers> {
        let mut all = std::mem::MaybeUninit::<libc::user_regs_struct>::zeroed();
        trace(libc::PTRACE_GETREGS, self.thread, all.as_mut_ptr().cast()).then_some(())?;
        // SAFETY: filled by the kernel, and zeroes are valid too.
        let all = unsafe { all.assume_init() };
        Some(Registers { ip: all.rip, sp: all.rsp, bp: all.rbp })
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn registers(&self) -> Option<Registers> {
        None
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let signal = std::ptr::without_provenance_mut(self.signal.cast_unsigned() as usize);
        trace(libc::PTRACE_DETACH, self.thread, signal);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn thread_that_has_left_its_futex_is_not_stopped() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let id = child.id();
        let process = Process::open(id).unwrap();
        let futex = Some(Futex { address: 0x1000, command: 0 });
        let thread = Thread { id, outer: id, name: String::new(), futex, registers: None };
        let stopped = process.stop_and_read(&thread);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(stopped.is_none());
    }

    #[test]
    fn signal_whose_delivery_stopped_the_thread_is_not_lost() {
        let program = "trap 'exit 7' USR1; echo ready; read line; exit 0";
        let mut command = Command::new("sh");
        command.args(["-c", program]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let id = child.id();
        let Some(seized) = Stopped::seize(id) else {
            println!("skipped: this process may not trace its children");
            child.wait().unwrap();
            return;
        };
        // SAFETY: no pointers.
        unsafe { libc::kill(id.cast_signed(), libc::SIGUSR1) };
        let status = || std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        while !status().contains("tracing stop") {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(seized.interrupt().expect("it has stopped"));
        assert_eq!(child.wait().unwrap().code(), Some(7));
    }
}
