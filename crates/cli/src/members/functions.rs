//! Names of functions with their namespaces and classes, from the debug information. A mangled
//! symbol has them too, but some functions, such as those in an anonymous namespace, have no
//! symbol.

use gimli::constants as dw;

use super::call::contains;
use super::file::{At, DebugFile};

/// The names of the functions around an address: the innermost inlined function first, the function
/// itself last. A name is `None` if the debug information lacks it.
pub fn functions_at(file: &DebugFile, address: u64) -> Vec<Option<String>> {
    let Some(unit) = file.unit_at(address) else { return Vec::new() };
    let mut found = Vec::new();
    let mut active: Vec<isize> = Vec::new();
    let Some(mut cursor) = file.function_at(unit, address) else { return Vec::new() };
    while let Ok(Some(entry)) = cursor.next_dfs() {
        let depth = entry.depth();
        while active.last().is_some_and(|&scope| scope >= depth) {
            active.pop();
        }
        if active.is_empty() && !found.is_empty() {
            break;
        }
        let is_function =
            matches!(entry.tag(), dw::DW_TAG_subprogram | dw::DW_TAG_inlined_subroutine);
        let is_scope = is_function || entry.tag() == dw::DW_TAG_lexical_block;
        if is_scope && contains(file, unit, entry, address).is_some() {
            active.push(depth);
            if is_function {
                found.push(At { unit, offset: entry.offset() });
            }
        }
    }
    found.into_iter().rev().map(|at| file.qualified(declared(file, at))).collect()
}

/// The declaration of a function, found from one of its definitions or inlined copies.
fn declared(file: &DebugFile, mut at: At) -> At {
    for _ in 0..4 {
        let origin = file.follow(at, dw::DW_AT_abstract_origin);
        match origin.or_else(|| file.follow(at, dw::DW_AT_specification)) {
            Some(next) => at = next,
            None => break,
        }
    }
    at
}
