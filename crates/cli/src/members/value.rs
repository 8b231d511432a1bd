//! Symbolic values of DWARF expressions. The contents of the registers at a call are unknown, but
//! two values with the same root differ by a known number of bytes.

use gimli::{Encoding, EndianArcSlice, Expression, LittleEndian, Operation};

/// The contents of a section.
pub type Bytes = EndianArcSlice<LittleEndian>;

/// The unknown part of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Root {
    /// The content of a register at the call.
    Register(u16),
    /// The content of a register at the function's entry.
    Entry(u16),
    /// The address of the function's frame.
    Frame,
    /// The content of the memory at an offset from a register, at the call.
    Stored(u16, i64),
    /// The content of the memory at an offset from the frame.
    StoredInFrame(i64),
    /// Address 0 of the file.
    File,
}

/// A root plus a number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Value {
    pub root: Root,
    pub offset: i64,
}

/// What an expression describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The value is known.
    Is(Value),
    /// The value is in memory at this address.
    At(Value),
}

impl Place {
    /// The value; `None` if it is in memory for which there is no [`Root`].
    pub fn value(self) -> Option<Value> {
        match self {
            Place::Is(value) => Some(value),
            Place::At(address) => stored(address),
        }
    }
}

fn stored(address: Value) -> Option<Value> {
    let root = match address.root {
        Root::Register(register) => Root::Stored(register, address.offset),
        Root::Frame => Root::StoredInFrame(address.offset),
        _ => return None,
    };
    Some(Value { root, offset: 0 })
}

/// Evaluates an expression; `None` if it is not one of the simple expressions that compilers write
/// for pointers.
pub fn evaluate(expression: Expression<Bytes>, encoding: Encoding) -> Option<Place> {
    evaluate_part(expression, encoding, false)
}

/// As [`evaluate`], for a whole expression or one inside another. Only whole ones have inner ones.
fn evaluate_part(
    expression: Expression<Bytes>,
    encoding: Encoding,
    is_inner: bool,
) -> Option<Place> {
    let mut operations = expression.operations(encoding);
    let mut top: Option<Value> = None;
    let mut is_value = false;
    while let Some(operation) = operations.next().ok()? {
        let with = |root, offset| Some(Value { root, offset });
        match operation {
            Operation::Register { register } => {
                is_value = true;
                top = with(Root::Register(register.0), 0);
            }
            Operation::RegisterOffset { register, offset, .. } if top.is_none() => {
                top = with(Root::Register(register.0), offset);
            }
            Operation::FrameOffset { offset } if top.is_none() => top = with(Root::Frame, offset),
            Operation::CallFrameCFA if top.is_none() => top = with(Root::Frame, 0),
            Operation::Address { address } if top.is_none() => {
                top = with(Root::File, address.cast_signed());
            }
            Operation::PlusConstant { value } => {
                let before = top?;
                let offset = before.offset.wrapping_add(value.cast_signed());
                top = Some(Value { offset, ..before });
            }
            Operation::EntryValue { expression } if top.is_none() && !is_inner => {
                let Place::Is(Value { root: Root::Register(register), offset: 0 }) =
                    evaluate_part(Expression(expression), encoding, true)?
                else {
                    return None;
                };
                top = with(Root::Entry(register), 0);
            }
            Operation::Deref { .. } => top = stored(top?),
            Operation::StackValue => is_value = true,
            Operation::Nop => {}
            _ => return None,
        }
    }
    Some(if is_value { Place::Is(top?) } else { Place::At(top?) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gimli::Format;

    fn of(bytes: &[u8]) -> Option<Place> {
        let encoding = Encoding { format: Format::Dwarf32, version: 5, address_size: 8 };
        evaluate(Expression(Bytes::new(bytes.into(), LittleEndian)), encoding)
    }

    #[test]
    fn evaluate_reads_pointers() {
        let is = |root, offset| Some(Place::Is(Value { root, offset }));
        let at = |root, offset| Some(Place::At(Value { root, offset }));
        // DW_OP_reg3; DW_OP_breg3 136, DW_OP_stack_value; DW_OP_fbreg -24
        assert_eq!(of(&[0x53]), is(Root::Register(3), 0));
        assert_eq!(of(&[0x73, 0x88, 0x01, 0x9f]), is(Root::Register(3), 136));
        assert_eq!(of(&[0x91, 0x68]), at(Root::Frame, -24));
        // DW_OP_entry_value (DW_OP_reg5), DW_OP_plus_uconst 8, DW_OP_stack_value
        assert_eq!(of(&[0xa3, 1, 0x55, 0x23, 8, 0x9f]), is(Root::Entry(5), 8));
        // DW_OP_breg3 16, DW_OP_deref, DW_OP_stack_value
        assert_eq!(of(&[0x73, 16, 0x06, 0x9f]), is(Root::Stored(3, 16), 0));
        // DW_OP_lit1, DW_OP_mul, and nothing
        assert_eq!((of(&[0x31, 0x1e]), of(&[])), (None, None));
    }

    #[test]
    fn deeply_nested_expression_is_rejected() {
        let mut bytes = vec![0x55];
        for _ in 0..100_000 {
            let mut length = bytes.len();
            let mut outer = vec![0xa3];
            while length >= 0x80 {
                outer.push(length as u8 | 0x80);
                length >>= 7;
            }
            outer.push(length as u8);
            // In reverse, so that each turn appends a few bytes.
            bytes.extend(outer.into_iter().rev());
        }
        bytes.reverse();
        assert_eq!(of(&bytes), None);
    }
}
