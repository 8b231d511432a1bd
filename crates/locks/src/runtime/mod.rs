//! The process around the locks: its controller thread, the files of `/proc` and of control groups,
//! forks, standard error. All input and output of the library is here.

#[cfg(not(loom))]
mod affinity;
#[cfg(not(loom))]
mod bare_thread;
#[cfg(loom)]
mod checked;
#[cfg(not(loom))]
mod checkpoint;
#[cfg(not(loom))]
mod controller;
#[cfg(not(loom))]
pub mod fork;
#[doc(hidden)]
#[cfg(not(loom))]
pub mod hook;
#[cfg(not(loom))]
mod messages;
#[cfg(not(any(loom, tsan)))]
mod priority;
#[cfg(not(loom))]
mod process;
#[cfg(not(loom))]
mod readers;
#[cfg(not(loom))]
mod sample;
#[doc(hidden)]
#[cfg(not(loom))]
pub mod sensor;
#[cfg(not(loom))]
mod stderr;
#[cfg(not(loom))]
mod thread_state;

#[cfg(not(loom))]
pub use checkpoint::checkpoint;
#[doc(hidden)]
#[cfg(not(loom))]
pub use controller::{
    ControllerAddresses, ControllerReport, claim_memory, controller_addresses, controller_report,
    is_filtered, keep_controller, load_control, use_sensor,
};
#[cfg(not(loom))]
pub use controller::{confine, without_controller};
#[doc(hidden)]
#[cfg(not(loom))]
pub use readers::forget_other_readers;
#[doc(hidden)]
#[cfg(not(loom))]
pub use sample::{WaitSample, present_sample, sample_waits};
#[doc(hidden)]
#[cfg(not(loom))]
pub use stderr::{Line, remember_standard_error, without_signals};
#[doc(hidden)]
#[cfg(not(loom))]
pub use thread_state::{
    EndedWait, count_acquired, count_released, ended_wait, ended_wait_address, held_locks,
    set_ended_wait, set_spin_ns, set_word, word,
};
