//! The parts of unconvoy that need something of the machine.

use std::process::Command;

use serde::Serialize;
use unconvoy::catalogue::{Availability, availability, environment};
use unconvoy_measure::context::Machine;
use unconvoy_measure::{chart, parts};

use crate::messages::doctor as messages;
use crate::predict;
use crate::predict::kernel::parts::Parts;
use crate::predict::parquet;
use crate::{bpf, process_file, profile, sched, study, top};

/// One part of unconvoy, and whether it works here.
#[derive(Debug, Serialize)]
pub struct Check {
    pub name: &'static str,
    pub works: bool,
    /// What was found, or what is missing and how to get it.
    pub detail: String,
}

impl Check {
    fn of(name: &'static str, found: Result<String, String>) -> Self {
        let works = found.is_ok();
        Self { name, works, detail: found.unwrap_or_else(|missing| missing) }
    }
}

/// Checks every part.
pub fn checks() -> Vec<Check> {
    let machine = Machine::capture();
    vec![
        Check::of("library", library()),
        Check::of("processors", Ok(processors(&machine))),
        Check::of("load sensor", schedstat()),
        Check::of("run --sensor bpf", sensor()),
        Check::of("profile --pid", profile_of_process()),
        Check::of("profile --kernel", profile_of_kernel()),
        Check::of("elided locks", elision()),
        Check::of("predict", emulator()),
        Check::of("predict --kernel", kernel()),
        Check::of("sched", scheduler()),
        Check::of("inspect", stacks()),
        Check::of("top", of_part(&top::SCREEN)),
        Check::of("predict --keep-trace", parquet::find().map(|path| path.display().to_string())),
        Check::of("bench, sim, papers", of_part(&study::STUDY)),
        Check::of("compare --plot X.png", of_part(&chart::PNG)),
    ]
}

/// Where a program of its own is.
fn of_part(part: &parts::Part) -> Result<String, String> {
    part.find().map(|path| path.display().to_string())
}

/// Preloads the library into this command, whose standard error then has any complaint of the
/// dynamic loader, and of the library about its settings.
fn library() -> Result<String, String> {
    let path = parts::interposer(environment::LIBRARY.name)?;
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(own);
    command.arg("--version").env("LD_PRELOAD", parts::preload(&path, None));
    let output = command.output().map_err(|error| error.to_string())?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() || !complaint.trim().is_empty() {
        return Err(messages::library_not_loaded(&path, complaint.trim()));
    }
    Ok(path.display().to_string())
}

/// The usable processors, and the quota behind their number. Quotas of parent cgroups count too,
/// but only the process's own can be shown.
fn processors(machine: &Machine) -> String {
    let usable = machine.processors;
    let quota = machine.quota.as_deref().and_then(microseconds);
    match (quota, machine.processors_allowed) {
        (Some((quota, period)), _) if quota / period <= u64::from(usable) => {
            messages::processors_of_quota(usable, &messages::quota(quota, period))
        }
        (_, Some(allowed)) if allowed > usable => {
            messages::processors_of_parents_quota(usable, allowed)
        }
        (Some((quota, period)), _) => {
            messages::processors_below_quota(usable, &messages::quota(quota, period))
        }
        (None, _) => messages::processors_without_quota(usable),
    }
}

/// The quota and the period of a text `QUOTA PERIOD`.
fn microseconds(quota: &str) -> Option<(u64, u64)> {
    let (quota, period) = quota.split_once(' ')?;
    let (quota, period): (u64, u64) = (quota.parse().ok()?, period.parse().ok()?);
    (period > 0).then_some((quota, period))
}

fn schedstat() -> Result<String, String> {
    match std::fs::read_to_string("/proc/self/schedstat") {
        Ok(text) if text.split_whitespace().count() == 3 => Ok(messages::schedstat_read().into()),
        _ => Err(messages::schedstat_missing().into()),
    }
}

fn sensor() -> Result<String, String> {
    bpf::check().map_err(|error| error.to_string())?;
    Ok(messages::threads_counted().into())
}

/// Its BPF programs need a newer kernel than the sensor's, and x86-64.
fn profile_of_process() -> Result<String, String> {
    profile::outside::check().map_err(|error| error.to_string())?;
    Ok(messages::process_recorded(may_trace_any()).into())
}

fn profile_of_kernel() -> Result<String, String> {
    profile::kernel::check().map_err(|error| error.to_string())?;
    Ok(messages::kernel_recorded().into())
}

fn elision() -> Result<String, String> {
    match availability("elided") {
        Availability::Full => Ok(messages::transactions_commit().into()),
        Availability::Reduced(why) | Availability::Refused(why) => Err(why.into()),
    }
}

fn emulator() -> Result<String, String> {
    let found = predict::emulator().map_err(|refusal| refusal.message)?;
    Ok(messages::emulator_found(&found.qemu))
}

fn kernel() -> Result<String, String> {
    let parts = Parts::find(None, None, None).map_err(|refusal| refusal.message)?;
    Ok(messages::kernel_found(&parts.qemu, &parts.image))
}

/// Asks the scheduler, which knows its requirements.
fn scheduler() -> Result<String, String> {
    let path = sched::SCHEDULER.find()?;
    let output = Command::new(&path).arg("--check").output();
    let output = output.map_err(|error| messages::scheduler_not_started(&path, error))?;
    if output.status.success() {
        return Ok(messages::scheduler_runs().into());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let text = text.trim().trim_start_matches("unconvoy: ");
    // The scheduler lists its requirements one per line.
    let (title, requirements) = text.split_once('\n').unwrap_or((text, ""));
    let requirements: Vec<&str> =
        requirements.lines().map(|line| line.trim_start_matches([' ', '-'])).collect();
    Err(format!("{title}: {}", requirements.join("; ")))
}

/// Whether `inspect`, `top` and the watchdog may read a process of the same user that is not their
/// child (`Documentation/admin-guide/LSM/Yama.rst` in the kernel's source).
fn stacks() -> Result<String, String> {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let may_trace = may_trace_any();
    match scope.trim() {
        "3" => Err(messages::stacks_forbidden().into()),
        "1" | "2" if !may_trace => Err(messages::stacks_need_privilege(scope.trim())),
        _ => Ok(messages::stacks_readable(may_trace).into()),
    }
}

/// Whether this process has CAP_SYS_PTRACE, bit 19 of `CapEff` (proc(5)). Root of a container often
/// lacks it.
fn may_trace_any() -> bool {
    let status = process_file::text("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective
        .and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok())
        .is_some_and(|capabilities| capabilities & (1 << 19) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quota_of_parent_cgroup_is_mentioned() {
        let machine = |processors, quota: Option<&str>| Machine {
            processors,
            processors_allowed: Some(8),
            quota: quota.map(str::to_string),
            ..Machine::capture()
        };
        assert!(processors(&machine(8, None)).contains("no quota"));
        let own = processors(&machine(1, Some("150000 100000")));
        assert_eq!(own, "1 usable: the cgroup's quota is 1.5 processors (150000 us per 100000 us)");
        let one = processors(&machine(1, Some("100000 100000")));
        assert!(one.contains("is 1 processor (100000 us per 100000 us)"), "{one}");
        let limited = processors(&machine(2, None));
        assert!(limited.starts_with("2 usable of 8") && !limited.contains("no quota"), "{limited}");
        assert_eq!(processors(&machine(2, Some("800000 100000"))), limited);
        let unlimited = processors(&machine(8, Some("1250000 100000")));
        let quota = "12.5 processors (1250000 us per 100000 us)";
        assert!(unlimited.contains(quota) && unlimited.contains("more"), "{unlimited}");
    }
}
