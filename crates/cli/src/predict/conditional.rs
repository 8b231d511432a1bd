//! Finds stores that are conditional in the source and unconditional in the machine code (section
//! 3.3 and Figure 2 of Syncchar's paper): a conditional move selects the new or the old value, and
//! the store writes the selected one.

use iced_x86::{
    Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register,
};

use crate::images::Images;

/// Number of instructions that are searched, backwards from the store, for the origin of the value.
/// This is an estimate: compilers emit the conditional move close to the store.
const NEAR: usize = 24;

/// Longest part of a function that is decoded, in bytes.
const MOST_BYTES: usize = 1 << 16;

/// Returns whether the instruction at `pc` stores the result of a conditional move.
pub fn is_conditional_store(images: &Images, pc: u64) -> bool {
    let store = images.function_until(pc, MOST_BYTES);
    store.is_some_and(|(start, code)| chooses(start, &code, pc))
}

/// As `is_conditional_store`, for the code of a function that starts at `start`.
fn chooses(start: u64, code: &[u8], pc: u64) -> bool {
    let decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    let instructions: Vec<Instruction> =
        decoder.into_iter().take_while(|instruction| instruction.ip() <= pc).collect();
    let Some((store, before)) = instructions.split_last().filter(|(store, _)| store.ip() == pc)
    else {
        return false;
    };
    if store.op_count() != 2
        || store.op0_kind() != OpKind::Memory
        || store.op1_kind() != OpKind::Register
    {
        return false;
    }
    let stored = store.op1_register().full_register();
    let mut factory = InstructionInfoFactory::new();
    for instruction in before.iter().rev().take(NEAR) {
        if writes(&mut factory, instruction, stored) {
            return is_conditional_move(instruction.mnemonic());
        }
    }
    false
}

fn writes(
    factory: &mut InstructionInfoFactory,
    instruction: &Instruction,
    register: Register,
) -> bool {
    let written =
        [OpAccess::Write, OpAccess::ReadWrite, OpAccess::CondWrite, OpAccess::ReadCondWrite];
    let used = factory.info(instruction).used_registers();
    used.iter()
        .any(|used| used.register().full_register() == register && written.contains(&used.access()))
}

fn is_conditional_move(mnemonic: Mnemonic) -> bool {
    use Mnemonic::{
        Cmova, Cmovae, Cmovb, Cmovbe, Cmove, Cmovg, Cmovge, Cmovl, Cmovle, Cmovne, Cmovno, Cmovnp,
        Cmovns, Cmovo, Cmovp, Cmovs,
    };
    [
        Cmova, Cmovae, Cmovb, Cmovbe, Cmove, Cmovg, Cmovge, Cmovl, Cmovle, Cmovne, Cmovno, Cmovnp,
        Cmovns, Cmovo, Cmovp, Cmovs,
    ]
    .contains(&mnemonic)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figure 2's shape: `test esi,esi; mov eax,[rdi]; cmovne eax,edx; mov [rdi],eax; mov
    /// [rdi],ecx`.
    const CODE: [u8; 11] = [0x85, 0xf6, 0x8b, 0x07, 0x0f, 0x45, 0xc2, 0x89, 0x07, 0x89, 0x0f];

    #[test]
    fn store_of_conditional_move_is_recognised() {
        assert!(chooses(0x1000, &CODE, 0x1007));
    }

    #[test]
    fn other_instructions_are_not_conditional_stores() {
        assert!(!chooses(0x1000, &CODE, 0x1009));
        assert!(!chooses(0x1000, &CODE, 0x1002));
        assert!(!chooses(0x1000, &CODE, 0x1003));
        assert!(!chooses(0x1000, &[], 0x1000));
    }
}
