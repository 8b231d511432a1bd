//! Names of kernel addresses: a variable, a processor's copy of a per-CPU variable, a member of a
//! slab object, or a page descriptor.

use std::ops::Range;

use super::btf::Btf;
use super::symbols::Symbols;
use crate::predict::trace::Object;

/// Addresses of page descriptors on x86-64 with four levels of page tables and without KASLR
/// (Documentation/arch/x86/x86_64/mm.rst in the kernel's source).
const PAGE_DESCRIPTORS: std::ops::Range<u64> = 0xffff_ea00_0000_0000..0xffff_eb00_0000_0000;

/// Caches that are not named after their structures, with those structures. A structure is used
/// only if its size fits the object's.
const CACHES: [(&str, &str); 17] = [
    ("filp", "file"),
    ("sock_inode_cache", "socket_alloc"),
    ("proc_inode_cache", "proc_inode"),
    ("ext4_inode_cache", "ext4_inode_info"),
    ("shmem_inode_cache", "shmem_inode_info"),
    ("hugetlbfs_inode_cache", "hugetlbfs_inode_info"),
    ("bdev_cache", "bdev_inode"),
    ("files_cache", "files_struct"),
    ("fs_cache", "fs_struct"),
    ("sighand_cache", "sighand_struct"),
    ("signal_cache", "signal_struct"),
    ("cred_jar", "cred"),
    ("mnt_cache", "mount"),
    ("radix_tree_node", "xa_node"),
    ("skbuff_head_cache", "sk_buff"),
    ("jbd2_journal_head", "journal_head"),
    ("page->ptl", "spinlock"),
];
/// Size of a large object, in bytes. Few structures of this size or more have equal sizes.
const LARGE: u64 = 4096;
/// Suffixes that turn a structure's name into a cache's.
const SUFFIXES: [&str; 6] = ["", "_cache", "_cachep", "_node_cache", "_slab", "_pool"];

/// Sources of names.
pub struct Memory<'a> {
    /// The kernel's symbols.
    pub symbols: &'a Symbols,
    /// The kernel's types, if it has BTF.
    pub btf: Option<&'a Btf>,
    /// Offset from per-CPU variables to each processor's copies.
    pub per_cpu: &'a [u64],
}

impl Memory<'_> {
    /// Names the variable at an address, and the processor if it is a per-CPU copy.
    pub fn variable(&self, address: u64, wants_lock: bool) -> Option<Name> {
        let Range { start: first, end: last } = self.symbols.per_cpu();
        if first < last {
            for (processor, apart) in self.per_cpu.iter().enumerate() {
                let own = address.wrapping_sub(*apart);
                if (first..last).contains(&own) {
                    let mut name = self.static_variable(own, wants_lock)?;
                    name.processor = Some(processor);
                    return Some(name);
                }
                // Dynamic per-CPU memory follows the variables.
                if (last..first + self.unit()).contains(&own) {
                    let member = format!("per-CPU memory+{:#x}", own - first);
                    return Some(Name { processor: Some(processor), ..Name::of(member) });
                }
            }
        }
        self.static_variable(address, wants_lock)
    }

    /// Returns an upper bound on the size of a processor's per-CPU area: the smallest distance
    /// between two areas.
    fn unit(&self) -> u64 {
        let apart = |pair: &[u64]| pair[1].abs_diff(pair[0]);
        self.per_cpu.windows(2).map(apart).min().unwrap_or(0)
    }

    fn static_variable(&self, address: u64, wants_lock: bool) -> Option<Name> {
        let (symbol, offset) = self.symbols.at(address).filter(|(symbol, _)| !symbol.is_code)?;
        let member = self.btf.and_then(|btf| {
            // BTF has types of per-CPU variables only. Another variable may be named after its
            // structure (`rcu_state`).
            let fits = |btf: &Btf| {
                let size = btf.size(&symbol.name).map_or(0, u64::from);
                size > offset && self.symbols.room(symbol.address).is_some_and(|room| size <= room)
            };
            let named =
                || fits(btf).then(|| btf.member(&symbol.name, offset, wants_lock)).flatten();
            btf.variable(&symbol.name, offset, wants_lock).or_else(named)
        });
        Some(match member.filter(|(path, _)| !path.is_empty()) {
            Some((path, _)) => Name::of(joined(&symbol.name, &path)),
            None => Name { offset, ..Name::of(symbol.name.clone()) },
        })
    }

    /// Names a page descriptor's member; with `wants_lock`, the lock of a page table's descriptor.
    pub fn page(&self, address: u64, wants_lock: bool) -> Option<Name> {
        if !PAGE_DESCRIPTORS.contains(&address) {
            return None;
        }
        let (size, structure) = match (self.btf?.size("page")?, wants_lock) {
            (size, true) if self.btf?.size("ptdesc").is_some() => (size, "ptdesc"),
            (size, _) => (size, "page"),
        };
        let path = self.btf?.member(structure, address % u64::from(size.max(1)), wants_lock)?.0;
        Some(Name::of(joined(structure, &path)))
    }

    /// Names an object's member, or else the cache and the offset. `taken` is the function that
    /// took the lock at the address: its parameters identify the structure of objects in caches
    /// such as `kmalloc-2k`.
    pub fn member(
        &self,
        object: &Object,
        address: u64,
        wants_lock: bool,
        taken: Option<&str>,
    ) -> Name {
        let offset = address - object.address;
        let path = self.structure(object, offset, taken).and_then(|structure| {
            let (path, is_lock) = self.btf?.member(&structure, offset, wants_lock)?;
            (!path.is_empty() && (is_lock || !wants_lock)).then(|| joined(&structure, &path))
        });
        Name::of(path.unwrap_or_else(|| match offset {
            0 => object.cache.clone(),
            _ => format!("{}+{offset:#x}", object.cache),
        }))
    }

    fn structure(&self, object: &Object, offset: u64, taken: Option<&str>) -> Option<String> {
        let btf = self.btf?;
        let fits = |structure: &str| {
            let size = btf.size(structure).map_or(0, u64::from);
            // Objects may be larger or smaller than their structure, for example with a variable
            // tail.
            size > 0 && (object.size == 0 || object.size <= 2 * size && size <= 2 * object.size)
        };
        if let Some((_, structure)) = CACHES.iter().find(|(cache, _)| *cache == object.cache) {
            return Some((*structure).to_string()).filter(|structure| fits(structure));
        }
        for suffix in SUFFIXES {
            let stem = object.cache.strip_suffix(suffix);
            for name in stem.into_iter().flat_map(|stem| {
                [stem.to_string(), format!("{stem}_struct"), format!("{stem}_info")]
            }) {
                if fits(&name) {
                    return Some(name);
                }
            }
        }
        // The cache does not name the structure (`kmalloc-2k`). Choose the only structure that is a
        // parameter of the locking function, fits, and has a lock at the offset. For a large object
        // without such a parameter, choose the only structure of exactly the object's size.
        let mut candidates = btf.takes(taken?);
        candidates.retain(|structure| {
            let size = btf.size(structure).map_or(0, u64::from);
            size <= object.size
                && btf.member(structure, offset, true).is_some_and(|(_, is_lock)| is_lock)
        });
        candidates.dedup();
        if candidates.is_empty() && object.size >= LARGE {
            candidates = btf.structures_of(object.size, offset);
        }
        (candidates.len() == 1).then(|| candidates.remove(0))
    }
}

/// The name of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// Variable or structure, and the member's path.
    pub member: String,
    /// Offset into the variable, if its type is unknown.
    pub offset: u64,
    /// The processor that owns the copy.
    pub processor: Option<usize>,
}

impl Name {
    /// Names something that is not per-CPU.
    pub fn of(member: String) -> Self {
        Self { member, offset: 0, processor: None }
    }

    /// Returns the name of the class: without processor, array indices, and offset into a variable
    /// of unknown type.
    pub fn class(&self) -> String {
        let mut class = String::with_capacity(self.member.len());
        for (index, part) in self.member.split('[').enumerate() {
            match part.split_once(']') {
                Some((_, rest)) if index > 0 => class.extend(["[]", rest]),
                _ => class.push_str(part),
            }
        }
        class
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(&self.member)?;
        if self.offset > 0 {
            write!(to, "+{:#x}", self.offset)?;
        }
        match self.processor {
            Some(processor) => write!(to, " of processor {processor}"),
            None => Ok(()),
        }
    }
}

fn joined(structure: &str, path: &str) -> String {
    match path.starts_with('[') {
        true => format!("{structure}{path}"),
        false => format!("{structure}.{path}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::btf::tests::example;
    use super::*;

    const SYMBOLS: &[u8] = b"\
ffffffff81000000 T take
ffffffff82000000 D zones_lock
ffffffff82000008 D zone
ffffffff82000010 D other
ffffffff83000000 D __per_cpu_start
ffffffff83000000 D queues
ffffffff83000010 D cursor
ffffffff83000020 D __per_cpu_end
";

    fn object(cache: &str, size: u64) -> Object {
        Object { address: 0xffff_8880_0000_1000, size, cache: cache.into() }
    }

    #[test]
    fn variable_names_member_and_processor() {
        let (symbols, btf) = (Symbols::parse(SYMBOLS), Btf::parse(&example()).unwrap());
        let memory = Memory { symbols: &symbols, btf: Some(&btf), per_cpu: &[0x1000, 0x2000] };
        let name = |address: u64| memory.variable(address, true).map(|name| name.to_string());
        assert_eq!(name(0xffff_ffff_8200_0000).unwrap(), "zones_lock");
        assert_eq!(name(0xffff_ffff_8200_0004).unwrap(), "zones_lock+0x4");
        assert_eq!(name(0xffff_ffff_8300_2004).unwrap(), "queues.lock of processor 1");
        assert_eq!(name(0xffff_ffff_8300_2030).unwrap(), "per-CPU memory+0x30 of processor 1");
        assert_eq!(
            name(0xffff_ffff_8200_000c).unwrap(),
            "zone.lock",
            "a variable named after its structure"
        );
        assert_eq!(name(0xffff_ffff_8100_0000), None, "code");
        assert_eq!(name(0xffff_8880_0000_0000), None);
    }

    #[test]
    fn class_drops_processor_offset_and_indices() {
        assert_eq!(
            Name { processor: Some(3), offset: 8, ..Name::of("bases[1].lock".into()) }.class(),
            "bases[].lock"
        );
        assert_eq!(Name::of("a[12].b[3]".into()).class(), "a[].b[]");
        assert_eq!(Name::of("dentry.d_lockref".into()).class(), "dentry.d_lockref");
    }

    #[test]
    fn member_finds_structure_by_cache_name_or_function() {
        let (symbols, btf) = (Symbols::parse(SYMBOLS), Btf::parse(&example()).unwrap());
        let memory = Memory { symbols: &symbols, btf: Some(&btf), per_cpu: &[] };
        let name = |object: &Object, offset, taken| {
            memory.member(object, object.address + offset, true, taken).member
        };
        assert_eq!(name(&object("dentry", 32), 8, None), "dentry.d_lockref");
        assert_eq!(name(&object("dentry_cache", 40), 8, None), "dentry.d_lockref");
        assert_eq!(name(&object("dentry", 128), 8, None), "dentry+0x8", "a size that does not fit");
        assert_eq!(name(&object("kmalloc-32", 32), 8, None), "kmalloc-32+0x8");
        assert_eq!(name(&object("kmalloc-32", 32), 8, Some("take")), "dentry.d_lockref");
        assert_eq!(name(&object("kmalloc-32", 32), 0, Some("take")), "kmalloc-32");
        assert_eq!(
            memory.member(&object("dentry", 32), 0xffff_8880_0000_1000, false, None).member,
            "dentry.flags"
        );
    }
}
