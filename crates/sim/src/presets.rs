//! Known machines. Each number's source is beside it.

use std::num::NonZeroU32;
use std::path::PathBuf;

use crate::parameters::{Count, Memory, Parameters, Policy, Scheduler, Topology, Transactions, parse};

/// The names of the presets, and a sentence about each.
pub const PRESETS: &[(&str, &str)] = &[
    ("niagara2-64", "Sun T5220: one socket, 64 contexts, Solaris 10 (the ASPLOS 2010 and DaMoN 2009 papers)"),
    ("niagara2-16", "the same confined to 16 contexts with a pipeline each (DaMoN 2009, Figure 1)"),
    ("opteron-32", "eight sockets of four cores, Linux 2.6 (the TACO 2013 paper)"),
    ("server", "two sockets of 32 cores with two contexts each, Linux 6"),
    ("metatm-8", "8 processors of 1 GHz with transactions (the Syncchar report's section 5)"),
    ("metatm-16", "the same with 16"),
    ("metatm-32", "the same with 32"),
    ("host", "this machine, as `unconvoy sim --calibrate` measured it, or else as is usual for its size"),
];

/// The preset of this name.
///
/// # Errors
///
/// There is none.
pub fn named(name: &str) -> Result<Parameters, String> {
    let preset = match name {
        "niagara2-64" => niagara(name, 8),
        "niagara2-16" => niagara(name, 2),
        "opteron-32" => opteron(),
        "server" => server(),
        "metatm-8" => metatm(name, 8),
        "metatm-16" => metatm(name, 16),
        "metatm-32" => metatm(name, 32),
        "host" => return host(),
        _ => {
            let names: Vec<&str> = PRESETS.iter().map(|(name, _)| *name).collect();
            return Err(format!(
                "there is no machine {name}: the presets are {}, anything else is a file",
                names.join(", ")
            ));
        }
    };
    Ok(preset)
}

fn topology(sockets: u32, caches_per_socket: u32, cores_per_cache: u32, contexts_per_core: u32) -> Topology {
    Topology {
        sockets: Count::new(sockets),
        caches_per_socket: Count::new(caches_per_socket),
        cores_per_cache: Count::new(cores_per_cache),
        contexts_per_core: Count::new(contexts_per_core),
    }
}

/// The UltraSPARC T2 at 1.4 GHz: 8 cores of 8 contexts, one cache behind a crossbar. Solaris 10.
///
/// Sources: [A] ASPLOS 2010, [D] DaMoN 2009, [T] UltraSPARC T2 Supplement to the UltraSPARC Architecture 2007,
/// [S] McDougall and Mauro, *Solaris Internals*.
fn niagara(name: &str, contexts_per_core: u32) -> Parameters {
    Parameters {
        name: name.to_string(),
        topology: topology(1, 1, 8, contexts_per_core),
        memory: Memory {
            hit_ns: 2,          // [T] 3 cycles
            same_cache_ns: 19,  // [T] 26 cycles to the second-level cache, which all cores share
            same_socket_ns: 19, // there is no other cache
            other_socket_ns: 19,
            memory_ns: 130,       // [T] some 180 cycles
            rmw_ns: 20,           // [T] atomics are done in the second-level cache, not in the core's
            read_occupancy_ns: 2, // [T] a bank takes a request every other cycle
            store_buffer: false, // the first-level cache writes through: what a store takes is in what the next access to the line takes
            fence_ns: 15,        // a drained store buffer: one access to the second-level cache
            pause_ns: 6,         // a loop of a few instructions, on a pipeline shared with others
            clock_ns: 60,        // [A] section 4: gethrtime takes 40 to 80 ns
            // [D] section 3.2: none with 16 contexts. With 64, four threads share a pipeline, and TM-1 goes on to scale
            // almost linearly ([A] Figure 1): they wait for memory most of the time.
            shared_core_slowdown: if contexts_per_core > 2 { 40 } else { 0 },
        },
        scheduler: Scheduler {
            slice_ns: 100_000_000,   // [D] section 2.2: a preempted thread waits 100 ms or longer
            tick_ns: 10_000_000,     // [A] section 5.3: the system tick
            switch_ns: 6_000,        // [A] section 2: two switches add 10 to 15 us; [D]: 10 to 20 us to wake a thread
            idle_exit_ns: 2_000,     // a cross call to an idle context
            switches_per_s: 134_000, // [D] section 4.2
            park_ns: 2_000,          // part of the 10 to 15 us
            wake_call_ns: 1_000,
            wake_thread_ns: 2_000,
            wake_idle_ns: 0,                // part of the 10 to 15 us
            yield_ns: 2_000,                // a system call and a look at the queue
            sleeper_credit_ns: 100_000_000, // [S] the time-sharing class: who sleeps gains priority, who computes loses it
            wake_preempt_ns: 20_000_000,    // [S] the same: a thread that has used a part of its quantum gives way
            balance_ns: 10_000_000,         // [S] at a tick
            extension_ns: 10_000_000,       // [S] schedctl: until the next tick
            timer_tick_ns: 10_000_000,      // [D] section 3.4: no sleep is shorter than the clock's 10 ms
            timer_slack_ns: 0,
            spawn_ns: 50_000,
            sensor_ns: 20_000,
            sensor_thread_ns: 3_000, // [A] section 5.3: every thread of the process is traversed; some us each
        },
        transactions: None,
        calibrated: None,
    }
}

/// Linux since 6.6 on current hardware, as both presets below have it.
///
/// Sources: [L] the kernel's source (`kernel/sched/fair.c`, `kernel/futex`), [M] measured, with the command's name.
const LINUX: Scheduler = Scheduler {
    slice_ns: 3_000_000, // [L] sysctl_sched_base_slice, scaled: 0.7 ms (1 + log2 of up to 8 contexts)
    tick_ns: 4_000_000,  // [L] CONFIG_HZ=250, the default of most distributions
    switch_ns: 1_500,    // [M] perf bench sched pipe: 2 to 3 us for a switch and a wake-up
    idle_exit_ns: 3_000, // [M] an interrupt to an idle context, and out of a shallow sleep state
    switches_per_s: 0,   // run queues have a lock each
    park_ns: 400,        // [M] perf bench futex: a system call and a hash bucket
    wake_call_ns: 200,
    wake_thread_ns: 800,
    wake_idle_ns: 0,              // an interrupt is sent in some 100 ns, but not by a virtual machine
    yield_ns: 400,                // [M] sched_yield alone on a processor
    sleeper_credit_ns: 3_000_000, // [L] a sleeper's lag is bounded by a slice
    wake_preempt_ns: 1_000_000,   // [L] a wake-up preempts who has run for its part
    balance_ns: 4_000_000,        // [L] at a tick
    extension_ns: 0,              // [L] before Linux 7.0 there is none
    timer_tick_ns: 0,             // [L] high-resolution timers
    timer_slack_ns: 50_000,       // [L] the default of prctl(PR_SET_TIMERSLACK)
    spawn_ns: 20_000,
    sensor_ns: 5_000,
    sensor_thread_ns: 1_000, // [M] docs/evaluation/sensors.md: reading one schedstat file
};

/// Two sockets of 32 cores with two contexts, as sold from 2021 on.
fn server() -> Parameters {
    Parameters {
        name: "server".to_string(),
        topology: topology(2, 1, 32, 2),
        memory: Memory {
            hit_ns: 1,            // 4 to 5 cycles at 3 to 4 GHz (Intel optimisation manual, section 2.6)
            same_cache_ns: 60, // a line that another core of the mesh has modified: 50 to 70 ns (core-to-core-latency)
            same_socket_ns: 60, // there is one last-level cache per socket
            other_socket_ns: 140, // the same tool, across sockets
            memory_ns: 100,
            rmw_ns: 6,             // 18 to 20 cycles (Fog, instruction tables)
            read_occupancy_ns: 10, // copies are sent from the last-level cache
            store_buffer: true,
            fence_ns: 10,
            pause_ns: 45,              // 140 cycles since Skylake (Intel optimisation manual, section 2.8.4)
            clock_ns: 20,              // vDSO
            shared_core_slowdown: 500, // two contexts do 1.3 times the work of one
        },
        scheduler: LINUX,
        transactions: Some(Transactions {
            policy: Policy::Requester, // Intel SDM, volume 1, section 16.3: a conflicting access by another processor aborts
            read_lines: lines(65_536), // Nakaike et al. (ISCA 2015) measured 4 MB of loads on a Core i7-4770
            write_lines: lines(512),   // the first-level data cache: 32 KiB
            write_ways: lines(8),      // its associativity; the same study measured 22 KB of stores
            begin_ns: 8,               // with the end some 50 cycles, about what an uncontended lock costs; an estimate
            commit_ns: 8,
            abort_ns: 50, // a try that fails costs some 100 ns (crates/locks/src/contention/elided.rs), what it did included; an estimate
            backoff_first_ns: 100, // the processor has none; what retries decides. About one line transfer, and
            backoff_limit_ns: 10_000, // as the bounds of `ttas`
        }),
        calibrated: None,
    }
}

fn lines(count: u32) -> NonZeroU32 {
    NonZeroU32::new(count).expect("not 0")
}

/// The machine that the Syncchar report simulated with MetaTM in Simics (2008, section 5): processors of 1 GHz that take
/// a cycle for an instruction, each with its own caches, kept coherent by snooping (MESI); Linux 2.6.16.
///
/// [S]: the report. It does not say how conflicts were decided, what transactions could hold, what their beginning, end
/// and abort cost, how long they backed off, or what a line costs that another cache has: what stands for these is
/// marked [-]. It perturbs the memory's latency at random and takes the mean of four runs; here seeds differ.
fn metatm(name: &str, processors: u32) -> Parameters {
    Parameters {
        name: name.to_string(),
        topology: topology(1, processors, 1, 1), // [S] caches of the second level are private
        memory: Memory {
            hit_ns: 1,           // [S] the first level adds nothing to the cycle of an instruction, the second 16
            same_cache_ns: 16,   // [S] there is no other core behind it
            same_socket_ns: 200, // [-] as from memory
            other_socket_ns: 200,
            memory_ns: 200,        // [S]
            rmw_ns: 1,             // [S] one instruction per cycle
            read_occupancy_ns: 16, // [-] a bus that snoops serves one request after the other
            store_buffer: false,   // [S] one instruction per cycle, and nothing beside it
            fence_ns: 1,
            pause_ns: 1,
            clock_ns: 20, // [-]
            shared_core_slowdown: 0,
        },
        scheduler: Scheduler {
            slice_ns: 100_000_000, // DEF_TIMESLICE of Linux 2.6.16
            ..LINUX                // CONFIG_HZ=250, its default
        },
        transactions: Some(Transactions {
            policy: Policy::Timestamp, // [-] nobody starves
            read_lines: lines(65_536), // [S] lines of the second-level cache, [-] and that it bounds a transaction
            write_lines: lines(65_536),
            write_ways: lines(8), // [S]
            begin_ns: 1,          // [-] one instruction
            commit_ns: 1,
            abort_ns: 20,          // [-] about one access to the second-level cache
            backoff_first_ns: 200, // [-] an access to memory
            backoff_limit_ns: 800, // [-] docs/evaluation/simulated.md compares others
        }),
        calibrated: None,
    }
}

/// Eight chips of four cores, AMD Opteron 8347 HE at 1.9 GHz (TACO 2013, section 4.1).
///
/// Sources: [B] Boyd-Wickizer et al., *Corey*, OSDI 2008, section 1: chips of the same kind at 2 GHz, four of them; [C] Conway
/// and Hughes, *The AMD Opteron Northbridge Architecture*, IEEE Micro, March 2007.
fn opteron() -> Parameters {
    Parameters {
        name: "opteron-32".to_string(),
        topology: topology(8, 1, 4, 1),
        memory: Memory {
            hit_ns: 1,
            same_cache_ns: 60, // [B] some 120 cycles for a line of another core of the chip
            same_socket_ns: 60,
            other_socket_ns: 160, // [B] 240 to 330 cycles over one and two hops; eight chips are one to three hops apart
            memory_ns: 130,       // as far, on average
            rmw_ns: 10,
            read_occupancy_ns: 160, // [C] requests for a line are taken in order at its home, each until all caches have answered its probe: nothing runs in parallel
            store_buffer: false,    // the mixes of the paper's kernel are fitted without
            fence_ns: 20,
            pause_ns: 5, // as long as a no-op before Skylake
            clock_ns: 30,
            shared_core_slowdown: 0,
        },
        scheduler: Scheduler {
            tick_ns: 1_000_000,  // CONFIG_HZ=1000 of the kernel of that time
            slice_ns: 6_000_000, // sched_latency of CFS
            ..LINUX
        },
        transactions: None,
        calibrated: None,
    }
}

/// Where the preset `host` looks for this machine: `unconvoy/host.toml` in `$XDG_CONFIG_HOME`, or else in `~/.config`.
/// None for a user without a home.
pub fn default_path() -> Option<PathBuf> {
    let directory = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let configuration = directory("XDG_CONFIG_HOME").or_else(|| Some(directory("HOME")?.join(".config")))?;
    Some(configuration.join("unconvoy").join("host.toml"))
}

/// This machine as it was calibrated for this user, or else as [usual](usual_host).
fn host() -> Result<Parameters, String> {
    let Some(path) = default_path() else { return Ok(usual_host()) };
    match std::fs::read_to_string(&path) {
        Ok(text) => parse(&text).map_err(|error| {
            let path = path.display();
            format!("{path}, the calibration of this machine, is no machine: {error}\nunconvoy sim --calibrate makes another one")
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(usual_host()),
        Err(error) => Err(format!("cannot read {}, the calibration of this machine: {error}", path.display())),
    }
}

/// A machine of this one's size, with what is usual for the rest.
pub(crate) fn usual_host() -> Parameters {
    let contexts = std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(1));
    Parameters {
        name: "host".to_string(),
        topology: topology(1, 1, contexts.clamp(1, 4096), 1),
        memory: Memory { shared_core_slowdown: 0, ..server().memory },
        scheduler: LINUX,
        transactions: None,
        calibrated: None,
    }
}
