//! A plug-in for QEMU's system mode (plug-in interface version 4, as in QEMU 10.0). It samples the
//! address sets of the Linux kernel's critical sections under spin locks for Syncchar ("Predicting
//! and Tuning the Performance of Multicore Systems", Porter, Hofmann and Witchel, 2008, sections 4
//! to 6).
//!
//! ```text
//! qemu-system-x86_64 -accel tcg,thread=multi -cpu max,-smap,-la57 -smp 8 ... \
//!     -plugin libunconvoy_plugin_system.so,out=FILE,symbols=FILE
//! ```
//!
//! The collection starts when the guest sets its host name to `unconvoy-begin` and ends when the
//! guest sets it to `unconvoy-end`. Before and after, the guest runs at QEMU's own speed.
//!
//! | file | purpose |
//! | --- | --- |
//! | `translate` | inserts callbacks into the guest's code |
//! | `lifecycle` | starts and ends the collection |
//! | `processor` | the locks a virtual processor holds, and the memory its sections touch |
//! | `frees` | ends the locks in freed memory |
//! | `devices` | recognizes accesses to devices |
//! | `collector` | the state shared by all processors |
//! | `objects` | the kernel's heap |
//! | `layout` | per-processor memory and stacks |
//! | `symbols`, `returns` | find the functions that lock and free, and their returns |
//! | `guest`, `registers` | the guest's memory and registers through the interface |
//! | `messages` | errors and notes |
//! | `api` | the part of the interface specific to version 4 |
//!
//! The parts shared with the user-mode plug-in are in `unconvoy-trace-collector`;
//! `unconvoy-trace-stream` has the output format.
//!
//! The plug-in does not see bit spin locks, sequence locks, sleeping locks (mutexes, semaphores,
//! RCU), or spin locks whose functions are inlined into the kernel. Address sets leave out locks,
//! the section's own stack, user memory, accesses of the locking functions themselves, and
//! per-processor memory unless the lock lies there, too.

#![cfg(target_arch = "x86_64")]

mod api;
mod collector;
mod devices;
mod frees;
mod guest;
mod layout;
mod lifecycle;
mod messages;
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

    fn install(
        id: Id,
        Target { name, is_system, processors }: &Target,
        arguments: &[String],
    ) -> Result<(), String> {
        let count =
            usize::try_from(*processors).ok().filter(|count| (1..=PROCESSORS).contains(count));
        let Some(count) = count.filter(|_| *is_system && name == "x86_64") else {
            return Err(messages::wrong_target(PROCESSORS, *processors, name));
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
