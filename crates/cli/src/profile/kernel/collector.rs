//! Loads the BPF programs of `bpf/contention.bpf.c`, and reads what they record.

use std::io::Read as _;

use anyhow::{Context as _, bail, ensure};
use aya::maps::{Array, HashMap, Map, MapData, RingBuf};
use aya::programs::tp_btf::BtfTracePointLink;
use aya::programs::{BtfTracePoint, Iter, ProgramError};
use aya::{Btf, Ebpf, EbpfLoader};

use super::event::{Event, Lock, Totals};
use crate::bpf;
use crate::messages::{command, outside as messages};

/// Empty if the command was built without clang, or for another architecture than x86-64.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/contention.bpf.o"));

/// The BPF programs for the waits, each of which has the name of its tracepoint. The ends come
/// first: a wait that begins before its end can be seen would not end.
const WAITS: [&str; 2] = ["contention_end", "contention_begin"];

/// The BPF programs that find new processes and forget ended ones, likewise.
const PROCESSES: [&str; 2] = ["sched_process_free", "sched_process_fork"];

/// Whose waits are recorded.
#[derive(Debug, Clone, Copy)]
pub enum Scope {
    /// All tasks of the machine.
    Machine,
    /// A process and its descendants, by its id in its own PID namespace and that namespace.
    Process { id: u32, namespace: u32 },
    /// The descendants of this command's process, likewise.
    Descendants { id: u32, namespace: u32 },
}

/// BPF programs that record the waits for the kernel's locks.
pub struct Collector {
    loaded: Ebpf,
    links: Vec<BtfTracePointLink>,
    ring: RingBuf<MapData>,
}

/// What the BPF maps contain at the end.
pub struct Collected {
    /// By the lock's address.
    pub locks: Vec<(u64, Lock)>,
    pub totals: Totals,
}

impl Collector {
    /// Starts to record.
    ///
    /// # Errors
    ///
    /// The message says what is missing, and the remedy.
    pub fn start(scope: Scope, period_ns: u64) -> anyhow::Result<Self> {
        let (mut loaded, btf) = load(scope, period_ns)?;
        let ring = loaded.take_map("events").context(command::bpf_object_lacks("map events"))?;
        let mut collector = Collector { ring: RingBuf::try_from(ring)?, loaded, links: Vec::new() };
        if let Scope::Process { id, .. } | Scope::Descendants { id, .. } = scope {
            for name in PROCESSES {
                collector.attach(name, &btf)?;
            }
            collector.find_process(&btf)?;
            ensure!(collector.totals()?.target != 0, messages::no_such_process(id));
        }
        for name in WAITS {
            collector.attach(name, &btf)?;
        }
        Ok(collector)
    }

    fn attach(&mut self, name: &str, btf: &Btf) -> anyhow::Result<()> {
        let program = verify(&mut self.loaded, name, btf)?;
        let link = program.attach().with_context(|| command::cannot_attach(name))?;
        self.links.push(program.take_link(link)?);
        Ok(())
    }

    /// Runs the iterator over all threads, which finds the process.
    fn find_process(&mut self, btf: &Btf) -> anyhow::Result<()> {
        let program = verify_iterator(&mut self.loaded, btf)?;
        let link = program.attach().with_context(|| command::cannot_attach("iter/task"))?;
        program.take_link(link)?.into_file()?.read_to_end(&mut Vec::new())?;
        Ok(())
    }

    /// Passes on the events since the last call.
    pub fn read(&mut self, mut visit: impl FnMut(&Event)) {
        while let Some(bytes) = self.ring.next() {
            if let Some(event) = Event::parse(&bytes) {
                visit(&event);
            }
        }
    }

    /// Detaches the BPF programs, passes on the last events and returns the maps' content.
    ///
    /// # Errors
    ///
    /// A map cannot be read.
    pub fn finish(mut self, visit: impl FnMut(&Event)) -> anyhow::Result<Collected> {
        self.links.clear();
        self.read(visit);
        let totals = self.totals()?;
        let locks: HashMap<_, u64, Lock> = HashMap::try_from(self.map("locks")?)?;
        let locks = locks.iter().filter_map(Result::ok).collect();
        Ok(Collected { locks, totals })
    }

    fn map(&self, name: &str) -> anyhow::Result<&Map> {
        let Some(map) = self.loaded.map(name) else {
            bail!(command::bpf_object_lacks(&format!("map {name}")))
        };
        Ok(map)
    }

    fn totals(&self) -> anyhow::Result<Totals> {
        let totals: Array<_, Totals> = Array::try_from(self.map(".bss")?)?;
        Ok(totals.get(&0, 0)?)
    }
}

/// Checks that the kernel accepts the BPF programs from this process.
///
/// # Errors
///
/// The message says what is missing, and the remedy.
pub fn check() -> anyhow::Result<()> {
    let (mut loaded, btf) = load(Scope::Machine, 1)?;
    for name in WAITS.into_iter().chain(PROCESSES) {
        verify(&mut loaded, name, &btf)?;
    }
    verify_iterator(&mut loaded, &btf)?;
    Ok(())
}

/// Creates the maps and relocates the programs for this kernel.
fn load(scope: Scope, period_ns: u64) -> anyhow::Result<(Ebpf, Btf)> {
    // Values of `targets` in contention.h.
    let (is_filtered, first_target, id, namespace) = match scope {
        Scope::Machine => (0_u32, 0_u32, 0, 0),
        Scope::Descendants { id, namespace } => (1, 1, id, namespace),
        Scope::Process { id, namespace } => (1, 2, id, namespace),
    };
    ensure!(cfg!(target_arch = "x86_64"), messages::other_architecture());
    ensure!(!OBJECT.is_empty(), command::built_without_clang());
    let btf = Btf::from_sys_fs().context(command::no_type_information())?;
    let loaded = EbpfLoader::new()
        .btf(Some(&btf))
        .override_global("process", &id, true)
        .override_global("namespace", &namespace, true)
        .override_global("period_ns", &period_ns, true)
        .override_global("is_filtered", &is_filtered, true)
        .override_global("first_target", &first_target, true)
        .load(OBJECT)
        .context(messages::no_privilege())?;
    Ok((loaded, btf))
}

/// Passes the program of a tracepoint to the kernel, which verifies it.
fn verify<'a>(
    loaded: &'a mut Ebpf,
    name: &str,
    btf: &Btf,
) -> anyhow::Result<&'a mut BtfTracePoint> {
    let program: &mut BtfTracePoint = bpf::program(loaded, name)?;
    match program.load(name, btf) {
        Err(ProgramError::Btf(_)) => bail!(messages::no_tracepoint(name)),
        verified => verified.context(messages::no_privilege())?,
    }
    Ok(program)
}

/// As [`verify`], for the iterator over all threads.
fn verify_iterator<'a>(loaded: &'a mut Ebpf, btf: &Btf) -> anyhow::Result<&'a mut Iter> {
    let program: &mut Iter = bpf::program(loaded, "find_process")?;
    program.load("task", btf).context(messages::no_privilege())?;
    Ok(program)
}
