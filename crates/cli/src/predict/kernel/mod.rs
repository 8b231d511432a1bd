//! `unconvoy predict --kernel`: the same questions of the Linux kernel's own spin locks.
//!
//! A guest ([`guest`]) with a kernel ([`parts`]) boots under QEMU's system mode ([`machine`]) twice: for its symbols and types ([`symbols`], [`btf`]), which are kept ([`cache`]) since the same
//! kernel has them at the same addresses whenever it boots so, and with the plug-in, for address sets and times. What memory is called is [`memory`]'s business.

mod archive;
mod btf;
mod cache;
mod disk;
mod guest;
mod machine;
mod memory;
mod modules;
mod names;
mod parts;
mod symbols;
mod workloads;

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use addr2line::Loader;
use anyhow::{Context as _, bail};
use unconvoy_measure::interrupt::Interrupts;
use unconvoy_syncchar::{Analysis, Clock, LockTimes, Options, Report, Run};

use super::child::Why;
use super::ending::keep;
use super::kept::Kept;
use super::messages::{complain, say};
use super::outputs::Outputs;
use super::remarks::number;
use super::trace::Trace;
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

/// How long a boot for symbols may take: one of 64 processors on two of a busy machine takes some 40 s.
const LONGEST_BOOT: Duration = Duration::from_secs(300);

/// An instruction, in seconds: 1 GHz and one instruction a cycle, as in section 5 of the paper.
const INSTRUCTION: f64 = 1e-9;

/// Runs the command or the workload under the kernel, reports, and returns the exit status as [`super::predict`].
///
/// # Errors
///
/// As there; a kernel that does not boot or lacks what the plug-in needs (1).
pub fn profile(args: &PredictArgs, analysis: Analysis, options: &Options, mut outputs: Outputs) -> anyhow::Result<u8> {
    let parts = Parts::find(&args.guest)?;
    let lines = debug_information(args, &parts)?;
    let interrupts = Interrupts::install()?;
    let folder = tempfile::Builder::new().prefix("unconvoy-syncchar-").tempdir()?;
    let folder = folder.path();
    let modules = parts.modules.as_deref().map(modules::needed).transpose()?.unwrap_or_default();
    let (scripts, disk) = workload(args, &parts, folder)?;
    let busybox = std::fs::read(&parts.busybox).with_context(|| parts.busybox.display().to_string())?;
    let initramfs = guest::initramfs(&busybox, &modules, &scripts);
    let machine = Machine { parts: &parts, processors: args.guest.cpus, memory: args.guest.memory, folder };

    let cache = Cache::of(&machine, &modules, folder)?;
    if !cache.is_filled() {
        say("unconvoy: the guest boots for its symbols");
        let limit = args.timeout.map_or(LONGEST_BOOT, |timeout| timeout.min(LONGEST_BOOT));
        let mut boot = machine.symbols(&initramfs, limit, &interrupts)?;
        if boot.is_worth_another() {
            boot = machine.symbols(&initramfs, limit, &interrupts)?;
        }
        if let Some(Why::Interrupted(signal)) = boot.ended.why {
            complain("interrupted before anything was collected");
            return Ok(128 + signal as u8);
        }
        if boot.back.symbols.is_empty() {
            bail!("{}: {}", parts.image.display(), boot.failure());
        }
        cache.fill(&boot.back).context("no place for the kernel's symbols")?;
    }
    let symbols = Symbols::parse(&cache.symbols()?);
    let missing = symbols.missing();
    if !missing.is_empty() {
        bail!(
            "{} lacks the symbols {}: a kernel for several processors (CONFIG_SMP) with CONFIG_KALLSYMS_ALL has them, and _raw_spin_unlock where it is not inlined \
             (CONFIG_UNINLINE_SPIN_UNLOCK, which preemption selects); Debian's have all (`make kernel`)",
            parts.image.display(),
            missing.join(", ")
        );
    }
    let btf = Btf::parse(&cache.btf());
    let offsets = folder.join("offsets");
    std::fs::write(&offsets, btf.as_ref().map(plugin_offsets).unwrap_or_default())?;

    say("unconvoy: the guest runs the command, for address sets and times");
    let symbols_file = cache.symbols_file();
    let plugin = Plugin { symbols: &symbols_file, offsets: &offsets, rate: args.rate, seed: args.seed };
    let run = |analysis: Analysis, outputs: &mut Outputs| {
        machine.run(&initramfs, &disk, &plugin, args.timeout, analysis, outputs.trace(), &interrupts)
    };
    let (mut boot, mut trace) = run(analysis, &mut outputs)?;
    if boot.is_worth_another() {
        outputs.begin_trace_again()?;
        (boot, trace) = run(Analysis::new(options.clone())?, &mut outputs)?;
    }
    if !boot.back.output.is_empty() {
        let _ = std::io::stdout().write_all(&boot.back.output);
    }
    let profile = Profile { args, options, symbols: &symbols, btf: btf.as_ref(), lines: lines.as_ref() };
    profile.report(&boot, &trace, &mut outputs)
}

/// All that a report is made of, besides the run.
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
        let program = self.told();
        let run = Run {
            source: format!("qemu-system, {} processors", self.args.guest.cpus),
            program: program.clone(),
            seconds,
            clock: Clock::Instructions,
        };
        if let Some(counts) = instructions {
            let all = (counts.kernel + counts.user).max(1) as f64;
            remarks.insert(
                0,
                format!(
                    "Of all instructions, {:.1} % were in programs and {:.1} % in the kernel, {:.2} % of all waiting for locks.",
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

    /// What ran, as a user said it.
    fn told(&self) -> Vec<String> {
        let scale = self.args.guest.scale;
        match self.args.guest.workload {
            Some(workload) if scale == 1.0 => vec![format!("{workload:?}").to_lowercase()],
            Some(workload) => vec![format!("{workload:?}").to_lowercase(), format!("(scale {scale})")],
            None => self.args.program.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        }
    }
}

/// The scripts, and the disk with what they need.
fn workload(args: &PredictArgs, parts: &Parts, folder: &Path) -> anyhow::Result<(Scripts, std::path::PathBuf)> {
    let Some(workload) = args.guest.workload else {
        let words: Vec<_> = args.program.iter().map(|word| word.to_string_lossy()).collect();
        let scripts = Scripts { prepare: String::new(), command: format!("{}\n", words.join(" ")) };
        return Ok((scripts, disk::make(parts, folder, None)?));
    };
    let tree = folder.join("tree");
    std::fs::create_dir(&tree)?;
    let scripts = workload.make(&tree, args.guest.cpus, args.guest.scale)?;
    let disk = disk::make(parts, folder, Some(&tree))?;
    // It is on the disk now.
    std::fs::remove_dir_all(&tree)?;
    Ok((scripts, disk))
}

fn debug_information(args: &PredictArgs, parts: &Parts) -> Result<Option<Loader>, Refusal> {
    let load = |file: &Path| Loader::new(file).map_err(|error| format!("{}: {error}", file.display()));
    match &args.guest.debug_info {
        Some(file) => load(file).map(Some).map_err(|why| Refusal::usage(format!("--debug-info {why}"))),
        None if crate::inspect::is_elf(&parts.image) => Ok(load(&parts.image).ok()),
        None => Ok(None),
    }
}

/// What the plug-in has to know of the kernel's types: where a heap object's cache is written, and what its name is.
fn plugin_offsets(btf: &Btf) -> String {
    let mut lines = String::new();
    for (key, structure, member) in [
        ("slab_cache", "slab", "slab_cache"),
        ("page_flags", "page", "flags"),
        ("page_type", "page", "page_type"),
        // Called so from 7.1 on.
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

/// What was not seen, or spoils the numbers; sentences.
fn remarks(boot: &Boot, trace: &Trace, has_types: bool) -> Vec<String> {
    let mut remarks = Vec::new();
    match (boot.ended.why, boot.back.status) {
        (Some(Why::Interrupted(_)), _) => {
            remarks.push("The guest was interrupted: what was seen until then is reported.".into());
        }
        (Some(Why::TimedOut), _) => {
            remarks.push("The guest was ended by the time-out: what was seen until then is reported.".into());
        }
        (None, Some(0)) => {}
        (None, Some(status)) => remarks.push(format!("The command in the guest ended with status {status}.")),
        (None, None) => remarks.push(format!("The run is not whole: {}.", boot.failure())),
    }
    if boot.back.output.len() >= guest::MOST_OUTPUT as usize {
        remarks.push("The command's output was longer than what is shown.".into());
    }
    if trace.context.is_none() {
        remarks.push(
            "The plug-in told nothing: QEMU did not load it (its own words are above), or the command did not begin."
                .into(),
        );
        return remarks;
    }
    if let Some(why) = &trace.cut_off {
        remarks.push(format!("The address sets end early ({why}): what had come until then is reported."));
    }
    if !has_types {
        remarks.push("The kernel tells no types (CONFIG_DEBUG_INFO_BTF): memory has the names of caches only.".into());
    }
    let Some(end) = &trace.end else { return remarks };
    if end.instructions.is_none() {
        remarks.push("No times are known.".into());
    }
    if end.lost > 0 {
        remarks.push(format!("{} could not be written and are missing.", number(end.lost, "record", "records")));
    }
    if end.unmatched_unlocks > 0 {
        let releases = number(end.unmatched_unlocks, "release", "releases");
        remarks.push(format!(
            "{releases} of what was never seen taken, as of locks that were taken before the command began."
        ));
    }
    remarks.extend(end.notes.iter().map(|note| format!("The plug-in: {note}.")));
    remarks
}
