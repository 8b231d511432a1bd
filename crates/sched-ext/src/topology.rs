//! Processors in the order of cores ([`unconvoy_sched::topology`]), and memory nodes, which are
//! contiguous in this order.

use std::ops::Range;
use std::path::Path;

use crate::messages;
use anyhow::ensure;
use unconvoy_sched::topology::{Place, list, places};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// The kernel's numbers of the processors, in the order of cores.
    pub order: Vec<u32>,
    /// The memory nodes with processors, in the same order.
    pub nodes: Vec<Node>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub number: u32,
    /// Places of its processors in the order of cores.
    pub places: Range<usize>,
    /// Indices of all nodes by distance, starting with itself.
    pub near: Vec<usize>,
}

/// Reads the topology from `sys`, normally `/sys/devices/system`. Processors of nodes beyond
/// `most_nodes` join the last node.
///
/// # Errors
///
/// The kernel does not list the online processors.
pub fn topology(sys: &Path, most_nodes: usize) -> anyhow::Result<Topology> {
    let read = |file: &str| std::fs::read_to_string(sys.join(file)).ok();
    let places = places(&read);
    ensure!(!places.is_empty(), messages::no_processors(&sys.join("cpu/online")));
    Ok(Topology {
        nodes: nodes(&read, &places, most_nodes),
        order: places.iter().map(|place| place.cpu).collect(),
    })
}

fn nodes(read: &impl Fn(&str) -> Option<String>, places: &[Place], most: usize) -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::new();
    for (index, place) in places.iter().enumerate() {
        let is_full = nodes.len() == most;
        match nodes.last_mut() {
            Some(last) if last.number == place.node || is_full => last.places.end = index + 1,
            _ => {
                nodes.push(Node { number: place.node, places: index..index + 1, near: Vec::new() })
            }
        }
    }
    let numbers: Vec<u32> = nodes.iter().map(|node| node.number).collect();
    for (own, node) in nodes.iter_mut().enumerate() {
        let distances = distances(read, node.number);
        node.near = (0..numbers.len()).collect();
        // Break ties differently for each node, so that not all nodes prefer the same one.
        node.near.sort_by_key(|&other| {
            let distance = distances
                .iter()
                .find(|(number, _)| *number == numbers[other])
                .map_or(0, |known| known.1);
            (other != own, distance, (other + numbers.len() - own) % numbers.len())
        });
    }
    nodes
}

/// Distances from the node `from` to all online nodes, with their numbers.
fn distances(read: &impl Fn(&str) -> Option<String>, from: u32) -> Vec<(u32, u32)> {
    let distances = read(&format!("node/node{from}/distance")).unwrap_or_default();
    let distances = distances.split_whitespace().filter_map(|distance| distance.parse().ok());
    list(read, "node/online").into_iter().zip(distances).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(cpus: &[(u32, u32, &str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let write = |path: String, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("cpu/online".into(), &format!("0-{}\n", cpus.len() - 1));
        let mut nodes = std::collections::BTreeMap::<_, Vec<_>>::new();
        for (cpu, node, shared, siblings) in cpus {
            nodes.entry(node).or_default().push(cpu.to_string());
            write(format!("cpu/cpu{cpu}/cache/index0/level"), "1\n");
            write(format!("cpu/cpu{cpu}/cache/index0/shared_cpu_list"), siblings);
            write(format!("cpu/cpu{cpu}/cache/index1/level"), "3\n");
            write(format!("cpu/cpu{cpu}/cache/index1/shared_cpu_list"), shared);
            write(format!("cpu/cpu{cpu}/topology/thread_siblings_list"), siblings);
        }
        for (node, cpus) in &nodes {
            write(format!("node/node{node}/cpulist"), &cpus.join(","));
        }
        let numbers: Vec<_> = nodes.keys().map(ToString::to_string).collect();
        write("node/online".into(), &numbers.join(","));
        root
    }

    #[test]
    fn order_goes_by_node_then_cache_then_core() {
        // Two nodes with alternating numbers, as some firmware assigns them; two threads per core.
        let machine = machine(&[
            (0, 0, "0,2,4,6", "0,4"),
            (1, 1, "1,3,5,7", "1,5"),
            (2, 0, "0,2,4,6", "2,6"),
            (3, 1, "1,3,5,7", "3,7"),
            (4, 0, "0,2,4,6", "0,4"),
            (5, 1, "1,3,5,7", "1,5"),
            (6, 0, "0,2,4,6", "2,6"),
            (7, 1, "1,3,5,7", "3,7"),
        ]);
        let Topology { order, nodes } = topology(machine.path(), 64).unwrap();
        assert_eq!(order, [0, 2, 4, 6, 1, 3, 5, 7]);
        assert_eq!(
            nodes.iter().map(|node| (node.number, node.places.clone())).collect::<Vec<_>>(),
            [(0, 0..4), (1, 4..8)]
        );
    }

    #[test]
    fn near_nodes_are_sorted_by_distance() {
        let machine =
            machine(&[(0, 0, "0", "0"), (1, 2, "1", "1"), (2, 3, "2", "2"), (3, 5, "3", "3")]);
        let write = |path: &str, text: &str| {
            let path = machine.path().join("node").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let near = |most| -> Vec<Vec<usize>> {
            topology(machine.path(), most)
                .unwrap()
                .nodes
                .into_iter()
                .map(|node| node.near)
                .collect()
        };
        assert_eq!(
            near(64),
            [[0, 1, 2, 3], [1, 2, 3, 0], [2, 3, 0, 1], [3, 0, 1, 2]],
            "distances are unknown"
        );
        // Node 4 has memory but no processors.
        write("online", "0,2-5\n");
        write("node0/distance", "10 32 21 12 32\n");
        write("node2/distance", "32 10 32 12 21\n");
        write("node3/distance", "21 32 10 12 32\n");
        write("node5/distance", "32 21 32 12 10\n");
        assert_eq!(near(64), [[0, 2, 1, 3], [1, 3, 2, 0], [2, 0, 3, 1], [3, 1, 0, 2]]);
        let folded = topology(machine.path(), 2).unwrap().nodes;
        assert_eq!(folded.iter().map(|node| node.places.clone()).collect::<Vec<_>>(), [0..1, 1..4]);
    }

    #[test]
    fn order_without_topology_is_the_kernels() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("cpu")).unwrap();
        std::fs::write(root.path().join("cpu/online"), "0,2-4\n").unwrap();
        let Topology { order, nodes } = topology(root.path(), 64).unwrap();
        assert_eq!(order, [0, 2, 3, 4]);
        assert_eq!(nodes, [Node { number: 0, places: 0..4, near: vec![0] }]);
    }

    #[test]
    fn real_machine_has_an_order() {
        let mut cpus = topology(Path::new("/sys/devices/system"), 64).unwrap().order;
        cpus.sort_unstable();
        cpus.dedup();
        assert!(!cpus.is_empty());
    }
}
