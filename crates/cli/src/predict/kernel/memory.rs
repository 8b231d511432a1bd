//! What a kernel address is: a variable, a processor's copy of one, an object of a slab cache with the member at that place, the descriptor of a page.

use super::btf::Btf;
use super::symbols::Symbols;
use crate::predict::trace::Object;

/// Where x86-64 with four levels of page tables, and without randomised addresses, has the descriptors of pages (Documentation/arch/x86/x86_64/mm.rst in the kernel's source).
const PAGE_DESCRIPTORS: std::ops::Range<u64> = 0xffff_ea00_0000_0000..0xffff_eb00_0000_0000;

/// The structure in the objects of a cache whose name says little. Each is checked against the object's size before it is believed.
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
/// Structures of exactly so many bytes are few.
const LARGE: u64 = 4096;
/// What is appended to a structure's name to make a cache's.
const SUFFIXES: [&str; 6] = ["", "_cache", "_cachep", "_node_cache", "_slab", "_pool"];

/// What names need of a kernel.
pub struct Memory<'a> {
    /// Its symbols.
    pub symbols: &'a Symbols,
    /// Its types, if it tells them.
    pub btf: Option<&'a Btf>,
    /// What each processor's copies of per-CPU variables are apart from the variables themselves.
    pub per_cpu: &'a [u64],
}

impl Memory<'_> {
    /// A variable's name, and the processor whose copy it is; nothing for what is in none.
    pub fn variable(&self, address: u64, wants_lock: bool) -> Option<Name> {
        let first = self.symbols.address("__per_cpu_start");
        let last = self.symbols.address("__per_cpu_end");
        if let (Some(first), Some(last)) = (first, last) {
            for (processor, apart) in self.per_cpu.iter().enumerate() {
                let own = address.wrapping_sub(*apart);
                if (first..last).contains(&own) {
                    let mut name = self.static_variable(own, wants_lock)?;
                    name.processor = Some(processor);
                    return Some(name);
                }
                // Behind the variables there is what is allocated for each processor.
                if (last..first + self.unit()).contains(&own) {
                    let member = format!("per-CPU memory+{:#x}", own - first);
                    return Some(Name { processor: Some(processor), ..Name::of(member) });
                }
            }
        }
        self.static_variable(address, wants_lock)
    }

    /// Bytes of a processor's copies: not more than from one processor's to the next one's.
    fn unit(&self) -> u64 {
        let apart = |pair: &[u64]| pair[1].abs_diff(pair[0]);
        self.per_cpu.windows(2).map(apart).min().unwrap_or(0)
    }

    fn static_variable(&self, address: u64, wants_lock: bool) -> Option<Name> {
        let (symbol, offset) = self.symbols.at(address).filter(|(symbol, _)| !symbol.is_code)?;
        let member = self.btf.and_then(|btf| {
            // Only per-CPU variables have a type there; others may be called as their structure is (`rcu_state`).
            let fits = |btf: &Btf| {
                let size = btf.size(&symbol.name).map_or(0, u64::from);
                size > offset && self.symbols.room(symbol.address).is_some_and(|room| size <= room)
            };
            let named = || fits(btf).then(|| btf.member(&symbol.name, offset, wants_lock)).flatten();
            btf.variable(&symbol.name, offset, wants_lock).or_else(named)
        });
        Some(match member.filter(|(path, _)| !path.is_empty()) {
            Some((path, _)) => Name::of(joined(&symbol.name, &path)),
            None => Name { offset, ..Name::of(symbol.name.clone()) },
        })
    }

    /// The descriptor of a page: of one that holds a page table, the lock of that table.
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

    /// The member of an object, or the cache and the offset. `taken` is the function that took the lock there, if it is one: what it is given tells the structure of an object whose
    /// cache has any of a size.
    pub fn member(&self, object: &Object, address: u64, wants_lock: bool, taken: Option<&str>) -> Name {
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
            // Some objects have a tail that their structure does not tell, or lack one that it does.
            size > 0 && (object.size == 0 || object.size <= 2 * size && size <= 2 * object.size)
        };
        if let Some((_, structure)) = CACHES.iter().find(|(cache, _)| *cache == object.cache) {
            return Some((*structure).to_string()).filter(|structure| fits(structure));
        }
        for suffix in SUFFIXES {
            let stem = object.cache.strip_suffix(suffix);
            for name in
                stem.into_iter().flat_map(|stem| [stem.to_string(), format!("{stem}_struct"), format!("{stem}_info")])
            {
                if fits(&name) {
                    return Some(name);
                }
            }
        }
        // Of `kmalloc-2k`, say: the one structure that the taking function is given, has that size, and has a lock there; of large ones, the only one that has exactly that size.
        let mut candidates = btf.takes(taken?);
        candidates.retain(|structure| {
            let size = btf.size(structure).map_or(0, u64::from);
            size <= object.size && btf.member(structure, offset, true).is_some_and(|(_, is_lock)| is_lock)
        });
        candidates.dedup();
        if candidates.is_empty() && object.size >= LARGE {
            candidates = btf.structures_of(object.size, offset);
        }
        (candidates.len() == 1).then(|| candidates.remove(0))
    }
}

/// What something is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// Variable or structure, and what of it.
    pub member: String,
    /// How far into the variable, where its type is not known.
    pub offset: u64,
    /// The processor whose copy it is.
    pub processor: Option<usize>,
}

impl Name {
    /// Of what every processor has, or there is only one of.
    pub fn of(member: String) -> Self {
        Self { member, offset: 0, processor: None }
    }

    /// The same for all of its kind: those of other processors, the other elements of an array, and of a variable without a type, wherever in it they are.
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
    fn variables_and_copies_of_them() {
        let (symbols, btf) = (Symbols::parse(SYMBOLS), Btf::parse(&example()).unwrap());
        let memory = Memory { symbols: &symbols, btf: Some(&btf), per_cpu: &[0x1000, 0x2000] };
        let name = |address: u64| memory.variable(address, true).map(|name| name.to_string());
        assert_eq!(name(0xffff_ffff_8200_0000).unwrap(), "zones_lock");
        assert_eq!(name(0xffff_ffff_8200_0004).unwrap(), "zones_lock+0x4");
        assert_eq!(name(0xffff_ffff_8300_2004).unwrap(), "queues.lock of processor 1");
        assert_eq!(name(0xffff_ffff_8300_2030).unwrap(), "per-CPU memory+0x30 of processor 1");
        assert_eq!(name(0xffff_ffff_8200_000c).unwrap(), "zone.lock", "called as its structure");
        assert_eq!(name(0xffff_ffff_8100_0000), None, "code");
        assert_eq!(name(0xffff_8880_0000_0000), None);
    }

    #[test]
    fn kinds() {
        assert_eq!(Name { processor: Some(3), offset: 8, ..Name::of("bases[1].lock".into()) }.class(), "bases[].lock");
        assert_eq!(Name::of("a[12].b[3]".into()).class(), "a[].b[]");
        assert_eq!(Name::of("dentry.d_lockref".into()).class(), "dentry.d_lockref");
    }

    #[test]
    fn objects_of_caches_that_are_named_for_a_structure() {
        let (symbols, btf) = (Symbols::parse(SYMBOLS), Btf::parse(&example()).unwrap());
        let memory = Memory { symbols: &symbols, btf: Some(&btf), per_cpu: &[] };
        let name = |object: &Object, offset, taken| memory.member(object, object.address + offset, true, taken).member;
        assert_eq!(name(&object("dentry", 32), 8, None), "dentry.d_lockref");
        assert_eq!(name(&object("dentry_cache", 40), 8, None), "dentry.d_lockref");
        assert_eq!(name(&object("dentry", 128), 8, None), "dentry+0x8", "of another size");
        assert_eq!(name(&object("kmalloc-32", 32), 8, None), "kmalloc-32+0x8");
        assert_eq!(name(&object("kmalloc-32", 32), 8, Some("take")), "dentry.d_lockref");
        assert_eq!(name(&object("kmalloc-32", 32), 0, Some("take")), "kmalloc-32");
        assert_eq!(memory.member(&object("dentry", 32), 0xffff_8880_0000_1000, false, None).member, "dentry.flags");
    }
}
