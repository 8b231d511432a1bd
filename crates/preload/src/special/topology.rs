//! The order in which processors come into the special set: neighbours share caches and memory, so that a set of the first
//! few spans the fewest nodes (section 3.3, where the machine's own numbers are in such an order; else its "extra core id
//! mapping layer").
//!
//! Node by node; within one, last-level cache by last-level cache; within that, one processor of each core first, and then
//! their siblings: a core that runs two waiters runs neither at full speed, and is no nearer to the lock's cache line.

use std::fs;
use std::path::Path;

use super::mask::MAX;

/// Where a processor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    node: u16,
    /// The lowest processor that has the same last-level cache.
    cache: u16,
    /// How many processors of its core have lower numbers.
    sibling: u16,
    processor: u16,
}

/// The processors of this machine in order, offline ones last.
pub(super) fn read() -> Vec<u16> {
    read_from(Path::new("/sys/devices/system"))
}

fn read_from(system: &Path) -> Vec<u16> {
    let nodes: Vec<(u16, Vec<u16>)> = numbered(&system.join("node"), "node")
        .map(|node| (node, list(&system.join(format!("node/node{node}/cpulist")))))
        .collect();
    let mut places: Vec<Place> =
        numbered(&system.join("cpu"), "cpu").map(|processor| place(system, &nodes, processor)).collect();
    places.sort_unstable();
    places.into_iter().map(|place| place.processor).collect()
}

fn place(system: &Path, nodes: &[(u16, Vec<u16>)], processor: u16) -> Place {
    let directory = system.join(format!("cpu/cpu{processor}"));
    let siblings = list(&directory.join("topology/thread_siblings_list"));
    let node = nodes.iter().find(|(_, processors)| processors.contains(&processor)).map_or(0, |&(node, _)| node);
    if siblings.is_empty() && !directory.join("topology").is_dir() {
        return Place { node: u16::MAX, cache: u16::MAX, sibling: 0, processor }; // offline
    }
    Place {
        node,
        cache: last_level_cache(&directory).unwrap_or(0),
        sibling: siblings.iter().filter(|&&sibling| sibling < processor).count() as u16,
        processor,
    }
}

/// The lowest processor of those that share the last-level cache.
fn last_level_cache(processor: &Path) -> Option<u16> {
    numbered(&processor.join("cache"), "index")
        .filter_map(|index| {
            let cache = processor.join(format!("cache/index{index}"));
            let level: u32 = fs::read_to_string(cache.join("level")).ok()?.trim().parse().ok()?;
            Some((level, *list(&cache.join("shared_cpu_list")).first()?))
        })
        .max_by_key(|&(level, _)| level)
        .map(|(_, first)| first)
}

/// The numbers after `prefix` in the names of `directory`'s entries, that are nothing else.
fn numbered(directory: &Path, prefix: &'static str) -> impl Iterator<Item = u16> {
    fs::read_dir(directory)
        .into_iter()
        .flatten()
        .filter_map(move |entry| entry.ok()?.file_name().to_str()?.strip_prefix(prefix)?.parse().ok())
        .filter(|&number: &u16| usize::from(number) < MAX)
}

/// A list as the kernel writes it, such as `0-3,8`; empty if it cannot be read.
fn list(file: &Path) -> Vec<u16> {
    fs::read_to_string(file).map(|text| parse(text.trim())).unwrap_or_default()
}

fn parse(text: &str) -> Vec<u16> {
    text.split(',')
        .filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some(first.parse::<u16>().ok()?..=last.parse::<u16>().ok()?)
        })
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_the_kernels() {
        assert_eq!(parse("0-3,8,10-11"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(parse(""), [0u16; 0]);
    }

    /// Two nodes of two caches of two cores of two threads, numbered as firmware likes to: first all cores' first threads,
    /// alternating between the nodes. Processor 15 is offline.
    #[test]
    fn neighbours_first_and_siblings_after_cores() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let write = |path: String, text: String| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a file has a directory")).expect("a temporary directory");
            fs::write(path, text).expect("a temporary file");
        };
        let join = |cpus: Vec<u16>| cpus.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
        // Core c of 0 to 7 is on node c % 2, in the cache of the cores with the same c % 4; its threads are c and c + 8.
        for cpu in 0..15_u16 {
            let core = cpu % 8;
            write(format!("cpu/cpu{cpu}/topology/thread_siblings_list"), format!("{core},{}\n", core + 8));
            write(format!("cpu/cpu{cpu}/cache/index0/level"), "1\n".into());
            write(format!("cpu/cpu{cpu}/cache/index0/shared_cpu_list"), format!("{core},{}\n", core + 8));
            let group = core % 4;
            write(format!("cpu/cpu{cpu}/cache/index3/level"), "3\n".into());
            let shared = join(vec![group, group + 4, group + 8, group + 12]);
            write(format!("cpu/cpu{cpu}/cache/index3/shared_cpu_list"), shared);
        }
        write("cpu/cpu15/online".into(), "0\n".into());
        write("cpu/cpufreq/policy".into(), String::new());
        for node in 0..2 {
            write(format!("node/node{node}/cpulist"), join((0..15).filter(|cpu| cpu % 2 == node).collect()));
        }
        assert_eq!(read_from(root.path()), [0, 4, 8, 12, 2, 6, 10, 14, 1, 5, 9, 13, 3, 7, 11, 15]);
    }

    #[test]
    fn this_machine_has_an_order() {
        let order = read();
        if order.is_empty() {
            println!("skipped: /sys is not mounted here");
            return;
        }
        let mut sorted = order.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), order.len(), "{order:?}");
    }
}
