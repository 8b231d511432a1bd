//! A thread of a process that has not ended.
//!
//! The main thread may end before the others do, by `pthread_exit`. Until they end too, `/proc/PID`
//! shows it as a zombie, without the memory, files and namespaces that the others still share.

use crate::process_file;

/// The id of a thread that has not ended: the main thread's if possible, else another's.
/// `/proc/ID` then shows what the threads of the process share. The id of a process that has ended
/// is returned as it is.
pub fn live_thread(pid: u32) -> u32 {
    if !has_ended(pid) {
        return pid;
    }
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut ids = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok());
    ids.find(|&id| !has_ended(id)).unwrap_or(pid)
}

/// Whether a thread is a zombie, or gone.
pub fn has_ended(thread: u32) -> bool {
    let status = process_file::text(format!("/proc/{thread}/status")).unwrap_or_default();
    let state = status.lines().find_map(|line| line.strip_prefix("State:"));
    state.is_none_or(|state| state.trim_start().starts_with(['Z', 'X']))
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn sleep(_: *mut libc::c_void) -> *mut libc::c_void {
        loop {
            // SAFETY: no preconditions.
            unsafe { libc::pause() };
        }
    }

    /// A process whose main thread has ended, and whose other thread sleeps.
    fn process_without_main_thread() -> u32 {
        // SAFETY: the child makes a thread with no data, and its main thread returns nowhere.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mut thread = std::mem::MaybeUninit::uninit();
            // SAFETY: as above.
            unsafe {
                libc::pthread_create(
                    thread.as_mut_ptr(),
                    std::ptr::null(),
                    sleep,
                    std::ptr::null_mut(),
                );
                libc::syscall(libc::SYS_exit, 0);
            }
        }
        child.cast_unsigned()
    }

    #[test]
    fn thread_other_than_an_ended_main_thread_shows_the_mappings() {
        let pid = process_without_main_thread();
        while !has_ended(pid) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let thread = live_thread(pid);
        let read = |id: u32| std::fs::read_to_string(format!("/proc/{id}/maps"));
        let (of_process, of_thread) = (read(pid), read(thread));
        // SAFETY: the child is this test's own; nothing is written.
        unsafe {
            libc::kill(pid.cast_signed(), libc::SIGKILL);
            libc::waitpid(pid.cast_signed(), std::ptr::null_mut(), 0);
        }
        assert_ne!(thread, pid);
        assert_eq!(of_process.unwrap_or_default(), "");
        assert!(of_thread.expect("mappings").contains("[stack]"));
        assert_eq!(live_thread(pid), pid, "it has ended");
    }

    #[test]
    fn main_thread_is_preferred() {
        assert_eq!(live_thread(std::process::id()), std::process::id());
    }
}
