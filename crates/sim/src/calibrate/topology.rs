//! Grouping of this machine's processors, from `/sys/devices/system/cpu`.

use std::collections::BTreeSet;
use std::fs;

use rustix::thread::{CpuSet, sched_getaffinity};

use crate::parameters::{Count, Topology};

/// Numbers of two processors.
pub(super) type Two = (usize, usize);

/// Location of one processor.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Processor {
    number: usize,
    /// The kernel's lists of each group's members; equal texts denote equal groups.
    socket: String,
    cache: String,
    core: String,
}

/// The processors that this process may use.
#[derive(Debug)]
pub(super) struct Processors(Vec<Processor>);

fn read(processor: usize, name: &str) -> Option<String> {
    let path = format!("/sys/devices/system/cpu/cpu{processor}/{name}");
    fs::read_to_string(path).ok().map(|text| text.trim().to_string())
}

/// The list of processors behind the last-level cache of `processor`.
fn cache_of(processor: usize) -> Option<String> {
    let level = |index: &u32| {
        Some((read(processor, &format!("cache/index{index}/level"))?.parse::<u32>().ok()?, *index))
    };
    let (_, index) = (0..8).filter_map(|index| level(&index)).max()?;
    read(processor, &format!("cache/index{index}/shared_cpu_list"))
}

fn is_virtual() -> bool {
    fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.contains(" hypervisor"))
}

impl Processors {
    /// The processors of the process's affinity mask. A property that `/sys` lacks counts as equal
    /// for all processors.
    pub(super) fn of_this_machine() -> Self {
        let mask = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        let usable = (0..CpuSet::MAX_CPU).filter(|&number| mask.is_set(number));
        let place = |number: usize| {
            let socket = read(number, "topology/physical_package_id").unwrap_or_default();
            Processor {
                number,
                cache: cache_of(number).unwrap_or_else(|| socket.clone()),
                core: read(number, "topology/thread_siblings_list")
                    .unwrap_or_else(|| number.to_string()),
                socket,
            }
        };
        Processors(usable.map(place).collect())
    }

    /// The grouping, if all groups of a kind have the same size.
    pub(super) fn topology(&self) -> Option<Topology> {
        let groups =
            |of: fn(&Processor) -> &String| self.0.iter().map(of).collect::<BTreeSet<_>>().len();
        let sockets = groups(|processor| &processor.socket);
        let caches = groups(|processor| &processor.cache);
        let cores = groups(|processor| &processor.core);
        let part = |all: usize, of: usize| -> Option<Count> {
            let is_even = of > 0 && all.is_multiple_of(of);
            u32::try_from(all / of.max(1))
                .ok()
                .filter(|_| is_even)
                .and_then(|count| Count::try_from(count).ok())
        };
        Some(Topology {
            sockets: part(sockets, 1)?,
            caches_per_socket: part(caches, sockets)?,
            cores_per_cache: part(cores, caches)?,
            contexts_per_core: part(self.0.len(), cores)?,
        })
    }

    fn two(&self, of: impl Fn(&Processor, &Processor) -> bool) -> Option<Two> {
        let pairs = self.0.iter().flat_map(|left| self.0.iter().map(move |right| (left, right)));
        pairs
            .into_iter()
            .find(|(left, right)| left.number < right.number && of(left, right))
            .map(|(left, right)| (left.number, right.number))
    }

    pub(super) fn same_core(&self) -> Result<Two, &'static str> {
        self.two(|left, right| left.core == right.core).ok_or("no core has two contexts here")
    }

    /// Two contexts of one core. On a virtual machine, returns any two processors, because the
    /// hypervisor may hide that they share a core.
    pub(super) fn perhaps_same_core(&self) -> Result<Two, &'static str> {
        self.same_core().or_else(|_| {
            if is_virtual() { self.any_two() } else { Err("no core has two contexts here") }
        })
    }

    /// Two cores behind one last-level cache.
    pub(super) fn same_cache(&self) -> Result<Two, &'static str> {
        let found = self.two(|left, right| left.cache == right.cache && left.core != right.core);
        found.ok_or("no two cores share a cache here")
    }

    /// Two cores behind different caches of one socket.
    pub(super) fn same_socket(&self) -> Result<Two, &'static str> {
        let found =
            self.two(|left, right| left.socket == right.socket && left.cache != right.cache);
        found.ok_or("no socket has two last-level caches here")
    }

    pub(super) fn other_socket(&self) -> Result<Two, &'static str> {
        self.two(|left, right| left.socket != right.socket).ok_or("the machine has one socket")
    }

    pub(super) fn any_two(&self) -> Result<Two, &'static str> {
        self.two(|_, _| true).ok_or("the machine has one processor")
    }

    pub(super) fn first(&self) -> usize {
        self.0.first().map_or(0, |processor| processor.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn processors(places: &[(&str, &str, &str)]) -> Processors {
        let place = |(number, &(socket, cache, core)): (usize, &(&str, &str, &str))| Processor {
            number,
            socket: socket.to_string(),
            cache: cache.to_string(),
            core: core.to_string(),
        };
        Processors(places.iter().enumerate().map(place).collect())
    }

    #[test]
    fn topology_of_two_sockets_is_detected() {
        let places =
            [("0", "0-3", "0-1"), ("0", "0-3", "0-1"), ("0", "0-3", "2-3"), ("0", "0-3", "2-3")];
        let others =
            [("1", "4-7", "4-5"), ("1", "4-7", "4-5"), ("1", "4-7", "6-7"), ("1", "4-7", "6-7")];
        let processors = processors(&[places, others].concat());
        let topology = processors.topology().expect("even");
        assert_eq!((topology.contexts(), topology.cores(), *topology.caches_per_socket), (8, 4, 1));
        assert_eq!(processors.same_core(), Ok((0, 1)));
        assert_eq!(processors.same_cache(), Ok((0, 2)));
        assert_eq!(processors.other_socket(), Ok((0, 4)));
        assert!(processors.same_socket().is_err());
    }

    #[test]
    fn uneven_groups_give_no_topology() {
        assert!(
            processors(&[("0", "a", "0"), ("0", "a", "1"), ("1", "b", "2")]).topology().is_none()
        );
        assert!(processors(&[]).topology().is_none());
    }

    #[test]
    fn host_has_a_processor() {
        let here = Processors::of_this_machine();
        assert!(
            !here.0.is_empty() && here.0.iter().any(|processor| processor.number == here.first())
        );
    }
}
