//! Loads the BPF programs of `bpf/waits.bpf.c`, and reads what they record.

use std::io::Read as _;

use anyhow::{Context as _, bail, ensure};
use aya::maps::{Array, HashMap, Map, MapData, RingBuf};
use aya::programs::tp_btf::BtfTracePointLink;
use aya::programs::{BtfTracePoint, Iter};
use aya::{Btf, Ebpf, EbpfLoader};

use super::event::{Event, Lock, Totals, Wait};
use super::target::Target;
use crate::bpf;
use crate::messages::{command, outside as messages};

/// Empty if the command was built without clang, or for another architecture than x86-64.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/waits.bpf.o"));

/// The BPF programs, each of which has the name of its tracepoint. The exits come first: a wait
/// that begins before its exit can be seen would not end.
const TRACE_POINTS: [&str; 2] = ["sys_exit", "sys_enter"];

/// BPF programs that record the waits of a process.
pub struct Collector {
    loaded: Ebpf,
    links: Vec<BtfTracePointLink>,
    ring: RingBuf<MapData>,
}

/// What the BPF maps contain at the end.
pub struct Collected {
    /// By the futex's address.
    pub locks: Vec<(u64, Lock)>,
    /// Waits that have not ended.
    pub waiting: Vec<Wait>,
    pub totals: Totals,
}

impl Collector {
    /// Starts to record.
    ///
    /// # Errors
    ///
    /// The message says what is missing, and the remedy.
    pub fn start(target: &Target, period_ns: u64) -> anyhow::Result<Self> {
        let (mut loaded, btf) = load(target.own_id, target.namespace, period_ns)?;
        let ring = loaded.take_map("events").context(command::bpf_object_lacks("map events"))?;
        let ring = RingBuf::try_from(ring)?;
        let mut links = Vec::new();
        for name in TRACE_POINTS {
            let program = verify(&mut loaded, name, &btf)?;
            let link = program.attach().with_context(|| command::cannot_attach(name))?;
            links.push(program.take_link(link)?);
        }
        find_waits(&mut loaded, &btf)?;
        let mut collector = Collector { loaded, links, ring };
        ensure!(collector.totals()?.target != 0, messages::no_such_process(target.pid));
        Ok(collector)
    }

    /// Passes on the events since the last call.
    pub fn read(&mut self, mut visit: impl FnMut(Event<'_>)) {
        while let Some(bytes) = self.ring.next() {
            if let Some(event) = Event::parse(&bytes) {
                visit(event);
            }
        }
    }

    /// Detaches the BPF programs, passes on the last events and returns the maps' content.
    ///
    /// # Errors
    ///
    /// A map cannot be read.
    pub fn finish(mut self, visit: impl FnMut(Event<'_>)) -> anyhow::Result<Collected> {
        self.links.clear();
        self.read(visit);
        let totals = self.totals()?;
        let locks: HashMap<_, u64, Lock> = HashMap::try_from(self.map("locks")?)?;
        let locks = locks.iter().filter_map(Result::ok).collect();
        let threads: HashMap<_, u32, Wait> = HashMap::try_from(self.map("threads")?)?;
        let waits = threads.iter().filter_map(|entry| Some(entry.ok()?.1));
        let waiting = waits.filter(|wait| wait.address != 0).collect();
        Ok(Collected { locks, waiting, totals })
    }

    fn map(&self, name: &str) -> anyhow::Result<&Map> {
        let Some(map) = self.loaded.map(name) else {
            bail!(command::bpf_object_lacks(&format!("map {name}")))
        };
        Ok(map)
    }

    fn totals(&mut self) -> anyhow::Result<Totals> {
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
    let (mut loaded, btf) = load(0, 0, 1)?;
    for name in TRACE_POINTS {
        verify(&mut loaded, name, &btf)?;
    }
    verify_iterator(&mut loaded, &btf)?;
    Ok(())
}

/// Creates the maps and relocates the programs for this kernel. They record the process with the id
/// `process` in the PID namespace with the inode `namespace`.
fn load(process: u32, namespace: u32, period_ns: u64) -> anyhow::Result<(Ebpf, Btf)> {
    ensure!(cfg!(target_arch = "x86_64"), messages::other_architecture());
    ensure!(!OBJECT.is_empty(), command::built_without_clang());
    let btf = Btf::from_sys_fs().context(command::no_type_information())?;
    let loaded = EbpfLoader::new()
        .btf(Some(&btf))
        .override_global("process", &process, true)
        .override_global("namespace", &namespace, true)
        .override_global("period_ns", &period_ns, true)
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
    program.load(name, btf).context(messages::no_privilege())?;
    Ok(program)
}

/// As [`verify`], for the iterator over all threads.
fn verify_iterator<'a>(loaded: &'a mut Ebpf, btf: &Btf) -> anyhow::Result<&'a mut Iter> {
    let program: &mut Iter = bpf::program(loaded, "find_waits")?;
    program.load("task", btf).context(messages::no_privilege())?;
    Ok(program)
}

/// Runs the iterator over all threads, which finds the process and the waits that already last.
fn find_waits(loaded: &mut Ebpf, btf: &Btf) -> anyhow::Result<()> {
    let program = verify_iterator(loaded, btf)?;
    let link = program.attach().with_context(|| command::cannot_attach("iter/task"))?;
    program.take_link(link)?.into_file()?.read_to_end(&mut Vec::new())?;
    Ok(())
}
