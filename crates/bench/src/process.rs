//! What the kernel says about this process.

use std::fs;
use std::io;

/// Nanoseconds that a thread spent on a processor, and waiting for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedstat {
    /// On a processor.
    pub run_ns: u64,
    /// In a run queue.
    pub wait_ns: u64,
}

/// The account of one thread of this process; `None` if there is no such thread.
pub fn schedstat(thread: i32) -> Option<Schedstat> {
    let text = fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?;
    let mut numbers = text.split_whitespace().map(str::parse);
    Some(Schedstat { run_ns: numbers.next()?.ok()?, wait_ns: numbers.next()?.ok()? })
}

/// How many threads this process has.
pub fn threads() -> io::Result<usize> {
    Ok(fs::read_dir("/proc/self/task")?.count())
}

/// Context switches of all threads of this process so far, those that have ended included.
pub fn context_switches() -> io::Result<i64> {
    // SAFETY: all zeroes is a valid `rusage`, which is made of numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a valid place for the kernel to write to.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(usage.ru_nvcsw + usage.ru_nivcsw)
}

/// Raises the limit of open files as far as this process may. The new limit.
pub fn raise_file_limit() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid place for the kernel to write to.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: `limit` is a valid limit, for the kernel to read.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(limit.rlim_cur)
}

/// Puts the calling thread into the realtime class, at its lowest priority: no ordinary thread preempts it.
///
/// # Errors
///
/// The process may not (CAP_SYS_NICE).
pub fn enter_realtime() -> io::Result<()> {
    // SAFETY: all zeroes is a valid `sched_param`, which is made of numbers.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = 1;
    // SAFETY: 0 is the calling thread, and `parameters` is for the kernel to read.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_answers() {
        let own = i32::try_from(std::process::id()).expect("ids are small");
        assert!(schedstat(own).is_some() && schedstat(-1).is_none());
        assert!(threads().is_ok_and(|count| count >= 1));
        assert!(context_switches().is_ok_and(|count| count >= 0));
    }
}
