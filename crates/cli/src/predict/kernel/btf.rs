//! A reader of the kernel's type information (BTF, Documentation/bpf/btf.rst in the kernel's
//! source), as far as names need it: structures, their members, and functions' parameters.

use std::collections::HashMap;

const MAGIC: u16 = 0xeb9f;

/// Deepest nesting followed, so that a malformed file cannot cause endless recursion.
const DEEPEST: u32 = 32;

/// Lock types, and types whose only notable member is a lock. The path of a member ends at these
/// types.
const LOCKS: [&str; 9] = [
    "spinlock",
    "spinlock_t",
    "raw_spinlock",
    "raw_spinlock_t",
    "qspinlock",
    "rwlock_t",
    "qrwlock",
    "lockref",
    "seqlock_t",
];

/// All types of a kernel.
#[derive(Debug, Default)]
pub struct Btf {
    types: Vec<Type>,
    strings: Vec<u8>,
    structures: HashMap<String, u32>,
    functions: HashMap<String, u32>,
    variables: HashMap<String, u32>,
}

#[derive(Debug, Clone)]
enum Type {
    /// A type of this size in bytes without members.
    Plain(u32),
    Pointer(u32),
    Array {
        of: u32,
        length: u32,
    },
    Structure {
        name: u32,
        size: u32,
        members: Vec<Member>,
        is_union: bool,
    },
    /// Another name for a type, or a qualifier.
    Alias {
        name: u32,
        of: u32,
    },
    /// Parameter types of a function.
    Prototype(Vec<u32>),
}

#[derive(Debug, Clone, Copy)]
struct Member {
    name: u32,
    of: u32,
    /// Offset in bytes; for a bit field, that of the byte where it begins.
    offset: u32,
}

/// Reads consecutive numbers.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn next(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*number))
    }

    fn skip(&mut self, numbers: usize) -> Option<()> {
        self.0 = self.0.get(4 * numbers..)?;
        Some(())
    }
}

impl Btf {
    /// Parses `/sys/kernel/btf/vmlinux`; `None` if the format is unknown.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        if u16::from_le_bytes(*bytes.first_chunk::<2>()?) != MAGIC {
            return None;
        }
        let mut head = Cursor(bytes.get(4..)?);
        let length = head.next()? as usize;
        let (types, types_length) = (head.next()? as usize, head.next()? as usize);
        let (strings, strings_length) = (head.next()? as usize, head.next()? as usize);
        let section =
            |from: usize, size: usize| bytes.get(length.checked_add(from)?..)?.get(..size);
        let mut btf =
            Self { strings: section(strings, strings_length)?.to_vec(), ..Self::default() };
        // Type 0 is void.
        btf.types.push(Type::Plain(0));
        let mut cursor = Cursor(section(types, types_length)?);
        while !cursor.0.is_empty() {
            btf.read(&mut cursor)?;
        }
        Some(btf)
    }

    fn read(&mut self, cursor: &mut Cursor) -> Option<()> {
        let (name, information, size_or_type) = (cursor.next()?, cursor.next()?, cursor.next()?);
        let (length, kind) = ((information & 0xffff) as usize, information >> 24 & 0x1f);
        let has_bit_fields = information >> 31 == 1;
        let number = u32::try_from(self.types.len()).ok()?;
        let read = match kind {
            // An integer and its encoding.
            1 => cursor.skip(1).map(|()| Type::Plain(size_or_type))?,
            2 => Type::Pointer(size_or_type),
            3 => {
                let (of, _index, length) = (cursor.next()?, cursor.next()?, cursor.next()?);
                Type::Array { of, length }
            }
            4 | 5 => {
                let mut members = Vec::with_capacity(length);
                for _ in 0..length {
                    let (name, of, bits) = (cursor.next()?, cursor.next()?, cursor.next()?);
                    let bits = if has_bit_fields { bits & 0xff_ffff } else { bits };
                    members.push(Member { name, of, offset: bits / 8 });
                }
                // Several files may define structures of one name; keep the first.
                let text = self.text(name);
                if !text.is_empty() {
                    self.structures.entry(text).or_insert(number);
                }
                Type::Structure { name, size: size_or_type, members, is_union: kind == 5 }
            }
            6 => cursor.skip(2 * length).map(|()| Type::Plain(size_or_type))?,
            // A forward declaration without a definition.
            7 => Type::Plain(0),
            8..=11 | 18 => Type::Alias { name, of: size_or_type },
            12 => {
                self.functions.entry(self.text(name)).or_insert(size_or_type);
                Type::Plain(0)
            }
            13 => {
                let mut takes = Vec::with_capacity(length);
                for _ in 0..length {
                    let (_name, of) = (cursor.next()?, cursor.next()?);
                    takes.push(of);
                }
                Type::Prototype(takes)
            }
            14 => {
                cursor.skip(1)?;
                self.variables.entry(self.text(name)).or_insert(size_or_type);
                Type::Plain(0)
            }
            15 => cursor.skip(3 * length).map(|()| Type::Plain(size_or_type))?,
            16 => Type::Plain(size_or_type),
            17 => cursor.skip(1).map(|()| Type::Plain(0))?,
            19 => cursor.skip(3 * length).map(|()| Type::Plain(size_or_type))?,
            _ => return None,
        };
        self.types.push(read);
        Some(())
    }

    fn text(&self, offset: u32) -> String {
        let text = self.strings.get(offset as usize..).unwrap_or_default();
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(0);
        String::from_utf8_lossy(&text[..end]).into_owned()
    }

    /// Removes a type's aliases and returns the last name among them.
    fn resolved(&self, mut number: u32) -> (u32, Option<String>) {
        let mut named = None;
        for _ in 0..DEEPEST {
            match self.types.get(number as usize) {
                Some(Type::Alias { name, of }) => {
                    named = Some(self.text(*name)).filter(|text| !text.is_empty()).or(named);
                    number = *of;
                }
                Some(Type::Structure { name, .. }) => {
                    return (
                        number,
                        Some(self.text(*name)).filter(|text| !text.is_empty()).or(named),
                    );
                }
                _ => break,
            }
        }
        (number, named)
    }

    /// Returns a type's size in bytes, as far as names need it.
    fn size_of(&self, number: u32, depth: u32) -> u32 {
        let (number, _) = self.resolved(number);
        match self.types.get(number as usize) {
            Some(Type::Plain(size) | Type::Structure { size, .. }) => *size,
            Some(Type::Pointer(_)) => 8,
            Some(Type::Array { of, length }) if depth < DEEPEST => {
                self.size_of(*of, depth + 1).saturating_mul(*length)
            }
            _ => 0,
        }
    }

    /// Returns a structure's size in bytes.
    pub fn size(&self, structure: &str) -> Option<u32> {
        let number = *self.structures.get(structure)?;
        Some(self.size_of(number, 0)).filter(|size| *size > 0)
    }

    /// Returns a member's offset in a structure, in bytes. Members of anonymous structures inside
    /// it count as its own.
    pub fn offset(&self, structure: &str, member: &str) -> Option<u32> {
        self.offset_in(*self.structures.get(structure)?, member, 0)
    }

    fn offset_in(&self, number: u32, wanted: &str, depth: u32) -> Option<u32> {
        let (number, _) = self.resolved(number);
        let Some(Type::Structure { members, .. }) = self.types.get(number as usize) else {
            return None;
        };
        members.iter().find_map(|member| {
            let name = self.text(member.name);
            if name == wanted {
                return Some(member.offset);
            }
            let within = name.is_empty() && depth < DEEPEST;
            within
                .then(|| self.offset_in(member.of, wanted, depth + 1))
                .flatten()
                .map(|inner| member.offset + inner)
        })
    }

    /// Returns the structures of exactly `size` bytes that have a lock at `offset`.
    pub fn structures_of(&self, size: u64, offset: u64) -> Vec<String> {
        let has = |name: &&String| {
            self.size(name).map(u64::from) == Some(size)
                && self.member(name, offset, true).is_some_and(|(_, is_lock)| is_lock)
        };
        let mut names: Vec<String> = self.structures.keys().filter(has).cloned().collect();
        names.sort_unstable();
        names
    }

    /// Returns the path of the member at `offset` of a structure (`d_lockref`,
    /// `node_zones[1].lock`), and whether it is a lock. With `wants_lock`, the path prefers the
    /// member of a union that is or contains a lock there.
    pub fn member(&self, structure: &str, offset: u64, wants_lock: bool) -> Option<(String, bool)> {
        self.path(*self.structures.get(structure)?, offset, wants_lock)
    }

    /// As `member`, for a variable. The path is empty if the variable has no members.
    pub fn variable(&self, name: &str, offset: u64, wants_lock: bool) -> Option<(String, bool)> {
        self.path(*self.variables.get(name)?, offset, wants_lock)
    }

    fn path(&self, number: u32, offset: u64, wants_lock: bool) -> Option<(String, bool)> {
        let offset = u32::try_from(offset).ok()?;
        let mut path = String::new();
        let is_lock = self.descend(number, offset, wants_lock, &mut path, 0)?;
        Some((path.trim_start_matches('.').to_string(), is_lock))
    }

    /// Appends the member at `offset` of a type to the path, and returns whether it is a lock.
    fn descend(
        &self,
        number: u32,
        offset: u32,
        wants_lock: bool,
        path: &mut String,
        depth: u32,
    ) -> Option<bool> {
        if depth > DEEPEST {
            return None;
        }
        let (number, named) = self.resolved(number);
        // The offset is that of a lock or lies within one.
        if depth > 0 && named.as_deref().is_some_and(|name| LOCKS.contains(&name)) {
            return Some(true);
        }
        match self.types.get(number as usize)? {
            Type::Structure { members, is_union, .. } => {
                let covers = |member: &&Member| {
                    member.offset <= offset && offset - member.offset < self.size_of(member.of, 0)
                };
                // A zero-length array as the last member covers everything after it. Elsewhere it
                // only serves alignment.
                let flexible = members.last().filter(|member| {
                    !is_union && member.offset <= offset && self.size_of(member.of, 0) == 0
                });
                let within = members.iter().filter(covers).chain(flexible);
                let mut first = None;
                for member in within {
                    let mut longer = path.clone();
                    let name = self.text(member.name);
                    if !name.is_empty() {
                        longer.push('.');
                        longer.push_str(&name);
                    }
                    let Some(is_lock) = self.descend(
                        member.of,
                        offset - member.offset,
                        wants_lock,
                        &mut longer,
                        depth + 1,
                    ) else {
                        continue;
                    };
                    if is_lock || !wants_lock {
                        *path = longer;
                        return Some(is_lock);
                    }
                    first.get_or_insert(longer);
                }
                *path = first?;
                Some(false)
            }
            Type::Array { of, .. } => {
                let size = self.size_of(*of, 0);
                if size == 0 {
                    return Some(false);
                }
                path.push_str(&format!("[{}]", offset / size));
                self.descend(*of, offset % size, wants_lock, path, depth + 1)
            }
            _ => Some(false),
        }
    }

    /// Returns the structures that a function takes pointers to.
    pub fn takes(&self, function: &str) -> Vec<String> {
        let prototype =
            self.functions.get(function).and_then(|number| self.types.get(*number as usize));
        let Some(Type::Prototype(takes)) = prototype else { return Vec::new() };
        let structure = |taken: &u32| {
            let (taken, _) = self.resolved(*taken);
            let Some(Type::Pointer(to)) = self.types.get(taken as usize) else { return None };
            let (to, _) = self.resolved(*to);
            let Some(Type::Structure { name, .. }) = self.types.get(to as usize) else {
                return None;
            };
            Some(self.text(*name)).filter(|name| !name.is_empty())
        };
        takes.iter().filter_map(structure).collect()
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// BTF of `typedef struct spinlock { int raw; } spinlock_t; struct lockref { spinlock_t lock;
    /// int count; };` `struct zone { int pad; spinlock_t lock; }; struct dentry { int flags; union
    /// { struct lockref d_lockref; long word; }; struct zone zones[2]; };` `void take(struct dentry
    /// *);` `struct zone queues;` `struct node { struct zone pad[0]; int flags; long tail[]; };`
    pub fn example() -> Vec<u8> {
        let mut strings = vec![0];
        let mut types: Vec<u32> = Vec::new();
        let mut text = |name: &str| {
            let at = strings.len() as u32;
            strings.extend_from_slice(name.as_bytes());
            strings.push(0);
            at
        };
        let info = |kind: u32, length: u32| kind << 24 | length;
        types.extend([text("int"), info(1, 0), 4, 32]); // 1
        types.extend([text("spinlock"), info(4, 1), 4, text("raw"), 1, 0]); // 2
        types.extend([text("spinlock_t"), info(8, 0), 2]); // 3
        // 4
        types.extend([text("lockref"), info(4, 2), 8, text("lock"), 3, 0, text("count"), 1, 32]);
        types.extend([text("zone"), info(4, 2), 8, text("pad"), 1, 0, text("lock"), 3, 32]); // 5
        types.extend([0, info(3, 0), 0, 5, 1, 2]); // 6: zone[2]
        types.extend([text("long"), info(1, 0), 8, 64]); // 7
        types.extend([0, info(5, 2), 8, text("word"), 7, 0, text("d_lockref"), 4, 0]); // 8
        let dentry = [text("flags"), 1, 0, 0, 8, 64, text("zones"), 6, 128];
        types.extend([text("dentry"), info(4, 3), 32].into_iter().chain(dentry)); // 9
        types.extend([0, info(2, 0), 9]); // 10
        types.extend([0, info(13, 1), 0, 0, 10]); // 11
        types.extend([text("take"), info(12, 0), 11]); // 12
        types.extend([text("queues"), info(14, 0), 5, 1]); // 13
        types.extend([0, info(3, 0), 0, 5, 1, 0]); // 14: zone[0]
        types.extend([0, info(3, 0), 0, 7, 1, 0]); // 15: long[0]
        let node = [text("pad"), 14, 0, text("flags"), 1, 0, text("tail"), 15, 64];
        types.extend([text("node"), info(4, 3), 8].into_iter().chain(node)); // 16
        let types: Vec<u8> = types.iter().flat_map(|number| number.to_le_bytes()).collect();
        let mut file = vec![0x9f, 0xeb, 1, 0];
        for number in [24, 0, types.len() as u32, types.len() as u32, strings.len() as u32] {
            file.extend(number.to_le_bytes());
        }
        file.extend(types);
        file.extend(strings);
        file
    }

    #[test]
    fn member_returns_path_and_kind() {
        let btf = Btf::parse(&example()).unwrap();
        assert_eq!(
            (btf.size("dentry"), btf.size("zone"), btf.size("none")),
            (Some(32), Some(8), None)
        );
        assert_eq!(btf.offset("dentry", "d_lockref"), Some(8));
        assert_eq!(btf.offset("dentry", "none"), None);
        let member = |offset, wants_lock| btf.member("dentry", offset, wants_lock).unwrap();
        assert_eq!(member(8, true), ("d_lockref".into(), true));
        assert_eq!(member(8, false), ("word".into(), false), "first member of a union");
        assert_eq!(member(28, true), ("zones[1].lock".into(), true));
        assert_eq!(member(24, false), ("zones[1].pad".into(), false));
        assert_eq!(member(0, true), ("flags".into(), false));
        assert_eq!(btf.member("dentry", 32, false), None);
        assert_eq!(
            btf.member("node", 0, false),
            Some(("flags".into(), false)),
            "zero-length array in the middle is skipped"
        );
        assert_eq!(
            btf.member("node", 24, false),
            Some(("tail[2]".into(), false)),
            "zero-length array at the end counts"
        );
        assert_eq!(btf.variable("queues", 4, true), Some(("lock".into(), true)));
        assert_eq!(btf.takes("take"), ["dentry"]);
        assert!(btf.takes("other").is_empty());
    }

    #[test]
    fn parse_of_malformed_btf_is_none() {
        let whole = example();
        assert!(Btf::parse(b"").is_none() && Btf::parse(b"\x7fELF").is_none());
        for length in 0..whole.len() {
            assert!(Btf::parse(&whole[..length]).is_none(), "{length}");
        }
    }
}
