//! An order of cores in which neighbours share caches and memory, so that the first cores span as
//! few nodes as possible. Section 3.3 calls it an "extra core id mapping layer".
//!
//! The order goes node by node, and within a node last-level cache by last-level cache. Within a
//! cache, the first hardware thread of each core precedes all second threads: a core that runs two
//! waiters runs neither at full speed, and another core of the same cache is just as close to the
//! lock's cache line.

/// Position of one processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The memory node.
    pub node: u32,
    /// First processor that shares the last-level cache.
    cache: u32,
    /// Index of the hardware thread within its core.
    thread: u32,
    core: u32,
    /// The kernel's number of the processor.
    pub cpu: u32,
}

/// The online processors in order, or none if they are unknown. `read` returns the text of a file
/// below `/sys/devices/system`. A property that cannot be read counts as equal for all processors;
/// if no property can be read, the order is the kernel's.
pub fn places(read: &impl Fn(&str) -> Option<String>) -> Vec<Place> {
    let nodes: Vec<(u32, Vec<u32>)> = list(read, "node/online")
        .into_iter()
        .map(|node| (node, list(read, &format!("node/node{node}/cpulist"))))
        .collect();
    let place = |cpu: u32| {
        let own = format!("cpu/cpu{cpu}");
        let siblings = list(read, &format!("{own}/topology/thread_siblings_list"));
        Place {
            node: nodes.iter().find(|(_, cpus)| cpus.contains(&cpu)).map_or(0, |&(node, _)| node),
            cache: last_level(read, &own).unwrap_or(0),
            thread: siblings.iter().position(|&sibling| sibling == cpu).unwrap_or(0) as u32,
            core: siblings.first().copied().unwrap_or(cpu),
            cpu,
        }
    };
    let mut places: Vec<Place> = list(read, "cpu/online").into_iter().map(place).collect();
    places.sort_unstable();
    places
}

/// First of the processors that share the highest-level cache.
fn last_level(read: &impl Fn(&str) -> Option<String>, cpu: &str) -> Option<u32> {
    let caches = (0..).map_while(|index| {
        let cache = format!("{cpu}/cache/index{index}");
        let level: u32 = read(&format!("{cache}/level"))?.trim().parse().ok()?;
        Some((level, list(read, &format!("{cache}/shared_cpu_list")).first().copied()))
    });
    caches.max_by_key(|&(level, _)| level)?.1
}

/// The numbers of a kernel list such as `0-3,8`; empty if the file cannot be read.
pub fn list(read: &impl Fn(&str) -> Option<String>, file: &str) -> Vec<u32> {
    let text = read(file).unwrap_or_default();
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<u32>().ok()?..=last.parse().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn order(files: &[(String, String)]) -> Vec<u32> {
        let files: HashMap<_, _> = files.iter().cloned().collect();
        places(&|file: &str| files.get(file).cloned()).iter().map(|place| place.cpu).collect()
    }

    #[test]
    fn kernel_lists_are_parsed() {
        let numbers = |text: &str| list(&|_: &str| Some(text.to_owned()), "cpu/online");
        assert_eq!(numbers("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(numbers(""), [0; 0]);
    }

    /// Two nodes of two caches of two cores of two threads, numbered as firmware often does: first
    /// all cores' first threads, alternating between the nodes. Processor 15 is offline.
    #[test]
    fn order_keeps_caches_together_and_siblings_last() {
        let join =
            |cpus: &[u32]| cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",") + "\n";
        let mut files =
            vec![("cpu/online".into(), "0-14\n".into()), ("node/online".into(), "0-1\n".into())];
        // Core c (0 to 7) is on node c % 2, shares its cache with the cores of equal c % 4, and has
        // the threads c and c + 8.
        for cpu in 0..15 {
            let (core, group, own) = (cpu % 8, cpu % 4, format!("cpu/cpu{cpu}"));
            let (siblings, shared) =
                (join(&[core, core + 8]), join(&[group, group + 4, group + 8, group + 12]));
            files.push((format!("{own}/topology/thread_siblings_list"), siblings.clone()));
            for (index, level, cpus) in [(0, "1\n", siblings), (1, "3\n", shared)] {
                files.push((format!("{own}/cache/index{index}/level"), level.into()));
                files.push((format!("{own}/cache/index{index}/shared_cpu_list"), cpus));
            }
        }
        for node in 0..2 {
            let cpus: Vec<u32> = (0..15).filter(|cpu| cpu % 2 == node).collect();
            files.push((format!("node/node{node}/cpulist"), join(&cpus)));
        }
        assert_eq!(order(&files), [0, 4, 8, 12, 2, 6, 10, 14, 1, 5, 9, 13, 3, 7, 11]);
    }

    #[test]
    fn order_without_topology_is_the_kernels() {
        assert_eq!(order(&[("cpu/online".into(), "0,2-4\n".into())]), [0, 2, 3, 4]);
        assert_eq!(order(&[]), [0; 0]);
    }
}
