//! A plug-in of QEMU's user mode (plug-in interface version 1, as QEMU 7.2 of Debian 12 has it)
//! that samples the address sets of an unmodified program's critical sections, for Syncchar
//! ("Predicting and Tuning the Performance of Multicore Systems", Porter, Hofmann and Witchel,
//! 2008, section 4).
//!
//! ```text
//! qemu-x86_64 -plugin libunconvoy_plugin_user.so,out=FILE,rate=10 PROGRAM ARGUMENTS...
//! ```
//!
//! | file | idea |
//! | --- | --- |
//! | `rhythm` | the plug-in's own thread, which writes when nobody else does |
//! | `translate` | what is inserted into the program's code |
//! | `calls`, `system_calls` | its system calls |
//! | `thread`, `allocations` | what a thread holds and allocates, and what it touches meanwhile |
//! | `collector` | what the threads share |
//! | `modules` | where the functions are that lock and allocate |
//! | `locks`, `heap` | what the memory is that is touched |
//! | `guest` | the program's memory |
//! | `api` | what the interface has in this version alone |
//!
//! What it has in common with the plug-in of the system mode is in `unconvoy-trace-collector`, what
//! is written in `unconvoy-trace-stream`.
//!
//! Not seen: locks that are no functions of the C library (futexes of a program's own, Rust's and
//! Go's), other processes than the first, and what runs after `exec`.

#![cfg(target_arch = "x86_64")]

mod allocations;
mod api;
mod calls;
mod collector;
mod guest;
mod heap;
mod locks;
mod modules;
mod options;
mod rhythm;
mod system_calls;
mod thread;
mod translate;

use collector::{Collector, collector};
use std::ffi::c_uint;
use unconvoy_trace_collector::api::Id;
use unconvoy_trace_collector::collection::Collection;
use unconvoy_trace_collector::front::{Block, FrontEnd, Target, listen};
use unconvoy_trace_collector::plugin;

plugin!(Collector, version = 1);

impl FrontEnd for Collector {
    type Vcpu = thread::Thread;

    fn install(id: Id, target: &Target, arguments: &[String]) -> Result<(), String> {
        if target.name != "x86_64" || target.is_system {
            return Err(format!("it is for qemu-x86_64, not for {}", target.name));
        }
        Collector::set_up(options::parse(arguments.iter().map(String::as_str))?)?;
        rhythm::start().map_err(|error| format!("it has no thread of its own: {error}"))?;
        // SAFETY: the functions live as long as the process, and so does what they use.
        unsafe {
            libc::pthread_atfork(None, None, Some(in_child));
            api::qemu_plugin_register_vcpu_init_cb(id, translate::thread_ended);
            api::qemu_plugin_register_vcpu_exit_cb(id, translate::thread_ended);
            api::qemu_plugin_register_vcpu_syscall_cb(id, calls::call);
            api::qemu_plugin_register_vcpu_syscall_ret_cb(id, calls::return_from_call);
        }
        listen::<Collector>(id);
        Ok(())
    }

    fn get() -> Option<&'static Self> {
        collector()
    }

    fn collection(&self) -> &Collection {
        &self.collection
    }

    #[inline]
    fn vcpu(number: c_uint) -> Option<&'static mut Self::Vcpu> {
        thread::BY_NUMBER.get(number)
    }

    fn translate(&self, block: &Block) {
        translate::translate(self, block);
    }

    fn abort(&self) {
        self.finish();
    }

    fn exit(&self) {
        calls::publish_all();
        self.finish();
    }
}

/// A forked child writes nothing: the stream is its parent's.
extern "C" fn in_child() {
    if let Some(collector) = collector() {
        collector.collection.log.close();
    }
}
