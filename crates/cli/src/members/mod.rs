//! Names of locks that are members of objects, such as `leveldb::DBImpl::mutex_`.
//!
//! The debug information describes, for each call, the value of the first argument and the
//! locations of the variables in scope (DWARF 5, sections 2.5, 3.3.3 and 3.4). If the argument is
//! `rbx + 136`, and `this` is in `rbx`, the call locks the member at byte 136 of the class of
//! `this`. The register's content need not be known. If the class only wraps a lock, as
//! `std::mutex` does, and `this` is a parameter of the function, the search continues in the
//! caller.
//!
//! Unoptimised code has no such description. There the lock gets a name if the classes in scope
//! together have exactly one lock of its type.

mod call;
mod file;
mod functions;
mod index;
mod lock;
mod registers;
mod types;
mod value;

use std::collections::BTreeSet;
use std::ops::Range;

use call::Call;
use types::Member;
use value::{Root, Value};

pub use file::DebugFile;
pub use functions::functions_at;
pub use lock::LockType;

/// The register that passes the first argument, in DWARF's numbering: `rdi`, or `x0`.
const FIRST_ARGUMENT: u16 = if cfg!(target_arch = "aarch64") { 0 } else { 5 };

/// Number of frames through which a lock's address is followed: wrappers, and the code that uses
/// them.
const FRAMES: usize = 6;

/// A class that exceeds its lock by at most this number of bytes counts as a wrapper, which may add
/// the owner's thread, a count or a name. A larger class in a caller replaces it.
const WRAPPER: u64 = 16;

/// Reads the machine code in a range of the file's own addresses.
pub type Code<'a> = Box<dyn Fn(Range<u64>) -> Option<Vec<u8>> + 'a>;

/// A frame of a stack.
pub enum Frame<'a> {
    /// A frame with debug information: the file, the return address in it, and its code.
    Known(&'a DebugFile, u64, Code<'a>),
    /// A frame of the C or C++ library, without debug information.
    Library,
    /// Another frame without debug information.
    Unknown,
}

/// Names the lock whose address was the first argument of the innermost call.
pub fn locked_member<'a>(
    frames: impl Iterator<Item = Frame<'a>> + Clone,
    lock: LockType,
) -> Option<String> {
    let exact = followed(frames.clone().take(FRAMES), lock);
    exact.or_else(|| only_candidate(frames.take(FRAMES), lock))
}

fn followed<'a>(frames: impl Iterator<Item = Frame<'a>>, lock: LockType) -> Option<String> {
    let (mut register, mut offset) = (FIRST_ARGUMENT, 0);
    let mut wrapper = None;
    let mut is_innermost = true;
    for frame in frames {
        let (file, address, code) = match frame {
            Frame::Known(file, address, code) => (file, address, code),
            // A function of the library passes on its own first argument: the lock is its object's
            // first member.
            Frame::Library => continue,
            Frame::Unknown => break,
        };
        let Some(call) = Call::returning_to(file, address, code) else { break };
        let values = call.values(file, register, is_innermost.then_some(lock));
        is_innermost = false;
        let values = values.into_iter();
        let mut values = values.map(|value| Value { offset: value.offset + offset, ..value });
        let Some(mut value) = values.next() else { break };
        let mut found = widest(file, &call, value, lock);
        // The same address may also be known relative to another register, with a larger object.
        for other in values {
            let wider = widest(file, &call, other, lock);
            let size = |member: &Option<Member>| member.as_ref().map(|member| member.class_size);
            if size(&wider) > size(&found) {
                (value, found) = (other, wider);
            }
        }
        if let Some(found) = found {
            if found.class_size > lock.size() + WRAPPER {
                return Some(found.name);
            }
            if found.class_size > lock.size() && wrapper.is_none() {
                wrapper = Some(found.name);
            }
        }
        let parameter = call.parameters.iter().find(|(other, _)| other.root == value.root);
        (register, offset) = match (value.root, parameter) {
            (Root::Entry(register), _) => (register, value.offset),
            (_, Some((other, register))) => (*register, value.offset - other.offset),
            _ => break,
        };
    }
    wrapper
}

/// Names the lock at `address` in a static class object or array: `queues[].lock`.
pub fn static_member(file: &DebugFile, address: u64, lock: LockType) -> Option<String> {
    let (name, start, of) = file.variable_at(address)?;
    if address - start >= types::extent(file, of)? {
        return None; // between two variables
    }
    let (of, is_array) = types::element(file, of)?;
    let offset = (address - start).checked_rem(types::size(file, of)?)?;
    let array = if is_array { "[]" } else { "" };
    if is_array && offset == 0 && types::size(file, of)? == lock.size() {
        return Some(format!("{name}{array}"));
    }
    let path = types::member_path(file, of, offset, lock)?;
    Some(format!("{name}{array}.{path}"))
}

/// Names the lock at `lock_at` as a member of the largest object in scope that contains it.
fn widest(file: &DebugFile, call: &Call, lock_at: Value, lock: LockType) -> Option<Member> {
    let members = call.objects.iter().filter_map(|object| {
        let entered =
            object.register.map(|register| Value { root: Root::Entry(register), offset: 0 });
        let address = [object.address, entered]
            .into_iter()
            .flatten()
            .find(|address| address.root == lock_at.root)?;
        let offset = u64::try_from(lock_at.offset - address.offset).ok()?;
        types::member(file, object.class, offset, lock)
    });
    members.max_by_key(|member| member.class_size)
}

fn only_candidate<'a>(frames: impl Iterator<Item = Frame<'a>>, lock: LockType) -> Option<String> {
    for frame in frames {
        let (file, address, code) = match frame {
            Frame::Known(file, address, code) => (file, address, code),
            Frame::Library => continue,
            Frame::Unknown => return None,
        };
        let call = Call::returning_to(file, address, code)?;
        let classes: BTreeSet<_> = call.objects.iter().map(|object| object.class).collect();
        let mut names = BTreeSet::new();
        for class in classes {
            if types::size(file, class) <= Some(lock.size()) {
                continue;
            }
            match types::locks_in(file, class, lock)[..] {
                [] => {}
                [offset] => {
                    let member = types::member(file, class, offset, lock);
                    names.extend(member.map(|member| member.name));
                }
                _ => return None,
            }
        }
        // Guards such as std::unique_lock only point to a lock, so they add no name.
        let mut names = names.into_iter();
        match (names.next(), names.next()) {
            (Some(name), None) => return Some(name),
            (None, _) => {}
            _ => return None,
        }
    }
    None
}
