//! Layouts that `bpf/contention.bpf.c` shares with the command.

use unconvoy_profile::Kind;
use unconvoy_profile::histogram::BUCKETS;

/// Greatest number of the kernel's frames in an event.
const DEPTH: usize = 62;

/// What happened at an address; an entry of the BPF map `locks`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Lock {
    pub waits: u64,
    pub wait_ns: u64,
    pub longest_ns: u64,
    /// End of the longest wait, on the monotonic clock.
    pub longest_at: u64,
    pub read_waits: u64,
    pub read_wait_ns: u64,
    /// Flags of the last wait.
    pub flags: u32,
    member: u32,
    pub wait_counts: [u32; BUCKETS],
}

/// What the BPF programs could not record.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Totals {
    /// Id of the process in the initial PID namespace; 0 if it was not found.
    pub target: u32,
    unused: u32,
    /// Events that did not fit in the ring.
    pub lost_events: u64,
    /// Waits, and processes, that did not fit in the maps.
    pub lost_waits: u64,
}

/// A wait that has ended; an event of the ring.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Event {
    /// Address of the lock.
    pub lock: u64,
    pub begin: u64,
    /// Time of the sample. A wait that ended earlier is the first at its address, and no sample.
    pub due: u64,
    pub end: u64,
    pub flags: u32,
    pub is_first: u32,
    /// Thread id in the initial PID namespace.
    pub thread: u32,
    /// Number of the system call; negative if the task is in none.
    pub call: i32,
    /// Not 0 if the call is one of 32-bit programs.
    pub is_32_bit: u32,
    stack_bytes: u32,
    task: [u8; 16],
    stack: [u64; DEPTH],
}

// SAFETY: all three consist of numbers, without padding.
unsafe impl aya::Pod for Lock {}
// SAFETY: as above.
unsafe impl aya::Pod for Totals {}
// SAFETY: as above.
unsafe impl aya::Pod for Event {}

// Flags of the tracepoint contention_begin (include/trace/events/lock.h of the kernel).
const SPIN: u32 = 1 << 0;
const READ: u32 = 1 << 1;
const WRITE: u32 = 1 << 2;
const RT: u32 = 1 << 3;
const PERCPU: u32 = 1 << 4;
const MUTEX: u32 = 1 << 5;

/// The kind of a lock by the flags of a wait for it.
pub fn kind(flags: u32) -> Kind {
    let is_shared = flags & (READ | WRITE) != 0;
    match flags {
        _ if flags & MUTEX != 0 => Kind::Mutex,
        _ if flags & PERCPU != 0 => Kind::PercpuRwSem,
        _ if flags & RT != 0 && !is_shared => Kind::RtMutex,
        _ if flags & SPIN != 0 && is_shared => Kind::RwLock,
        _ if flags & SPIN != 0 => Kind::Spin,
        _ if is_shared => Kind::RwSem,
        _ => Kind::Mutex,
    }
}

impl Lock {
    /// The lock's name, if it is a known member of the waiter's process.
    pub fn member(&self) -> Option<&'static str> {
        match self.member {
            1 => Some("mm_struct::mmap_lock"),
            2 => Some("sighand_struct::siglock"),
            _ => None,
        }
    }
}

impl Event {
    /// Reads an event; `None` if the bytes are too few.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..size_of::<Self>())?;
        // SAFETY: the bytes are as many as an event's, which consists of numbers.
        Some(unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) })
    }

    /// Return addresses of the kernel's stack, innermost first.
    pub fn stack(&self) -> &[u64] {
        &self.stack[..(self.stack_bytes as usize / size_of::<u64>()).min(DEPTH)]
    }

    /// Name of the process.
    pub fn task(&self) -> String {
        let length = self.task.iter().position(|&byte| byte == 0).unwrap_or(self.task.len());
        String::from_utf8_lossy(&self.task[..length]).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_follows_flags_of_the_tracepoint() {
        let kinds = [
            (SPIN, Kind::Spin),
            (SPIN | READ, Kind::RwLock),
            (SPIN | WRITE, Kind::RwLock),
            (READ, Kind::RwSem),
            (WRITE, Kind::RwSem),
            (PERCPU | READ, Kind::PercpuRwSem),
            (MUTEX, Kind::Mutex),
            (MUTEX | SPIN, Kind::Mutex),
            (RT, Kind::RtMutex),
            (RT | SPIN, Kind::RtMutex),
        ];
        for (flags, expected) in kinds {
            assert_eq!(kind(flags), expected, "{flags}");
        }
    }

    #[test]
    fn event_with_too_few_bytes_is_rejected() {
        let mut bytes = vec![0; size_of::<Event>()];
        bytes[std::mem::offset_of!(Event, stack_bytes)] = 16;
        bytes[std::mem::offset_of!(Event, task)..][..3].copy_from_slice(b"cat");
        let event = Event::parse(&bytes).unwrap();
        assert_eq!((event.stack().len(), event.task()), (2, "cat".to_string()));
        assert!(Event::parse(&bytes[1..]).is_none());
    }
}
