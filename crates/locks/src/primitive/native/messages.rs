//! Why this machine lacks a feature, and what to do about it. The callers name the lock that is
//! left out.

/// The C library has no `rseq` area that could hold the request.
pub(super) const NO_RSEQ_AREA: &str =
    "no time-slice extension: the C library has no rseq area (use glibc 2.35 or later on x86-64)";

/// A tunable keeps glibc from registering its area.
pub(super) const RSEQ_NOT_REGISTERED: &str = "no time-slice extension: rseq is disabled \
     (remove glibc.pthread.rseq=0 from GLIBC_TUNABLES)";

/// The kernel does not know the `prctl`.
pub(super) const NO_EXTENSION_IN_KERNEL: &str = "no time-slice extension in this kernel \
     (use Linux 7.0 or later with CONFIG_RSEQ_SLICE_EXTENSION)";

/// The kernel knows the `prctl`, and refuses this area. Linux 7.1 and later accept an area of 32
/// bytes, as registered by glibc before 2.41.
pub(super) const EXTENSION_NOT_OFFERED: &str = "no time-slice extension: refused by the kernel \
     (use glibc 2.41 or later, or boot without rseq_slice_ext=off)";

/// The process has confined itself to a set of system calls.
pub(super) const SYSTEM_CALLS_FILTERED: &str =
    "no time-slice extension: the program filters its system calls (use another lock)";

/// The processor does not advertise RTM.
pub(super) const NO_TRANSACTIONS: &str = "no hardware transactions: not offered by the processor \
     or its hypervisor (use a machine with Intel RTM, or another lock)";

/// The processor advertises that every transaction aborts.
pub(super) const TRANSACTIONS_DISABLED: &str = "no hardware transactions: switched off \
     (boot with tsx=on if the microcode permits, or use another lock)";

/// No trial transaction committed.
pub(super) const TRANSACTIONS_NEVER_COMMIT: &str =
    "no hardware transactions: none commits on this processor (use another lock)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message() {
        let messages = [
            NO_RSEQ_AREA,
            RSEQ_NOT_REGISTERED,
            NO_EXTENSION_IN_KERNEL,
            EXTENSION_NOT_OFFERED,
            SYSTEM_CALLS_FILTERED,
            NO_TRANSACTIONS,
            TRANSACTIONS_DISABLED,
            TRANSACTIONS_NEVER_COMMIT,
        ];
        for message in messages {
            println!("{message}");
            assert!(message.lines().all(|line| line.len() <= 120), "over 120 columns: {message}");
            let remedies = ["(use ", "(remove ", "(boot "];
            assert!(remedies.iter().any(|remedy| message.contains(remedy)), "no remedy: {message}");
            assert!(!message.ends_with('.'), "trailing full stop: {message}");
        }
        let declared = include_str!("messages.rs").matches("\npub(super) const ").count();
        assert_eq!(messages.len(), declared, "messages not listed here");
    }
}
