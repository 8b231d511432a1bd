//! The current process, as the waiters of its locks see it.

use super::sensor::bpf;
use super::{controller, hook, sample, thread_state};
use crate::load::sensor::LiveLoad;
use crate::load::{Context, LoadControl, ThreadState};
use crate::lock::Process;
use crate::primitive::Native;

/// The current process.
#[derive(Debug, Clone, Copy)]
pub struct ThisProcess;

impl Context for ThisProcess {
    type Machine = Native;

    #[inline(always)]
    fn control(self) -> &'static LoadControl<Native> {
        controller::load_control()
    }

    #[inline]
    fn thread_state(self) -> ThreadState {
        thread_state::get()
    }

    #[inline]
    fn set_thread_state(self, state: ThreadState) {
        thread_state::set(state);
    }

    #[inline]
    fn ensure_controller(self) {
        controller::ensure();
    }

    #[inline]
    fn live_load(self) -> Option<LiveLoad> {
        bpf::live()
    }

    #[inline(always)]
    fn counts_waits(self) -> bool {
        hook::is_installed()
    }

    #[inline]
    fn waited(self, ns: u64) {
        if let Some(hook) = hook::get() {
            (hook.waited)(ns);
        }
    }

    #[inline]
    fn spin_ns(self) -> Option<u64> {
        Some(thread_state::spin_ns()).filter(|&ns| ns != 0)
    }

    #[inline(always)]
    fn sample_at(self) -> u64 {
        sample::at()
    }

    fn take_sample(self) {
        sample::take();
    }
}

impl Process for Native {
    type Context = ThisProcess;

    #[inline(always)]
    fn context() -> ThisProcess {
        ThisProcess
    }
}
