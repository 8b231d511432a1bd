//! Inserts callbacks into the guest's code while QEMU translates it.
//!
//! Every block adds its number of instructions to a count. Only kernel code has callbacks: at the
//! entries of observed functions, at the returns of locking functions, and at each access in the
//! blocks of sampled sections (see [`unconvoy_trace_collector::state`]). An interrupt handler keeps
//! the flag that switches callbacks, and the return from the interrupt restores the interrupted
//! code's flag.

use crate::collector::{Collector, Phase, collector};
use crate::processor::{BY_NUMBER, Instructions, Processor};
use crate::registers::verify;
use crate::returns::{LONGEST, returns};
use crate::symbols::Function;
use crate::{api, layout, messages};
use std::ffi::{c_uint, c_void};
use unconvoy_trace_collector::decode::Decoded;
use unconvoy_trace_collector::front::{Block, FrontEnd as _, Instruction, guarded};
use unconvoy_trace_collector::state::State;
use unconvoy_trace_collector::with_state;

pub fn translate(collector: &Collector, block: &Block) {
    match collector.phase() {
        Phase::Collecting => listen(collector, block),
        Phase::Waiting
            if collector.symbols.function(block.address()) == Some(Function::SetHostname) =>
        {
            block.instructions().take(1).for_each(|first| first.on_execution(named, 0));
        }
        _ => {}
    }
}

fn listen(collector: &Collector, block: &Block) {
    let (pc, instructions) = (block.address(), block.instructions());
    let count = instructions.len() as u64;
    let is_kernel = pc >= layout::KERNEL;
    let offset = if is_kernel {
        std::mem::offset_of!(Instructions, kernel)
    } else {
        std::mem::offset_of!(Instructions, user)
    };
    let word = api::Word { score: collector.scoreboard(), offset };
    // SAFETY: the block in translation, and a word of the scoreboard.
    unsafe {
        api::qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(
            block.as_ptr(),
            api::ADD,
            word,
            count,
        )
    };
    if !is_kernel {
        return;
    }
    if let (Some(function), Some(first)) =
        (collector.symbols.function(pc), instructions.clone().next())
    {
        match function {
            Function::SetHostname => first.on_execution(named, 0),
            _ => first.on_execution(entered_stub, function.number() << 32 | count),
        }
    }
    if let Some(code) = collector.symbols.locking_code(pc) {
        for instruction in instructions.filter(|_| code.acquires) {
            let (bytes, size) = bytes_of(instruction);
            if returns(&collector.symbols, code.region, instruction.address(), &bytes[..size]) {
                instruction.on_execution(returned_stub, 0);
            }
        }
        return;
    }
    if !State::current().is_some_and(State::is_watching) {
        return;
    }
    for instruction in instructions {
        let (bytes, size) = bytes_of(instruction);
        let decoded = Decoded::new(&bytes[..size]);
        if let Some(by_register) = decoded.does_io() {
            instruction.on_execution(does_io, by_register.into());
        }
        // The kernel accesses per-processor memory through gs.
        if !decoded.is_by_gs && decoded.may_access() {
            instruction.record::<Collector>(
                collector.collection.place(instruction.address()),
                decoded.is_atomic,
            );
        }
    }
}

fn bytes_of(instruction: Instruction) -> ([u8; LONGEST], usize) {
    let mut bytes = [0; LONGEST];
    // SAFETY: an instruction of the block in translation; at most `LONGEST` bytes are copied.
    let size = unsafe {
        api::qemu_plugin_insn_data(instruction.as_ptr(), bytes.as_mut_ptr().cast(), LONGEST)
    };
    (bytes, size.min(LONGEST))
}

with_state!(entered_stub => entered);
with_state!(returned_stub => returned);

fn collecting() -> Option<&'static Collector> {
    collector().filter(|collector| collector.phase() == Phase::Collecting)
}

extern "C" fn entered(vcpu: c_uint, data: *mut c_void, rbp: *mut u64) {
    guarded::<Collector>(|| {
        let Some(collector) = collecting() else { return };
        let Some(processor) = BY_NUMBER.get(vcpu).or_else(|| make_processor(collector, vcpu, rbp))
        else {
            return;
        };
        let data = data as u64;
        processor.enter(collector, Function::numbered(data >> 32), data & u64::from(u32::MAX));
    });
}

extern "C" fn returned(vcpu: c_uint, _: *mut c_void, _: *mut u64) {
    guarded::<Collector>(|| {
        if let (Some(collector), Some(processor)) = (collecting(), BY_NUMBER.get(vcpu)) {
            processor.return_from_lock(collector);
        }
    });
}

unsafe extern "C" fn named(_: c_uint, _: *mut c_void) {
    guarded::<Collector>(|| {
        if let Some(collector) = collector() {
            collector.handle_hostname();
        }
    });
}

unsafe extern "C" fn does_io(vcpu: c_uint, by_register: *mut c_void) {
    guarded::<Collector>(|| {
        if let Some(processor) = BY_NUMBER.get(vcpu) {
            processor.mark_io(!by_register.is_null());
        }
    });
}

#[cold]
fn make_processor(
    collector: &Collector,
    vcpu: c_uint,
    rbp: *mut u64,
) -> Option<&'static mut Processor> {
    let fail = |why: String| {
        collector.collection.notes.add(why);
        collector.abort();
        None
    };
    let Some(state) = verify(rbp) else {
        return fail(messages::unknown_state());
    };
    if State::current().is_some_and(|other| other != state) {
        // QEMU then passes wrong processor numbers to plug-ins.
        return fail(messages::one_thread_for_all());
    }
    state.make_current();
    // SAFETY: the scoreboard has static lifetime and an element for each processor.
    let instructions = unsafe { api::qemu_plugin_scoreboard_find(collector.scoreboard(), vcpu) };
    BY_NUMBER.put(vcpu, Processor::new(collector, vcpu as usize, state, instructions.cast()))
}
