//! The kernel's count for the `bpf` sensor, if `unconvoy run --sensor bpf` set one up for this
//! process.
//!
//! The interposer may be in this process too, because `unconvoy run` preloads it. It then adopts
//! the count for itself; the sensor that is measured here belongs to this program.

use std::os::fd::{BorrowedFd, RawFd};

use anyhow::Context as _;
use unconvoy::runtime::sensor::bpf;

use unconvoy::catalogue::environment;

use crate::messages;

/// Adopts the count, if there is one.
pub fn adopt() -> anyhow::Result<()> {
    let Ok(text) = std::env::var(environment::BPF.name) else { return Ok(()) };
    let fields: Result<Vec<RawFd>, _> = text.split(':').map(str::parse).collect();
    let fields =
        fields.with_context(|| messages::invalid_count_setting(environment::BPF.name, &text))?;
    if let [_, map, _] = fields[..]
        && map >= 0
    {
        // SAFETY: the descriptor is only passed to the kernel, which rejects one that is not a map.
        bpf::adopt(unsafe { BorrowedFd::borrow_raw(map) });
    }
    Ok(())
}
