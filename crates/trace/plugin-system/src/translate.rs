//! What is inserted into the guest's code, as QEMU translates it.
//!
//! Every block adds its instructions to a count; beyond that only the kernel's has anything inserted, and of that only the entries of the functions listened to, and the returns of those that
//! lock. A memory callback costs more than the access, so that code outside of sampled sections must have none. A conditional callback would still cost a load and a branch at each
//! access. But QEMU translates a block anew for each combination of processor flags that the code may depend on, and rflags' alignment check is one of them, which
//! nothing heeds as long as SMAP is off. So a processor in a sampled section runs with that flag set ([`State::watch`](crate::state::State::watch)): its blocks are others, and only they
//! have memory callbacks.
//!
//! QEMU looks at the flags at indirect jumps and returns, and where blocks are not chained yet; chained blocks do not ask. A chain once made by a block that changes
//! the flag would let others later come from one kind of blocks to the other. So it is changed in blocks of locking functions alone: these are left by a return before
//! anything is to be recorded. An interrupt keeps the flag, and what it interrupted has it back with its own.

use crate::api::{self, Block, Instruction};
use crate::collector::{Collector, Phase, collector};
use crate::decode::{Decoded, LONGEST, returns};
use crate::processor::{Instructions, Processor};
use crate::state::State;
use crate::symbols::Function;
use crate::{layout, with_state};
use std::cell::Cell;
use std::ffi::{c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use unconvoy_trace_collector::set::Access;

/// The most virtual processors.
pub const PROCESSORS: usize = 1024;

/// Each is used by its own thread alone; made at its first callback.
static BY_NUMBER: [AtomicPtr<Processor>; PROCESSORS] = [const { AtomicPtr::new(ptr::null_mut()) }; PROCESSORS];

thread_local! {
    /// The state of this thread's processor, once it is known: translation is not told which processor it is for.
    static CURRENT: Cell<Option<State>> = const { Cell::new(None) };
}

/// Set in a place's number: the instruction reads what it writes, in one.
const ATOMIC: u64 = 1 << 32;

/// A defect of this plug-in must not be the guest's: collecting ends, and the guest goes on.
pub fn guarded(body: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(body)).is_err()
        && let Some(collector) = collector()
    {
        collector.fails("the plug-in failed, see standard error: collecting ended there".to_string());
    }
}

/// A block is translated.
pub extern "C" fn translated(_: api::Id, block: *mut Block) {
    guarded(|| {
        let Some(collector) = collector() else { return };
        // SAFETY: the block is QEMU's, for the time of this call; likewise below.
        let (pc, count) = unsafe { (api::qemu_plugin_tb_vaddr(block), api::qemu_plugin_tb_n_insns(block)) };
        // SAFETY: as above; index < count.
        let instructions = (0..count).map(|index| unsafe { api::qemu_plugin_tb_get_insn(block, index) });
        match collector.phase() {
            Phase::Collecting => listen(collector, block, pc, instructions),
            Phase::Waiting if collector.symbols.function(pc) == Some(Function::Name) => {
                instructions.take(1).for_each(|first| execute(first, named, ptr::null_mut()));
            }
            _ => {}
        }
    });
}

fn listen(
    collector: &Collector,
    block: *mut Block,
    pc: u64,
    instructions: impl ExactSizeIterator<Item = *mut Instruction> + Clone,
) {
    let count = instructions.len() as u64;
    let is_kernel = pc >= layout::KERNEL;
    let word =
        if is_kernel { std::mem::offset_of!(Instructions, kernel) } else { std::mem::offset_of!(Instructions, user) };
    // SAFETY: the block being translated, and a word of the scoreboard.
    unsafe {
        let word = api::Word { score: collector.scoreboard(), offset: word };
        api::qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(block, api::ADD, word, count);
    }
    if !is_kernel {
        return;
    }
    if let Some(function) = collector.symbols.function(pc) {
        let first = instructions.clone().take(1);
        match function {
            Function::Name => first.for_each(|first| execute(first, named, ptr::null_mut())),
            _ => first.for_each(|first| execute(first, entered_stub, (function.number() << 32 | count) as *mut c_void)),
        }
    }
    if let Some(code) = collector.symbols.locking_code(pc) {
        for instruction in instructions.filter(|_| code.acquires) {
            let (at, bytes, size) = bytes_of(instruction);
            if returns(&collector.symbols, &code.range, at, &bytes[..size]) {
                execute(instruction, returned_stub, ptr::null_mut());
            }
        }
        return;
    }
    if !CURRENT.get().is_some_and(State::watching) {
        return;
    }
    for instruction in instructions {
        let (at, bytes, size) = bytes_of(instruction);
        let decoded = Decoded::new(&bytes[..size]);
        if let Some(by_register) = decoded.does_io() {
            execute(instruction, does_io, by_register as usize as *mut c_void);
        }
        if decoded.is_own || !decoded.may_access {
            continue;
        }
        let place = u64::from(collector.places.number(&collector.log, at)) | if decoded.is_atomic { ATOMIC } else { 0 };
        // SAFETY: an instruction of the block being translated.
        unsafe {
            api::qemu_plugin_register_vcpu_mem_cb(
                instruction,
                accessed,
                api::READS_REGISTERS,
                api::READ_WRITE,
                place as *mut c_void,
            );
        }
    }
}

fn execute(instruction: *mut Instruction, callback: api::Executed, data: *mut c_void) {
    // SAFETY: an instruction of the block being translated.
    unsafe { api::qemu_plugin_register_vcpu_insn_exec_cb(instruction, callback, api::READS_REGISTERS, data) };
}

/// Its address and its bytes.
fn bytes_of(instruction: *mut Instruction) -> (u64, [u8; LONGEST], usize) {
    let mut bytes = [0; LONGEST];
    // SAFETY: an instruction of the block being translated; at most so many bytes are copied.
    unsafe {
        let size = api::qemu_plugin_insn_data(instruction, bytes.as_mut_ptr().cast(), LONGEST);
        (api::qemu_plugin_insn_vaddr(instruction), bytes, size.min(LONGEST))
    }
}

with_state!(entered_stub => entered);
with_state!(returned_stub => returned);

extern "C" fn entered(vcpu: c_uint, data: *mut c_void, rbp: *mut u64) {
    guarded(|| {
        let Some(collector) = collector().filter(|collector| collector.phase() == Phase::Collecting) else { return };
        let Some(processor) = processor(vcpu).or_else(|| make_processor(collector, vcpu, rbp)) else { return };
        let data = data as u64;
        processor.enters(collector, Function::numbered(data >> 32), data & u64::from(u32::MAX));
    });
}

extern "C" fn returned(vcpu: c_uint, _: *mut c_void, _: *mut u64) {
    guarded(|| {
        let Some(collector) = collector().filter(|collector| collector.phase() == Phase::Collecting) else { return };
        if let Some(processor) = processor(vcpu) {
            processor.returns(collector);
        }
    });
}

unsafe extern "C" fn named(_: c_uint, _: *mut c_void) {
    guarded(|| {
        if let Some(collector) = collector() {
            collector.names_itself();
        }
    });
}

unsafe extern "C" fn does_io(vcpu: c_uint, by_register: *mut c_void) {
    guarded(|| {
        if let Some(processor) = processor(vcpu) {
            processor.does_io(!by_register.is_null());
        }
    });
}

extern "C" fn accessed(vcpu: c_uint, information: u32, address: u64, place: *mut c_void) {
    guarded(|| {
        let (Some(collector), Some(processor)) = (collector(), processor(vcpu)) else { return };
        let place = place as u64;
        // SAFETY: what QEMU has just handed over.
        let (shift, written) =
            unsafe { (api::qemu_plugin_mem_size_shift(information), api::qemu_plugin_mem_is_store(information)) };
        let read = !written || place & ATOMIC != 0;
        processor.accesses(
            collector,
            information,
            Access { address, size: 1 << shift, read, written, place: place as u32 },
        );
    });
}

/// A virtual processor, for a callback that it makes itself.
fn processor(vcpu: c_uint) -> Option<&'static mut Processor> {
    let slot = BY_NUMBER.get(vcpu as usize)?;
    // SAFETY: made by `make_processor`, never freed, and used by its own thread's callbacks alone, which do not nest, or by `all_end`, while all processors are stopped.
    unsafe { slot.load(Ordering::Relaxed).as_mut() }
}

#[cold]
fn make_processor(collector: &Collector, vcpu: c_uint, rbp: *mut u64) -> Option<&'static mut Processor> {
    let Some(state) = State::verify(rbp) else {
        collector.fails("this QEMU keeps its processors' state elsewhere: nothing was collected".to_string());
        return None;
    };
    if CURRENT.get().is_some_and(|other| other != state) {
        collector.fails("QEMU runs several processors in one thread, and tells plug-ins wrong numbers of them then: start it with -accel tcg,thread=multi".to_string());
        return None;
    }
    CURRENT.set(Some(state));
    // SAFETY: the scoreboard lives for ever, and has a place for each processor.
    let instructions = unsafe { api::qemu_plugin_scoreboard_find(collector.scoreboard(), vcpu) };
    let processor = Processor::new(collector, vcpu as usize, state, instructions.cast());
    BY_NUMBER.get(vcpu as usize)?.store(Box::into_raw(Box::new(processor)), Ordering::Relaxed);
    self::processor(vcpu)
}

/// What the processors have seen. All are stopped, and none is in a callback.
pub fn all_end() -> Vec<crate::processor::Totals> {
    (0..PROCESSORS as c_uint).filter_map(processor).map(Processor::ends).collect()
}
