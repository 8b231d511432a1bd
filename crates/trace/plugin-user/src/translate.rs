//! What is inserted into the program's code, as QEMU translates it.
//!
//! A memory callback costs more than the access, so that code outside of sampled sections must have none. Interface version 1 can neither ask before it calls back, nor have
//! two versions of a block. QEMU can: it translates a block anew for each combination of processor flags that the code may depend on, and rflags' alignment check is one of
//! them, which nothing heeds in user mode. So a thread in a sampled section runs with that flag set ([`State::watch`]): its blocks are others, and
//! only they have memory callbacks. The rest of the program runs at QEMU's own speed, but for the callbacks at the entries of the functions listened to.
//!
//! QEMU looks at the flags at indirect jumps and returns, and where blocks are not chained yet; chained blocks do not ask. A chain once made by a block that changes
//! the flag would let later threads come from one kind of blocks to the other. So it is changed in entries of locking functions alone: these are left by a return before
//! anything is to be recorded.

use crate::api::{self, Block, Instruction};
use crate::collector::{Collector, collector};
use crate::guest::{self, Phase, State, with_state};
use crate::modules::Function;
use crate::thread::Thread;
use std::cell::Cell;
use std::ffi::{c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use unconvoy_trace_collector::set::Access;

/// The most threads at a time that are listened to; QEMU numbers them anew when they end.
const THREADS: usize = 1 << 15;

/// Each is used by its own thread alone; made at its first callback, and taken away when it ends.
static BY_NUMBER: [AtomicPtr<Thread>; THREADS] = [const { AtomicPtr::new(ptr::null_mut()) }; THREADS];

thread_local! {
    /// This thread's state, once it is known: translation is not told which thread it is for.
    static CURRENT: Cell<State> = const { Cell::new(State::NONE) };
}

/// Set in a place's number: the instruction reads what it writes, in one.
const ATOMIC: u64 = 1 << 32;

/// A defect of this plug-in must not be the program's: collecting ends, and the program goes on.
pub fn guarded(body: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(body)).is_err()
        && let Some(collector) = collector()
    {
        collector.note("the plug-in failed, see standard error: collecting ended there".to_string());
        collector.finish();
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
        let Some(first) = instructions.clone().next() else { return };
        match collector.calibration.phase() {
            Phase::Found => listen(collector, pc, first, instructions),
            Phase::Unseen => calibrate(pc, first, instructions),
            Phase::Plausible | Phase::Refuted => {}
        }
    });
}

fn calibrate(pc: u64, first: *mut Instruction, instructions: impl Iterator<Item = *mut Instruction>) {
    static ONCE: AtomicBool = AtomicBool::new(false);
    if ONCE.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: instructions of the block being translated.
    unsafe {
        guest::set_base(pc, api::qemu_plugin_insn_haddr(first) as u64);
        api::qemu_plugin_register_vcpu_insn_exec_cb(first, begins_stub, api::NO_REGISTERS, pc as *mut c_void);
        for instruction in instructions {
            api::qemu_plugin_register_vcpu_mem_cb(
                instruction,
                first_accessed,
                api::NO_REGISTERS,
                api::READ_WRITE,
                ptr::null_mut(),
            );
        }
    }
}

fn listen(
    collector: &Collector,
    pc: u64,
    first: *mut Instruction,
    instructions: impl Iterator<Item = *mut Instruction>,
) {
    let linker = collector.is_linker(pc);
    // The dynamic linker maps a file piece by piece; it has all when it returns.
    if !linker && collector.mapped.load(Ordering::Relaxed) {
        collector.look_at_modules();
    }
    let function = collector.modules().function(pc);
    let execute = |callback: api::Executed, data: u64| {
        // SAFETY: the first instruction of the block being translated.
        unsafe {
            api::qemu_plugin_register_vcpu_insn_exec_cb(first, callback, api::NO_REGISTERS, data as *mut c_void);
        }
    };
    let of_heap =
        |function: &Function| matches!(function, Function::Allocate(_) | Function::Reallocate | Function::Free);
    if let Some(function) = function.filter(|function| collector.options.heap || !of_heap(function)) {
        execute(entered_stub, ptr::from_ref(function) as u64);
    }
    let returns = collector.allocator_returns.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    if returns.contains(&pc) {
        execute(allocated_stub, pc);
    }
    drop(returns);
    if !CURRENT.get().watching() {
        return;
    }
    if follows_call(pc) {
        execute(returned_stub, pc);
    }
    for instruction in instructions {
        // SAFETY: an instruction of the block being translated, and its bytes.
        let (at, bytes) = unsafe {
            let bytes: *const u8 = api::qemu_plugin_insn_data(instruction).cast();
            let bytes = std::slice::from_raw_parts(bytes, api::qemu_plugin_insn_size(instruction));
            (api::qemu_plugin_insn_vaddr(instruction), bytes)
        };
        if ends_block(bytes) {
            continue;
        }
        // What the dynamic linker touches when it binds a function at its first call is not the section's.
        let place = if linker { 0 } else { u64::from(collector.places.number(&collector.log, at)) }
            | if is_atomic(bytes) { ATOMIC } else { 0 };
        // SAFETY: as above.
        unsafe {
            api::qemu_plugin_register_vcpu_mem_cb(
                instruction,
                accessed,
                api::NO_REGISTERS,
                api::READ_WRITE,
                place as *mut c_void,
            );
        }
    }
}

/// Whether the instruction before `pc` may be a call: then a call may return here. That it is none costs a question at run time.
fn follows_call(pc: u64) -> bool {
    // The page before may not be there.
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

/// An instruction without its prefixes, and whether one of them was `lock`.
fn opcode(bytes: &[u8]) -> (&[u8], bool) {
    let is_prefix =
        |byte: &u8| matches!(byte, 0x66 | 0xf0 | 0xf2 | 0xf3 | 0x64 | 0x65 | 0x2e | 0x36 | 0x3e | 0x26 | 0x40..=0x4f);
    let prefixes = bytes.iter().take_while(|byte| is_prefix(byte)).count();
    (&bytes[prefixes..], bytes[..prefixes].contains(&0xf0))
}

/// Whether the instruction has a lock prefix, or is an exchange with memory.
fn is_atomic(bytes: &[u8]) -> bool {
    let (opcode, locked) = opcode(bytes);
    locked || matches!(opcode, [0x86 | 0x87, ..])
}

/// Whether the instruction jumps, calls or returns. QEMU 7.2 sets a pointer to the callbacks of an instruction that uses its helper functions, and clears it after the instruction: too late for
/// these, whose jump needs a helper. A later helper of an instruction without callbacks would follow the pointer, to memory that a flush of the translations has freed.
/// All they touch is the own stack, and the word that an indirect one reads its target from.
fn ends_block(bytes: &[u8]) -> bool {
    match opcode(bytes).0 {
        [0x70..=0x7f | 0xc2 | 0xc3 | 0xe0..=0xe3 | 0xe8 | 0xe9 | 0xeb, ..] | [0x0f, 0x80..=0x8f, ..] => true,
        [0xff, modrm, ..] => matches!(modrm >> 3 & 7, 2..=5),
        _ => false,
    }
}

with_state!(begins_stub => begins);
with_state!(entered_stub => entered);
with_state!(returned_stub => returned);
with_state!(allocated_stub => allocated);

extern "C" fn begins(_: c_uint, pc: *mut c_void, state: *mut u64) {
    guarded(|| {
        if let Some(collector) = collector() {
            collector.calibration.begins(pc as u64, state as u64);
            collector.tell_context();
            collector.look_at_modules();
        }
    });
}

extern "C" fn first_accessed(_: c_uint, _: u32, address: u64, _: *mut c_void) {
    guarded(|| {
        if let Some(collector) = collector() {
            collector.calibration.accessed(address);
        }
    });
}

extern "C" fn entered(vcpu: c_uint, function: *mut c_void, state: *mut u64) {
    // SAFETY: registered after the calibration, with the state in rbp.
    let state = unsafe { State::new(state) };
    guarded(|| {
        let Some(collector) = collector() else { return Thread::gives_up(state) };
        // SAFETY: `listen` gave it a function that lives for ever.
        let function = unsafe { *function.cast::<Function>() };
        if let Some(thread) = thread_of(vcpu).or_else(|| make_thread(collector, vcpu, state)) {
            thread.enters(collector, function);
        }
    });
}

extern "C" fn returned(vcpu: c_uint, pc: *mut c_void, _: *mut u64) {
    guarded(|| {
        if let (Some(collector), Some(thread)) = (collector(), thread_of(vcpu)) {
            thread.returned(collector, pc as u64);
        }
    });
}

extern "C" fn allocated(vcpu: c_uint, pc: *mut c_void, _: *mut u64) {
    guarded(|| {
        if let Some(thread) = thread_of(vcpu) {
            thread.allocated(pc as u64);
        }
    });
}

extern "C" fn accessed(vcpu: c_uint, information: u32, address: u64, place: *mut c_void) {
    let Some(thread) = thread_of(vcpu) else { return };
    let place = place as u64;
    let (shift, written) = thread.shape(information);
    if place as u32 == 0 {
        return;
    }
    let read = !written || place & ATOMIC != 0;
    thread.accesses(Access { address, size: 1 << shift, read, written, place: place as u32 });
}

/// The thread of a virtual processor, for a callback that it makes itself.
pub fn thread_of(vcpu: c_uint) -> Option<&'static mut Thread> {
    let slot = BY_NUMBER.get(vcpu as usize)?;
    // SAFETY: made by `make_thread`, and used by its own thread's callbacks alone, which do not nest; `thread_ends` takes it away before another has the number.
    unsafe { slot.load(Ordering::Relaxed).as_mut() }
}

#[cold]
fn make_thread(collector: &Collector, vcpu: c_uint, state: State) -> Option<&'static mut Thread> {
    let Some(slot) = BY_NUMBER.get(vcpu as usize) else {
        collector.note(format!("more than {THREADS} threads at a time: those beyond were not listened to"));
        return None;
    };
    CURRENT.set(state);
    slot.store(Box::into_raw(Box::new(Thread::new(collector, state))), Ordering::Relaxed);
    thread_of(vcpu)
}

/// The processor's thread has ended, or another begins under its number.
pub extern "C" fn thread_ends(_: api::Id, vcpu: c_uint) {
    guarded(|| {
        let Some(slot) = BY_NUMBER.get(vcpu as usize) else { return };
        let thread = slot.swap(ptr::null_mut(), Ordering::AcqRel);
        if !thread.is_null() {
            // SAFETY: from `make_thread`, and nobody has it any more.
            unsafe { Box::from_raw(thread) }.ends();
        }
    });
}

/// The program ends, and none of its threads runs translated code: what they have counted is told.
pub fn all_end() {
    for slot in &BY_NUMBER {
        // SAFETY: its thread is not in a callback, and makes none any more.
        if let Some(thread) = unsafe { slot.load(Ordering::Acquire).as_mut() } {
            thread.ends();
        }
    }
}
