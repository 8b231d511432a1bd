//! Relations between the registers of a function, from its machine code.
//!
//! The debug information may say that a call's argument is in `rbp` and a parameter in `rbx`, but
//! not that the function began with `lea rbp, [rdi + 48]; mov rbx, rdi`. If only one instruction of
//! the function writes a register, apart from the `pop` that restores it, the register has that
//! instruction's value wherever the function uses it.

use std::collections::HashMap;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};

use super::value::{Root, Value};

/// The general registers in the order of their DWARF numbers (System V ABI, AMD64, figure 3.36).
const NUMBERS: [Register; 16] = [
    Register::RAX,
    Register::RDX,
    Register::RCX,
    Register::RBX,
    Register::RSI,
    Register::RDI,
    Register::RBP,
    Register::RSP,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

/// The numbers of the registers that a call may change.
const CHANGED_BY_CALLS: [usize; 9] = [0, 1, 2, 4, 5, 8, 9, 10, 11];

fn number(register: Register) -> Option<usize> {
    NUMBERS.iter().position(|&other| other == register.full_register())
}

/// For each register, its value in terms of another one. Registers have DWARF's numbers.
pub type Relations = HashMap<u16, Value>;

/// Finds the relations between the registers of a function with this code.
pub fn relations(code: &[u8]) -> Relations {
    let mut writes = [0_usize; 16];
    let mut copies: Vec<(usize, Value)> = Vec::new();
    let mut info = InstructionInfoFactory::new();
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    let mut is_first_block = true;
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if let Some((from, to, offset)) = copy(&instruction) {
            // Until it is written, a register still has the argument that it passed.
            let is_argument = is_first_block && writes[from] == 0;
            let root = if is_argument { Root::Entry } else { Root::Register };
            copies.push((to, Value { root: root(from as u16), offset }));
        }
        if instruction.mnemonic() != Mnemonic::Pop {
            for used in info.info(&instruction).used_registers() {
                let writing = matches!(
                    used.access(),
                    OpAccess::Write
                        | OpAccess::ReadWrite
                        | OpAccess::CondWrite
                        | OpAccess::ReadCondWrite
                );
                if let Some(number) = number(used.register()).filter(|_| writing) {
                    writes[number] += 1;
                }
            }
        }
        match instruction.flow_control() {
            FlowControl::Next => {}
            FlowControl::Call | FlowControl::IndirectCall => {
                CHANGED_BY_CALLS.iter().for_each(|&number| writes[number] += 1);
                is_first_block = false;
            }
            _ => is_first_block = false,
        }
    }
    let is_stable = |value: &Value| match value.root {
        Root::Register(register) => {
            let register = usize::from(register);
            writes[register] == 1 && !CHANGED_BY_CALLS.contains(&register)
        }
        // An argument at the function's entry: later writes to its register do not matter.
        _ => true,
    };
    let once = copies.into_iter().filter(|(to, value)| writes[*to] == 1 && is_stable(value));
    once.map(|(to, value)| (to as u16, value)).collect()
}

/// The source, the target and the added constant of an instruction that copies a register or adds
/// a constant to one.
fn copy(instruction: &Instruction) -> Option<(usize, usize, i64)> {
    if instruction.op0_kind() != OpKind::Register || !instruction.op0_register().is_gpr64() {
        return None;
    }
    let to = number(instruction.op0_register())?;
    match instruction.mnemonic() {
        Mnemonic::Mov
            if instruction.op1_kind() == OpKind::Register
                && instruction.op1_register().is_gpr64() =>
        {
            Some((number(instruction.op1_register())?, to, 0))
        }
        Mnemonic::Lea
            if instruction.memory_index() == Register::None
                && instruction.memory_base().is_gpr64() =>
        {
            let offset = instruction.memory_displacement64().cast_signed();
            Some((number(instruction.memory_base())?, to, offset))
        }
        _ => None,
    }
}

/// The given value, and then the values that equal it according to the relations.
pub fn equals(value: Value, relations: &Relations) -> Vec<Value> {
    let mut equals = vec![value];
    let mut last = value;
    while let Root::Register(register) = last.root
        && equals.len() < NUMBERS.len()
        && let Some(source) = relations.get(&register)
    {
        last = Value { root: source.root, offset: last.offset + source.offset };
        equals.push(last);
    }
    equals
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_written_once_are_related() {
        // push rbp; lea rbp, [rdi + 48]; push rbx; mov rbx, rdi; mov rdi, rbp; call; add [rbx], 1;
        // mov rdi, rbp; pop rbx; pop rbp; ret
        let code = [
            0x55, 0x48, 0x8d, 0x6f, 0x30, 0x53, 0x48, 0x89, 0xfb, 0x48, 0x89, 0xef, 0xe8, 0, 0, 0,
            0, 0x48, 0x83, 0x03, 0x01, 0x48, 0x89, 0xef, 0x5b, 0x5d, 0xc3,
        ];
        let relations = relations(&code);
        let value = |root, offset| Value { root, offset };
        assert_eq!(relations.get(&6), Some(&value(Root::Entry(5), 48)));
        assert_eq!(relations.get(&3), Some(&value(Root::Entry(5), 0)));
        assert_eq!(relations.get(&5), None, "rdi is written twice");
        let equal = equals(value(Root::Register(6), 0), &relations);
        assert_eq!(equal, [value(Root::Register(6), 0), value(Root::Entry(5), 48)]);
    }

    #[test]
    fn registers_written_twice_are_unrelated() {
        // lea rbp, [rdi + 48]; mov rbp, rsi; mov rbx, rdi; mov rdi, rsi; mov r12, rdi
        let code = [
            0x48, 0x8d, 0x6f, 0x30, 0x48, 0x89, 0xf5, 0x48, 0x89, 0xfb, 0x48, 0x89, 0xf7, 0x49,
            0x89, 0xfc,
        ];
        let relations = relations(&code);
        assert_eq!(relations.get(&6), None);
        assert_eq!(relations.get(&3), Some(&Value { root: Root::Entry(5), offset: 0 }));
        assert_eq!(relations.get(&12), None, "rdi no longer had the argument");
    }
}
