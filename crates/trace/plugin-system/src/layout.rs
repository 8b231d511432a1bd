//! A kernel's per-processor memory and stacks.

use crate::messages;
use crate::symbols::Symbols;
use unconvoy_trace_collector::memory::Memory;
use unconvoy_trace_stream::Region;

/// Bytes of a task's stack, also its alignment. An interrupt stack has the same size but only page
/// alignment.
pub const STACK: u64 = 16 << 10;

/// Start of the kernel's half of the address space.
pub const KERNEL: u64 = 1 << 63;

/// Where devices may be mapped with four-level page tables: the `ioremap` area and the fixed
/// mappings.
const IOREMAP: Region = Region::between(0xffff_c900_0000_0000, 0xffff_e900_0000_0000);
const FIXED: u64 = 0xffff_ffff_ff00_0000;

/// Start of the direct map with four-level page tables and without randomisation.
const DIRECT_MAP: u64 = 0xffff_8880_0000_0000;

/// Whether a device may be mapped at `address`.
pub fn may_be_device(address: u64) -> bool {
    IOREMAP.contains(address) || address >= FIXED
}

/// Per-processor memory, stacks and maps, read from the guest when the collection starts.
#[derive(Debug, Default, Clone)]
pub struct Layout {
    pub per_cpu: Vec<Region>,
    /// For each processor, the offset to add to the address of a per-processor variable.
    pub per_cpu_offsets: Vec<u64>,
    /// Each processor's interrupt stack; empty if not found.
    pub interrupt_stacks: Vec<Region>,
    /// Start of the direct map of physical memory, and of the array of `struct page`.
    pub direct_map: u64,
    pub page_structures: u64,
}

impl Layout {
    /// Reads the layout from the guest, in a callback. `note` receives what is missing.
    pub fn read(
        memory: &dyn Memory,
        symbols: &Symbols,
        processors: usize,
        note: &mut dyn FnMut(String),
    ) -> Self {
        let value = |name: &str| memory.word(symbols.variable(name)?);
        let mut layout = Layout {
            direct_map: value("page_offset_base").unwrap_or(DIRECT_MAP),
            page_structures: value("vmemmap_base").unwrap_or(0),
            ..Layout::default()
        };
        let unit =
            symbols.variable("pcpu_unit_size").and_then(|at| memory.half_word(at)).unwrap_or(0);
        // Since Linux 6.15, per-processor variables have ordinary link addresses; before, they
        // start at 0.
        let start = symbols.variable("__per_cpu_start").unwrap_or(0);
        let offsets = symbols.variable("__per_cpu_offset");
        for number in 0..processors as u64 {
            let Some(offset) = offsets.and_then(|offsets| memory.word(offsets + number * 8)) else {
                break;
            };
            let base = start.wrapping_add(offset);
            if base < KERNEL {
                break;
            }
            layout.per_cpu.push(Region::new(base, unit.into()));
            layout.per_cpu_offsets.push(offset);
            layout
                .interrupt_stacks
                .push(interrupt_stack(memory, symbols, offset).unwrap_or_default());
        }
        if unit == 0 || layout.per_cpu.len() < processors {
            note(messages::no_per_cpu_memory());
        }
        if layout.interrupt_stacks.iter().any(|stack| stack.size == 0) {
            note(messages::no_interrupt_stacks());
        }
        layout
    }

    /// The stack that contains the processor's stack pointer.
    pub fn stack(&self, processor: usize, pointer: u64) -> Region {
        match self.interrupt_stacks.get(processor) {
            Some(stack) if stack.contains(pointer) => *stack,
            _ => Region::new(pointer & !(STACK - 1), STACK),
        }
    }

    pub fn is_own(&self, processor: usize, address: u64) -> bool {
        self.per_cpu.get(processor).is_some_and(|unit| unit.contains(address))
    }

    pub fn is_per_cpu(&self, address: u64) -> bool {
        self.per_cpu.iter().any(|unit| unit.contains(address))
    }
}

/// A processor's interrupt stack. A variable of the kernel holds the address of the stack's
/// uppermost word. In some versions the variable is a member of a structure. It is then recognized
/// by its value, the address of a page's last word in the area of mapped stacks.
fn interrupt_stack(memory: &dyn Memory, symbols: &Symbols, offset: u64) -> Option<Region> {
    let (at, words) = match (symbols.variable("hardirq_stack_ptr"), symbols.variable("pcpu_hot")) {
        (Some(at), _) => (at, 1),
        (None, Some(at)) => (at, 8),
        _ => return None,
    };
    let uppermost = (0..words)
        .filter_map(|index| memory.word(offset.wrapping_add(at) + index * 8))
        .find(|word| IOREMAP.contains(*word) && word & 0xfff == 0xff8)?;
    Some(Region::new(uppermost + 8 - STACK, STACK))
}

/// The reason why sampling cannot work in this guest, or `None` if it can.
pub fn unfit(cr4: u64, layout: &Layout) -> Option<String> {
    const SMAP: u64 = 1 << 21;
    if cr4 & SMAP != 0 {
        return Some(messages::has_smap());
    }
    if layout.direct_map < 0xffff_8000_0000_0000 {
        return Some(messages::five_level_page_tables());
    }
    None
}
