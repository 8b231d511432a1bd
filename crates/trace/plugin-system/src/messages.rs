//! Errors and notes of this plug-in, one function each. QEMU prints the errors at start. The notes
//! go into the stream's end record and become remarks of the report.
//! [`unconvoy_trace_collector::messages`] has those of all collectors.

use std::path::Path;

pub fn wrong_target(most: usize, processors: i32, name: &str) -> String {
    format!(
        "this plug-in runs in qemu-system-x86_64 with 1 to {most} processors, \
         not {processors} of {name}"
    )
}

pub fn no_symbols_option() -> &'static str {
    "no symbols: pass symbols=FILE with the kernel's /proc/kallsyms"
}

pub fn malformed_symbol(line: usize) -> String {
    format!("line {line}: expected ADDRESS TYPE NAME")
}

pub fn malformed_address(line: usize, address: &str) -> String {
    format!("line {line}: {address} is not a hexadecimal address")
}

pub fn hidden_symbols() -> String {
    "all addresses are 0: read /proc/kallsyms as root (kernel.kptr_restrict)".to_string()
}

pub fn missing_symbols(names: &[&str]) -> String {
    format!("the kernel's symbols lack {}", names.join(", "))
}

pub fn malformed_offset(line: &str) -> String {
    format!("{line}: expected key=value with a number")
}

pub fn missing_offset(key: &str) -> String {
    format!("no {key}")
}

pub fn bad_offsets(path: &Path, error: &str) -> String {
    format!("{}: {error}; heap objects have no names", path.display())
}

pub fn no_offsets() -> String {
    "no offsets=FILE: heap objects have no names, and a lock in reused memory stays the same lock"
        .to_string()
}

pub fn no_slab_caches() -> String {
    "the kernel's slab caches were not found; heap objects have no names".to_string()
}

pub fn no_per_cpu_memory() -> String {
    "the kernel's per-processor memory was not found; it counts as shared memory".to_string()
}

pub fn no_interrupt_stacks() -> String {
    "the interrupt stacks were not found".to_string()
}

pub fn has_smap() -> String {
    "the guest has SMAP, so nothing was sampled; start QEMU with -cpu max,-smap".to_string()
}

pub fn five_level_page_tables() -> String {
    "the guest has five-level page tables, so nothing was sampled; start QEMU with -cpu max,-la57"
        .to_string()
}

pub fn never_began() -> String {
    "the collection never began: set the guest's host name to unconvoy-begin".to_string()
}

pub fn unknown_state() -> String {
    "this QEMU keeps its processor state elsewhere, so nothing was collected; use QEMU 10.0"
        .to_string()
}

pub fn one_thread_for_all() -> String {
    "QEMU runs several processors in one thread; start it with -accel tcg,thread=multi".to_string()
}
