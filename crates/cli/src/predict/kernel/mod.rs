//! `unconvoy predict --kernel`: the same predictions for the Linux kernel's own spin locks.
//!
//! A guest ([`guest`]) with a kernel ([`parts`]) boots twice under QEMU's system mode
//! ([`machine`]). The first boot reads the kernel's symbols and types ([`symbols`], [`btf`]). They
//! are cached ([`cache`]), because the same kernel has the same addresses at every such boot. The
//! second boot runs the plug-in, for address sets and times. [`memory`] names addresses.

mod archive;
pub(crate) mod btf;
mod cache;
mod disk;
mod guest;
mod machine;
mod memory;
mod modules;
mod names;
pub mod parts;
pub(crate) mod symbols;
mod workloads;

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use addr2line::Loader;
use anyhow::{Context as _, bail};
use unconvoy_measure::interrupt::Interrupts;
use unconvoy_measure::output::complain;
use unconvoy_syncchar::{Analysis, Clock, LockTimes, Options, Report, Run};

use super::ending::keep;
use super::kept::Kept;
use super::outputs::Outputs;
use super::progress::report_progress;
use super::remarks::number;
use super::trace::Trace;
use crate::child::Why;
use crate::messages::kernel as messages;
use crate::messages::predict::{interrupted_early, option_rejected};
use crate::predict::options::PredictArgs;
use crate::refusal::Refusal;

use btf::Btf;
use cache::Cache;
use guest::Scripts;
use machine::{Boot, Machine, Plugin};
use memory::Memory;
use names::KernelNames;
use parts::Parts;
use symbols::Symbols;

pub use workloads::Workload;

/// Time limit of the boot for symbols. With 64 processors on two processors of a busy machine it
/// takes about 40 s.
const LONGEST_BOOT: Duration = Duration::from_secs(300);

/// Seconds per instruction: 1 GHz and one instruction a cycle, as in section 5 of the paper.
const INSTRUCTION: f64 = 1e-9;

/// Profiles the command or the workload under the kernel, reports, and returns the exit status, as
/// [`super::predict`].
///
/// # Errors
///
/// As [`super::predict`]; and a kernel that does not boot or lacks what the plug-in needs (1).
pub fn profile(
    args: &PredictArgs,
    analysis: Analysis,
    options: &Options,
    mut outputs: Outputs,
    interrupts: &Interrupts,
) -> anyhow::Result<u8> {
    let parts = Parts::find(
        args.guest.qemu.as_deref(),
        args.guest.kernel.as_ref().and_then(Option::as_deref),
        args.guest.modules.as_deref(),
    )?;
    let lines = debug_information(args, &parts)?;
    let folder = tempfile::Builder::new().prefix("unconvoy-syncchar-").tempdir()?;
    let folder = folder.path();
    let modules = parts.modules.as_deref().map(modules::needed).transpose()?.unwrap_or_default();
    let (scripts, disk) = workload(args, &parts, folder)?;
    let busybox =
        std::fs::read(&parts.busybox).with_context(|| parts.busybox.display().to_string())?;
    let initramfs = guest::initramfs(&busybox, &modules, &scripts);
    let machine =
        Machine { parts: &parts, processors: args.guest.cpus, memory: args.guest.memory, folder };

    let cache = Cache::of(&machine, &modules, folder)?;
    if !cache.is_filled() {
        report_progress("booting the guest to read its symbols");
        let mut boot = machine.symbols(&initramfs, LONGEST_BOOT, interrupts)?;
        if boot.is_worth_retrying() {
            boot = machine.symbols(&initramfs, LONGEST_BOOT, interrupts)?;
        }
        if let Some(Why::Interrupted(signal)) = boot.ended.why {
            complain(interrupted_early());
            return Ok(128 + signal as u8);
        }
        if boot.back.symbols.is_empty() {
            bail!(messages::boot_failed(&parts.image, &boot.failure()));
        }
        cache.fill(&boot.back).context(messages::cannot_save_symbols())?;
    }
    let symbols = Symbols::parse(&cache.symbols()?);
    let missing = symbols.missing();
    if !missing.is_empty() {
        bail!(messages::symbols_missing(&parts.image, &missing.join(", ")));
    }
    let btf = Btf::parse(&cache.btf());
    let offsets = folder.join("offsets");
    std::fs::write(&offsets, btf.as_ref().map(plugin_offsets).unwrap_or_default())?;

    report_progress("running the command in the guest, for address sets and times");
    let symbols_file = cache.symbols_file();
    let plugin = Plugin {
        symbols: &symbols_file,
        offsets: &offsets,
        rate: args.rate,
        sampling: args.sampling,
        seed: args.seed,
    };
    let run = |analysis: Analysis, outputs: &mut Outputs| {
        machine.run(&initramfs, &disk, &plugin, args.timeout, analysis, outputs.trace(), interrupts)
    };
    let (mut boot, mut trace) = run(analysis, &mut outputs)?;
    if boot.is_worth_retrying() {
        outputs.restart_trace()?;
        (boot, trace) = run(Analysis::new(options.clone())?, &mut outputs)?;
    }
    // The plug-in writes its context when it loads, and its end when QEMU exits.
    let counts = trace.end.as_ref().and_then(|end| end.instructions);
    let has_counted = counts.is_some_and(|it| it.work() > 0);
    if boot.back.status.is_none() && trace.locks.is_empty() && !has_counted {
        trace.context = None; // the command did not begin
    }
    if !boot.back.output.is_empty() {
        let _ = std::io::stdout().write_all(&boot.back.output);
    }
    let profile =
        Profile { args, options, symbols: &symbols, btf: btf.as_ref(), lines: lines.as_ref() };
    profile.report(&boot, &trace, &mut outputs)
}

/// What a report needs besides the run.
struct Profile<'a> {
    args: &'a PredictArgs,
    options: &'a Options,
    symbols: &'a Symbols,
    btf: Option<&'a Btf>,
    lines: Option<&'a Loader>,
}

impl Profile<'_> {
    fn report(&self, boot: &Boot, trace: &Trace, outputs: &mut Outputs) -> anyhow::Result<u8> {
        let mut remarks = remarks(boot, trace, self.btf.is_some());
        let per_cpu = trace.end.as_ref().map_or(&[][..], |end| &end.per_cpu);
        let memory = Memory { symbols: self.symbols, btf: self.btf, per_cpu };
        let names = KernelNames::new(trace, memory, self.lines);
        let times = times(trace);
        let instructions = trace.end.as_ref().and_then(|end| end.instructions);
        let seconds = instructions.map(|counts| counts.work() as f64 * INSTRUCTION);
        let program = self.command();
        let run = Run {
            source: format!("qemu-system, {} processors", self.args.guest.cpus),
            program: program.clone(),
            seconds,
            clock: Clock::Instructions,
            costs: None,
        };
        if let Some(counts) = instructions {
            let all = (counts.kernel + counts.user).max(1) as f64;
            remarks.insert(
                0,
                format!(
                    "Of all instructions, {:.1} % were in programs and {:.1} % in the kernel; \
                     {:.2} % waited for locks.",
                    100.0 * counts.user as f64 / all,
                    100.0 * counts.kernel as f64 / all,
                    100.0 * counts.waited as f64 / all
                ),
            );
        }
        let status = u8::from(trace.context.is_none());
        let analyses = trace.analyses.clone();
        let mut report = Report::new(run.clone(), self.options, analyses, times.clone(), &names);
        let kept = || Kept {
            seconds,
            times: times.into_iter().collect(),
            remarks: remarks.clone(),
            program,
            source: run.source,
            clock: Clock::Instructions,
            ..names.keep()
        };
        let status = status.max(keep(trace, outputs, kept)?);
        report.remarks.splice(0..0, remarks);
        let written = outputs.write(&report, self.args.top)?;
        Ok(match boot.ended.why {
            Some(Why::Interrupted(signal)) => 128 + signal as u8,
            _ => status.max(written),
        })
    }

    /// Returns the command or the workload, as the user named it.
    fn command(&self) -> Vec<String> {
        let scale = self.args.guest.scale;
        match self.args.guest.workload {
            Some(workload) if scale == 1.0 => vec![format!("{workload:?}").to_lowercase()],
            Some(workload) => {
                vec![format!("{workload:?}").to_lowercase(), format!("(scale {scale})")]
            }
            None => {
                self.args.program.iter().map(|word| word.to_string_lossy().into_owned()).collect()
            }
        }
    }
}

/// Returns the scripts, and the disk with their files.
fn workload(
    args: &PredictArgs,
    parts: &Parts,
    folder: &Path,
) -> anyhow::Result<(Scripts, std::path::PathBuf)> {
    let Some(workload) = args.guest.workload else {
        let words: Vec<_> = args.program.iter().map(|word| word.to_string_lossy()).collect();
        let scripts = Scripts { prepare: String::new(), command: format!("{}\n", words.join(" ")) };
        return Ok((scripts, disk::make(parts, folder, None, args.guest.scale)?));
    };
    let tree = folder.join("tree");
    std::fs::create_dir(&tree)?;
    let scripts = workload.make(&tree, args.guest.cpus, args.guest.scale)?;
    let disk = disk::make(parts, folder, Some(&tree), args.guest.scale)?;
    // The disk has a copy.
    std::fs::remove_dir_all(&tree)?;
    Ok((scripts, disk))
}

fn debug_information(args: &PredictArgs, parts: &Parts) -> Result<Option<Loader>, Refusal> {
    match &args.guest.debug_info {
        Some(file) => Loader::new(file).map(Some).map_err(|error| {
            Refusal::usage(option_rejected("--debug-info", file.display(), error))
        }),
        None if crate::executable::is_elf(&parts.image) => Ok(Loader::new(&parts.image).ok()),
        None => Ok(None),
    }
}

/// Returns the offsets and sizes that the plug-in needs to find an object's cache and its name.
fn plugin_offsets(btf: &Btf) -> String {
    let mut lines = String::new();
    for (key, structure, member) in [
        ("slab_cache", "slab", "slab_cache"),
        ("page_flags", "page", "flags"),
        ("page_type", "page", "page_type"),
        // The member's name from Linux 7.1 on.
        ("compound_head", "page", "compound_info"),
        ("compound_head", "page", "compound_head"),
        ("kmem_cache_name", "kmem_cache", "name"),
        ("kmem_cache_object_size", "kmem_cache", "object_size"),
        ("kmem_cache_size", "kmem_cache", "size"),
        ("kmem_cache_list", "kmem_cache", "list"),
    ] {
        if let Some(offset) = btf.offset(structure, member) {
            lines.push_str(&format!("{key}={offset}\n"));
        }
    }
    for structure in ["page", "pglist_data"] {
        if let Some(size) = btf.size(structure) {
            lines.push_str(&format!("sizeof_{structure}={size}\n"));
        }
    }
    lines
}

fn times(trace: &Trace) -> HashMap<u32, LockTimes> {
    let of = |(number, lock): (&u32, &super::trace::Lock)| {
        let (held, waited) = lock.held?;
        let [held, waited] = [held, waited].map(|instructions| instructions as f64 * INSTRUCTION);
        Some((*number, LockTimes { acquisitions: lock.acquisitions, held, waited }))
    };
    trace.locks.iter().filter_map(of).collect()
}

/// Returns remarks about what is missing or distorts the numbers.
fn remarks(boot: &Boot, trace: &Trace, has_types: bool) -> Vec<String> {
    let mut remarks = Vec::new();
    match (boot.ended.why, boot.back.status) {
        (Some(Why::Interrupted(_)), _) => {
            remarks.push("The guest was interrupted: the report covers the run until then.".into());
        }
        (Some(Why::TimedOut), _) => {
            remarks
                .push("The time-out ended the guest: the report covers the run until then.".into());
        }
        (None, Some(0)) => {}
        (None, Some(status)) => {
            remarks.push(format!("The command in the guest ended with status {status}."))
        }
        (None, None) => remarks.push(format!("The run is incomplete: {}.", boot.failure())),
    }
    if boot.back.output.len() >= guest::MOST_OUTPUT as usize {
        remarks.push("The command's output is truncated.".into());
    }
    if trace.context.is_none() {
        remarks.push(
            "The plug-in sent no data: QEMU did not load it (see its message above), or the \
             command did not begin."
                .into(),
        );
        return remarks;
    }
    if let Some(why) = &trace.cut_off {
        remarks.push(format!(
            "The address sets end early ({why}): the report covers the run until then."
        ));
    }
    if !has_types {
        remarks.push(
            "The kernel has no type information (CONFIG_DEBUG_INFO_BTF): names stop at slab caches."
                .into(),
        );
    }
    let Some(end) = &trace.end else { return remarks };
    if end.instructions.is_none() {
        remarks.push("No times were recorded.".into());
    }
    if end.lost > 0 {
        remarks.push(format!(
            "{} lost because they could not be written.",
            number(end.lost, "record", "records")
        ));
    }
    if end.unmatched_unlocks > 0 {
        let releases = number(end.unmatched_unlocks, "release", "releases");
        remarks.push(format!(
            "The plug-in saw {releases} of locks that it had not seen acquired, such as locks \
             acquired before the command began."
        ));
    }
    if end.abandoned > 0 {
        let acquisitions = number(end.abandoned, "acquisition", "acquisitions");
        remarks.push(format!(
            "The plug-in did not see the release after {acquisitions}, whose sections and times \
             are missing: a kernel without CONFIG_PREEMPTION releases some locks inline."
        ));
    }
    remarks.extend(end.notes.iter().map(|note| format!("The plug-in: {note}.")));
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child::Ended;
    use std::os::unix::process::ExitStatusExt;
    use unconvoy_trace_stream::{MAGIC, Reader, Record, append};

    /// Returns the remarks on a complete run whose collector wrote this end record.
    fn remarks_on(end: &str) -> Vec<String> {
        let mut stream = MAGIC.to_vec();
        append(&mut stream, &Record::Context(r#"{"source":"qemu-system"}"#));
        append(&mut stream, &Record::End(end));
        let analysis = Analysis::new(Options::default()).unwrap();
        let trace = Trace::read(Reader::new(&stream[..]).unwrap(), analysis, None);
        let status = std::process::ExitStatus::from_raw(0);
        let ended = Ended { status, wall: Duration::from_secs(1), why: None };
        let back = guest::HandedBack { status: Some(0), ..guest::HandedBack::default() };
        remarks(&Boot { ended, back, console: String::new() }, &trace, true)
    }

    #[test]
    fn acquisitions_without_release_are_remarked_on() {
        assert!(remarks_on(r#"{"instructions":{"kernel":1},"abandoned":0}"#).is_empty());
        let remarks = remarks_on(r#"{"instructions":{"kernel":1},"abandoned":7}"#);
        let [remark] = &remarks[..] else { panic!("{remarks:?}") };
        assert!(remark.contains("the release after 7 acquisitions,"), "{remark}");
    }
}
