//! The graph of waits: the locks, their holders and waiters, and the cycles among them.

use std::collections::{BTreeMap, BTreeSet};

use unconvoy_profile::Kind;

/// A thread that waits for a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    pub thread: u32,
    pub lock: u64,
    pub is_shared: bool,
    /// When the wait began, if known.
    pub begin: Option<u64>,
    /// If that is unknown: how often the thread had slept ([`Subject::sleeps`]).
    ///
    /// [`Subject::sleeps`]: super::subject::Subject::sleeps
    pub sleeps: Option<u64>,
    pub manner: Manner,
    /// Whether the wait ended while it was read, so that its stack is unknown.
    pub has_ended: bool,
    /// Return addresses, innermost first.
    pub stack: Vec<u64>,
}

/// What a waiting thread does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// It polls, or runs, or is about to sleep.
    Polls,
    /// It sleeps at the lock until a release.
    Parked,
    /// It sleeps in a slot of load control.
    SleepsForLoad,
}

/// A thread that holds a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub thread: u32,
    /// Return address of the call that took the lock; 0 if unknown.
    pub place: u64,
}

/// What is known about a lock's holders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holders {
    /// All of them.
    Known(Vec<Holder>),
    /// The object names none.
    Unknown(Unknown),
    /// No thread holds the lock now.
    Free,
}

/// Why a holder is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// Readers are only counted.
    Readers(u32),
    /// Readers of a biased lock are not even counted in the object.
    Published,
    /// A writer that has just acquired the lock, or is releasing it, is not named in the object.
    Writer,
    /// A spin lock has no room for its holder.
    Spin,
    /// The object's memory cannot be read.
    Unreadable,
}

/// A lock that is waited for, or known to be held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    pub address: u64,
    pub kind: Kind,
    pub is_libcs: bool,
    /// Whether it may have readers that its word does not count.
    pub is_biased: bool,
    pub holders: Holders,
    /// Number of acquisitions so far, if the object counts them.
    pub acquisitions: Option<u32>,
}

/// All waits and the locks in them.
#[derive(Debug, Default)]
pub struct Graph {
    /// In the order in which the waits began; those without a time come last.
    pub waits: Vec<Wait>,
    pub locks: BTreeMap<u64, Lock>,
    /// Stacks of holders that wait for no lock, as far as they can be read.
    pub holders: BTreeMap<u32, Vec<u64>>,
}

/// A deadlock: each thread waits for a lock that the next one holds, and the last for one of the
/// first's. The numbers are indices of waits.
pub type Cycle = Vec<usize>;

impl Graph {
    /// The threads that hold the lock of a wait.
    fn holders(&self, wait: &Wait) -> impl Iterator<Item = u32> {
        let lock = self.locks.get(&wait.lock);
        let holders = lock.and_then(|lock| match &lock.holders {
            Holders::Known(holders) => Some(holders.as_slice()),
            _ => None,
        });
        holders.unwrap_or_default().iter().map(|holder| holder.thread)
    }

    /// The waits for a lock, in their order.
    pub fn waits_for(&self, lock: u64) -> impl Iterator<Item = (usize, &Wait)> {
        self.waits.iter().enumerate().filter(move |(_, wait)| wait.lock == lock)
    }

    /// The wait of a thread; the last one, if a signal handler waits inside of another wait.
    pub fn wait_of(&self, thread: u32) -> Option<usize> {
        self.waits.iter().rposition(|wait| wait.thread == thread)
    }

    /// All deadlocks, each once. A cycle begins with its wait that began first.
    pub fn cycles(&self) -> Vec<Cycle> {
        let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
        for start in 0..self.waits.len() {
            let mut path = vec![start];
            self.search(&mut path, &mut BTreeSet::new(), &mut |cycle| {
                let members: BTreeSet<usize> = cycle.iter().copied().collect();
                if seen.insert(members) {
                    found.push(cycle.to_vec());
                }
            });
        }
        found
    }

    /// Follows the holders' waits from the end of `path` back to its start.
    fn search(
        &self,
        path: &mut Vec<usize>,
        visited: &mut BTreeSet<usize>,
        found: &mut impl FnMut(&[usize]),
    ) {
        let last = path[path.len() - 1];
        for holder in self.holders(&self.waits[last]).collect::<Vec<_>>() {
            let Some(next) = self.wait_of(holder) else { continue };
            if next == path[0] {
                found(path);
            } else if next > path[0] && visited.insert(next) {
                // A cycle is found from its first wait, so earlier waits are not in it.
                path.push(next);
                self.search(path, visited, found);
                path.pop();
            }
        }
    }

    /// The known holders that wait for no lock.
    pub fn other_holders(&self) -> BTreeSet<u32> {
        let known = self.locks.values().filter_map(|lock| match &lock.holders {
            Holders::Known(holders) => Some(holders),
            _ => None,
        });
        let threads = known.flatten().map(|holder| holder.thread);
        threads.filter(|&thread| self.wait_of(thread).is_none()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A graph of waits `(thread, lock)` and holders `(lock, threads)`.
    fn graph(waits: &[(u32, u64)], held: &[(u64, &[u32])]) -> Graph {
        let wait = |(begin, &(thread, lock)): (usize, &(u32, u64))| Wait {
            thread,
            lock,
            is_shared: false,
            begin: Some(begin as u64),
            sleeps: None,
            manner: Manner::Parked,
            has_ended: false,
            stack: Vec::new(),
        };
        let lock = |&(address, threads): &(u64, &[u32])| {
            let holder = |&thread: &u32| Holder { thread, place: 0 };
            let holders = Holders::Known(threads.iter().map(holder).collect());
            let lock = Lock {
                address,
                kind: Kind::Mutex,
                is_libcs: false,
                is_biased: false,
                holders,
                acquisitions: None,
            };
            (address, lock)
        };
        let waits = waits.iter().enumerate().map(wait).collect();
        Graph { waits, locks: held.iter().map(lock).collect(), ..Graph::default() }
    }

    #[test]
    fn cycle_of_two_is_found_once() {
        let graph = graph(&[(1, 20), (2, 10), (3, 10)], &[(10, &[1]), (20, &[2])]);
        assert_eq!(graph.cycles(), [[0, 1]]);
    }

    #[test]
    fn cycle_of_three_follows_the_holders() {
        let held: &[(u64, &[u32])] = &[(10, &[1]), (20, &[2]), (30, &[3])];
        let graph = graph(&[(1, 20), (3, 10), (2, 30)], held);
        assert_eq!(graph.cycles(), [[0, 2, 1]]);
    }

    #[test]
    fn chain_without_return_is_no_cycle() {
        let graph = graph(&[(1, 20), (2, 30), (4, 20)], &[(20, &[2]), (30, &[3])]);
        assert!(graph.cycles().is_empty());
    }

    #[test]
    fn thread_that_waits_for_its_own_lock_is_a_cycle() {
        assert_eq!(graph(&[(1, 10)], &[(10, &[1])]).cycles(), [[0]]);
    }

    #[test]
    fn two_cycles_through_one_reader_lock_are_both_found() {
        let held: &[(u64, &[u32])] = &[(10, &[2, 3]), (20, &[1])];
        let graph = graph(&[(1, 10), (2, 20), (3, 20)], held);
        assert_eq!(graph.cycles(), [[0, 1], [0, 2]]);
    }
}
