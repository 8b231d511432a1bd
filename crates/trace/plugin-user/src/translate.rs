//! Inserts callbacks into the program's code while QEMU translates it: at the entries of observed
//! functions, and, in the blocks of sampled sections, at each access and wherever a call may return
//! to. All other code runs at QEMU's own speed, see [`unconvoy_trace_collector::state`].

use crate::api;
use crate::collector::{Collector, collector};
use crate::guest::{self, Phase};
use crate::messages;
use crate::modules::Function;
use crate::thread::{BY_NUMBER, THREADS, Thread};
use std::ffi::{c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use unconvoy_trace_collector::api::Id;
use unconvoy_trace_collector::decode::Decoded;
use unconvoy_trace_collector::front::{Block, Instruction, guarded};
use unconvoy_trace_collector::state::State;
use unconvoy_trace_collector::with_state;

pub fn translate(collector: &Collector, block: &Block) {
    match collector.calibration.phase() {
        Phase::Found => listen(collector, block),
        Phase::Unseen => calibrate(block),
        Phase::Plausible | Phase::Refuted => {}
    }
}

fn calibrate(block: &Block) {
    static ONCE: AtomicBool = AtomicBool::new(false);
    let (pc, instructions) = (block.address(), block.instructions());
    let Some(first) = instructions.clone().next() else { return };
    if ONCE.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: an instruction of the block in translation.
    guest::set_base(pc, unsafe { api::qemu_plugin_insn_haddr(first.as_ptr()) } as u64);
    first.on_execution(begin_stub, pc);
    instructions.for_each(|instruction| instruction.on_access(first_accessed, 0));
}

fn listen(collector: &Collector, block: &Block) {
    let (pc, instructions) = (block.address(), block.instructions());
    let Some(first) = instructions.clone().next() else { return };
    let is_linker = collector.is_linker(pc);
    // The dynamic linker maps a file piece by piece. All pieces exist once it returns.
    if !is_linker && collector.mapped.load(Ordering::Relaxed) {
        collector.scan_modules();
    }
    let function = collector.modules().function(pc);
    let of_heap = |function: &Function| {
        matches!(function, Function::Allocate(_) | Function::Reallocate | Function::Free)
    };
    if let Some(function) = function.filter(|function| collector.has_heap || !of_heap(function)) {
        first.on_execution(entered_stub, ptr::from_ref(function) as u64);
    }
    let returns =
        collector.allocator_returns.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    if returns.contains(&pc) {
        first.on_execution(allocated_stub, pc);
    }
    drop(returns);
    if !State::current().is_some_and(State::is_watching) {
        return;
    }
    if follows_call(pc) {
        first.on_execution(returned_stub, pc);
    }
    for instruction in instructions {
        let decoded = Decoded::new(bytes_of(&instruction));
        // If an instruction with callbacks calls a helper function of QEMU, QEMU 7.2 sets a pointer
        // to these callbacks, and clears the pointer after the instruction. An instruction that
        // ends a block may leave the block with the pointer still set, if its jump needs a helper.
        // A later helper of an instruction without callbacks would then follow the pointer into
        // memory that a flush of the translations has freed. So instructions that end a block get
        // no callback. They touch only the thread's own stack and the word that an indirect jump
        // reads its target from.
        if !decoded.ends_block() {
            // Accesses of the dynamic linker, which binds a function at its first call, do not
            // belong to the section.
            let place =
                if is_linker { 0 } else { collector.collection.place(instruction.address()) };
            instruction.record::<Collector>(place, decoded.is_atomic);
        }
    }
}

fn bytes_of<'a>(instruction: &Instruction<'a>) -> &'a [u8] {
    // SAFETY: an instruction of the block in translation; its bytes live as long as the block.
    unsafe {
        let bytes: *const u8 = api::qemu_plugin_insn_data(instruction.as_ptr()).cast();
        std::slice::from_raw_parts(bytes, api::qemu_plugin_insn_size(instruction.as_ptr()))
    }
}

/// Whether the instruction before `pc` may be a call, so that a call may return to `pc`. A false
/// positive only costs a check at run time.
fn follows_call(pc: u64) -> bool {
    // The previous page may be unmapped.
    if pc & 0xfff < 7 {
        return true;
    }
    // SAFETY: the same page as the code at `pc`, which QEMU has just read.
    let before = unsafe { guest::read::<[u8; 7]>(pc - 7) };
    let opcode_and_modrm = |back: usize| (before[7 - back], before[8 - back]);
    let indirect = |back: usize, modes: &[u8]| {
        let (opcode, modrm) = opcode_and_modrm(back);
        opcode == 0xff && modrm >> 3 & 7 == 2 && modes.contains(&(modrm >> 6))
    };
    before[2] == 0xe8
        || indirect(2, &[0, 3])
        || indirect(3, &[0, 1])
        || indirect(4, &[1])
        || indirect(6, &[0, 2])
        || indirect(7, &[0, 2])
}

with_state!(begin_stub => begin);
with_state!(entered_stub => entered);
with_state!(returned_stub => returned);
with_state!(allocated_stub => allocated);

extern "C" fn begin(_: c_uint, pc: *mut c_void, state: *mut u64) {
    guarded::<Collector>(|| {
        if let Some(collector) = collector() {
            collector.calibration.check_state(pc as u64, state as u64);
            collector.write_context();
            collector.scan_modules();
        }
    });
}

extern "C" fn first_accessed(_: c_uint, _: u32, address: u64, _: *mut c_void) {
    guarded::<Collector>(|| {
        if let Some(collector) = collector() {
            collector.calibration.check_access(address);
        }
    });
}

extern "C" fn entered(vcpu: c_uint, function: *mut c_void, state: *mut u64) {
    // SAFETY: registered after the calibration; `state` was in rbp on this thread.
    let state = unsafe { State::new(state) };
    guarded::<Collector>(|| {
        let Some(collector) = collector() else {
            // The collection has ended.
            return if state.is_watching() {
                state.watch(false)
            };
        };
        // SAFETY: `listen` passed a function with static lifetime.
        let function = unsafe { *function.cast::<Function>() };
        if let Some(thread) = BY_NUMBER.get(vcpu).or_else(|| make_thread(collector, vcpu, state)) {
            thread.enter(collector, function);
        }
    });
}

extern "C" fn returned(vcpu: c_uint, pc: *mut c_void, _: *mut u64) {
    guarded::<Collector>(|| {
        if let (Some(collector), Some(thread)) = (collector(), BY_NUMBER.get(vcpu)) {
            thread.return_to(collector, pc as u64);
        }
    });
}

extern "C" fn allocated(vcpu: c_uint, pc: *mut c_void, _: *mut u64) {
    guarded::<Collector>(|| {
        if let Some(thread) = BY_NUMBER.get(vcpu) {
            thread.return_from_allocator(pc as u64);
        }
    });
}

#[cold]
fn make_thread(collector: &Collector, vcpu: c_uint, state: State) -> Option<&'static mut Thread> {
    if vcpu as usize >= THREADS {
        collector.note(messages::too_many_threads(THREADS));
        return None;
    }
    state.make_current();
    BY_NUMBER.put(vcpu, Thread::new(collector, state))
}

/// Called when a thread ends, or when another one begins under its number.
pub extern "C" fn thread_ended(_: Id, vcpu: c_uint) {
    guarded::<Collector>(|| {
        if let Some(mut thread) = BY_NUMBER.take(vcpu) {
            thread.publish_counts();
        }
    });
}
