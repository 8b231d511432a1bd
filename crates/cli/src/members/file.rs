//! The debug information of one file.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;

use gimli::{
    AttributeValue, DebuggingInformationEntry, Dwarf, EntriesCursor, LittleEndian, SectionId, Unit,
    UnitOffset, constants as dw,
};
use object::{Object, ObjectSection, ReadCache};

use super::index::Index;
use super::value::{Bytes, Place, Root, Value, evaluate};

/// One entry of the debug information.
pub type Entry = DebuggingInformationEntry<Bytes>;

/// Largest debug information that is read; this much takes some seconds.
const MOST_BYTES: u64 = 256 << 20;

/// The debug information of one file.
pub struct DebugFile {
    dwarf: Dwarf<Bytes>,
    units: Vec<Unit<Bytes>>,
    /// Address ranges: start, end and index of the unit, ordered by start.
    ranges: Vec<(u64, u64, usize)>,
    /// Of each unit.
    indexes: Vec<OnceCell<Index>>,
    /// Static variables by address.
    statics: OnceCell<BTreeMap<u64, At>>,
}

/// The place of an entry in the debug information.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    pub unit: usize,
    pub offset: UnitOffset,
}

type Elf<'a> = object::File<'a, &'a ReadCache<File>>;

fn section(file: &Elf<'_>, id: SectionId) -> Result<Bytes, gimli::Error> {
    let section = file.section_by_name(id.name());
    let data = section.and_then(|section| section.uncompressed_data().ok());
    Ok(Bytes::new(Arc::from(data.as_deref().unwrap_or_default()), LittleEndian))
}

impl DebugFile {
    /// Reads a file, and the supplement that it shares with others; `None` if it has no debug
    /// information, or too much. Types in the supplement are not followed.
    pub fn read(file: &ReadCache<File>, supplement: Option<&ReadCache<File>>) -> Option<Self> {
        let file = object::File::parse(file).ok()?;
        if file.section_by_name(".debug_info")?.size() > MOST_BYTES {
            return None;
        }
        let mut dwarf = Dwarf::load(|id| section(&file, id)).ok()?;
        if let Some(supplement) = supplement.and_then(|it| object::File::parse(it).ok()) {
            dwarf.load_sup(|id| section(&supplement, id)).ok()?;
        }
        let mut units = Vec::new();
        let mut headers = dwarf.units();
        while let Ok(Some(header)) = headers.next() {
            if let Ok(unit) = dwarf.unit(header) {
                units.push(unit);
            }
        }
        let mut ranges = Vec::new();
        for (index, unit) in units.iter().enumerate() {
            let Ok(mut of_unit) = dwarf.unit_ranges(unit) else { continue };
            while let Ok(Some(range)) = of_unit.next() {
                ranges.push((range.begin, range.end, index));
            }
        }
        ranges.sort_unstable();
        let indexes = units.iter().map(|_| OnceCell::new()).collect();
        Some(DebugFile { dwarf, units, ranges, indexes, statics: OnceCell::new() })
    }

    /// The unit with the code at an address.
    pub fn unit_at(&self, address: u64) -> Option<usize> {
        let before = self.ranges.partition_point(|&(begin, ..)| begin <= address);
        let &(_, end, unit) = self.ranges.get(before.checked_sub(1)?)?;
        (address < end).then_some(unit)
    }

    /// A unit by its index.
    pub fn unit(&self, index: usize) -> &Unit<Bytes> {
        &self.units[index]
    }

    /// The sections.
    pub fn dwarf(&self) -> &Dwarf<Bytes> {
        &self.dwarf
    }

    /// The entry at a place.
    pub fn entry(&self, at: At) -> Option<Entry> {
        self.units[at.unit].entry(at.offset).ok()
    }

    /// The entry to which an attribute's value refers. `unit` has the attribute.
    pub fn target(&self, unit: usize, value: &AttributeValue<Bytes>) -> Option<At> {
        match *value {
            AttributeValue::UnitRef(offset) => Some(At { unit, offset }),
            AttributeValue::DebugInfoRef(offset) => {
                let start = |unit: &Unit<Bytes>| unit.header.debug_info_offset();
                let after = self.units.partition_point(|unit| start(unit) <= Some(offset));
                let unit = after.checked_sub(1)?;
                Some(At { unit, offset: offset.to_unit_offset(&self.units[unit].header)? })
            }
            _ => None,
        }
    }

    /// The entry to which attribute `name` of the entry at `at` refers.
    pub fn follow(&self, at: At, name: gimli::DwAt) -> Option<At> {
        self.target(at.unit, &self.entry(at)?.attr_value(name)?)
    }

    /// An entry's own name, without namespaces.
    pub fn name(&self, at: At) -> Option<String> {
        let value = self.entry(at)?.attr_value(dw::DW_AT_name)?;
        let text = self.dwarf.attr_string(&self.units[at.unit], value).ok()?;
        gimli::Reader::to_string_lossy(&text).ok().map(|name| name.into_owned())
    }

    /// The static variable at or before an address: its name, address and type.
    pub fn variable_at(&self, address: u64) -> Option<(String, u64, At)> {
        let statics = self.statics.get_or_init(|| self.statics());
        let (&start, &at) = statics.range(..=address).next_back()?;
        let specified = self.follow(at, dw::DW_AT_specification).unwrap_or(at);
        let of = self.follow(at, dw::DW_AT_type);
        let of = of.or_else(|| self.follow(specified, dw::DW_AT_type))?;
        Some((self.qualified(specified)?, start, of))
    }

    fn statics(&self) -> BTreeMap<u64, At> {
        let mut statics = BTreeMap::new();
        for (index, unit) in self.units.iter().enumerate() {
            let mut cursor = unit.entries();
            while let Ok(Some(entry)) = cursor.next_dfs() {
                let Some(AttributeValue::Exprloc(expression)) =
                    entry.attr_value(dw::DW_AT_location)
                else {
                    continue;
                };
                if entry.tag() != dw::DW_TAG_variable {
                    continue;
                }
                if let Some(Place::At(Value { root: Root::File, offset })) =
                    evaluate(expression, unit.encoding())
                {
                    let at = At { unit: index, offset: entry.offset() };
                    statics.insert(offset.cast_unsigned(), at);
                }
            }
        }
        statics
    }

    /// An entry's children.
    pub fn children(&self, at: At) -> Vec<At> {
        let mut children = Vec::new();
        let Ok(mut tree) = self.units[at.unit].entries_tree(Some(at.offset)) else {
            return children;
        };
        let Ok(root) = tree.root() else { return children };
        let mut nodes = root.children();
        while let Ok(Some(node)) = nodes.next() {
            children.push(At { unit: at.unit, offset: node.entry().offset() });
        }
        children
    }

    /// An entry's name with its namespaces and classes.
    pub fn qualified(&self, at: At) -> Option<String> {
        let scopes = self.index(at.unit).scopes_around(at.offset).into_iter();
        let entries = scopes.chain([at.offset]).map(|offset| At { unit: at.unit, offset });
        let names: Vec<String> = entries.filter_map(|entry| self.name(entry)).collect();
        (!names.is_empty()).then(|| names.join("::"))
    }

    /// The entries of the function with the code at an address, which start with the function's own
    /// and go on after its last one.
    pub fn function_at(&self, unit: usize, address: u64) -> Option<EntriesCursor<'_, Bytes>> {
        let function = self.index(unit).function(address)?;
        self.units[unit].entries_at_offset(function).ok()
    }

    fn index(&self, unit: usize) -> &Index {
        self.indexes[unit].get_or_init(|| Index::new(&self.dwarf, &self.units[unit]))
    }
}
