//! The end of a process that could not record it: a signal killed the process, or it called
//! `_exit`.

use core::mem::offset_of;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::layout::{Header, KILLED};
use crate::read::Recorded;

impl Recorded {
    /// Sets the end of a process that did not record its exit, here and in its file, to `end_ns` on
    /// the monotonic clock. Does nothing if the exit is recorded.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn end_killed(&mut self, end_ns: u64, file: &Path) -> io::Result<()> {
        if self.has_ended {
            return Ok(());
        }
        self.was_killed = true;
        self.wall_ns = self.wall_ns.max(end_ns.saturating_sub(self.begin_ns));
        let file = OpenOptions::new().write(true).open(file)?;
        let last_ns = self.begin_ns + self.wall_ns;
        file.write_all_at(&last_ns.to_le_bytes(), offset_of!(Header, last_ns) as u64)?;
        file.write_all_at(&KILLED.to_le_bytes(), offset_of!(Header, ended) as u64)
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::layout::{MAGIC, VERSION, zeroed};

    #[test]
    fn end_of_killed_process_is_kept() {
        let profile = zeroed();
        profile.header.magic.store(MAGIC, Relaxed);
        profile.header.version.store(VERSION, Relaxed);
        profile.header.begin_ns.store(1_000, Relaxed);
        profile.header.last_ns.store(1_200, Relaxed);
        let file = std::env::temp_dir().join(format!("unconvoy-killed-{}", std::process::id()));
        std::fs::write(&file, profile.to_bytes()).unwrap();
        let read = || Recorded::parse(&std::fs::read(&file).unwrap()).unwrap();
        let mut recorded = read();
        assert_eq!((recorded.wall_ns, recorded.was_killed), (200, false));
        recorded.end_killed(5_000, &file).unwrap();
        let kept = read();
        std::fs::remove_file(&file).unwrap();
        for recorded in [recorded, kept] {
            assert_eq!((recorded.wall_ns, recorded.was_killed), (4_000, true));
            assert!(!recorded.has_ended);
        }
    }

    #[test]
    fn recorded_exit_stays() {
        let profile = zeroed();
        profile.header.ended.store(1, Relaxed);
        profile.header.last_ns.store(1_200, Relaxed);
        let mut recorded = Recorded::of(&profile);
        recorded.end_killed(5_000, Path::new("/no/such/file")).unwrap();
        assert_eq!((recorded.wall_ns, recorded.was_killed), (1_200, false));
    }
}
