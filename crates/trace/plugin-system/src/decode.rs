//! What an instruction's bytes say, as far as it is of concern.

use crate::symbols::Symbols;
use std::ops::Range;

/// The longest instruction of x86-64.
pub const LONGEST: usize = 15;

/// Whether the instruction at `at` returns from the function in `code`: a return, or a jump to what returns for it.
pub fn returns(symbols: &Symbols, code: &Range<u64>, at: u64, bytes: &[u8]) -> bool {
    let after = at.wrapping_add(bytes.len() as u64);
    match bytes {
        [0xc2 | 0xc3, ..] | [0xf3, 0xc3, ..] => true,
        [0xe9, offset @ ..] => {
            let offset = offset.try_into().map(i32::from_le_bytes).unwrap_or(0);
            let target = after.wrapping_add_signed(offset.into());
            !code.contains(&target) && symbols.is_return_thunk(target)
        }
        _ => false,
    }
}

/// What an instruction's bytes say of its accesses.
pub struct Decoded {
    /// Without its prefixes.
    opcode: [u8; 3],
    /// Through the processor's own base address.
    pub is_own: bool,
    /// It reads what it writes, in one.
    pub is_atomic: bool,
    /// It may access other memory than the stack that it pushes to or pops from.
    pub may_access: bool,
}

impl Decoded {
    pub fn new(bytes: &[u8]) -> Self {
        let is_prefix = |byte: &u8| {
            matches!(byte, 0x66 | 0xf0 | 0xf2 | 0xf3 | 0x64 | 0x65 | 0x2e | 0x36 | 0x3e | 0x26 | 0x40..=0x4f)
        };
        let prefixes = bytes.iter().take_while(|byte| is_prefix(byte)).count();
        let (prefixes, rest) = bytes.split_at(prefixes);
        let mut opcode = [0; 3];
        rest.iter().zip(&mut opcode).for_each(|(from, to)| *to = *from);
        let pushes_or_jumps = match opcode {
            [
                0x50..=0x5f
                | 0x68
                | 0x6a
                | 0x70..=0x7f
                | 0x9c
                | 0x9d
                | 0xc2
                | 0xc3
                | 0xc9
                | 0xe0..=0xe3
                | 0xe8
                | 0xe9
                | 0xeb,
                ..,
            ]
            | [0x0f, 0x80..=0x8f, _] => true,
            // Address computations and hints.
            [0x8d | 0x90, ..] | [0x0f, 0x0d | 0x18 | 0x1e | 0x1f, _] => true,
            _ => false,
        };
        Decoded {
            opcode,
            is_own: prefixes.contains(&0x65),
            is_atomic: prefixes.contains(&0xf0) || matches!(opcode, [0x86 | 0x87, modrm, _] if modrm < 0xc0),
            may_access: !pushes_or_jumps,
        }
    }

    /// Whether it talks to a device by itself: by a port, or perhaps by a register of the processor's (true).
    pub fn does_io(&self) -> Option<bool> {
        match self.opcode {
            [0xe4..=0xe7 | 0xec..=0xef | 0x6c..=0x6f, ..] => Some(false),
            [0x0f, 0x30, _] => Some(true),
            _ => None,
        }
    }
}
