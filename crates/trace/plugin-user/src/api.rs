//! QEMU's plug-in interface, version 1: what this plug-in uses of `include/qemu/qemu-plugin.h` as of QEMU 7.2 (GPL-2.0-or-later).
//!
//! Declared here, since there is little of it and no generator has to be installed: the functions are resolved by QEMU's own symbols when it loads the plug-in.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// `qemu_plugin_id_t`.
pub type Id = u64;

/// `qemu_info_t`.
#[repr(C)]
pub struct Info {
    pub target_name: *const c_char,
    pub version_min: c_int,
    pub version_cur: c_int,
    pub system_emulation: bool,
    /// Of system emulation alone.
    pub smp_vcpus: c_int,
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

/// `enum qemu_plugin_cb_flags`; QEMU 7.2 ignores them.
pub const NO_REGISTERS: c_int = 0;

/// `enum qemu_plugin_mem_rw`: loads and stores.
pub const READ_WRITE: c_int = 3;

pub type AtExit = extern "C" fn(Id, *mut c_void);
pub type VcpuSimple = extern "C" fn(Id, c_uint);
pub type Executed = unsafe extern "C" fn(c_uint, *mut c_void);
pub type Accessed = extern "C" fn(c_uint, u32, u64, *mut c_void);
pub type Translated = extern "C" fn(Id, *mut Block);
pub type SystemCall = extern "C" fn(Id, c_uint, i64, u64, u64, u64, u64, u64, u64, u64, u64);
pub type SystemCallReturn = extern "C" fn(Id, c_uint, i64, i64);

unsafe extern "C" {
    pub fn qemu_plugin_register_vcpu_init_cb(id: Id, callback: VcpuSimple);
    pub fn qemu_plugin_register_vcpu_exit_cb(id: Id, callback: VcpuSimple);
    pub fn qemu_plugin_register_vcpu_tb_trans_cb(id: Id, callback: Translated);
    pub fn qemu_plugin_register_vcpu_syscall_cb(id: Id, callback: SystemCall);
    pub fn qemu_plugin_register_vcpu_syscall_ret_cb(id: Id, callback: SystemCallReturn);
    pub fn qemu_plugin_register_atexit_cb(id: Id, callback: AtExit, data: *mut c_void);

    pub fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    pub fn qemu_plugin_tb_vaddr(block: *const Block) -> u64;
    pub fn qemu_plugin_tb_get_insn(block: *const Block, index: usize) -> *mut Instruction;
    pub fn qemu_plugin_insn_data(instruction: *const Instruction) -> *const c_void;
    pub fn qemu_plugin_insn_size(instruction: *const Instruction) -> usize;
    pub fn qemu_plugin_insn_vaddr(instruction: *const Instruction) -> u64;
    pub fn qemu_plugin_insn_haddr(instruction: *const Instruction) -> *mut c_void;

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
    /// The result is QEMU's to keep, from glib: not freed here, it is one string.
    pub fn qemu_plugin_path_to_binary() -> *const c_char;
}
