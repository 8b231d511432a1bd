//! Reads a kernel's BTF type information (Documentation/bpf/btf.rst), as far as the plug-in's
//! offsets need it.

use std::collections::HashMap;

/// See the [module](self).
pub struct Types {
    kinds: Vec<Kind>,
    structures: HashMap<String, u32>,
}

enum Kind {
    /// Bytes; name, type and byte offset of each member.
    Structure(u32, Vec<(String, u32, u32)>),
    /// A typedef or a qualified type.
    Same(u32),
    Other,
}

impl Types {
    /// Parses `/sys/kernel/btf/vmlinux`.
    pub fn read(bytes: &[u8]) -> Option<Types> {
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let base = word(4)? as usize;
        let (mut at, length) = (base + word(8)? as usize, word(12)? as usize);
        let (end, strings) = (at + length, base + word(16)? as usize);
        let string = |offset: u32| {
            let text = bytes.get(strings + offset as usize..)?;
            let end = text.iter().position(|byte| *byte == 0)?;
            Some(String::from_utf8_lossy(&text[..end]).into_owned())
        };
        let (mut kinds, mut structures) = (vec![Kind::Other], HashMap::new());
        while at < end {
            let (name, information, size) = (string(word(at)?)?, word(at + 4)?, word(at + 8)?);
            let count = information as usize & 0xffff;
            at += 12;
            let (kind, bytes) = match information >> 24 & 0x1f {
                4 | 5 => {
                    let mask = if information >> 31 == 1 { 0xff_ffff } else { u32::MAX };
                    let member = |index: usize| {
                        let at = at + 12 * index;
                        Some((string(word(at)?)?, word(at + 4)?, (word(at + 8)? & mask) / 8))
                    };
                    let members = (0..count).map(member).collect::<Option<Vec<_>>>()?;
                    structures.entry(name).or_insert(kinds.len() as u32);
                    (Kind::Structure(size, members), 12 * count)
                }
                8..=11 | 18 => (Kind::Same(size), 0),
                1 | 14 | 17 => (Kind::Other, 4),
                3 => (Kind::Other, 12),
                6 | 13 => (Kind::Other, 8 * count),
                15 | 19 => (Kind::Other, 12 * count),
                _ => (Kind::Other, 0),
            };
            kinds.push(kind);
            at += bytes;
        }
        Some(Types { kinds, structures })
    }

    fn member(&self, mut number: u32, name: &str) -> Option<u32> {
        while let Kind::Same(other) = self.kinds.get(number as usize)? {
            number = *other;
        }
        let Kind::Structure(_, members) = &self.kinds[number as usize] else { return None };
        members.iter().find_map(|(other, kind, offset)| match other.as_str() {
            "" => Some(offset + self.member(*kind, name)?),
            other => (other == name).then_some(*offset),
        })
    }

    /// The text of the plug-in's file of offsets.
    pub fn offsets(&self) -> Option<String> {
        let member =
            |structure: &str, name: &str| self.member(*self.structures.get(structure)?, name);
        let size =
            |structure: &str| match self.kinds.get(*self.structures.get(structure)? as usize)? {
                Kind::Structure(size, _) => Some(*size),
                _ => None,
            };
        let head = member("page", "compound_head").or_else(|| member("page", "compound_info"))?;
        let mut text = format!("sizeof_page={}\ncompound_head={head}\n", size("page")?);
        text += &format!(
            "slab_cache={}\nsizeof_pglist_data={}\n",
            member("slab", "slab_cache")?,
            size("pglist_data")?
        );
        for name in ["name", "size", "object_size", "list"] {
            text += &format!("kmem_cache_{name}={}\n", member("kmem_cache", name)?);
        }
        Some(text)
    }
}
