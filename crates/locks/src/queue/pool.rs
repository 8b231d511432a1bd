//! Type-stable queue nodes: mapped in chunks of a page, never returned to the kernel, free ones in
//! striped stacks.
//!
//! A waiter may abandon its node in a queue, to be given back by whichever thread unlinks it;
//! so nodes belong to no thread, and there is nothing to do when a thread exits. No `malloc`: a
//! malloc's own lock may be what is being waited for. A stripe is chosen by the address of the
//! caller's stack, so that threads seldom meet at one.
//!
//! **Invariant 1.** A stripe's head carries a tag that every change moves on: a head that was read
//! is not mistaken for a later one (ABA).
//!
//! **Memory orderings.** Heads are changed with acquire-release, so that a node's link, written
//! before it was pushed, is read after it was popped.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

use rustix::mm::{MapFlags, ProtFlags};

use super::node::{Node, NodeMemory};
use crate::primitive::Native;

const CHUNK_BYTES: usize = 4096;
const CHUNK_NODES: usize = CHUNK_BYTES / size_of::<Node<Native>>();
/// 8192 chunks of 64 nodes: half a million waiters.
const CHUNKS: usize = 8192;
const STRIPES: usize = 16;

/// One stack of free nodes: `tag << 32 | index + 1`, or index 0 when empty.
#[repr(align(128))]
struct Stripe(AtomicU64);

/// The nodes of the process.
struct Pool {
    stripes: [Stripe; STRIPES],
    chunks: [AtomicPtr<Node<Native>>; CHUNKS],
    mapped: AtomicU32,
}

static POOL: Pool = Pool {
    stripes: [const { Stripe(AtomicU64::new(0)) }; STRIPES],
    chunks: [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS],
    mapped: AtomicU32::new(0),
};

impl NodeMemory for Native {
    fn take_node() -> *mut Node<Native> {
        POOL.take()
    }

    unsafe fn give_node(node: *mut Node<Native>) {
        // SAFETY: from `take_node`, and nobody uses it any more.
        unsafe { POOL.give(node) };
    }
}

impl Pool {
    fn stripe(&self) -> &Stripe {
        let here = 0u8;
        // Stacks are megabytes apart, frames within one stack much less than 64 KiB.
        let address = ptr::from_ref(&here).addr() >> 16;
        &self.stripes[(address.wrapping_mul(0x9E37_79B9) >> 7) % STRIPES]
    }

    fn node(&self, index: u32) -> *mut Node<Native> {
        let (chunk, offset) = (index as usize / CHUNK_NODES, index as usize % CHUNK_NODES);
        // SAFETY: an index is only made for a mapped chunk, and is within it.
        unsafe { self.chunks[chunk].load(Acquire).add(offset) }
    }

    fn take(&self) -> *mut Node<Native> {
        let first = self.stripe();
        let others = self.stripes.iter().filter(|&other| !ptr::eq(other, first));
        loop {
            // The own stripe, else a new chunk for it, else whatever another stripe has.
            let node = self
                .pop(first)
                .or_else(|| self.map(first))
                .or_else(|| others.clone().find_map(|stripe| self.pop(stripe)));
            match node {
                Some(node) => return node,
                // More threads wait than there is memory for: until one has done with its node.
                None => rustix::thread::sched_yield(),
            }
        }
    }

    /// # Safety
    ///
    /// `node` came from `take`, and nobody uses it any more.
    unsafe fn give(&self, node: *mut Node<Native>) {
        // SAFETY: a node of this pool; its index never changes.
        let index = unsafe { (*node).index };
        self.push(self.stripe(), index, index);
    }

    fn pop(&self, stripe: &Stripe) -> Option<*mut Node<Native>> {
        let mut head = stripe.0.load(Acquire);
        loop {
            let index = (head as u32).checked_sub(1)?;
            let node = self.node(index);
            // SAFETY: type-stable; if the node was popped meanwhile, the exchange below fails by its tag
            // (Invariant 1).
            let below = unsafe { &(*node).link }.load(Relaxed);
            let new = next_tag(head) | u64::from(below);
            match stripe.0.compare_exchange(head, new, AcqRel, Acquire) {
                Ok(_) => return Some(node),
                Err(now) => head = now,
            }
        }
    }

    /// Pushes the chain of nodes `first..=last`, linked already except for the last.
    fn push(&self, stripe: &Stripe, first: u32, last: u32) {
        let mut head = stripe.0.load(Relaxed);
        loop {
            // SAFETY: ours until pushed.
            unsafe { &(*self.node(last)).link }.store(head as u32, Relaxed);
            match stripe.0.compare_exchange(head, next_tag(head) | u64::from(first + 1), Release, Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Maps a chunk, gives one node to the caller and the others to `stripe`. `None` without
    /// memory.
    #[cold]
    fn map(&self, stripe: &Stripe) -> Option<*mut Node<Native>> {
        // SAFETY: a fresh anonymous mapping, at no address in particular.
        let page = unsafe {
            rustix::mm::mmap_anonymous(
                ptr::null_mut(),
                CHUNK_BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        let base = page.ok().or_else(|| RESERVE.take())?.cast::<Node<Native>>();
        let chunk = self.mapped.fetch_add(1, Relaxed);
        if chunk as usize >= CHUNKS {
            self.mapped.store(CHUNKS as u32, Relaxed);
            return None;
        }
        let first = chunk * CHUNK_NODES as u32;
        for offset in 0..CHUNK_NODES as u32 {
            // Each links to the one above it; the last is linked by the push.
            // SAFETY: within the mapping, and aligned: pages are, and the size of a node divides a page.
            unsafe { base.add(offset as usize).write(Node::detached(first + offset, first + offset + 2)) };
        }
        self.chunks[chunk as usize].store(base, Release);
        self.push(stripe, first + 1, first + CHUNK_NODES as u32 - 1);
        Some(base)
    }
}

fn next_tag(head: u64) -> u64 {
    (head >> 32).wrapping_add(1) << 32
}

/// Chunks for when the kernel gives none: a process at its memory limit goes on with its locks.
/// They cost nothing before: pages of zeroes that nobody touches.
#[repr(C, align(4096))]
struct Reserve {
    chunks: UnsafeCell<[[u8; CHUNK_BYTES]; RESERVED]>,
    taken: AtomicU32,
}

/// 512 waiters.
const RESERVED: usize = 8;

// SAFETY: each chunk is handed out once.
unsafe impl Sync for Reserve {}

static RESERVE: Reserve = Reserve { chunks: UnsafeCell::new([[0; CHUNK_BYTES]; RESERVED]), taken: AtomicU32::new(0) };

impl Reserve {
    fn take(&self) -> Option<*mut c_void> {
        let place = self.taken.fetch_update(Relaxed, Relaxed, |taken| (taken < RESERVED as u32).then_some(taken + 1));
        // SAFETY: within the array, and this caller's alone.
        place.ok().map(|place| unsafe { self.chunks.get().cast::<[u8; CHUNK_BYTES]>().add(place as usize).cast() })
    }
}
