//! Nodes on the model-checked machine, which catches uses of a returned node.

use std::collections::BTreeSet;
use std::sync::Mutex;

use super::node::{Node, NodeMemory};
use crate::primitive::Checked;

/// Addresses of nodes that were taken and not yet returned.
static OUT: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// Number of nodes that were taken and not yet returned.
pub fn nodes_out() -> usize {
    OUT.lock().expect("no panics").len()
}

impl NodeMemory for Checked {
    fn take_node() -> *mut Node<Checked> {
        let node = Box::into_raw(Box::new(Node::detached(0, 0)));
        OUT.lock().expect("no panics").insert(node.addr());
        node
    }

    unsafe fn give_node(node: *mut Node<Checked>) {
        assert!(
            OUT.lock().expect("no panics").remove(&node.addr()),
            "a node is returned at most once"
        );
        // Freed for good, so that a later use is caught.
        // SAFETY: from `take_node`, and returned once.
        drop(unsafe { Box::from_raw(node) });
    }
}
