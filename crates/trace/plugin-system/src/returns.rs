//! Recognizes where a kernel's functions return.

use crate::symbols::Symbols;
use unconvoy_trace_stream::Region;

/// The longest x86-64 instruction.
pub const LONGEST: usize = 15;

/// Whether the instruction at `at` returns from the function in `code`: by a return instruction, or
/// by a jump to a return thunk.
pub fn returns(symbols: &Symbols, code: Region, at: u64, bytes: &[u8]) -> bool {
    let after = at.wrapping_add(bytes.len() as u64);
    match bytes {
        [0xc2 | 0xc3, ..] | [0xf3, 0xc3, ..] => true,
        [0xe9, offset @ ..] => {
            let offset = offset.try_into().map(i32::from_le_bytes).unwrap_or(0);
            let target = after.wrapping_add_signed(offset.into());
            !code.contains(target) && symbols.is_return_thunk(target)
        }
        _ => false,
    }
}
