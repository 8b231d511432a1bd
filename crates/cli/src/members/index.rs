//! An index of one unit's debug information. Without it, each look-up would read the whole unit.

use gimli::{DebuggingInformationEntry, Dwarf, Unit, UnitOffset, constants as dw};

use super::value::Bytes;

/// The functions and scopes of a unit.
pub struct Index {
    /// Address ranges of functions: start, end and entry, ordered by start. A function has several
    /// if the compiler has split it.
    functions: Vec<(u64, u64, UnitOffset)>,
    /// Namespaces and classes, ordered by entry.
    scopes: Vec<Scope>,
}

struct Scope {
    at: UnitOffset,
    /// The first entry that is not in the scope; `None` if there is none.
    end: Option<UnitOffset>,
    depth: isize,
    /// Index of the innermost scope around this one.
    around: Option<usize>,
}

impl Index {
    pub fn new(dwarf: &Dwarf<Bytes>, unit: &Unit<Bytes>) -> Self {
        let mut index = Index { functions: Vec::new(), scopes: Vec::new() };
        let mut open: Vec<usize> = Vec::new();
        let mut cursor = unit.entries();
        while let Ok(Some(entry)) = cursor.next_dfs() {
            let (depth, at) = (entry.depth(), entry.offset());
            while let Some(&last) = open.last()
                && index.scopes[last].depth >= depth
            {
                index.scopes[last].end = Some(at);
                open.pop();
            }
            if entry.tag() == dw::DW_TAG_subprogram {
                index
                    .functions
                    .extend(ranges(dwarf, unit, entry).map(|(start, end)| (start, end, at)));
            } else if is_scope(entry.tag()) {
                let around = open.last().copied();
                open.push(index.scopes.len());
                index.scopes.push(Scope { at, end: None, depth, around });
            }
        }
        index.functions.sort_unstable();
        index
    }

    /// The function with the code at an address.
    pub fn function(&self, address: u64) -> Option<UnitOffset> {
        let before = self.functions.partition_point(|&(start, ..)| start <= address);
        let &(_, end, function) = self.functions.get(before.checked_sub(1)?)?;
        (address < end).then_some(function)
    }

    /// The scopes around an entry, outermost first.
    pub fn scopes_around(&self, at: UnitOffset) -> Vec<UnitOffset> {
        let before = self.scopes.partition_point(|scope| scope.at < at);
        let mut next = before.checked_sub(1);
        let mut around = Vec::new();
        while let Some(scope) = next.map(|index| &self.scopes[index]) {
            if scope.end.is_none_or(|end| at < end) {
                around.push(scope.at);
            }
            next = scope.around;
        }
        around.reverse();
        around
    }
}

fn ranges(
    dwarf: &Dwarf<Bytes>,
    unit: &Unit<Bytes>,
    entry: &DebuggingInformationEntry<Bytes>,
) -> impl Iterator<Item = (u64, u64)> {
    let mut ranges = dwarf.die_ranges(unit, entry).ok();
    std::iter::from_fn(move || {
        let range = ranges.as_mut()?.next().ok()??;
        Some((range.begin, range.end))
    })
}

/// Whether an entry with this tag qualifies the names inside it. An anonymous namespace has no
/// name.
fn is_scope(tag: gimli::DwTag) -> bool {
    matches!(tag, dw::DW_TAG_namespace | dw::DW_TAG_class_type | dw::DW_TAG_structure_type)
}
