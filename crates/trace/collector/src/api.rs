//! QEMU's plug-in interface: what its versions 1 (QEMU 7.2) and 4 (QEMU 10.0) have in common of
//! what the plug-ins use of `include/qemu/qemu-plugin.h` (GPL-2.0-or-later).
//!
//! Declared here, since there is little of it and no generator has to be installed: the functions
//! are resolved by QEMU's own symbols when it loads the plug-in.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// `qemu_plugin_id_t`.
pub type Id = u64;

/// `qemu_info_t`.
#[repr(C)]
pub struct Info {
    /// The emulated architecture.
    pub target_name: *const c_char,
    /// The oldest version of the interface that this QEMU has.
    pub version_min: c_int,
    /// The newest one.
    pub version_cur: c_int,
    /// System mode, not user mode.
    pub system_emulation: bool,
    /// Of system emulation alone: virtual processors at the start.
    pub smp_vcpus: c_int,
    /// Likewise the most of them.
    pub max_vcpus: c_int,
}

/// `struct qemu_plugin_tb`: a translation block, while it is being translated.
#[repr(C)]
pub struct Block {
    _opaque: [u8; 0],
}

/// `struct qemu_plugin_insn`: an instruction of such a block.
#[repr(C)]
pub struct Instruction {
    _opaque: [u8; 0],
}

/// `enum qemu_plugin_cb_flags`: a callback that has the registers in the processor's state. QEMU
/// 7.2 ignores it.
pub const READS_REGISTERS: c_int = 1;

/// `enum qemu_plugin_mem_rw`: loads and stores.
pub const READ_WRITE: c_int = 3;

/// At QEMU's end.
pub type AtExit = extern "C" fn(Id, *mut c_void);
/// Before an instruction.
pub type Executed = unsafe extern "C" fn(c_uint, *mut c_void);
/// After an instruction's access.
pub type Accessed = extern "C" fn(c_uint, u32, u64, *mut c_void);
/// When a block is translated.
pub type Translated = extern "C" fn(Id, *mut Block);

#[allow(missing_docs, reason = "QEMU's header has it")]
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
