//! Type-stable queue nodes: mapped in chunks of one page, never returned to the kernel, with free
//! nodes in striped stacks.
//!
//! A waiter may abandon its node in a queue for any thread to unlink and return. So nodes belong to
//! no thread, and thread exit needs no work. `malloc` is out of the question: its own lock may be
//! the contended one. The address of the caller's stack selects the stripe, so threads seldom share
//! one.
//!
//! **Invariant 1.** Every change of a stripe's head advances its tag, so an old value of the head
//! is never mistaken for a later one (ABA).
//!
//! **Memory orderings.** Pushes release and pops acquire the head, so a pop sees the link that was
//! written before the push.

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

/// One stack of free nodes: `tag << 32 | index + 1`, with 0 for the index part when empty.
#[repr(align(128))]
struct Stripe(AtomicU64);

struct Pool {
    stripes: [Stripe; STRIPES],
    chunks: [AtomicPtr<Node<Native>>; CHUNKS],
    mapped: AtomicU32,
}

static POOL: Pool = Pool::new();

impl NodeMemory for Native {
    fn take_node() -> *mut Node<Native> {
        POOL.take()
    }

    unsafe fn give_node(node: *mut Node<Native>) {
        // SAFETY: from `take_node`, and no longer in use.
        unsafe { POOL.give(node) };
    }
}

impl Pool {
    const fn new() -> Self {
        Pool {
            stripes: [const { Stripe(AtomicU64::new(0)) }; STRIPES],
            chunks: [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS],
            mapped: AtomicU32::new(0),
        }
    }

    fn stripe(&self) -> &Stripe {
        let here = 0u8;
        // Stacks are megabytes apart; frames within one stack are much closer than 64 KiB.
        let address = ptr::from_ref(&here).addr() >> 16;
        &self.stripes[(address.wrapping_mul(0x9E37_79B9) >> 7) % STRIPES]
    }

    fn node(&self, index: u32) -> *mut Node<Native> {
        let (chunk, offset) = (index as usize / CHUNK_NODES, index as usize % CHUNK_NODES);
        // SAFETY: indices exist only for mapped chunks, and lie within them.
        unsafe { self.chunks[chunk].load(Acquire).add(offset) }
    }

    fn take(&self) -> *mut Node<Native> {
        let first = self.stripe();
        let others = self.stripes.iter().filter(|&other| !ptr::eq(other, first));
        loop {
            // Another thread may have returned this thread's nodes, to its own stripe. So look in
            // the other stripes before a new chunk, or the pool would grow with every such return.
            let node = self
                .pop(first)
                .or_else(|| others.clone().find_map(|stripe| self.pop(stripe)))
                .or_else(|| self.map(first));
            match node {
                Some(node) => return node,
                // More threads wait than there is memory for. Retry until one returns its node.
                None => rustix::thread::sched_yield(),
            }
        }
    }

    /// # Safety
    ///
    /// `node` came from `take`, and is no longer in use.
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
            // SAFETY: type-stable; if the node was popped meanwhile, its tag makes the exchange
            // below fail (Invariant 1).
            let below = unsafe { &(*node).link }.load(Relaxed);
            let new = next_tag(head) | u64::from(below);
            match stripe.0.compare_exchange(head, new, AcqRel, Acquire) {
                Ok(_) => return Some(node),
                Err(now) => head = now,
            }
        }
    }

    /// Pushes the chain `first..=last`, already linked except for the last node.
    fn push(&self, stripe: &Stripe, first: u32, last: u32) {
        let mut head = stripe.0.load(Relaxed);
        loop {
            // SAFETY: ours until pushed.
            unsafe { &(*self.node(last)).link }.store(head as u32, Relaxed);
            match stripe.0.compare_exchange(
                head,
                next_tag(head) | u64::from(first + 1),
                Release,
                Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Maps a chunk, returns one of its nodes and pushes the others to `stripe`. `None` if memory
    /// is exhausted.
    #[cold]
    fn map(&self, stripe: &Stripe) -> Option<*mut Node<Native>> {
        if self.mapped.load(Relaxed) as usize >= CHUNKS {
            return None;
        }
        // SAFETY: a fresh anonymous mapping at an arbitrary address.
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
            // Each node links to the next; the push links the last.
            // SAFETY: within the mapping and aligned, since the size of a node divides a page.
            unsafe {
                base.add(offset as usize).write(Node::detached(first + offset, first + offset + 2))
            };
        }
        self.chunks[chunk as usize].store(base, Release);
        self.push(stripe, first + 1, first + CHUNK_NODES as u32 - 1);
        Some(base)
    }
}

fn next_tag(head: u64) -> u64 {
    (head >> 32).wrapping_add(1) << 32
}

/// Spare chunks, so that locks keep working in a process at its memory limit. Untouched zero pages
/// cost nothing.
#[repr(C, align(4096))]
struct Reserve {
    chunks: UnsafeCell<[[u8; CHUNK_BYTES]; RESERVED]>,
    taken: AtomicU32,
}

/// Number of spare chunks: nodes for 512 waiters.
const RESERVED: usize = 8;

// SAFETY: each chunk is handed out once.
unsafe impl Sync for Reserve {}

static RESERVE: Reserve = Reserve::new();

impl Reserve {
    const fn new() -> Self {
        let chunks = UnsafeCell::new([[0; CHUNK_BYTES]; RESERVED]);
        Reserve { chunks, taken: AtomicU32::new(0) }
    }

    fn take(&self) -> Option<*mut c_void> {
        let index = self
            .taken
            .fetch_update(Relaxed, Relaxed, |taken| (taken < RESERVED as u32).then_some(taken + 1));
        // SAFETY: within the array, and this caller's alone.
        index.ok().map(|index| unsafe {
            self.chunks.get().cast::<[u8; CHUNK_BYTES]>().add(index as usize).cast()
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    /// Waiters leave abandoned nodes to other threads, which return them.
    #[test]
    fn pool_does_not_grow_if_other_threads_return_the_nodes() {
        static POOL: Pool = Pool::new();
        const ROUNDS: usize = 32;
        std::thread::scope(|scope| {
            // At least one of these threads has another stripe than the thread that takes.
            for _ in 0..8 {
                let (send, receive) = sync_channel::<usize>(1);
                scope.spawn(move || {
                    for node in receive {
                        // SAFETY: taken below, and not in use.
                        unsafe { POOL.give(ptr::with_exposed_provenance_mut(node)) };
                    }
                });
                for _ in 0..ROUNDS * CHUNK_NODES {
                    send.send(POOL.take().expose_provenance()).expect("a receiver");
                }
            }
        });
        let mapped = POOL.mapped.load(Relaxed) as usize;
        assert!(mapped < ROUNDS, "{mapped} chunks");
    }

    #[test]
    fn reserve_hands_out_each_chunk_once() {
        static OWN: Reserve = Reserve::new();
        let mut chunks: Vec<usize> =
            std::iter::from_fn(|| OWN.take().map(<*mut _>::addr)).collect();
        chunks.dedup();
        assert_eq!(chunks.len(), RESERVED);
        assert!(OWN.take().is_none());
    }
}
