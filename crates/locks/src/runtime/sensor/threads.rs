//! The threads of a process, from a task directory of `/proc`.

use rustix::fs::{RawDir, SeekFrom};

use super::file::{File, decimal};

/// Calls `visit` with the id of every thread in `directory`. Returns whether the directory could be
/// read.
pub(super) fn for_each(directory: &File, mut visit: impl FnMut(u32)) -> bool {
    if rustix::fs::seek(directory.borrow(), SeekFrom::Start(0)).is_err() {
        return false;
    }
    let mut buffer = [core::mem::MaybeUninit::<u8>::uninit(); 4096];
    let mut names = RawDir::new(directory.borrow(), &mut buffer);
    while let Some(Ok(name)) = names.next() {
        if let Some(thread) = decimal(name.file_name().to_bytes()) {
            visit(thread as u32); // the kernel's ids have 22 bits
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn for_each_on_repeat_visits_calling_thread() {
        let directory = File::open_directory(c"/proc/self/task").expect("/proc is mounted");
        let me = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        for _ in 0..2 {
            let mut found = false;
            assert!(for_each(&directory, |thread| found |= thread == me));
            assert!(found, "on every call");
        }
    }
}
