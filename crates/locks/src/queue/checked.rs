//! Nodes on the model-checked machine, which catches uses of a returned node.

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::node::{Node, NodeMemory};
use crate::primitive::Checked;

// Loom runs all threads of a model on the thread of its test.
std::thread_local! {
    /// Addresses of nodes that were taken and not yet returned.
    static OUT: RefCell<BTreeSet<usize>> = const { RefCell::new(BTreeSet::new()) };
}

/// Number of nodes that models of the calling thread have taken and not yet returned.
pub fn nodes_out() -> usize {
    OUT.with_borrow(BTreeSet::len)
}

impl NodeMemory for Checked {
    fn take_node() -> *mut Node<Checked> {
        let node = Box::into_raw(Box::new(Node::detached(0, 0)));
        OUT.with_borrow_mut(|out| out.insert(node.addr()));
        node
    }

    unsafe fn give_node(node: *mut Node<Checked>) {
        let was_out = OUT.with_borrow_mut(|out| out.remove(&node.addr()));
        assert!(was_out, "a node is returned at most once");
        // Freed for good, so that a later use is caught.
        // SAFETY: from `take_node`, and returned once.
        drop(unsafe { Box::from_raw(node) });
    }
}
