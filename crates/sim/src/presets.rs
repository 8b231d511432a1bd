//! Known machines, with a source for each number.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use unconvoy::primitive::native::umwait;
use unconvoy_measure::input;

use crate::machine_file::parse;
use crate::messages;
use crate::parameters::{
    Count, Memory, Order, Parameters, Policy, Scheduler, Topology, Transactions,
};
use crate::quantiles::Quantiles;

/// Names and descriptions of the presets.
pub const PRESETS: &[(&str, &str)] = &[
    ("niagara2-64", "Sun T5220, 64 contexts, Solaris 10 (ASPLOS 2010, DaMoN 2009)"),
    ("niagara2-16", "niagara2-64 with 16 contexts, one pipeline each (DaMoN 2009)"),
    ("opteron-32", "eight sockets of four cores, Linux 2.6 (TACO 2013)"),
    ("xeon-32", "four sockets of eight cores, Linux 2.6 (TACO 2013, section 4.8)"),
    ("server", "two sockets of 32 cores with two contexts each, Linux 6"),
    ("server-64", "server with one socket: 64 contexts"),
    ("server-256", "server with four sockets: 256 contexts"),
    ("metatm-8", "8 processors with transactions (Syncchar report, section 5)"),
    ("metatm-16", "metatm-8 with 16 processors"),
    ("metatm-32", "metatm-8 with 32 processors"),
    ("host", "this machine, as --calibrate measured it, or typical values"),
];

/// Looks up a preset.
///
/// # Errors
///
/// The name is unknown, or the calibration of `host` is unreadable.
pub fn named(name: &str) -> Result<Parameters, String> {
    let preset = match name {
        "niagara2-64" => niagara(name, 8),
        "niagara2-16" => niagara(name, 2),
        "opteron-32" => opteron(),
        "xeon-32" => xeon(),
        "server" => server(),
        "server-64" => server_of(name, 1),
        "server-256" => server_of(name, 4),
        "metatm-8" => metatm(name, 8),
        "metatm-16" => metatm(name, 16),
        "metatm-32" => metatm(name, 32),
        "host" => return host(),
        _ => {
            let names: Vec<&str> = PRESETS.iter().map(|(name, _)| *name).collect();
            return Err(messages::unknown_machine(name, &names));
        }
    };
    Ok(preset)
}

/// Looks up a preset, or reads the machine file of this name. A preset comes first, whatever files
/// the current directory has: `./server` names a file.
///
/// # Errors
///
/// The file cannot be read, or is no machine file. No file and no preset has the name.
pub fn named_or_file(name: &str) -> anyhow::Result<Parameters> {
    let path = Path::new(name);
    if PRESETS.iter().any(|(preset, _)| *preset == name) || !path.exists() {
        return named(name).map_err(anyhow::Error::msg);
    }
    let text = input::read_text(path, input::TEXT).with_context(|| messages::cannot_read(path))?;
    parse(&text).map_err(|error| anyhow!(messages::invalid_machine_file(name, &error)))
}

fn topology(
    sockets: u32,
    caches_per_socket: u32,
    cores_per_cache: u32,
    contexts_per_core: u32,
) -> Topology {
    Topology {
        sockets: Count::new(sockets),
        caches_per_socket: Count::new(caches_per_socket),
        cores_per_cache: Count::new(cores_per_cache),
        contexts_per_core: Count::new(contexts_per_core),
    }
}

/// The UltraSPARC T2 at 1.4 GHz: 8 cores of 8 contexts, one cache behind a crossbar. Solaris 10.
///
/// Sources: [A] ASPLOS 2010, [D] DaMoN 2009, [T] UltraSPARC T2 Supplement to the UltraSPARC
/// Architecture 2007, [S] McDougall and Mauro, *Solaris Internals*.
fn niagara(name: &str, contexts_per_core: u32) -> Parameters {
    Parameters {
        name: name.to_string(),
        topology: topology(1, 1, 8, contexts_per_core),
        memory: Memory {
            hit_ns: 2,          // [T] 3 cycles
            same_cache_ns: 19,  // [T] 26 cycles to the second-level cache, which all cores share
            same_socket_ns: 19, // no other cache
            other_socket_ns: 19,
            memory_ns: 130, // [T] some 180 cycles
            // [T] atomics execute in the second-level cache, not in the core's
            rmw_ns: 20,
            read_occupancy_ns: 2, // [T] a bank takes a request every other cycle
            // write-through first-level cache: the next access to the line pays for a store
            store_buffer: false,
            fence_ns: 15, // drained store buffer: one access to the second-level cache
            pause_ns: 6,  // a loop of a few instructions, on a shared pipeline
            mwait_exit_ns: None, // SPARC has no such instruction
            clock_ns: 60, // [A] section 4: gethrtime takes 40 to 80 ns
            // [D] section 3.2: no slowdown with 16 contexts. With 64, four threads share a
            // pipeline, yet TM-1 scales almost linearly ([A] Figure 1), because it mostly waits for
            // memory.
            shared_core_slowdown: if contexts_per_core > 2 { 40 } else { 0 },
        },
        scheduler: Scheduler {
            slice_ns: 100_000_000, // [D] section 2.2: a preempted thread waits 100 ms or longer
            tick_ns: 10_000_000,   // [A] section 5.3: the system tick
            // [A] section 2: two switches add 10 to 15 us; [D]: 10 to 20 us to wake a thread
            switch_ns: 6_000,
            idle_exit_ns: 2_000,     // a cross call to an idle context
            switches_per_s: 134_000, // [D] section 4.2
            park_ns: 2_000,          // part of the 10 to 15 us
            wake_call_ns: 1_000,
            wake_thread_ns: 2_000,
            wake_idle_ns: 0,           // part of the 10 to 15 us
            yield_ns: 2_000,           // a system call and a check of the queue
            order: Order::TimeSharing, // Solaris' default class; see machine/scheduler/class.rs
            dispatch: None,            // its default table
            // These, and `slice_ns`, stand in for the class if `order` is `run-time`. [S] A
            // sleeping thread gains priority, a computing one loses it. A thread that has used part
            // of its quantum gives way.
            sleeper_credit_ns: 100_000_000,
            wake_preempt_ns: 20_000_000,
            balance_ns: 10_000_000, // [S] at a tick
            balance_hesitates: false,
            tick_skew_ns: Some(0), // [S] `clock` handles the ticks of all processors in one pass
            tick_work_ns: Quantiles::always(0),
            tick_switch_ns: Quantiles::always(0),
            extension_ns: 10_000_000, // [S] schedctl; `time-sharing` only asks whether it is 0
            timer_tick_ns: 10_000_000, // [D] section 3.4: no sleep is shorter than the 10 ms tick
            timer_slack_ns: 0,
            spawn_ns: 50_000,
            sensor_ns: 20_000,
            // [A] section 5.3: traverses every thread of the process; a few us each
            sensor_thread_ns: 3_000,
        },
        transactions: None,
        calibrated: None,
    }
}

/// Linux 6.6 and later on current hardware. The presets below start from these values.
///
/// Sources: [L] the kernel's source (`kernel/sched/fair.c`, `kernel/futex`), [M] a measurement with
/// the named command.
const LINUX: Scheduler = Scheduler {
    // [L] sysctl_sched_base_slice, scaled: 0.7 ms times (1 + log2 of up to 8 contexts)
    slice_ns: 3_000_000,
    tick_ns: 4_000_000,  // [L] CONFIG_HZ=250, the default of most distributions
    switch_ns: 1_500,    // [M] perf bench sched pipe: 2 to 3 us for a switch and a wake-up
    idle_exit_ns: 3_000, // [M] an interrupt to an idle context, and the exit from a shallow sleep
    switches_per_s: 0,   // every run queue has its own lock
    park_ns: 400,        // [M] perf bench futex: a system call and a hash bucket
    wake_call_ns: 200,
    wake_thread_ns: 800,
    wake_idle_ns: 0, // sending an interrupt takes about 100 ns, but more on a virtual machine
    yield_ns: 400,   // [M] sched_yield alone on a processor
    sleeper_credit_ns: 3_000_000, // [L] a sleeper's lag is at most a slice
    wake_preempt_ns: 1_000_000, // [L] a wake-up preempts a thread that has used its share
    balance_ns: 4_000_000, // [L] at a tick
    balance_hesitates: true, // [L] half of a thread's load is less than a thread
    order: Order::Deadline, // [L] EEVDF since 6.6
    dispatch: None,
    tick_skew_ns: Some(0), // [L] without `skew_tick`, all processors tick together
    tick_work_ns: Quantiles::always(0), // unknown: `host` measures both
    tick_switch_ns: Quantiles::always(0),
    extension_ns: 0,        // [L] unavailable before Linux 7.0
    timer_tick_ns: 0,       // [L] high-resolution timers
    timer_slack_ns: 50_000, // [L] the default of prctl(PR_SET_TIMERSLACK)
    spawn_ns: 20_000,
    sensor_ns: 5_000,
    sensor_thread_ns: 1_000, // [M] docs/evaluation/sensors.md: reading one schedstat file
};

/// C1 of Ice Lake and Sapphire Rapids servers (Linux, `drivers/idle/intel_idle.c`, `icx_cstates`
/// and `spr_cstates`). This is an upper limit for C0.1, the state of our `umwait`. Intel publishes
/// no latency of C0.1, only that it is shorter than that of C0.2 (SDM, volume 2B, `UMWAIT`).
const UMWAIT_EXIT_NS: u64 = 1_000;

/// Linux before EEVDF. Its ticks are spread over the period here; no source says when they were.
const EARLIER_LINUX: Scheduler =
    Scheduler { balance_hesitates: false, order: Order::RunTime, tick_skew_ns: None, ..LINUX };

/// Two sockets of 32 cores with two contexts each, as sold since 2021.
fn server() -> Parameters {
    Parameters {
        name: "server".to_string(),
        topology: topology(2, 1, 32, 2),
        memory: Memory {
            hit_ns: 1, // 4 to 5 cycles at 3 to 4 GHz (Intel optimisation manual, section 2.6)
            // a line modified by another core of the mesh: 50 to 70 ns (core-to-core-latency)
            same_cache_ns: 60,
            same_socket_ns: 60,   // one last-level cache per socket
            other_socket_ns: 140, // core-to-core-latency, across sockets
            memory_ns: 100,
            rmw_ns: 6,             // 18 to 20 cycles (Fog, instruction tables)
            read_occupancy_ns: 10, // the last-level cache sends copies
            store_buffer: true,
            fence_ns: 10,
            pause_ns: 45, // 140 cycles since Skylake (Intel optimisation manual, section 2.8.4)
            mwait_exit_ns: Some(UMWAIT_EXIT_NS),
            clock_ns: 20,              // vDSO
            shared_core_slowdown: 500, // two contexts do 1.3 times the work of one
        },
        scheduler: LINUX,
        transactions: Some(Transactions {
            // Intel SDM, volume 1, section 16.3: a conflicting access by another processor aborts
            policy: Policy::Requester,
            // Nakaike et al. (ISCA 2015) measured 4 MB of loads on a Core i7-4770
            read_lines: lines(65_536),
            write_lines: lines(512), // the first-level data cache: 32 KiB
            write_ways: lines(8),    // its associativity; the same study measured 22 KB of stores
            // Estimate: begin and commit together take about 50 cycles, like an uncontended lock.
            begin_ns: 8,
            commit_ns: 8,
            // Estimate: a failed attempt costs about 100 ns, including its work
            // (crates/locks/src/contention/elided.rs).
            abort_ns: 50,
            // The processor has no backoff; software decides. The first limit is about one line
            // transfer, the last one is that of `ttas`.
            backoff_first_ns: 100,
            backoff_limit_ns: 10_000,
        }),
        calibrated: None,
    }
}

/// `server` with another number of sockets.
fn server_of(name: &str, sockets: u32) -> Parameters {
    Parameters { name: name.to_string(), topology: topology(sockets, 1, 32, 2), ..server() }
}

fn lines(count: u32) -> NonZeroU32 {
    NonZeroU32::new(count).expect("not 0")
}

/// The machine that the Syncchar report simulated with MetaTM in Simics (2008, section 5):
/// processors of 1 GHz with one cycle per instruction and private caches, coherent by snooping
/// (MESI); Linux 2.6.16.
///
/// [S] marks numbers from the report. [-] marks assumptions: the report does not say how conflicts
/// were resolved, what transactions could hold, what begin, commit and abort cost, how long
/// transactions backed off, or what a transfer from another cache costs. The report perturbs the
/// memory latency at random and takes the mean of four runs; here, the runs differ in their seeds.
fn metatm(name: &str, processors: u32) -> Parameters {
    Parameters {
        name: name.to_string(),
        topology: topology(1, processors, 1, 1), // [S] private second-level caches
        memory: Memory {
            // [S] the first level adds nothing to the cycle of an instruction, the second 16
            hit_ns: 1,
            same_cache_ns: 16,   // [S] no other core behind the cache
            same_socket_ns: 200, // [-] same as from memory
            other_socket_ns: 200,
            memory_ns: 200,        // [S]
            rmw_ns: 1,             // [S] one instruction per cycle
            read_occupancy_ns: 16, // [-] a snooping bus serves one request at a time
            store_buffer: false,   // [S] one instruction per cycle, nothing in parallel
            fence_ns: 1,
            pause_ns: 1,
            mwait_exit_ns: None, // [-] the report mentions none
            clock_ns: 20,        // [-]
            shared_core_slowdown: 0,
        },
        scheduler: Scheduler {
            slice_ns: 100_000_000, // DEF_TIMESLICE of Linux 2.6.16
            ..EARLIER_LINUX        // CONFIG_HZ=250, its default
        },
        transactions: Some(Transactions {
            policy: Policy::Timestamp, // [-] no transaction starves
            // [S] the lines of the second-level cache; [-] a transaction may fill that cache
            read_lines: lines(65_536),
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
/// Sources: [B] Boyd-Wickizer et al., *Corey*, OSDI 2008, section 1: four chips of the same kind at
/// 2 GHz; [C] Conway and Hughes, *The AMD Opteron Northbridge Architecture*, IEEE Micro, March
/// 2007.
fn opteron() -> Parameters {
    Parameters {
        name: "opteron-32".to_string(),
        topology: topology(8, 1, 4, 1),
        memory: Memory {
            hit_ns: 1,
            same_cache_ns: 60, // [B] about 120 cycles for a line of another core of the chip
            same_socket_ns: 60,
            // [B] 240 to 330 cycles over one and two hops; eight chips are one to three hops apart
            other_socket_ns: 160,
            memory_ns: 130, // the same distance on average
            rmw_ns: 10,
            // [C] a line's home serves its requests in order, and each request until all caches
            // have answered its probe: nothing overlaps
            read_occupancy_ns: 160,
            store_buffer: false, // the mixes of the paper's kernel are fitted without one
            fence_ns: 20,
            pause_ns: 5, // as long as a no-op before Skylake
            // C1 of the paper's other machine, a Nehalem-EX (Linux, drivers/idle/intel_idle.c,
            // nehalem_cstates, written by Intel). AMD publishes no exit latency for this family.
            mwait_exit_ns: Some(3_000),
            clock_ns: 30,
            shared_core_slowdown: 0,
        },
        scheduler: Scheduler {
            tick_ns: 1_000_000,  // CONFIG_HZ=1000 of contemporary kernels
            slice_ns: 6_000_000, // sched_latency of CFS
            ..EARLIER_LINUX
        },
        transactions: None,
        calibrated: None,
    }
}

/// Four chips of eight cores, Intel Xeon X7560 at 2.27 GHz without hyper-threading (TACO 2013,
/// section 4.1).
///
/// Source: [M] Molka, Hackenberg, Schöne and Müller, *Memory Performance and Cache Coherency
/// Effects on an Intel Nehalem Multiprocessor System*, PACT 2009: two chips of the same
/// microarchitecture at 2.93 GHz. Whatever is not listed is that of the paper's other machine.
fn xeon() -> Parameters {
    let others = opteron();
    Parameters {
        name: "xeon-32".to_string(),
        topology: topology(4, 1, 8, 1),
        memory: Memory {
            hit_ns: 2,             // [M] 4 cycles
            same_cache_ns: 37,     // [M] 83 cycles for a line that another core has modified
            same_socket_ns: 37,    // one last-level cache per socket
            other_socket_ns: 110,  // [M] 102 to 109 ns for a line of the other chip
            memory_ns: 95,         // [M] 65 ns at home, 106 ns elsewhere; a quarter is at home
            read_occupancy_ns: 10, // the last-level cache sends copies, as on `server`
            ..others.memory
        },
        ..others
    }
}

/// Path of the calibration of preset `host`: `unconvoy/host.toml` in `$XDG_CONFIG_HOME` or
/// `~/.config`. `None` for a user without a home directory.
pub fn default_path() -> Option<PathBuf> {
    let directory =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let configuration =
        directory("XDG_CONFIG_HOME").or_else(|| Some(directory("HOME")?.join(".config")))?;
    Some(configuration.join("unconvoy").join("host.toml"))
}

/// This machine as calibrated by this user, or a [typical one](usual_host).
fn host() -> Result<Parameters, String> {
    let Some(path) = default_path() else { return Ok(usual_host()) };
    match input::read_text(&path, input::TEXT) {
        Ok(text) => parse(&text).map_err(|error| messages::invalid_calibration(&path, &error)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(usual_host()),
        Err(error) => Err(messages::unreadable_calibration(&path, &error)),
    }
}

/// A machine of the host's size with typical costs.
pub(crate) fn usual_host() -> Parameters {
    let contexts = std::thread::available_parallelism()
        .map_or(1, |count| u32::try_from(count.get()).unwrap_or(1));
    Parameters {
        name: "host".to_string(),
        topology: topology(1, 1, contexts.clamp(1, 4096), 1),
        memory: Memory {
            shared_core_slowdown: 0,
            mwait_exit_ns: umwait::is_supported().then_some(UMWAIT_EXIT_NS),
            ..server().memory
        },
        scheduler: Scheduler { balance_ns: BUSY_BALANCE_NS * u64::from(contexts), ..LINUX },
        transactions: None,
        calibrated: None,
    }
}

/// A busy processor balances every 16 ms for each processor of the group (`busy_factor` and
/// `sd_weight` in kernel/sched/topology.c). On two processors, three threads that only compute
/// change places twice a second: 2 of 1600 ms in a trace.
const BUSY_BALANCE_NS: u64 = 16_000_000;
