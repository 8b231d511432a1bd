//! Keeps the events of a recording, and fills a profile with them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

use syscalls::{x86, x86_64};
use unconvoy_profile::layout::{LONGEST, MAGIC, VERSION};
use unconvoy_profile::{Profile, Source, layout, weight};

use super::collector::Collected;
use super::event::{Event, kind};
use super::names;
use super::symbols::Symbols;
use crate::profile::remarks::KERNEL;

/// The stack of a wait with its task, before it has names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Caller {
    stack: Vec<u64>,
    call: Option<Call>,
    task: String,
}

/// A system call by its number, which means another call in 32-bit programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Call {
    number: u32,
    is_32_bit: bool,
}

impl Call {
    fn of(event: &Event) -> Option<Self> {
        let number = u32::try_from(event.call).ok()?;
        Some(Call { number, is_32_bit: event.is_32_bit != 0 })
    }

    fn name(self) -> String {
        let number = self.number as usize;
        let name = if self.is_32_bit {
            x86::Sysno::new(number).map(|call| call.name())
        } else {
            x86_64::Sysno::new(number).map(|call| call.name())
        };
        name.map_or_else(|| format!("system call {number}"), str::to_string)
    }
}

/// What samples stand for.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    ns: u64,
    count: u64,
    samples: u64,
}

/// One of the longest waits.
#[derive(Debug, Clone, Copy)]
struct Long {
    ns: u64,
    end: u64,
    lock: u64,
    caller: usize,
    thread: u32,
}

/// The samples of a recording.
#[derive(Default)]
pub struct Recorder {
    callers: Vec<Caller>,
    numbers: HashMap<Caller, usize>,
    /// The first recorded wait for each lock.
    firsts: HashMap<u64, usize>,
    /// By lock and caller.
    sums: BTreeMap<(u64, usize), Sum>,
    /// Longest first.
    longest: Vec<Long>,
    pub period_ns: u64,
}

impl Recorder {
    pub fn new(period_ns: u64) -> Self {
        Recorder { period_ns, ..Self::default() }
    }

    /// Records an event.
    pub fn record(&mut self, event: &Event) {
        let (stack, call) = (event.stack().to_vec(), Call::of(event));
        let caller = Caller { stack, call, task: event.task() };
        let next = self.callers.len();
        let number = *self.numbers.entry(caller.clone()).or_insert(next);
        if number == next {
            self.callers.push(caller);
        }
        if event.is_first != 0 {
            self.firsts.insert(event.lock, number);
        } else {
            self.firsts.entry(event.lock).or_insert(number);
        }
        if event.end < event.due {
            return;
        }
        let ns = event.end - event.begin;
        let (ns_for, count) = weight(ns, self.period_ns);
        let sum = self.sums.entry((event.lock, number)).or_default();
        sum.ns += ns_for;
        sum.count += count;
        sum.samples += 1;
        let place = self.longest.partition_point(|other| other.ns >= ns);
        if place < LONGEST {
            let (end, lock, thread) = (event.end, event.lock, event.thread);
            self.longest.truncate(LONGEST - 1);
            self.longest.insert(place, Long { ns, end, lock, caller: number, thread });
        }
    }
}

/// When and of whom a recording was made.
pub struct Subject<'a> {
    /// The program, or nothing for the whole machine.
    pub program: &'a str,
    /// 0 for the whole machine.
    pub pid: u32,
    pub begin_ns: u64,
    pub begin_unix_ns: u64,
    pub end_ns: u64,
}

/// The names of a profile, numbered in the order in which they appear.
struct Numbered<'a> {
    symbols: &'a Symbols,
    numbers: HashMap<String, usize>,
    lines: String,
    capacity: usize,
}

impl Numbered<'_> {
    fn address(&mut self, name: &str, offset: u64) -> u64 {
        if let Some(&number) = self.numbers.get(name) {
            return names::address(number, offset);
        }
        let number = self.numbers.len();
        let line = names::line(number, name);
        if self.lines.len() + line.len() <= self.capacity {
            self.lines += &line;
        }
        self.numbers.insert(name.to_string(), number);
        names::address(number, offset)
    }

    /// The frames of a wait: functions, system call, task.
    fn frames(&mut self, caller: &Caller) -> Vec<u64> {
        let symbols = self.symbols;
        let function = |&pc: &u64| match symbols.function(pc) {
            // A return address is after the call.
            Some((name, offset)) => (name.to_string(), offset.saturating_sub(1)),
            None => (format!("{pc:#x}"), 0),
        };
        let functions: Vec<(String, u64)> = caller.stack.iter().map(function).collect();
        let own = functions.iter().take(8).rposition(|(name, _)| is_of_recording(name));
        let functions = &functions[own.map_or(0, |own| own + 1)..];
        let call = call_of(functions, caller.call);
        let mut frames: Vec<u64> =
            functions.iter().map(|(name, offset)| self.address(name, *offset)).collect();
        frames.push(self.address(&call, 0));
        frames.push(self.address(&caller.task, 0));
        frames
    }
}

/// Whether a function belongs to the tracepoint or to the BPF programs.
fn is_of_recording(function: &str) -> bool {
    let starts = ["bpf_", "__bpf_", "__traceiter_", "trace_contention_"];
    starts.iter().any(|start| function.starts_with(start))
}

/// What the task was doing: a system call or something else. `functions` are innermost first.
fn call_of(functions: &[(String, u64)], call: Option<Call>) -> String {
    let call = call.map(Call::name);
    let has = |parts: &[&str]| {
        functions.iter().any(|(name, _)| parts.iter().any(|part| name.starts_with(part)))
    };
    let inner = if has(&["asm_sysvec_", "asm_common_interrupt", "common_interrupt", "sysvec_"]) {
        Some("interrupt")
    } else if has(&["asm_exc_page_fault", "exc_page_fault"]) {
        Some("page fault")
    } else if has(&["kthread", "worker_thread"]) {
        Some("kernel thread")
    } else {
        None
    };
    match (inner, call) {
        (Some(inner), Some(call)) => format!("{inner} in {call}"),
        (Some(inner), None) => inner.to_string(),
        (None, Some(call)) => call,
        (None, None) => "no system call".to_string(),
    }
}

/// Returns the profile of a recording.
pub fn fill(
    subject: &Subject<'_>,
    recorder: &Recorder,
    collected: &Collected,
    symbols: &Symbols,
) -> Box<Profile> {
    let profile = layout::zeroed();
    let mut named = Numbered {
        symbols,
        numbers: HashMap::new(),
        lines: String::new(),
        capacity: profile.modules.len(),
    };
    let frames: Vec<Vec<u64>> =
        recorder.callers.iter().map(|caller| named.frames(caller)).collect();
    let stack_of = |caller: usize| profile.stack(&frames[caller], 0);
    let mut indices = HashMap::new();
    // The first locks get histograms.
    let mut locks: Vec<_> = collected.locks.iter().collect();
    locks.sort_by_key(|(_, counts)| Reverse(counts.wait_ns));
    for (address, counts) in locks {
        let variable = symbols.variable(*address).or(counts.member());
        if let Some(variable) = variable {
            let name = named.address(variable, 0);
            profile.record_origin(*address as usize, profile.stack(&[name], 0));
        }
        let Some((index, lock)) = profile.lock(kind(counts.flags), *address as usize) else {
            profile.header.lost_waits.fetch_add(counts.waits as u32, Relaxed);
            continue;
        };
        lock.waits.store(counts.waits, Relaxed);
        lock.wait_ns.store(counts.wait_ns, Relaxed);
        lock.longest_ns.store(counts.longest_ns, Relaxed);
        lock.longest_at.store(counts.longest_at, Relaxed);
        lock.read_waits.store(counts.read_waits, Relaxed);
        lock.read_wait_ns.store(counts.read_wait_ns, Relaxed);
        if let Some(histograms) = profile.histograms_of(lock) {
            let counts = histograms.waits.iter().zip(counts.wait_counts);
            counts.for_each(|(to, count)| to.store(count, Relaxed));
        }
        indices.insert(*address, index);
        if let Some(&first) = recorder.firsts.get(address) {
            lock.first_stack.store(stack_of(first), Relaxed);
        }
    }
    for (&(lock, caller), sum) in &recorder.sums {
        let Some(&index) = indices.get(&lock) else { continue };
        profile.add_samples(index, (stack_of(caller), 0), (sum.ns, sum.count), sum.samples);
    }
    for wait in &recorder.longest {
        let Some(&index) = indices.get(&wait.lock) else { continue };
        let stack = stack_of(wait.caller);
        profile.record_long_wait(wait.ns, wait.end, index, stack, wait.thread);
    }
    profile.header.lost_waits.fetch_add(collected.totals.lost_waits as u32, Relaxed);
    profile.header.lost_samples.fetch_add(collected.totals.lost_events as u32, Relaxed);
    fill_header(&profile, subject, recorder.period_ns, &named.lines);
    profile
}

fn fill_header(profile: &Profile, subject: &Subject<'_>, period_ns: u64, lines: &str) {
    let header = &profile.header;
    header.version.store(VERSION, Relaxed);
    header.pid.store(subject.pid, Relaxed);
    header.size.store(size_of::<Profile>() as u64, Relaxed);
    header.period_ns.store(period_ns, Relaxed);
    header.begin_ns.store(subject.begin_ns, Relaxed);
    header.begin_unix_ns.store(subject.begin_unix_ns, Relaxed);
    header.last_ns.store(subject.end_ns, Relaxed);
    header.ended.store(1, Relaxed);
    header.unwinds.store(1, Relaxed);
    header.source.store(Source::Kernel as u64, Relaxed);
    put(&header.lock, KERNEL.as_bytes());
    put(&header.program[..header.program.len() - 1], subject.program.as_bytes());
    put(&profile.modules, lines.as_bytes());
    header.modules_used.store(lines.len() as u32, Relaxed);
    header.magic.store(MAGIC, Relaxed);
}

fn put(to: &[AtomicU8], from: &[u8]) {
    to.iter().zip(from).for_each(|(to, &byte)| to.store(byte, Relaxed));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_is_system_call_fault_or_interrupt() {
        let of = |names: &[&str], call| {
            let functions: Vec<_> = names.iter().map(|name| (name.to_string(), 0)).collect();
            call_of(&functions, call)
        };
        let call = |number| Some(Call { number, is_32_bit: false });
        let unlink = call(libc::SYS_unlink as u32);
        assert_eq!(of(&["down_write", "do_unlinkat", "do_syscall_64"], unlink), "unlink");
        assert_eq!(of(&["do_user_addr_fault", "asm_exc_page_fault"], None), "page fault");
        assert_eq!(of(&["exc_page_fault", "vfs_read"], call(0)), "page fault in read");
        assert_eq!(of(&["__schedule", "kthread"], None), "kernel thread");
        assert_eq!(of(&["asm_sysvec_apic_timer_interrupt"], None), "interrupt");
        assert_eq!(of(&["f"], call(100_000)), "system call 100000");
        assert_eq!(of(&[], None), "no system call");
        assert_eq!(of(&["f"], Some(Call { number: 10, is_32_bit: true })), "unlink");
    }
}
