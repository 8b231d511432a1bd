//! A red-black tree in the simulated machine's memory (Guibas and Sedgewick, FOCS 1978; deletion as
//! in Cormen et al., *Introduction to Algorithms*, chapter 13).
//!
//! Each node has its own cache line. Parent and colour share a word, as in Linux' `rbtree`, which
//! the Syncchar report used. A change of colour therefore writes the word with the parent link.
//!
//! | part of a node | word |
//! | --- | --- |
//! | key | 0 |
//! | number of the parent, and colour | 1 |
//! | numbers of the left and the right child | 2, 3 |
//!
//! Every access goes to the simulated machine. The tree takes no locks.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;

use unconvoy::primitive::Atomic as _;

use crate::machine;
use crate::platform::SimulatedCell;
use crate::simulation::Simulation;

/// Stands for "no node".
const NIL: u32 = 0;
const RED: u32 = 1;

const LEFT: usize = 0;
const RIGHT: usize = 1;

/// Time to compare keys and choose a child, without the accesses.
const VISIT_NS: u64 = 3;

/// Spends the time of one visit; no time while the tree is built before the machine runs.
fn visit() {
    if machine::is_inside() {
        machine::work(VISIT_NS);
    }
}

/// Number of a node, whether or not the node is in a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeNumber(u32);

#[repr(C, align(64))]
struct Node {
    key: SimulatedCell<u32>,
    /// The parent's number times two, plus the colour.
    up: SimulatedCell<u32>,
    children: [SimulatedCell<u32>; 2],
}

/// A set of keys, with a pool of nodes.
pub struct RedBlackTree {
    root: &'static SimulatedCell<u32>,
    /// Nodes by number, from 1.
    nodes: Vec<&'static Node>,
}

impl RedBlackTree {
    /// Creates an empty tree, and `nodes` nodes outside it.
    pub fn new(simulation: &mut Simulation, nodes: u32) -> (Self, Vec<NodeNumber>) {
        let cell = || SimulatedCell::new(0);
        let node =
            |_| simulation.allocate(Node { key: cell(), up: cell(), children: [cell(), cell()] });
        let tree = RedBlackTree {
            nodes: (0..nodes).map(node).collect(),
            root: simulation.allocate(cell()),
        };
        (tree, (1..=nodes).map(NodeNumber).collect())
    }

    /// Inserts `key` in node `spare`. Returns false, and leaves the node unused, if the tree has
    /// the key.
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

    /// Removes `key` and returns its node, if the tree has the key.
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

    /// Missing nodes are black.
    fn is_red(&self, number: u32) -> bool {
        number != NIL && self.node(number).up.load(Relaxed) & RED != 0
    }

    /// Colours a node; writes only if the colour changes.
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

    /// Puts `new` in the position of `old` below `parent`.
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

    /// Rotates: `down` moves to `side` below its child on the other side.
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

    /// Restores the invariants after an insertion: `number` is red, and its parent may be.
    fn mend_insertion(&self, mut number: u32) {
        loop {
            let mut parent = self.parent(number);
            if parent == NIL {
                return self.colour(number, false);
            }
            if !self.is_red(parent) {
                return;
            }
            // The parent is red, and therefore not the root.
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

    /// Restores the invariants after a removal: paths through `number`, a child of `parent` or
    /// missing, have one black node too few.
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

    /// Checks the invariants and returns the keys in order. Call it only while no simulated thread
    /// runs or is in the middle of a change.
    ///
    /// # Errors
    ///
    /// Describes the violation: keys out of order, a red node with a red parent, paths with
    /// different numbers of black nodes, or a wrong parent link.
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

    /// Checks a subtree and returns the number of black nodes on each path down from `number`.
    fn check_below(
        &self,
        number: u32,
        parent: u32,
        depth: usize,
        keys: &mut Vec<u32>,
    ) -> Result<u32, String> {
        if number == NIL {
            return Ok(0);
        }
        if depth > self.nodes.len() {
            return Err("the tree has a cycle".to_string());
        }
        if self.parent(number) != parent {
            return Err(format!(
                "node {number} is a child of {parent}, but its parent link says {}",
                self.parent(number)
            ));
        }
        if self.is_red(number) && self.is_red(parent) {
            return Err(format!("node {number} and its parent {parent} are both red"));
        }
        let left = self.check_below(self.child(number, LEFT), number, depth + 1, keys)?;
        keys.push(self.node(number).key.load(Relaxed));
        let right = self.check_below(self.child(number, RIGHT), number, depth + 1, keys)?;
        if left != right {
            return Err(format!(
                "paths below node {number} have {left} black nodes on the left and {right} on the \
                 right"
            ));
        }
        Ok(left + u32::from(!self.is_red(number)))
    }
}
