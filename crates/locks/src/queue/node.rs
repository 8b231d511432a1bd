//! One waiter in one queue, and where such nodes come from.

use core::ptr;
use core::sync::atomic::Ordering::Relaxed;

use crate::primitive::{Atomic, Primitive};

pub(crate) const WAITING: u32 = 0;

/// One waiter in one queue, on a cache line of its own.
#[repr(align(64))]
pub struct Node<P: Primitive> {
    pub(crate) status: P::U32,
    /// Its place in the [pool](super::pool), and free-list link while it is there; of no meaning to
    /// the queue, nor to machines without a pool.
    #[cfg_attr(loom, expect(dead_code))]
    pub(super) index: u32,
    #[cfg_attr(loom, expect(dead_code))]
    pub(super) link: P::U32,
    /// The node behind this one; under CLH, the one before an abandoned node.
    pub(crate) next: P::Ptr<Node<P>>,
    /// When the waiter last polled, on the machine's clock; of a holder, under some locks, when it
    /// acquired the lock.
    pub(crate) published: P::U64,
    /// The process generation that the waiter belongs to.
    pub(crate) generation: P::U32,
}

impl<P: Primitive> Node<P> {
    /// A node that is in no queue; `index` and `link` are the pool's.
    pub fn detached(index: u32, link: u32) -> Self {
        Node {
            status: P::U32::new(WAITING),
            index,
            link: P::U32::new(link),
            next: P::Ptr::new(ptr::null_mut()),
            published: P::U64::new(0),
            generation: P::U32::new(0),
        }
    }

    /// Whether its thread does not exist in this process, the child of a `fork`; but for the
    /// holder's node, of the thread that forked.
    pub(crate) fn was_left_behind(&self) -> bool {
        self.generation.load(Relaxed) != P::generation()
    }
}

/// A machine that has memory for nodes.
pub trait NodeMemory: Primitive {
    /// A node that nobody else has. Node memory is type-stable: once a node, always a node.
    fn take_node() -> *mut Node<Self>;

    /// Takes a node back.
    ///
    /// # Safety
    ///
    /// `node` came from [`take_node`](Self::take_node), and no queue and no thread will write to it
    /// again.
    unsafe fn give_node(node: *mut Node<Self>);
}
