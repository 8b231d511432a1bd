//! The part of QEMU's plug-in interface that only version 1 has, from `include/qemu/qemu-plugin.h`
//! of QEMU 7.2 (GPL-2.0-or-later). [`unconvoy_trace_collector::api`] has the part common to all
//! versions.

use std::ffi::{c_char, c_uint, c_void};
use unconvoy_trace_collector::api::{Id, Instruction};

pub type VcpuSimple = extern "C" fn(Id, c_uint);
pub type SystemCall = extern "C" fn(Id, c_uint, i64, u64, u64, u64, u64, u64, u64, u64, u64);
pub type SystemCallReturn = extern "C" fn(Id, c_uint, i64, i64);

unsafe extern "C" {
    pub fn qemu_plugin_register_vcpu_init_cb(id: Id, callback: VcpuSimple);
    pub fn qemu_plugin_register_vcpu_exit_cb(id: Id, callback: VcpuSimple);
    pub fn qemu_plugin_register_vcpu_syscall_cb(id: Id, callback: SystemCall);
    pub fn qemu_plugin_register_vcpu_syscall_ret_cb(id: Id, callback: SystemCallReturn);

    pub fn qemu_plugin_insn_data(instruction: *const Instruction) -> *const c_void;
    pub fn qemu_plugin_insn_size(instruction: *const Instruction) -> usize;
    pub fn qemu_plugin_insn_haddr(instruction: *const Instruction) -> *mut c_void;
    /// A string that QEMU allocates with glib. Not freed here: it is a single string.
    pub fn qemu_plugin_path_to_binary() -> *const c_char;
}
