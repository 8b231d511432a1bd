//! One call: its arguments, and the variables in scope at the call.

use std::ops::Range;

use gimli::{Attribute, AttributeValue, constants as dw};

use super::file::{At, DebugFile, Entry};
use super::lock::LockType;
use super::registers::{Relations, equals, relations};
use super::types::{is_class, plain, pointed_class, size};
use super::value::{Bytes, Place, Root, Value, evaluate};

/// A class object: a variable in scope, or what a variable in scope points to.
#[derive(Debug, Clone, Copy)]
pub struct Object {
    /// The object's type.
    pub class: At,
    /// The object's address, if known.
    pub address: Option<Value>,
    /// The register that passed the address, if the variable is a parameter of the function itself
    /// rather than of one inlined into it.
    pub register: Option<u16>,
}

/// What the debug information and the machine code say about one call.
#[derive(Debug, Default)]
pub struct Call {
    /// Class objects, those of outer functions first.
    pub objects: Vec<Object>,
    /// The argument registers that the debug information describes, with their values.
    pub arguments: Vec<(u16, Value)>,
    /// Parameters of inlined functions that point to class objects, with the class. Those of outer
    /// functions come first.
    pub inlined: Vec<(Value, At)>,
    /// Values of the function's own parameters at the call, and the registers that passed them.
    pub parameters: Vec<(Value, u16)>,
    /// Relations between the function's registers; see [`relations`].
    pub relations: Relations,
}

/// A variable or parameter, before its location is evaluated.
struct Variable {
    at: At,
    location: Option<Attribute<Bytes>>,
    is_parameter: bool,
    is_of_function: bool,
}

impl Call {
    /// Describes the call that returns to `address`. `code` reads a range of the file's machine
    /// code.
    pub fn returning_to(
        file: &DebugFile,
        address: u64,
        code: impl Fn(Range<u64>) -> Option<Vec<u8>>,
    ) -> Option<Self> {
        let inside = address.checked_sub(1)?;
        let unit = file.unit_at(inside)?;
        let (variables, arguments, function) = scopes(file, unit, address)?;
        let start = function.start;
        let mut call = Call { arguments, ..Call::default() };
        for variable in variables {
            let place_at = |pc| location(file, unit, variable.location.as_ref()?, pc);
            let place = place_at(inside);
            let at_entry = || match place_at(start)? {
                Place::Is(Value { root: Root::Register(register), offset: 0 }) => Some(register),
                _ => None,
            };
            let register =
                (variable.is_parameter && variable.is_of_function).then(at_entry).flatten();
            if let (Some(value), Some(register)) = (place.and_then(Place::value), register) {
                call.parameters.push((value, register));
            }
            if variable.is_parameter
                && !variable.is_of_function
                && let Some(value) = place.and_then(Place::value)
                && let Some(class) =
                    type_of(file, variable.at).and_then(|of| pointed_class(file, of))
            {
                call.inlined.push((value, class));
            }
            call.objects.extend(object(file, &variable, place, register));
        }
        call.relations = code(function).map(|code| relations(&code)).unwrap_or_default();
        Some(call)
    }

    /// The values that the argument in `register` is known to equal. If the call takes a lock, the
    /// innermost inlined functions may be the lock's wrappers, whose parameters point to a class no
    /// larger than the lock; the values of those parameters are included.
    pub fn values(&self, file: &DebugFile, register: u16, lock: Option<LockType>) -> Vec<Value> {
        let passed = self.arguments.iter().filter(|(other, _)| *other == register);
        let mut values: Vec<Value> = passed.map(|(_, value)| *value).collect();
        if let Some(lock) = lock {
            let is_lock = |class| size(file, class).is_some_and(|size| size <= lock.size());
            let inner = self.inlined.iter().rev().take_while(|(_, class)| is_lock(*class));
            values.extend(inner.map(|(value, _)| *value));
        }
        values.into_iter().flat_map(|value| equals(value, &self.relations)).collect()
    }
}

fn object(
    file: &DebugFile,
    variable: &Variable,
    place: Option<Place>,
    register: Option<u16>,
) -> Option<Object> {
    let of = type_of(file, variable.at)?;
    if let Some(class) = pointed_class(file, of) {
        return Some(Object { class, address: place.and_then(Place::value), register });
    }
    let class = plain(file, of).filter(|&class| is_class(file, class))?;
    let address = match place {
        Some(Place::At(address)) => Some(address),
        _ => None,
    };
    Some(Object { class, address, register: None })
}

/// The type of a variable. Copies of a function refer to the original's variables for their types.
fn type_of(file: &DebugFile, mut at: At) -> Option<At> {
    for _ in 0..4 {
        if let Some(of) = file.follow(at, dw::DW_AT_type) {
            return Some(of);
        }
        at = file
            .follow(at, dw::DW_AT_abstract_origin)
            .or_else(|| file.follow(at, dw::DW_AT_specification))?;
    }
    None
}

fn location(file: &DebugFile, unit: usize, of: &Attribute<Bytes>, pc: u64) -> Option<Place> {
    let (dwarf, unit) = (file.dwarf(), file.unit(unit));
    if let AttributeValue::Exprloc(expression) = of.value() {
        return evaluate(expression, unit.encoding());
    }
    let mut list = dwarf.attr_locations(unit, of.value()).ok()??;
    while let Ok(Some(entry)) = list.next() {
        if (entry.range.begin..entry.range.end).contains(&pc) {
            return evaluate(entry.data, unit.encoding());
        }
    }
    None
}

type Scopes = (Vec<Variable>, Vec<(u16, Value)>, Range<u64>);

/// The variables in scope at the call that returns to `address`, the call's arguments, and the part
/// of the function's address range that contains the call.
fn scopes(file: &DebugFile, unit: usize, address: u64) -> Option<Scopes> {
    let mut variables = Vec::new();
    let mut arguments = Vec::new();
    // Depth and tag of the scopes around the call.
    let mut active: Vec<(isize, gimli::DwTag)> = Vec::new();
    let mut site: Option<isize> = None;
    let mut start = None;
    let mut cursor = file.function_at(unit, address - 1)?;
    while let Ok(Some(entry)) = cursor.next_dfs() {
        let depth = entry.depth();
        while active.last().is_some_and(|scope| scope.0 >= depth) {
            active.pop();
        }
        if site.is_some_and(|site| site >= depth) {
            site = None;
        }
        if active.is_empty() && start.is_some() {
            break;
        }
        let is_in_scope = active.last().is_some_and(|scope| scope.0 == depth - 1);
        match entry.tag() {
            dw::DW_TAG_subprogram | dw::DW_TAG_inlined_subroutine | dw::DW_TAG_lexical_block => {
                if let Some(range) = contains(file, unit, entry, address - 1) {
                    if entry.tag() == dw::DW_TAG_subprogram {
                        start = Some(range);
                    }
                    active.push((depth, entry.tag()));
                }
            }
            tag @ (dw::DW_TAG_formal_parameter | dw::DW_TAG_variable) if is_in_scope => {
                let is_parameter = tag == dw::DW_TAG_formal_parameter;
                let Some(scope) = active.last() else { continue };
                variables.push(Variable {
                    at: At { unit, offset: entry.offset() },
                    location: entry.attr(dw::DW_AT_location).cloned(),
                    is_parameter,
                    is_of_function: scope.1 == dw::DW_TAG_subprogram,
                });
            }
            dw::DW_TAG_call_site | dw::DW_TAG_GNU_call_site
                if returns_to(file, unit, entry) == Some(address) =>
            {
                site = Some(depth);
            }
            dw::DW_TAG_call_site_parameter | dw::DW_TAG_GNU_call_site_parameter
                if site == Some(depth - 1) =>
            {
                arguments.extend(argument(file, unit, entry));
            }
            _ => {}
        }
    }
    Some((variables, arguments, start?))
}

/// Of the address ranges of a scope, the one that contains `pc`.
pub fn contains(file: &DebugFile, unit: usize, entry: &Entry, pc: u64) -> Option<Range<u64>> {
    let mut ranges = file.dwarf().die_ranges(file.unit(unit), entry).ok()?;
    let mut found = None;
    while let Ok(Some(range)) = ranges.next() {
        if (range.begin..range.end).contains(&pc) {
            found = Some(range.begin..range.end);
        }
    }
    found
}

fn returns_to(file: &DebugFile, unit: usize, entry: &Entry) -> Option<u64> {
    let value = entry
        .attr_value(dw::DW_AT_call_return_pc)
        .or_else(|| entry.attr_value(dw::DW_AT_low_pc))?;
    file.dwarf().attr_address(file.unit(unit), value).ok()?
}

fn argument(file: &DebugFile, unit: usize, entry: &Entry) -> Option<(u16, Value)> {
    let expression = |name| match entry.attr_value(name)? {
        AttributeValue::Exprloc(expression) => evaluate(expression, file.unit(unit).encoding()),
        _ => None,
    };
    let register = match expression(dw::DW_AT_location)? {
        Place::Is(Value { root: Root::Register(register), offset: 0 }) => register,
        _ => return None,
    };
    let value =
        expression(dw::DW_AT_call_value).or_else(|| expression(dw::DW_AT_GNU_call_site_value))?;
    // The expression stands for the value itself, even without a final DW_OP_stack_value.
    let (Place::Is(value) | Place::At(value)) = value;
    Some((register, value))
}
