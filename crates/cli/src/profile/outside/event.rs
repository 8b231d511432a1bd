//! Layouts that `bpf/waits.bpf.c` shares with the command.

use unconvoy_profile::histogram::BUCKETS;

/// Number of a lock's slots for due times.
const SLOTS: usize = 16;

/// What happened at an address; an entry of the BPF map `locks`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Lock {
    pub waits: u64,
    pub wait_ns: u64,
    pub longest_ns: u64,
    /// End of the longest wait, on the monotonic clock.
    pub longest_at: u64,
    pub timed_out: u64,
    pub holds: u64,
    pub hold_ns: u64,
    pub longest_hold_ns: u64,
    due: [u64; SLOTS],
    pub wait_counts: [u32; BUCKETS],
    pub hold_counts: [u32; BUCKETS],
}

/// A thread's wait; an entry of the BPF map `threads`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Wait {
    /// Address of the futex; 0 if the thread does not wait.
    pub address: u64,
    pub begin: u64,
    pub due: u64,
    pub ip: u64,
    pub sp: u64,
    pub bp: u64,
    held: u64,
    held_since: u64,
    /// Thread id in the thread's own PID namespace.
    pub thread: u32,
    /// The futex operation.
    pub command: u32,
    is_first: u32,
    unused: u32,
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
    /// Waits that did not fit in the maps.
    pub lost_waits: u64,
}

// SAFETY: all three consist of numbers, without padding.
unsafe impl aya::Pod for Lock {}
// SAFETY: as above.
unsafe impl aya::Pod for Wait {}
// SAFETY: as above.
unsafe impl aya::Pod for Totals {}

/// Start of an event in the ring; the stack follows.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Header {
    /// [`WAIT`] or [`WAKE`].
    pub kind: u32,
    /// Thread id in the thread's own PID namespace.
    pub thread: u32,
    /// Address of the futex.
    pub address: u64,
    pub begin: u64,
    /// Time of the sample. A wait that ended earlier is the first at its address, and no sample.
    pub due: u64,
    pub end: u64,
    pub ip: u64,
    pub sp: u64,
    pub bp: u64,
    /// The futex operation.
    pub command: u32,
    pub is_first: u32,
    stack_bytes: u32,
    unused: u32,
}

/// A wait has ended.
pub const WAIT: u32 = 1;
/// A thread is about to wake waiters.
pub const WAKE: u32 = 2;

/// An event of the ring.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    pub header: Header,
    /// Content of the stack from the stack pointer on.
    pub stack: &'a [u8],
}

impl<'a> Event<'a> {
    /// Reads an event; `None` if the bytes are too few.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (header, stack) = bytes.split_at_checked(size_of::<Header>())?;
        // SAFETY: the bytes are as many as a header's, which consists of numbers.
        let header: Header = unsafe { std::ptr::read_unaligned(header.as_ptr().cast()) };
        Some(Event { header, stack: stack.get(..header.stack_bytes as usize)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_with_less_stack_than_announced_is_rejected() {
        let mut bytes = vec![0; size_of::<Header>() + 16];
        bytes[0] = 1;
        let at = std::mem::offset_of!(Header, stack_bytes);
        bytes[at] = 16;
        let event = Event::parse(&bytes).unwrap();
        assert_eq!((event.header.kind, event.stack.len()), (WAIT, 16));
        bytes[at] = 17;
        assert!(Event::parse(&bytes).is_none() && Event::parse(&bytes[..10]).is_none());
    }
}
