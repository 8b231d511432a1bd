//! Classifies instructions, as far as the collectors need.

/// An x86-64 instruction's opcode and prefixes.
#[derive(Clone, Copy, Debug)]
pub struct Decoded {
    /// The first bytes after the prefixes; missing bytes are 0.
    pub opcode: [u8; 3],
    /// Whether the instruction has the prefix that addresses memory relative to gs.
    pub is_by_gs: bool,
    /// Whether the instruction reads and writes memory in one access: it has a lock prefix, or
    /// exchanges a register with memory.
    pub is_atomic: bool,
}

impl Decoded {
    /// Decodes an instruction's bytes.
    pub fn new(bytes: &[u8]) -> Self {
        let is_prefix = |byte: &u8| {
            matches!(
                byte,
                0x66 | 0xf0 | 0xf2 | 0xf3 | 0x64 | 0x65 | 0x2e | 0x36 | 0x3e | 0x26 | 0x40..=0x4f
            )
        };
        let prefixes = bytes.iter().take_while(|byte| is_prefix(byte)).count();
        let (prefixes, rest) = bytes.split_at(prefixes);
        let mut opcode = [0; 3];
        rest.iter().zip(&mut opcode).for_each(|(from, to)| *to = *from);
        Decoded {
            opcode,
            is_by_gs: prefixes.contains(&0x65),
            is_atomic: prefixes.contains(&0xf0)
                || matches!(opcode, [0x86 | 0x87, modrm, _] if modrm < 0xc0),
        }
    }

    /// Whether the instruction jumps, calls or returns.
    pub fn ends_block(&self) -> bool {
        match self.opcode {
            [0x70..=0x7f | 0xc2 | 0xc3 | 0xe0..=0xe3 | 0xe8 | 0xe9 | 0xeb, ..]
            | [0x0f, 0x80..=0x8f, _] => true,
            [0xff, modrm, _] => matches!(modrm >> 3 & 7, 2..=5),
            _ => false,
        }
    }

    /// Whether the instruction may access memory other than the stack slots of a push, a pop, a
    /// call or a return.
    pub fn may_access(&self) -> bool {
        match self.opcode {
            // An indirect jump or call reads its target from memory.
            [0xff, ..] => true,
            [0x50..=0x5f | 0x68 | 0x6a | 0x9c | 0x9d | 0xc9, ..] => false,
            // Address computations and hints.
            [0x8d | 0x90, ..] | [0x0f, 0x0d | 0x18 | 0x1e | 0x1f, _] => false,
            _ => !self.ends_block(),
        }
    }

    /// Whether the instruction itself drives a device. `Some(false)` stands for port I/O,
    /// `Some(true)` for a write of a model-specific register, which may belong to a device.
    pub fn does_io(&self) -> Option<bool> {
        match self.opcode {
            [0xe4..=0xe7 | 0xec..=0xef | 0x6c..=0x6f, ..] => Some(false),
            [0x0f, 0x30, _] => Some(true),
            _ => None,
        }
    }
}
