//! The order of cores: neighbours in it share caches and memory, so that a set of the first ones spans as few nodes as
//! possible (the paper's "extra core id mapping layer", section 3.3).
//!
//! First by memory node, then by the last-level cache that processors share, then one thread of each core before the
//! second of any: the threads of one core take its units from each other.

use std::path::Path;

use anyhow::{Context, ensure};

/// Where one processor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    node: u32,
    /// The first processor that shares the last-level cache.
    cache: u32,
    /// Which thread of its core.
    thread: u32,
    core: u32,
    cpu: u32,
}

/// The processors that are online, in the order of cores. `sys` is `/sys/devices/system`.
///
/// # Errors
///
/// The kernel does not say which are online.
pub fn order(sys: &Path) -> anyhow::Result<Vec<u32>> {
    let online = sys.join("cpu/online");
    let text = std::fs::read_to_string(&online).with_context(|| format!("cannot read {}", online.display()))?;
    let mut places: Vec<_> = list(&text).into_iter().map(|cpu| place(sys, cpu)).collect();
    ensure!(!places.is_empty(), "{} names no processor", online.display());
    places.sort_unstable();
    Ok(places.into_iter().map(|place| place.cpu).collect())
}

/// What the kernel does not say is taken for the same everywhere, which leaves the processors' own order.
fn place(sys: &Path, cpu: u32) -> Place {
    let own = sys.join(format!("cpu/cpu{cpu}"));
    let first = |file: &str| std::fs::read_to_string(own.join(file)).ok().map(|text| list(&text));
    let siblings = first("topology/thread_siblings_list").unwrap_or_else(|| vec![cpu]);
    let thread = siblings.iter().position(|&sibling| sibling == cpu).unwrap_or(0) as u32;
    Place {
        node: node(&own).unwrap_or(0),
        cache: last_level(&own).unwrap_or(0),
        thread,
        core: siblings.first().copied().unwrap_or(cpu),
        cpu,
    }
}

/// A processor's directory has a link `nodeN`.
fn node(own: &Path) -> Option<u32> {
    let names = std::fs::read_dir(own).ok()?.flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.strip_prefix("node")?.parse().ok()).next()
}

/// The first of the processors that share the cache of the highest level.
fn last_level(own: &Path) -> Option<u32> {
    let caches = std::fs::read_dir(own.join("cache")).ok()?.flatten().map(|entry| entry.path());
    let level =
        |cache: &Path| -> Option<u32> { std::fs::read_to_string(cache.join("level")).ok()?.trim().parse().ok() };
    let highest = caches.filter_map(|cache| Some((level(&cache)?, cache))).max()?;
    list(&std::fs::read_to_string(highest.1.join("shared_cpu_list")).ok()?).first().copied()
}

/// The numbers of a list as the kernel writes it: `0-3,8`.
fn list(text: &str) -> Vec<u32> {
    let mut numbers = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse(), last.parse()) {
            numbers.extend::<std::ops::RangeInclusive<u32>>(first..=last);
        }
    }
    numbers
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
        for (cpu, node, shared, siblings) in cpus {
            write(format!("cpu/cpu{cpu}/node{node}/x"), "");
            write(format!("cpu/cpu{cpu}/cache/index0/level"), "1\n");
            write(format!("cpu/cpu{cpu}/cache/index0/shared_cpu_list"), siblings);
            write(format!("cpu/cpu{cpu}/cache/index3/level"), "3\n");
            write(format!("cpu/cpu{cpu}/cache/index3/shared_cpu_list"), shared);
            write(format!("cpu/cpu{cpu}/topology/thread_siblings_list"), siblings);
        }
        root
    }

    #[test]
    fn a_node_a_cache_a_core_come_before_the_next() {
        // Two nodes that take turns, as firmware numbers them at times; two threads a core.
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
        assert_eq!(order(machine.path()).unwrap(), [0, 2, 4, 6, 1, 3, 5, 7]);
    }

    #[test]
    fn without_knowledge_the_order_is_the_kernel_s() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("cpu")).unwrap();
        std::fs::write(root.path().join("cpu/online"), "0,2-4\n").unwrap();
        assert_eq!(order(root.path()).unwrap(), [0, 2, 3, 4]);
    }

    #[test]
    fn this_machine_has_an_order() {
        let mut cpus = order(Path::new("/sys/devices/system")).unwrap();
        cpus.sort_unstable();
        cpus.dedup();
        assert!(!cpus.is_empty());
    }
}
