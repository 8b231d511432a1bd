//! Reads a profile: copies the used entries into plain values, and leaves out entries that refer to
//! unused ones.

use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use crate::layout::{
    COUNT_UNIT, DEPTH, KILLED, Kind, LOCKS, Lock, MAGIC, Profile, Sample, Source, Stack,
    TIME_SHIFT, VERSION, zeroed,
};
use crate::mappings::{History, Mapping};
use crate::observation::Observation;

/// Why this version cannot read a file as a profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The file is not a profile.
    #[error("it is not a lock profile")]
    NotAProfile,
    /// The file has another version of the layout.
    #[error(
        "it has version {0} of the format, but this command reads version {VERSION}: use the \
         unconvoy that recorded it, or record again"
    )]
    OtherVersion(u32),
    /// The file is shorter than a profile.
    #[error("it is truncated: {0} bytes instead of {1}")]
    Truncated(u64, u64),
}

/// A lock or condition variable that threads waited for; see [`Lock`].
#[derive(Debug, Clone)]
pub struct WaitedLock {
    /// Index in the file's table.
    pub index: u32,
    /// Address in the process.
    pub address: u64,
    /// The address to name the lock by: that of its place in [`Recorded::mappings`].
    pub named_at: u64,
    /// What the threads waited for.
    pub kind: Kind,
    /// Number of waits.
    pub waits: u64,
    /// Time waited.
    pub wait_ns: u64,
    /// Longest wait.
    pub longest_ns: u64,
    /// End of the longest wait, on the monotonic clock.
    pub longest_at: u64,
    /// Number of waits of readers.
    pub read_waits: u64,
    /// Time that readers waited.
    pub read_wait_ns: u64,
    /// Number of acquisitions; 0 if they were not counted.
    pub acquisitions: u64,
    /// Number of measured holds.
    pub holds: u64,
    /// Time of the measured holds.
    pub hold_ns: u64,
    /// Longest measured hold.
    pub longest_hold_ns: u64,
    /// Number of waits that timed out.
    pub timed_out: u32,
    /// Number of times that waiters left the processor.
    pub slept: u32,
    /// Stack of the first sampled wait; 0 if unknown.
    pub first_stack: u32,
    /// Stack of the initialisation; 0 if unknown.
    pub origin: u32,
    /// Stack of the first acquisition; 0 if unknown.
    pub first_taken: u32,
    /// Histogram of the waits; empty if the table of histograms was full.
    pub wait_counts: Vec<u32>,
    /// Histogram of the measured holds, likewise.
    pub hold_counts: Vec<u32>,
}

/// The samples of one lock that have the same waiter's stack and the same holder's stack. Stack 0
/// is unknown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SampledWaits {
    /// Index of the lock in [`Recorded::locks`].
    pub lock: usize,
    /// Stack of the waiters.
    pub waiter: u32,
    /// Stack of the holder.
    pub holder: u32,
    /// Time waited, estimated.
    pub ns: u64,
    /// Number of waits, estimated.
    pub count: f64,
    /// Number of samples.
    pub samples: u64,
}

/// One of the longest waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LongWait {
    /// Length of the wait.
    pub ns: u64,
    /// End of the wait, since the start of the recording.
    pub at_ns: u64,
    /// Index of the lock in [`Recorded::locks`].
    pub lock: usize,
    /// Stack of the waiter; 0 if unknown.
    pub stack: u32,
    /// Thread id of the waiter.
    pub thread: u32,
}

/// The content of a profile.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// Process id.
    pub pid: u32,
    /// Path of the program.
    pub program: PathBuf,
    /// Whether another program started this one, as a script does; set by a command that started
    /// the other one.
    pub is_indirect: bool,
    /// Contention manager, or `libc`.
    pub lock: String,
    /// Load manager; empty with libc.
    pub load: String,
    /// Whether the process exited; false if it was killed or still ran.
    pub has_ended: bool,
    /// Whether the command saw the process end without an exit.
    pub was_killed: bool,
    /// Who recorded the profile.
    pub source: Source,
    /// Whether call stacks were recorded.
    pub unwinds: bool,
    /// Whether the recording of call stacks ended, because the program registered generated code.
    pub has_registered: bool,
    /// See [`Header::period_ns`](crate::layout::Header::period_ns).
    pub period_ns: u64,
    /// Start of the recording, on the monotonic clock.
    pub begin_ns: u64,
    /// Time from the start of the recording to the process's end or the last record.
    pub wall_ns: u64,
    /// Start of the recording, since 1970.
    pub begin_unix_ns: u64,
    /// Mapped files. Objects that were unloaded are at addresses that no process can have, and so
    /// are the frames in them.
    pub mappings: Vec<Mapping>,
    /// Locks with waits, those with the most time waited first.
    pub locks: Vec<WaitedLock>,
    /// Addresses of all locks, including those at which no wait has ended.
    pub addresses: Vec<u64>,
    /// All samples, those with the most time waited first.
    pub samples: Vec<SampledWaits>,
    /// The longest waits, longest first.
    pub longest: Vec<LongWait>,
    /// What the command saw from outside.
    pub observed: Observation,
    /// Numbers of waits, stacks and samples that did not fit in the tables.
    pub lost: [u32; 3],
    pub(crate) stacks: Vec<Vec<u64>>,
}

impl Recorded {
    /// Parses the bytes of a file.
    ///
    /// # Errors
    ///
    /// The bytes are not a complete profile of this version.
    pub fn parse(bytes: &[u8]) -> Result<Self, Damage> {
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        if !bytes.starts_with(&MAGIC.to_le_bytes()) {
            return Err(Damage::NotAProfile);
        }
        match word(8) {
            Some(VERSION) => {}
            version => return Err(Damage::OtherVersion(version.unwrap_or(0))),
        }
        let size = size_of::<Profile>();
        if bytes.len() < size {
            return Err(Damage::Truncated(bytes.len() as u64, size as u64));
        }
        let mut profile = zeroed();
        // SAFETY: all bytes are valid atomics, and both places have `size` bytes.
        unsafe {
            core::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                core::ptr::from_mut(&mut *profile).cast(),
                size,
            );
        }
        Ok(Self::of(&profile))
    }

    /// Copies a profile, which threads may be filling.
    pub fn of(profile: &Profile) -> Self {
        let header = &profile.header;
        let history = history(profile);
        let mut locks: Vec<WaitedLock> =
            (0..LOCKS).filter_map(|index| waited_lock(profile, &history, index as u32)).collect();
        locks.sort_by_key(|lock| (core::cmp::Reverse(lock.wait_ns), lock.address));
        let mut places = vec![None; LOCKS];
        for (place, lock) in locks.iter().enumerate() {
            places[lock.index as usize] = Some(place);
        }
        let begin = header.begin_ns.load(Relaxed);
        Recorded {
            pid: header.pid.load(Relaxed),
            program: OsString::from_vec(bytes(&header.program)).into(),
            is_indirect: false,
            lock: text(&header.lock),
            load: text(&header.load),
            has_ended: !matches!(header.ended.load(Relaxed), 0 | KILLED),
            was_killed: header.ended.load(Relaxed) == KILLED,
            source: match header.source.load(Relaxed) {
                1 => Source::Outside,
                2 => Source::Kernel,
                _ => Source::Interposer,
            },
            unwinds: header.unwinds.load(Relaxed) != 0,
            has_registered: header.registered.load(Relaxed) != 0,
            period_ns: header.period_ns.load(Relaxed),
            begin_ns: begin,
            wall_ns: header.last_ns.load(Relaxed).saturating_sub(begin),
            begin_unix_ns: header.begin_unix_ns.load(Relaxed),
            mappings: history.mappings(),
            samples: samples(profile, &places),
            longest: longest(profile, &places, begin),
            observed: Observation::of(&header.observed),
            addresses: addresses(profile),
            locks,
            lost: [&header.lost_waits, &header.lost_stacks, &header.lost_samples]
                .map(|lost| lost.load(Relaxed)),
            stacks: profile.stacks.iter().map(|stack| frames(profile, &history, stack)).collect(),
        }
    }

    /// Time that the process waited for locks, and time that it waited for signals and events.
    pub fn waited_ns(&self) -> [u64; 2] {
        [true, false].map(|is_lock| {
            let of_kind = self.locks.iter().filter(|lock| lock.kind.is_lock() == is_lock);
            of_kind.map(|lock| lock.wait_ns).sum()
        })
    }

    /// The return addresses of a stack, innermost first; empty if the stack is unknown.
    pub fn stack(&self, number: u32) -> &[u64] {
        (number as usize).checked_sub(1).and_then(|index| self.stacks.get(index)).map_or(&[], |s| s)
    }
}

impl Profile {
    /// The file's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let start = core::ptr::from_ref(self).cast::<u64>();
        // SAFETY: the profile consists of this many words, all of them atomics or numbers. A thread
        // that writes a word at the same time writes the whole word.
        let words =
            (0..size_of::<Profile>() / 8).map(|at| unsafe { start.add(at).read_volatile() });
        words.flat_map(u64::to_le_bytes).collect()
    }
}

/// The bytes before the first zero.
fn bytes(padded: &[AtomicU8]) -> Vec<u8> {
    padded.iter().map(|byte| byte.load(Relaxed)).take_while(|&byte| byte != 0).collect()
}

fn text(padded: &[AtomicU8]) -> String {
    String::from_utf8_lossy(&bytes(padded)).into_owned()
}

fn addresses(profile: &Profile) -> Vec<u64> {
    let addresses = profile.locks.iter().map(|lock| lock.address.load(Relaxed));
    let mut addresses: Vec<u64> = addresses.filter(|&address| address != 0).collect();
    addresses.sort_unstable();
    addresses
}

/// The number and the time in a word that has both.
fn with_time(word: u32) -> (u32, u32) {
    (word & ((1 << TIME_SHIFT) - 1), word >> TIME_SHIFT)
}

fn history(profile: &Profile) -> History {
    let used = (profile.header.modules_used.load(Acquire) as usize).min(profile.modules.len());
    History::parse(&bytes(&profile.modules[..used]))
}

fn frames(profile: &Profile, history: &History, stack: &Stack) -> Vec<u64> {
    let (depth, time) = with_time(stack.depth.load(Acquire));
    let first = stack.first.load(Relaxed) as usize;
    let end = first.saturating_add((depth as usize).min(DEPTH));
    let frames = profile.frames.get(first..end).unwrap_or_default();
    frames.iter().map(|frame| history.code(frame.load(Relaxed), time)).collect()
}

fn waited_lock(profile: &Profile, history: &History, index: u32) -> Option<WaitedLock> {
    let lock: &Lock = &profile.locks[index as usize];
    let identity = lock.identity.load(Relaxed);
    let (kind, time) = with_time(identity as u32);
    let (address, waits) = (lock.address.load(Relaxed), lock.waits.load(Relaxed));
    if address == 0 || waits == 0 {
        return None;
    }
    let counts = |of: fn(&crate::layout::Histograms) -> &[core::sync::atomic::AtomicU32]| {
        let histograms = profile.histograms_of(lock).map(of).unwrap_or_default();
        histograms.iter().map(|count| count.load(Relaxed)).collect()
    };
    Some(WaitedLock {
        index,
        address,
        named_at: history.variable(address, time),
        kind: Kind::of(kind)?,
        waits,
        wait_ns: lock.wait_ns.load(Relaxed),
        longest_ns: lock.longest_ns.load(Relaxed),
        longest_at: lock.longest_at.load(Relaxed),
        read_waits: lock.read_waits.load(Relaxed),
        read_wait_ns: lock.read_wait_ns.load(Relaxed),
        acquisitions: lock.acquisitions.load(Relaxed),
        holds: lock.holds.load(Relaxed),
        hold_ns: lock.hold_ns.load(Relaxed),
        longest_hold_ns: lock.longest_hold_ns.load(Relaxed),
        timed_out: lock.timed_out.load(Relaxed),
        slept: lock.slept.load(Relaxed),
        first_stack: lock.first_stack.load(Relaxed),
        origin: (identity >> 32) as u32,
        first_taken: lock.first_taken.load(Relaxed),
        wait_counts: counts(|histograms| &histograms.waits),
        hold_counts: counts(|histograms| &histograms.holds),
    })
}

fn samples(profile: &Profile, places: &[Option<usize>]) -> Vec<SampledWaits> {
    let sampled = |sample: &Sample| {
        let (lock, waiter, holder) = Sample::parts(sample.key.load(Relaxed));
        Some(SampledWaits {
            lock: (*places.get(lock as usize)?)?,
            waiter,
            holder,
            ns: Some(sample.ns.load(Relaxed)).filter(|&ns| ns > 0)?,
            count: sample.count.load(Relaxed) as f64 / COUNT_UNIT as f64,
            samples: sample.samples.load(Relaxed),
        })
    };
    let mut samples: Vec<_> = profile.samples.iter().filter_map(sampled).collect();
    samples.sort_by_key(|sample| {
        (core::cmp::Reverse(sample.ns), sample.lock, sample.waiter, sample.holder)
    });
    samples
}

fn longest(profile: &Profile, places: &[Option<usize>], begin: u64) -> Vec<LongWait> {
    let wait = |wait: &crate::layout::LongWait| {
        Some(LongWait {
            ns: Some(wait.ns.load(Relaxed)).filter(|&ns| ns > 0)?,
            at_ns: wait.at.load(Relaxed).saturating_sub(begin),
            lock: (*places.get(wait.lock.load(Relaxed) as usize)?)?,
            stack: wait.stack.load(Relaxed),
            thread: wait.thread.load(Relaxed),
        })
    };
    let mut longest: Vec<_> = profile.longest.iter().filter_map(wait).collect();
    longest.sort_by_key(|wait| (core::cmp::Reverse(wait.ns), wait.at_ns));
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Box<Profile> {
        let profile = zeroed();
        profile.header.magic.store(MAGIC, Relaxed);
        profile.header.version.store(VERSION, Relaxed);
        let stack = profile.stack(&[0x10, 0x20], 0);
        profile.record_origin(0x1000, stack);
        profile.record_first_taken(0x1000, stack);
        let (index, lock) = profile.lock(Kind::Mutex, 0x1000).unwrap();
        profile.record_wait(lock, 5_000, 100, false);
        profile.lock(Kind::Cond, 0x2000).unwrap(); // a wait that never ended
        profile.add_sample(index, (stack, 0), 1_000_000, 7 * COUNT_UNIT);
        profile.record_long_wait(5_000, 100, index, stack, 42);
        // A later lock at the same address.
        profile.record_origin(0x1000, profile.stack(&[0x30], 0));
        profile.record_first_taken(0x1000, 0);
        profile
    }

    #[test]
    fn parse_returns_what_was_recorded() {
        let recorded = Recorded::parse(&sample().to_bytes()).unwrap();
        let [lock] = &recorded.locks[..] else { panic!("{:?}", recorded.locks) };
        assert_eq!((lock.address, lock.waits, lock.wait_ns), (0x1000, 1, 5_000));
        let [waits] = &recorded.samples[..] else { panic!("{:?}", recorded.samples) };
        assert_eq!((waits.lock, waits.holder, waits.count), (0, 0, 7.0));
        assert_eq!(recorded.stack(waits.waiter), [0x10, 0x20]);
        assert_eq!(recorded.stack(lock.origin), [0x10, 0x20]);
        assert_eq!(recorded.stack(lock.first_taken), [0x10, 0x20]);
        assert_eq!(recorded.longest[0].thread, 42);
        assert_eq!(recorded.addresses, [0x1000, 0x2000]);
        assert!(recorded.stack(0).is_empty() && recorded.stack(u32::MAX).is_empty());
    }

    #[test]
    fn parse_rejects_other_files() {
        let good = sample().to_bytes();
        assert_eq!(Recorded::parse(b"").unwrap_err(), Damage::NotAProfile);
        assert_eq!(Recorded::parse(&[0; 5000]).unwrap_err(), Damage::NotAProfile);
        let mut other = good.clone();
        other[8] = 9;
        assert_eq!(Recorded::parse(&other).unwrap_err(), Damage::OtherVersion(9));
        let short = Recorded::parse(&good[..good.len() - 1]).unwrap_err();
        assert!(matches!(short, Damage::Truncated(..)));
        assert!(Recorded::parse(&good[..8]).is_err());
    }

    #[test]
    fn parse_survives_arbitrary_content() {
        let mut state = 1_u64;
        for _ in 0..4 {
            let mut content = sample().to_bytes();
            for word in content[16..].chunks_mut(8) {
                state = crate::tables::mix(state.wrapping_add(1));
                word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
            }
            let recorded = Recorded::parse(&content).unwrap();
            for sample in &recorded.samples {
                let _ = (&recorded.locks[sample.lock], recorded.stack(sample.waiter));
            }
        }
    }
}
