//! The part of QEMU's plug-in interface that the plug-ins use and that its versions 1 (QEMU 7.2)
//! and 4 (QEMU 10.0) share, from `include/qemu/qemu-plugin.h` (GPL-2.0-or-later).
//!
//! The declarations are written by hand: the part is small, and builds need no generator. The
//! functions resolve to QEMU's own symbols when QEMU loads the plug-in.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// `qemu_plugin_id_t`.
pub type Id = u64;

/// `qemu_info_t`.
#[repr(C)]
pub struct Info {
    /// The emulated architecture.
    pub target_name: *const c_char,
    /// The oldest interface version that this QEMU supports.
    pub version_min: c_int,
    /// The newest interface version that this QEMU supports.
    pub version_cur: c_int,
    /// System mode rather than user mode.
    pub system_emulation: bool,
    /// Virtual processors at the start; system mode only.
    pub smp_vcpus: c_int,
    /// The most virtual processors; system mode only.
    pub max_vcpus: c_int,
}

/// `struct qemu_plugin_tb`: a translation block during its translation.
#[repr(C)]
pub struct Block {
    _opaque: [u8; 0],
}

/// `struct qemu_plugin_insn`: an instruction of a [`Block`].
#[repr(C)]
pub struct Instruction {
    _opaque: [u8; 0],
}

/// `enum qemu_plugin_cb_flags`: the processor's state holds the registers during the callback. QEMU
/// 7.2 ignores the flag.
pub const READS_REGISTERS: c_int = 1;

/// `enum qemu_plugin_mem_rw`: loads and stores.
pub const READ_WRITE: c_int = 3;

/// Called when QEMU exits.
pub type AtExit = extern "C" fn(Id, *mut c_void);
/// Called before an instruction executes.
pub type Executed = unsafe extern "C" fn(c_uint, *mut c_void);
/// Called after an instruction accessed memory.
pub type Accessed = extern "C" fn(c_uint, u32, u64, *mut c_void);
/// Called when a block is translated.
pub type Translated = extern "C" fn(Id, *mut Block);

#[allow(missing_docs, reason = "documented in QEMU's header")]
unsafe extern "C" {
    pub fn qemu_plugin_register_vcpu_tb_trans_cb(id: Id, callback: Translated);
    pub fn qemu_plugin_register_atexit_cb(id: Id, callback: AtExit, data: *mut c_void);

    pub fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    pub fn qemu_plugin_tb_vaddr(block: *const Block) -> u64;
    pub fn qemu_plugin_tb_get_insn(block: *const Block, index: usize) -> *mut Instruction;
    pub fn qemu_plugin_insn_vaddr(instruction: *const Instruction) -> u64;

    pub fn qemu_plugin_register_vcpu_insn_exec_cb(
        instruction: *mut Instruction,
        callback: Executed,
        flags: c_int,
        data: *mut c_void,
    );
    pub fn qemu_plugin_register_vcpu_mem_cb(
        instruction: *mut Instruction,
        callback: Accessed,
        flags: c_int,
        which: c_int,
        data: *mut c_void,
    );
    pub fn qemu_plugin_mem_size_shift(information: u32) -> c_uint;
    pub fn qemu_plugin_mem_is_store(information: u32) -> bool;
}
