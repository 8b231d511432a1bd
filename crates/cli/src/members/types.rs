//! Members of classes.

use gimli::{AttributeValue, constants as dw};

use super::file::{At, DebugFile};
use super::lock::LockType;

/// Greatest depth of nested members and arrays that is searched. The types of a damaged file may
/// contain themselves.
const DEEPEST: usize = 8;

/// Greatest number of members that are searched for locks.
const MOST_MEMBERS: usize = 10_000;

/// A member of a class, at any depth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The class, and the path of members: `Server::queue.mutex`.
    pub name: String,
    pub class_size: u64,
}

/// Resolves typedefs and qualifiers to the type that they stand for.
pub fn plain(file: &DebugFile, mut at: At) -> Option<At> {
    for _ in 0..32 {
        match file.entry(at)?.tag() {
            dw::DW_TAG_typedef
            | dw::DW_TAG_const_type
            | dw::DW_TAG_volatile_type
            | dw::DW_TAG_restrict_type
            | dw::DW_TAG_atomic_type => at = file.follow(at, dw::DW_AT_type)?,
            _ => return Some(at),
        }
    }
    None
}

/// The class that a pointer or reference type points to.
pub fn pointed_class(file: &DebugFile, at: At) -> Option<At> {
    let at = plain(file, at)?;
    let is_pointer = matches!(
        file.entry(at)?.tag(),
        dw::DW_TAG_pointer_type | dw::DW_TAG_reference_type | dw::DW_TAG_rvalue_reference_type
    );
    let target = plain(file, is_pointer.then(|| file.follow(at, dw::DW_AT_type))??)?;
    is_class(file, target).then_some(target)
}

/// Whether a type is a class, structure or union with a definition.
pub fn is_class(file: &DebugFile, at: At) -> bool {
    file.entry(at).is_some_and(|entry| {
        matches!(
            entry.tag(),
            dw::DW_TAG_class_type | dw::DW_TAG_structure_type | dw::DW_TAG_union_type
        ) && entry.attr_value(dw::DW_AT_declaration).is_none()
    })
}

fn number(file: &DebugFile, at: At, name: gimli::DwAt) -> Option<u64> {
    file.entry(at)?.attr_value(name)?.udata_value()
}

/// A type's size in bytes.
pub fn size(file: &DebugFile, at: At) -> Option<u64> {
    number(file, at, dw::DW_AT_byte_size)
}

/// The members and base classes of a class, each with its offset and type.
fn parts(file: &DebugFile, class: At) -> Vec<(At, u64, At)> {
    let children = file.children(class).into_iter();
    children
        .filter_map(|at| {
            let entry = file.entry(at)?;
            if !matches!(entry.tag(), dw::DW_TAG_member | dw::DW_TAG_inheritance) {
                return None;
            }
            let is_static = entry.attr_value(dw::DW_AT_external).is_some();
            let offset = match entry.attr_value(dw::DW_AT_data_member_location) {
                None => 0,                                       // a member of a union
                Some(AttributeValue::Exprloc(_)) => return None, // a virtual base class
                Some(value) => value.udata_value()?,
            };
            let of = file.follow(at, dw::DW_AT_type)?;
            (!is_static).then_some((at, offset, of))
        })
        .collect()
}

/// The element type of an array, or the type itself if it is no array; and whether it is one.
pub fn element(file: &DebugFile, at: At) -> Option<(At, bool)> {
    let mut at = plain(file, at)?;
    let mut is_array = false;
    for _ in 0..DEEPEST {
        if file.entry(at)?.tag() != dw::DW_TAG_array_type {
            return Some((at, is_array));
        }
        at = plain(file, file.follow(at, dw::DW_AT_type)?)?;
        is_array = true;
    }
    None
}

/// The size of a type in bytes, arrays included.
pub fn extent(file: &DebugFile, at: At) -> Option<u64> {
    extent_within(file, at, DEEPEST)
}

/// As [`extent`], if arrays are nested at most this deep.
fn extent_within(file: &DebugFile, at: At, depth: usize) -> Option<u64> {
    let at = plain(file, at)?;
    if file.entry(at)?.tag() != dw::DW_TAG_array_type {
        return size(file, at);
    }
    let of_element = file.follow(at, dw::DW_AT_type)?;
    let of_element = extent_within(file, of_element, depth.checked_sub(1)?)?;
    let dimensions = file.children(at).into_iter();
    let count = |at| {
        let from_bound = || number(file, at, dw::DW_AT_upper_bound)?.checked_add(1);
        number(file, at, dw::DW_AT_count).or_else(from_bound)
    };
    let total = dimensions.filter_map(count).try_fold(of_element, u64::checked_mul);
    size(file, at).or(total)
}

/// Names the member at `offset` bytes from the start of a class, if it is a lock of this type. The
/// name ends at the outermost such member, and leaves out what the lock itself consists of.
pub fn member(file: &DebugFile, class: At, offset: u64, lock: LockType) -> Option<Member> {
    let class_size = size(file, class)?;
    let (owner, path) = walk(file, class, offset, lock)?;
    let owner = file.qualified(owner)?;
    Some(Member { name: format!("{owner}::{path}"), class_size })
}

/// As [`member`], but without the class's name.
pub fn member_path(file: &DebugFile, class: At, offset: u64, lock: LockType) -> Option<String> {
    walk(file, class, offset, lock).map(|(_, path)| path)
}

/// The class that declares the first member of the path, possibly a base class, and the path.
fn walk(file: &DebugFile, class: At, offset: u64, lock: LockType) -> Option<(At, String)> {
    let mut owner = class;
    let mut path = String::new();
    let (mut class, mut offset) = (class, offset);
    for _ in 0..DEEPEST {
        let (at, start, of) = parts(file, class).into_iter().find(|&(_, start, of)| {
            let end = extent(file, of).map(|size| start.saturating_add(size.max(1)));
            start <= offset && end.is_some_and(|end| offset < end)
        })?;
        offset -= start;
        let (of, is_array) = element(file, of)?;
        if is_array {
            offset %= size(file, of)?.max(1);
        }
        if file.entry(at)?.tag() == dw::DW_TAG_inheritance {
            if path.is_empty() {
                owner = of;
            }
        } else if let Some(name) = file.name(at) {
            path += if path.is_empty() { "" } else { "." };
            path += &name;
            path += if is_array { "[]" } else { "" };
        }
        let size = size(file, of)?;
        if offset == 0 && size == lock.size() && lock.may_be(is_class(file, of)) {
            return (!path.is_empty()).then_some((owner, path));
        }
        if !is_class(file, of) || size < lock.size() {
            return None;
        }
        class = of;
    }
    None
}

/// The offsets of the locks of a type in a class: at most two, since a third would not matter.
pub fn locks_in(file: &DebugFile, class: At, lock: LockType) -> Vec<u64> {
    let mut search = Search { file, lock, found: Vec::new(), members: 0 };
    search.class(class, 0, 0);
    search.found
}

struct Search<'a> {
    file: &'a DebugFile,
    lock: LockType,
    found: Vec<u64>,
    /// Number of searched members.
    members: usize,
}

impl Search<'_> {
    /// Searches a class at `base` bytes from the start of the outermost one.
    fn class(&mut self, class: At, base: u64, depth: usize) {
        let Search { file, lock, .. } = *self;
        for (_, start, of) in parts(file, class) {
            self.members += 1;
            if self.found.len() > 1 || depth > DEEPEST || self.members > MOST_MEMBERS {
                return;
            }
            let at = base.saturating_add(start);
            if is_lock(file, of, lock) {
                self.found.push(at);
                continue;
            }
            let Some((of, is_array)) = element(file, of) else { continue };
            if is_class(file, of) && size(file, of) >= Some(lock.size()) {
                self.class(of, at, depth + 1);
            } else if is_array && is_lock(file, of, lock) {
                self.found.push(at);
            }
        }
    }
}

/// Whether a type is the lock's, by the names of its typedefs.
fn is_lock(file: &DebugFile, mut at: At, lock: LockType) -> bool {
    for _ in 0..8 {
        let Some(entry) = file.entry(at) else { return false };
        if entry.tag() == dw::DW_TAG_typedef && file.name(at).as_deref() == Some(lock.type_name()) {
            return true;
        }
        let Some(next) = file.follow(at, dw::DW_AT_type) else { return false };
        let is_alias = matches!(
            entry.tag(),
            dw::DW_TAG_typedef | dw::DW_TAG_volatile_type | dw::DW_TAG_const_type
        );
        if !is_alias {
            return false;
        }
        at = next;
    }
    false
}
