//! Where a kernel keeps what is a processor's own.

use crate::symbols::Symbols;
use unconvoy_trace_collector::memory::Memory;
use unconvoy_trace_stream::Region;

/// Bytes of a task's stack, and its alignment; of an interrupt's stack, too, which is aligned to
/// pages alone.
pub const STACK: u64 = 16 << 10;

/// The kernel's half of the address space.
pub const KERNEL: u64 = 1 << 63;

/// Where devices may be mapped: `ioremap`'s area, and the fixed one. With page tables of four
/// levels.
const IOREMAP: Region = Region::between(0xffff_c900_0000_0000, 0xffff_e900_0000_0000);
const FIXED: u64 = 0xffff_ffff_ff00_0000;

/// Where the direct map of memory begins with four levels of page tables, and no randomisation.
const DIRECT_MAP: u64 = 0xffff_8880_0000_0000;

/// Whether a device may be at `address`.
pub fn may_be_device(address: u64) -> bool {
    IOREMAP.contains(address) || address >= FIXED
}

/// Where a kernel keeps what is a processor's own, looked up when collecting begins.
#[derive(Debug, Default, Clone)]
pub struct Layout {
    /// Each processor's own memory.
    pub per_cpu: Vec<Region>,
    /// What is added to the address of a per-processor variable.
    pub per_cpu_offsets: Vec<u64>,
    /// Of each processor; empty if it was not found.
    pub interrupt_stacks: Vec<Region>,
    /// Where all physical memory is mapped, and the array of `struct page` is.
    pub direct_map: u64,
    pub page_structures: u64,
}

impl Layout {
    /// Reads it from the guest, in a callback; what is amiss is noted.
    pub fn look(memory: &dyn Memory, symbols: &Symbols, processors: usize, note: &mut dyn FnMut(String)) -> Self {
        let value = |name: &str| memory.word(symbols.variable(name)?);
        let mut layout = Layout {
            direct_map: value("page_offset_base").unwrap_or(DIRECT_MAP),
            page_structures: value("vmemmap_base").unwrap_or(0),
            ..Layout::default()
        };
        let unit = symbols.variable("pcpu_unit_size").and_then(|at| memory.half_word(at)).unwrap_or(0);
        // Since Linux 6.15 per-processor variables are linked where others are, before that from 0.
        let start = symbols.variable("__per_cpu_start").unwrap_or(0);
        let offsets = symbols.variable("__per_cpu_offset");
        for number in 0..processors as u64 {
            let Some(offset) = offsets.and_then(|offsets| memory.word(offsets + number * 8)) else { break };
            let base = start.wrapping_add(offset);
            if base < KERNEL {
                break;
            }
            layout.per_cpu.push(Region::new(base, unit.into()));
            layout.per_cpu_offsets.push(offset);
            layout.interrupt_stacks.push(interrupt_stack(memory, symbols, offset).unwrap_or_default());
        }
        if unit == 0 || layout.per_cpu.len() < processors {
            note("the kernel's per-processor memory was not found: it counts as any other".to_string());
        }
        if layout.interrupt_stacks.iter().any(|stack| stack.size == 0) {
            note("the stacks of interrupts were not found".to_string());
        }
        layout
    }

    /// The stack that the pointer of a processor is into.
    pub fn stack(&self, processor: usize, pointer: u64) -> Region {
        match self.interrupt_stacks.get(processor) {
            Some(stack) if stack.contains(pointer) => *stack,
            _ => Region::new(pointer & !(STACK - 1), STACK),
        }
    }

    /// Whether `address` is the processor's own.
    pub fn is_own(&self, processor: usize, address: u64) -> bool {
        self.per_cpu.get(processor).is_some_and(|unit| unit.contains(address))
    }

    /// Whether `address` is any processor's own.
    pub fn is_per_cpu(&self, address: u64) -> bool {
        self.per_cpu.iter().any(|unit| unit.contains(address))
    }
}

/// A processor's stack for interrupts. Its uppermost word's address is in a variable, which some
/// versions keep in a structure with others: there it is the one that ends a page and lies in the
/// area of mapped stacks.
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

/// Whether the guest is set up so that sampling works: what is not, otherwise.
pub fn unfit(cr4: u64, layout: &Layout) -> Option<String> {
    const SMAP: u64 = 1 << 21;
    if cr4 & SMAP != 0 {
        return Some(
            "the guest's processors have SMAP, so that nothing was sampled: start QEMU with -cpu max,-smap".to_string(),
        );
    }
    if layout.direct_map < 0xffff_8000_0000_0000 {
        return Some(
            "the guest's page tables have five levels, so that nothing was sampled: start QEMU with -cpu max,-la57"
                .to_string(),
        );
    }
    None
}
