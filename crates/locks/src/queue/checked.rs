//! Nodes on the checked machine, where one that is used after it was given back is caught.

use std::collections::BTreeSet;
use std::sync::Mutex;

use super::node::{Node, NodeMemory};
use crate::primitive::Checked;

/// The addresses of the nodes that were taken and not given back.
static OUT: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// How many nodes were taken and not given back.
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
        assert!(OUT.lock().expect("no panics").remove(&node.addr()), "a node is given back once");
        // Freed for good, so that a use after it was given back is caught.
        // SAFETY: from `take_node`, and given back once.
        drop(unsafe { Box::from_raw(node) });
    }
}
