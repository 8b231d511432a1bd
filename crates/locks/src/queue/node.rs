//! The node of one waiter in one queue, and the source of such nodes.

use core::ptr;
use core::sync::atomic::Ordering::Relaxed;

use crate::primitive::{Atomic, Primitive};

pub(crate) const WAITING: u32 = 0;

/// One waiter in one queue, on a separate cache line.
#[repr(align(64))]
pub struct Node<P: Primitive> {
    pub(crate) status: P::U32,
    /// The node's index in the [pool](super::pool), and its free-list link while it is there.
    /// Unused by the queue and by machines without a pool.
    #[cfg_attr(loom, expect(dead_code))]
    pub(super) index: u32,
    #[cfg_attr(loom, expect(dead_code))]
    pub(super) link: P::U32,
    /// The node behind this one; under CLH, the node before an abandoned one.
    pub(crate) next: P::Ptr<Node<P>>,
    /// The node ahead of this one, in a list linked in both directions.
    pub(crate) previous: P::Ptr<Node<P>>,
    /// When the waiter last polled, by the machine's clock. For a holder, under some locks, when it
    /// acquired the lock; for a passive thread, when it became passive.
    pub(crate) published: P::U64,
    /// The process generation of the waiter.
    pub(crate) generation: P::U32,
}

impl<P: Primitive> Node<P> {
    /// A node in no queue; `index` and `link` belong to the pool.
    pub fn detached(index: u32, link: u32) -> Self {
        Node {
            status: P::U32::new(WAITING),
            index,
            link: P::U32::new(link),
            next: P::Ptr::new(ptr::null_mut()),
            previous: P::Ptr::new(ptr::null_mut()),
            published: P::U64::new(0),
            generation: P::U32::new(0),
        }
    }

    /// Whether the node's thread stayed in the parent of a `fork` and does not exist in this
    /// process. Also true of the forking thread's own node if it held the lock.
    pub(crate) fn was_left_behind(&self) -> bool {
        self.generation.load(Relaxed) != P::generation()
    }
}

/// A machine with memory for nodes.
pub trait NodeMemory: Primitive {
    /// Takes a node that no other thread has. Node memory is type-stable: it is never reused for
    /// anything but nodes.
    fn take_node() -> *mut Node<Self>;

    /// Returns a node.
    ///
    /// # Safety
    ///
    /// `node` came from [`take_node`](Self::take_node), and no queue and no thread will write to it
    /// again.
    unsafe fn give_node(node: *mut Node<Self>);
}
