//! The part of QEMU's plug-in interface that only version 4 has, from `include/qemu/qemu-plugin.h`
//! of QEMU 10.0 (GPL-2.0-or-later), and the part of glib that its arguments need.
//! [`unconvoy_trace_collector::api`] has the part common to all versions.

use std::ffi::{c_char, c_int, c_uint, c_void};
use unconvoy_trace_collector::api::{Block, Id, Instruction};

/// `struct qemu_plugin_scoreboard`: memory for each virtual processor.
#[repr(C)]
pub struct Scoreboard {
    _opaque: [u8; 0],
}

/// `qemu_plugin_u64`: a word for each virtual processor.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Word {
    pub score: *mut Scoreboard,
    pub offset: usize,
}

/// `struct qemu_plugin_hwaddr`.
#[repr(C)]
pub struct HardwareAddress {
    _opaque: [u8; 0],
}

/// `struct qemu_plugin_register`.
#[repr(C)]
pub struct Register {
    _opaque: [u8; 0],
}

/// `qemu_plugin_reg_descriptor`.
#[repr(C)]
pub struct RegisterDescriptor {
    pub handle: *mut Register,
    pub name: *const c_char,
    pub feature: *const c_char,
}

/// `GArray`; `len` counts elements.
#[repr(C)]
pub struct Array {
    pub data: *mut c_char,
    pub len: c_uint,
}

/// `GByteArray`.
#[repr(C)]
pub struct ByteArray {
    pub data: *mut u8,
    pub len: c_uint,
}

/// `enum qemu_plugin_op`.
pub const ADD: c_int = 0;

pub type Simple = extern "C" fn(Id);

unsafe extern "C" {
    /// Stops all processors, drops all translations and callbacks, and calls back before the
    /// processors resume.
    pub fn qemu_plugin_reset(id: Id, callback: Simple);

    pub fn qemu_plugin_insn_data(
        instruction: *const Instruction,
        to: *mut c_void,
        most: usize,
    ) -> usize;

    pub fn qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(
        block: *mut Block,
        operation: c_int,
        word: Word,
        operand: u64,
    );
    pub fn qemu_plugin_get_hwaddr(information: u32, address: u64) -> *mut HardwareAddress;
    pub fn qemu_plugin_hwaddr_is_io(address: *const HardwareAddress) -> bool;

    pub fn qemu_plugin_scoreboard_new(element_size: usize) -> *mut Scoreboard;
    pub fn qemu_plugin_scoreboard_find(score: *mut Scoreboard, vcpu: c_uint) -> *mut c_void;

    /// The registers of the calling thread's processor.
    pub fn qemu_plugin_get_registers() -> *mut Array;
    /// Appends the value to `to`. Returns its size in bytes, or -1.
    pub fn qemu_plugin_read_register(register: *mut Register, to: *mut ByteArray) -> c_int;
    /// Reads memory of the calling thread's processor into `to`, replacing its content.
    pub fn qemu_plugin_read_memory_vaddr(address: u64, to: *mut ByteArray, size: usize) -> bool;

    pub fn g_byte_array_new() -> *mut ByteArray;
    pub fn g_byte_array_set_size(array: *mut ByteArray, size: c_uint) -> *mut ByteArray;
    pub fn g_byte_array_free(array: *mut ByteArray, and_bytes: c_int) -> *mut u8;
    pub fn g_array_free(array: *mut Array, and_elements: c_int) -> *mut c_char;
}
