//! The privilege that this process keeps.

use rustix::io::Result;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs,
};

/// Gives up all capabilities but those for BPF programs, which a restart of the scheduler needs
/// again, and for a metrics port below 1024. Called before any other thread exists: capabilities
/// belong to threads.
///
/// # Errors
///
/// The kernel refuses, which it does not do for a part of the present capabilities.
pub fn limit() -> Result<()> {
    let present = capabilities(None)?.permitted;
    let mut needed = CapabilitySet::BPF | CapabilitySet::PERFMON;
    if !present.contains(needed) {
        needed = CapabilitySet::SYS_ADMIN;
    }
    let kept = present & (needed | CapabilitySet::NET_BIND_SERVICE);
    let inheritable = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable })?;
    set_no_new_privs(true)
}
