//! A red-black tree in the simulated machine's memory (Guibas and Sedgewick, FOCS 1978; deletion as in Cormen et al.,
//! *Introduction to Algorithms*, chapter 13).
//!
//! A node has a cache line of its own. Parent and colour share a word, as in Linux' `rbtree`, which the Syncchar report
//! used: to colour a node is to write the word that says where it hangs.
//!
//! | part of a node | word |
//! | --- | --- |
//! | key | 0 |
//! | parent's number and colour | 1 |
//! | numbers of the left and the right child | 2, 3 |
//!
//! Every access is one of the simulated machine; nothing here locks.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;

use unconvoy::primitive::Atomic as _;

use crate::machine;
use crate::platform::SimulatedCell;
use crate::simulation::Simulation;

/// The number of no node.
const NIL: u32 = 0;
const RED: u32 = 1;

const LEFT: usize = 0;
const RIGHT: usize = 1;

/// What it takes to compare a key and to choose a child, beyond the accesses.
const VISIT_NS: u64 = 3;

/// Nothing while the tree is set up, before the machine runs.
fn visit() {
    if machine::is_inside() {
        machine::work(VISIT_NS);
    }
}

/// A node that is in no tree, or in one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeNumber(u32);

#[repr(C, align(64))]
struct Node {
    key: SimulatedCell<u32>,
    /// The parent's number, doubled, and the colour.
    up: SimulatedCell<u32>,
    children: [SimulatedCell<u32>; 2],
}

/// A tree of distinct keys, and nodes for it.
pub struct RedBlackTree {
    root: &'static SimulatedCell<u32>,
    /// From number 1.
    nodes: Vec<&'static Node>,
}

impl RedBlackTree {
    /// An empty tree, and `nodes` nodes that are not in it.
    pub fn new(simulation: &mut Simulation, nodes: u32) -> (Self, Vec<NodeNumber>) {
        let cell = || SimulatedCell::new(0);
        let node = |_| simulation.settle(Node { key: cell(), up: cell(), children: [cell(), cell()] });
        let tree = RedBlackTree { nodes: (0..nodes).map(node).collect(), root: simulation.settle(cell()) };
        (tree, (1..=nodes).map(NodeNumber).collect())
    }

    /// Inserts `key` with the node `spare`; false, and the node is not used, if the tree has the key.
    pub fn insert(&self, key: u32, spare: NodeNumber) -> bool {
        let (mut parent, mut side, mut place) = (NIL, LEFT, self.root.load(Relaxed));
        while place != NIL {
            visit();
            let other = self.node(place).key.load(Relaxed);
            if other == key {
                return false;
            }
            side = if key < other { LEFT } else { RIGHT };
            parent = place;
            place = self.child(place, side);
        }
        let new = self.node(spare.0);
        new.key.store(key, Relaxed);
        new.up.store(parent << 1 | RED, Relaxed);
        new.children.iter().for_each(|child| child.store(NIL, Relaxed));
        if parent == NIL {
            self.root.store(spare.0, Relaxed);
        } else {
            self.set_child(parent, side, spare.0);
        }
        self.mend_insertion(spare.0);
        true
    }

    /// Removes `key`; its node, if the tree had it.
    pub fn remove(&self, key: u32) -> Option<NodeNumber> {
        let mut place = self.root.load(Relaxed);
        while place != NIL {
            visit();
            let other = self.node(place).key.load(Relaxed);
            if other == key {
                self.unlink(place);
                return Some(NodeNumber(place));
            }
            place = self.child(place, if key < other { LEFT } else { RIGHT });
        }
        None
    }

    fn node(&self, number: u32) -> &'static Node {
        self.nodes[number as usize - 1]
    }

    fn child(&self, of: u32, side: usize) -> u32 {
        self.node(of).children[side].load(Relaxed)
    }

    fn set_child(&self, of: u32, side: usize, child: u32) {
        self.node(of).children[side].store(child, Relaxed);
    }

    fn parent(&self, of: u32) -> u32 {
        self.node(of).up.load(Relaxed) >> 1
    }

    fn set_parent(&self, of: u32, parent: u32) {
        let up = &self.node(of).up;
        up.store(up.load(Relaxed) & RED | parent << 1, Relaxed);
    }

    /// Nobody is black.
    fn is_red(&self, number: u32) -> bool {
        number != NIL && self.node(number).up.load(Relaxed) & RED != 0
    }

    /// Writes only what changes.
    fn colour(&self, number: u32, red: bool) {
        let up = &self.node(number).up;
        let before = up.load(Relaxed);
        let after = before & !RED | u32::from(red);
        if after != before {
            up.store(after, Relaxed);
        }
    }

    fn side_in(&self, parent: u32, of: u32) -> usize {
        if self.child(parent, LEFT) == of { LEFT } else { RIGHT }
    }

    /// `new` hangs where `old` did.
    fn replace(&self, parent: u32, old: u32, new: u32) {
        if parent == NIL {
            self.root.store(new, Relaxed);
        } else {
            self.set_child(parent, self.side_in(parent, old), new);
        }
        if new != NIL {
            self.set_parent(new, parent);
        }
    }

    /// `down` becomes the child, on `side`, of what was its child on the other side.
    fn rotate(&self, down: u32, side: usize) {
        let up = self.child(down, 1 - side);
        let middle = self.child(up, side);
        self.set_child(down, 1 - side, middle);
        if middle != NIL {
            self.set_parent(middle, down);
        }
        self.replace(self.parent(down), down, up);
        self.set_child(up, side, down);
        self.set_parent(down, up);
    }

    /// `number` is red, and so may its parent be.
    fn mend_insertion(&self, mut number: u32) {
        loop {
            let mut parent = self.parent(number);
            if parent == NIL {
                return self.colour(number, false);
            }
            if !self.is_red(parent) {
                return;
            }
            // Red, so it is not the root.
            let grandparent = self.parent(parent);
            let side = self.side_in(grandparent, parent);
            let uncle = self.child(grandparent, 1 - side);
            if self.is_red(uncle) {
                self.colour(parent, false);
                self.colour(uncle, false);
                self.colour(grandparent, true);
                number = grandparent;
                continue;
            }
            if self.side_in(parent, number) != side {
                self.rotate(parent, side);
                parent = number;
            }
            self.colour(parent, false);
            self.colour(grandparent, true);
            return self.rotate(grandparent, 1 - side);
        }
    }

    fn unlink(&self, number: u32) {
        let [left, right] = [LEFT, RIGHT].map(|side| self.child(number, side));
        let parent = self.parent(number);
        if left == NIL || right == NIL {
            let child = if left == NIL { right } else { left };
            let was_red = self.is_red(number);
            self.replace(parent, number, child);
            if !was_red {
                self.mend_removal(child, parent);
            }
            return;
        }
        let mut next = right;
        loop {
            visit();
            let further = self.child(next, LEFT);
            if further == NIL {
                break;
            }
            next = further;
        }
        let was_red = self.is_red(next);
        let child = self.child(next, RIGHT);
        let short = if next == right {
            next
        } else {
            let above = self.parent(next);
            self.replace(above, next, child);
            self.set_child(next, RIGHT, right);
            self.set_parent(right, next);
            above
        };
        self.replace(parent, number, next);
        self.set_child(next, LEFT, left);
        self.set_parent(left, next);
        self.colour(next, self.is_red(number));
        if !was_red {
            self.mend_removal(child, short);
        }
    }

    /// Paths through `number`, a child of `parent` and perhaps nobody, have one black node less than others.
    fn mend_removal(&self, mut number: u32, mut parent: u32) {
        while parent != NIL && !self.is_red(number) {
            let side = self.side_in(parent, number);
            let mut sibling = self.child(parent, 1 - side);
            if self.is_red(sibling) {
                self.colour(sibling, false);
                self.colour(parent, true);
                self.rotate(parent, side);
                sibling = self.child(parent, 1 - side);
            }
            let [near, far] = [side, 1 - side].map(|side| self.child(sibling, side));
            if !self.is_red(near) && !self.is_red(far) {
                self.colour(sibling, true);
                number = parent;
                parent = self.parent(number);
                continue;
            }
            if !self.is_red(far) {
                self.colour(near, false);
                self.colour(sibling, true);
                self.rotate(sibling, 1 - side);
                sibling = near;
            }
            self.colour(sibling, self.is_red(parent));
            self.colour(parent, false);
            self.colour(self.child(sibling, 1 - side), false);
            return self.rotate(parent, side);
        }
        if number != NIL {
            self.colour(number, false);
        }
    }

    /// The keys, in order. To be asked while no simulated thread runs, and none is in the middle of a change.
    ///
    /// # Errors
    ///
    /// What is wrong with the tree: keys out of order, a red node with a red parent, paths with different numbers of
    /// black nodes, a node that hangs elsewhere than it says.
    pub fn check(&self) -> Result<BTreeSet<u32>, String> {
        let root = self.root.load(Relaxed);
        if self.is_red(root) {
            return Err(format!("the root, {root}, is red"));
        }
        let mut keys = Vec::new();
        self.check_below(root, NIL, 0, &mut keys)?;
        if !keys.is_sorted_by(|one, next| one < next) {
            return Err(format!("out of order: {keys:?}"));
        }
        Ok(keys.into_iter().collect())
    }

    /// The number of black nodes on each path down from `number`.
    fn check_below(&self, number: u32, parent: u32, depth: usize, keys: &mut Vec<u32>) -> Result<u32, String> {
        if number == NIL {
            return Ok(0);
        }
        if depth > self.nodes.len() {
            return Err("it has a circle".to_string());
        }
        if self.parent(number) != parent {
            return Err(format!("{number} hangs below {parent}, and says {}", self.parent(number)));
        }
        if self.is_red(number) && self.is_red(parent) {
            return Err(format!("{number} and its parent {parent} are red"));
        }
        let left = self.check_below(self.child(number, LEFT), number, depth + 1, keys)?;
        keys.push(self.node(number).key.load(Relaxed));
        let right = self.check_below(self.child(number, RIGHT), number, depth + 1, keys)?;
        if left != right {
            return Err(format!("below {number} there are {left} black nodes on the left, {right} on the right"));
        }
        Ok(left + u32::from(!self.is_red(number)))
    }
}
