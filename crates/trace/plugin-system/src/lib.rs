//! A plug-in of QEMU's system mode (plug-in interface version 4, as QEMU 10.0 has it) that samples
//! the address sets of the Linux kernel's critical sections under spin locks, for Syncchar
//! ("Predicting and Tuning the Performance of Multicore Systems", Porter, Hofmann and Witchel,
//! 2008, sections 4 to 6).
//!
//! ```text
//! qemu-system-x86_64 -accel tcg,thread=multi -cpu max,-smap,-la57 -smp 8 ... -plugin libunconvoy_plugin_system.so,out=FILE,symbols=FILE
//! ```
//!
//! Collecting begins when the guest sets its host name to `unconvoy-begin`, and ends when it sets
//! it to `unconvoy-end`. Until then, and from then on, the guest runs at QEMU's own speed.
//!
//! | file | idea |
//! | --- | --- |
//! | `translate` | what is inserted into the guest's code |
//! | `course` | the course of collecting |
//! | `processor` | what a virtual processor holds, and what it touches meanwhile |
//! | `collector` | what the processors share |
//! | `objects` | the kernel's heap |
//! | `layout` | where the kernel keeps what is a processor's own |
//! | `symbols`, `returns` | where the functions are that lock and free, and where they return |
//! | `guest`, `registers` | the guest's memory and registers, as the interface has them |
//! | `api` | what the interface has in this version alone |
//!
//! What it has in common with the plug-in of the user mode is in `unconvoy-trace-collector`, what
//! is written in `unconvoy-trace-stream`.
//!
//! Not seen: bit spin locks, sequence locks, locks that sleep (mutexes, semaphores, RCU), and spin
//! locks whose functions a kernel has inlined. Left out of sets: locks, the own stack, memory of
//! user space, what the locking functions themselves touch, and what is the processor's own, unless
//! the lock lies there, too.

#![cfg(target_arch = "x86_64")]

mod api;
mod collector;
mod course;
mod guest;
mod layout;
mod objects;
mod options;
mod processor;
mod registers;
mod returns;
mod symbols;
mod translate;

use collector::{Collector, collector};
use processor::{BY_NUMBER, Instructions, PROCESSORS, Processor};
use std::ffi::c_uint;
use unconvoy_trace_collector::api::Id;
use unconvoy_trace_collector::collection::Collection;
use unconvoy_trace_collector::front::{Block, FrontEnd, Target, listen};
use unconvoy_trace_collector::plugin;

plugin!(Collector, version = 4);

impl FrontEnd for Collector {
    type Vcpu = Processor;

    fn install(id: Id, Target { name, is_system, processors }: &Target, arguments: &[String]) -> Result<(), String> {
        let count = usize::try_from(*processors).ok().filter(|count| (1..=PROCESSORS).contains(count));
        let Some(count) = count.filter(|_| *is_system && name == "x86_64") else {
            return Err(format!(
                "it is for qemu-system-x86_64 with up to {PROCESSORS} processors, not for {processors} of {name}"
            ));
        };
        let options = options::parse(arguments.iter().map(String::as_str))?;
        Collector::set_up(id, count, size_of::<Instructions>(), options)?;
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
    fn vcpu(number: c_uint) -> Option<&'static mut Processor> {
        BY_NUMBER.get(number)
    }

    fn translate(&self, block: &Block) {
        translate::translate(self, block);
    }

    fn abort(&self) {
        self.request_end();
    }

    fn exit(&self) {
        self.finish();
    }
}
