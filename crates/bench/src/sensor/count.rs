//! The kernel's count for the `bpf` sensor, if `unconvoy run --sensor bpf` has set one up for this process.
//!
//! The interposer may be in this process too (`unconvoy run` sees to it) and has a count of its own; the sensor that
//! is measured here is this program's.

use std::os::fd::{BorrowedFd, RawFd};

use anyhow::Context as _;
use unconvoy::runtime::sensor::bpf;

use unconvoy::catalogue::environment;

/// Takes the count over, if there is one.
pub fn adopt() -> anyhow::Result<()> {
    let Ok(text) = std::env::var(environment::BPF.name) else { return Ok(()) };
    let fields: Result<Vec<RawFd>, _> = text.split(':').map(str::parse).collect();
    let fields = fields.with_context(|| format!("{}={text} is not PROCESS:FIRST:COUNT", environment::BPF.name))?;
    if let [_, map, _] = fields[..]
        && map >= 0
    {
        // SAFETY: only used as a number here, which the kernel refuses where it is no map's.
        bpf::adopt(unsafe { BorrowedFd::borrow_raw(map) });
    }
    Ok(())
}
