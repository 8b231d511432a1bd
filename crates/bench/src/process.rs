//! The kernel's accounting of this process.

use std::fs;
use std::io;

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};

/// Times of a thread, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedstat {
    /// Time on a processor.
    pub run_ns: u64,
    /// Time in a run queue.
    pub wait_ns: u64,
}

/// Returns the times of one thread of this process; `None` if there is no such thread.
pub fn schedstat(thread: i32) -> Option<Schedstat> {
    let text = fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?;
    let mut numbers = text.split_whitespace().map(str::parse);
    Some(Schedstat { run_ns: numbers.next()?.ok()?, wait_ns: numbers.next()?.ok()? })
}

/// Returns the number of this process's threads.
pub fn threads() -> io::Result<usize> {
    Ok(fs::read_dir("/proc/self/task")?.count())
}

/// Returns the context switches of all this process's threads so far, finished ones included.
pub fn context_switches() -> io::Result<i64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    Ok(usage.voluntary_context_switches() + usage.involuntary_context_switches())
}

/// Raises the limit of open files to the maximum and returns it.
pub fn raise_file_limit() -> io::Result<u64> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
    Ok(most)
}

/// Moves the calling thread to the lowest priority of the real-time class SCHED_FIFO, so that
/// ordinary threads cannot preempt it.
///
/// # Errors
///
/// The process lacks CAP_SYS_NICE.
pub fn enter_realtime() -> io::Result<()> {
    // SAFETY: `sched_param` consists of integers, so all-zero bytes are a valid value.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = 1;
    // SAFETY: 0 is the calling thread, and the kernel only reads `parameters`.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounting_of_this_process_is_readable() {
        let own = i32::try_from(std::process::id()).expect("ids are small");
        assert!(schedstat(own).is_some() && schedstat(-1).is_none());
        assert!(threads().is_ok_and(|count| count >= 1));
        assert!(context_switches().is_ok_and(|count| count >= 0));
    }
}
