//! The hash table of `unconvoy bench hashtable`, with the same lists. The cost of an operation
//! follows from the depth of its key in the list, and from the lines that other cores have changed.
//!
//! The lists are in host memory, so that a walk costs the simulator little. The table tracks which
//! cores have seen each line of nodes since its last write. Only lines that must be transferred are
//! accessed in the simulated machine. [`calibrate`](crate::calibrate) measures an operation on the
//! same lists without a machine.

use std::cell::Cell;
use std::ptr;

use super::guarded::Guarded;
use crate::machine::{self, Lines};
use crate::pair::Lock;
use crate::simulation::Simulation;

/// The program's defaults: number of keys and buckets, Zipf's exponent, shift of the hot set.
pub(crate) const KEYS: u32 = 10_000;
const BUCKETS: u32 = 100;
pub(crate) const THETA: f64 = 0.99;
const SHIFT_NS: u64 = 250_000_000;
const REMOVES: u64 = 25;
const WRITES: u64 = 50;

/// Bytes of a node: key, value and pointer.
const NODE: usize = 24;

/// Zipf-distributed ranks by the alias method (Walker 1977, Vose 1991), as in the program's
/// `zipf.h`.
pub(crate) struct Zipf {
    /// For each column, the share of its own rank, and the rank that has the rest.
    columns: Vec<(f64, u32)>,
}

impl Zipf {
    pub(crate) fn new(count: u32, theta: f64) -> Self {
        let mut own: Vec<f64> =
            (0..count).map(|rank| (f64::from(rank) + 1.0).powf(-theta)).collect();
        let sum: f64 = own.iter().rev().sum();
        own.iter_mut().for_each(|share| *share *= f64::from(count) / sum);
        let (mut low, mut high): (Vec<u32>, Vec<u32>) =
            (0..count).partition(|&rank| own[rank as usize] < 1.0);
        let mut alias: Vec<u32> = (0..count).collect();
        while let (Some(small), Some(large)) = (low.pop(), high.pop()) {
            alias[small as usize] = large;
            own[large as usize] -= 1.0 - own[small as usize];
            if own[large as usize] < 1.0 { &mut low } else { &mut high }.push(large);
        }
        Zipf { columns: own.into_iter().zip(alias).collect() }
    }

    pub(crate) fn next(&self, random: &mut fastrand::Rng) -> u32 {
        let place = random.f64() * self.columns.len() as f64;
        let column = place as u32;
        let (own, alias) = self.columns[column as usize];
        if place - f64::from(column) < own { column } else { alias }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Get,
    Insert,
    Remove,
}

impl Operation {
    pub(crate) fn draw(random: &mut fastrand::Rng) -> Self {
        match random.u64(0..100) {
            part if part < REMOVES => Operation::Remove,
            part if part < WRITES => Operation::Insert,
            _ => Operation::Get,
        }
    }
}

/// Location of a link to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    /// The bucket.
    First,
    /// The node of this key.
    After(u32),
}

/// An observer of an operation's accesses.
pub(crate) trait Touch {
    fn visit(&mut self, key: u32);
    fn write(&mut self, key: u32);
    fn write_bucket(&mut self);
}

/// Counts the nodes read.
pub(crate) struct Visits(pub(crate) u64);

impl Touch for Visits {
    fn visit(&mut self, _: u32) {
        self.0 += 1;
    }
    fn write(&mut self, _: u32) {}
    fn write_bucket(&mut self) {}
}

struct Node {
    key: u64,
    value: Cell<u64>,
    /// Null at the end of a list.
    next: Cell<*const Node>,
}

pub(crate) struct Lists {
    /// Nodes by key, in a list or not. The array never moves or shrinks, because pointers point
    /// into it.
    nodes: Box<[Node]>,
    first: Vec<Cell<*const Node>>,
}

/// The correct value of a key.
fn value_of(key: u32) -> u64 {
    let mixed = (u64::from(key) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^ mixed >> 31
}

impl Lists {
    /// Creates lists with every other key.
    pub(crate) fn new() -> Self {
        let node = |key| Node { key, value: Cell::new(0), next: Cell::new(ptr::null()) };
        let lists = Lists {
            nodes: (0..u64::from(KEYS)).map(node).collect(),
            first: (0..BUCKETS).map(|_| Cell::new(ptr::null())).collect(),
        };
        for key in (0..KEYS).step_by(2) {
            lists.push(key);
        }
        lists
    }

    pub(crate) fn bucket_of(key: u32) -> usize {
        (key * BUCKETS / KEYS) as usize
    }

    fn push(&self, key: u32) {
        let (node, first) = (&self.nodes[key as usize], &self.first[Self::bucket_of(key)]);
        node.value.set(value_of(key));
        node.next.set(first.replace(node));
    }

    fn find(&self, key: u32, touch: &mut impl Touch) -> (Link, Option<&Node>) {
        let mut link = Link::First;
        let mut place = self.first[Self::bucket_of(key)].get();
        // SAFETY: null, or one of the nodes, which live as long as the lists.
        while let Some(node) = unsafe { place.as_ref() } {
            touch.visit(node.key as u32);
            if node.key == u64::from(key) {
                return (link, Some(node));
            }
            link = Link::After(node.key as u32);
            place = node.next.get();
        }
        (link, None)
    }

    /// Depth of a key in its list, if it is there.
    pub(crate) fn depth(&self, key: u32) -> Option<u64> {
        let mut visits = Visits(0);
        let (_, found) = self.find(key, &mut visits);
        found.map(|_| visits.0)
    }

    /// Executes an operation and returns whether the key was there.
    ///
    /// # Panics
    ///
    /// Panics if a key has a wrong value, because two threads were in its bucket at the same time.
    pub(crate) fn operate(&self, operation: Operation, key: u32, touch: &mut impl Touch) -> bool {
        let (link, found) = self.find(key, touch);
        match (operation, found) {
            (Operation::Get, Some(node)) => {
                assert_eq!(
                    node.value.get(),
                    value_of(key),
                    "two threads were in one critical section"
                )
            }
            (Operation::Insert, Some(node)) => {
                touch.write(key);
                node.value.set(value_of(key));
            }
            (Operation::Insert, None) => {
                touch.write(key);
                touch.write_bucket();
                self.push(key);
            }
            (Operation::Remove, Some(node)) => {
                let next = node.next.get();
                match link {
                    Link::First => {
                        touch.write_bucket();
                        self.first[Self::bucket_of(key)].set(next);
                    }
                    Link::After(before) => {
                        touch.write(before);
                        self.nodes[before as usize].next.set(next);
                    }
                }
            }
            (Operation::Get | Operation::Remove, None) => {}
        }
        found.is_some()
    }
}

/// Calibrated costs of an operation, in picoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Costs {
    pub(super) outside_ps: u64,
    pub(super) section_ps: u64,
    pub(super) visit_ps: u64,
    pub(super) call_ps: u64,
}

/// The hash table on a simulated machine.
pub(super) struct Table {
    lists: Lists,
    zipf: Zipf,
    lines: Lines,
    /// For each line of nodes, one bit per core that has seen its last write.
    seen: Vec<Cell<u64>>,
    seed: u64,
}

impl Table {
    pub(super) fn new(simulation: &mut Simulation, seed: u64) -> Self {
        let bytes = KEYS as usize * NODE;
        let lines = simulation.lines(bytes);
        let seen = (0..lines.count()).map(|_| Cell::new(0)).collect();
        Table { lists: Lists::new(), zipf: Zipf::new(KEYS, THETA), lines, seen, seed }
    }

    fn hot_offset(&self) -> u32 {
        let shift = machine::time() / SHIFT_NS;
        fastrand::Rng::with_seed(self.seed ^ shift << 32).u32(0..KEYS)
    }

    /// Executes one operation under the lock of its bucket.
    pub(super) fn operation(&self, random: &mut fastrand::Rng, locks: &[Guarded], costs: Costs) {
        let key = (self.zipf.next(random) + self.hot_offset()) % KEYS;
        let operation = Operation::draw(random);
        machine::work_ps(costs.outside_ps + costs.call_ps / 2);
        let lock = locks[Lists::bucket_of(key)].lock;
        lock.lock();
        machine::load(lock.address());
        machine::work_ps(costs.section_ps + costs.call_ps / 2);
        let mut touch = Simulated { table: self, lock, visits: 0, core: machine::core() };
        self.lists.operate(operation, key, &mut touch);
        machine::work_ps(touch.visits * costs.visit_ps);
        lock.unlock();
    }
}

/// Accesses the machine's memory for an operation.
struct Simulated<'a> {
    table: &'a Table,
    lock: Lock,
    visits: u64,
    core: usize,
}

impl Simulated<'_> {
    fn line(key: u32) -> usize {
        key as usize * NODE / 64
    }

    /// Cores above the 64th have no bit, so that all of their accesses go to the machine.
    fn bit(&self) -> u64 {
        1_u64.checked_shl(self.core as u32).unwrap_or(0)
    }
}

impl Touch for Simulated<'_> {
    fn visit(&mut self, key: u32) {
        self.visits += 1;
        let line = Self::line(key);
        let seen = &self.table.seen[line];
        // A transaction must read every line that it depends on.
        if seen.get() & self.bit() == 0 || machine::in_transaction() {
            machine::load(self.table.lines.address(line));
            seen.set(seen.get() | self.bit());
        }
    }

    fn write(&mut self, key: u32) {
        let line = Self::line(key);
        let (seen, bit) = (self.table.seen[line].replace(self.bit()), self.bit());
        if bit == 0 || seen != bit || machine::in_transaction() {
            machine::store(self.table.lines.address(line));
        }
    }

    fn write_bucket(&mut self) {
        machine::store(self.lock.address());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_stays_half_full() {
        let (lists, zipf, mut random) =
            (Lists::new(), Zipf::new(KEYS, THETA), fastrand::Rng::with_seed(1));
        for _ in 0..200_000 {
            let key = zipf.next(&mut random);
            lists.operate(Operation::draw(&mut random), key, &mut Visits(0));
        }
        let there = (0..KEYS).filter(|&key| lists.depth(key).is_some()).count();
        assert!((4_000..6_000).contains(&there), "{there}");
    }

    #[test]
    fn ranks_follow_zipfs_law() {
        let (zipf, mut random) = (Zipf::new(1000, 1.0), fastrand::Rng::with_seed(1));
        let mut counts = [0_u32; 1000];
        (0..1_000_000).for_each(|_| counts[zipf.next(&mut random) as usize] += 1);
        let first = f64::from(counts[0]);
        for (rank, parts) in [(1, 2.0), (9, 10.0), (99, 100.0)] {
            let ratio = first / f64::from(counts[rank]) / parts;
            assert!((0.9..1.1).contains(&ratio), "rank {rank}: {ratio}");
        }
    }
}
