//! A plug-in for QEMU's user mode (plug-in interface version 1, as in QEMU 7.2 of Debian 12). It
//! samples the address sets of an unmodified program's critical sections for Syncchar ("Predicting
//! and Tuning the Performance of Multicore Systems", Porter, Hofmann and Witchel, 2008, section 4).
//!
//! ```text
//! qemu-x86_64 -plugin libunconvoy_plugin_user.so,out=FILE,rate=10 PROGRAM ARGUMENTS...
//! ```
//!
//! | file | purpose |
//! | --- | --- |
//! | `flusher` | the plug-in's own thread, which writes while the program makes no callbacks |
//! | `translate` | inserts callbacks into the program's code |
//! | `calls`, `system_calls` | the program's system calls |
//! | `thread`, `allocations` | the locks a thread holds, the memory it allocates and touches |
//! | `collector` | the state shared by all threads |
//! | `modules` | finds the functions that lock and allocate |
//! | `locks`, `heap` | describe the memory touched |
//! | `guest` | the program's memory |
//! | `messages` | errors and notes |
//! | `api` | the part of the interface specific to version 1 |
//!
//! The parts shared with the system-mode plug-in are in `unconvoy-trace-collector`;
//! `unconvoy-trace-stream` has the output format.
//!
//! The plug-in does not see locks outside the C library (a program's own futexes, Rust's and Go's
//! locks), child processes, or anything after `exec`.

#![cfg(target_arch = "x86_64")]

mod allocations;
mod api;
mod calls;
mod collector;
mod flusher;
mod guest;
mod heap;
mod locks;
mod messages;
mod modules;
mod options;
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
            return Err(messages::wrong_target(&target.name));
        }
        Collector::set_up(options::parse(arguments.iter().map(String::as_str))?)?;
        flusher::start().map_err(messages::no_thread)?;
        // SAFETY: the functions and their data live as long as the process.
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

/// A forked child writes nothing: the stream belongs to its parent.
extern "C" fn in_child() {
    if let Some(collector) = collector() {
        collector.collection.log.close();
    }
}
