//! Errors and notes of this plug-in, one function each. QEMU prints the errors at start. The notes
//! go into the stream's end record and become remarks of the report.
//! [`unconvoy_trace_collector::messages`] has those of all collectors.

use std::fmt::Display;
use std::path::Path;

pub fn wrong_target(name: &str) -> String {
    format!("this plug-in runs in qemu-x86_64, not in QEMU for {name}")
}

pub fn no_thread(error: impl Display) -> String {
    format!("cannot start the plug-in's thread: {error}")
}

pub fn heap_option(value: &str) -> String {
    format!("heap={value}: expected on or off")
}

pub fn unknown_mutex_layout() -> String {
    "mutexes do not have glibc's layout; contention and recursion were not seen".to_string()
}

pub fn refused_reads() -> String {
    "process_vm_readv is refused, so nothing was sampled; allow it in the seccomp profile"
        .to_string()
}

pub fn unknown_state() -> String {
    "this QEMU keeps its processor state elsewhere, so nothing was sampled; use QEMU 7.2"
        .to_string()
}

pub fn no_maps() -> String {
    "cannot read /proc/self/maps, so no functions were found".to_string()
}

pub fn unreadable_module(path: &Path, error: impl Display) -> String {
    format!("cannot read {}, so its functions are unknown: {error}", path.display())
}

pub fn too_many_threads(most: usize) -> String {
    format!("more than {most} concurrent threads; the others were not sampled")
}

pub fn replaced_by_exec() -> String {
    "the program called exec; the new program was not sampled".to_string()
}
