//! The kernel's side, loaded: `bpf/main.bpf.c`.

use std::cell::RefCell;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::rc::Rc;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, OpenObject, PrintLevel, ProgramInput, RingBuffer, RingBufferBuilder};
use unconvoy_sched::Slice;

use crate::back_end::{Bound, Event, Parent, Record};
use crate::topology::Topology;

#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/main.skel.rs"));
}

use skeleton::types;
use skeleton::{MainSkel, MainSkelBuilder};

/// Kinds of locks, in the order of `enum lock_kind`.
pub const LOCK_KINDS: [&str; 5] = ["spin", "rwlock", "mutex", "rwsem", "other"];

const MAX_CPUS: usize = 1024; // of shared.h
/// Memory nodes that have queues of their own.
pub const MAX_NODES: usize = 64; // of shared.h
const RECORD_SLICE: u32 = 0; // enum record_kind
const RECORD_CHILD: u32 = 1;

/// What the kernel's side is loaded with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The processors that are online, of at most [`MAX_NODES`] memory nodes.
    pub topology: Topology,
    /// Which slices are told, in thousandths that were waited.
    pub threshold: u32,
    /// Whether children of the set's tasks belong to it.
    pub inherits: bool,
}

/// Sums over all processors since the scheduler was loaded; times in nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    /// How often tasks had to wait, by kind of lock.
    pub waits: [u64; LOCK_KINDS.len()],
    /// How long they waited on a processor.
    pub spun_ns: [u64; LOCK_KINDS.len()],
    /// How long they slept for it.
    pub slept_ns: [u64; LOCK_KINDS.len()],
    /// Time slices.
    pub slices: u64,
    /// Those that the policy was told of.
    pub told: u64,
    /// Those that it was not, for want of room.
    pub lost: u64,
    /// Ends of tasks that were lost likewise.
    pub lost_ends: u64,
    /// Tasks that belonged to the set from their start.
    pub inherited: u64,
    /// How often a core of the set served an ordinary task.
    pub borrowed: u64,
    /// How often a core took a task from another memory node's queue.
    pub crossings: u64,
    /// How often a task had to leave its core because of the set.
    pub displaced: u64,
}

/// Why the scheduler is not loaded any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// In the kernel's words.
    pub reason: String,
    /// Whether a processor came or went, and a scheduler that is loaded anew may go on.
    pub is_hotplug: bool,
}

/// The loaded scheduler. With its drop, or its process's end, the kernel has its default one again.
pub struct Kernel<'object> {
    skeleton: MainSkel<'object>,
    ring: RingBuffer<'static>,
    heard: Rc<RefCell<Vec<Record>>>,
    _links: Vec<Link>,
}

/// What libbpf had to say, which holds the verifier's reasons.
static SAID: Mutex<String> = Mutex::new(String::new());

fn listen(_: PrintLevel, text: String) {
    if let Ok(mut said) = SAID.lock() {
        said.push_str(&text);
    }
}

impl<'object> Kernel<'object> {
    /// Loads the scheduler and hands it the machine. `object` is where libbpf keeps it.
    ///
    /// # Errors
    ///
    /// The kernel refuses; its reasons are part of the error.
    pub fn load(object: &'object mut MaybeUninit<OpenObject>, settings: &Settings) -> anyhow::Result<Self> {
        libbpf_rs::set_print(Some((PrintLevel::Warn, listen)));
        Self::try_load(object, settings).map_err(|error| {
            let said = SAID.lock().map(|said| said.clone()).unwrap_or_default();
            if said.is_empty() { error } else { error.context(said.trim_end().to_owned()) }
        })
    }

    fn try_load(object: &'object mut MaybeUninit<OpenObject>, settings: &Settings) -> anyhow::Result<Self> {
        let mut open = MainSkelBuilder::default().open(object).context("cannot read the BPF object")?;
        let Topology { order, nodes } = &settings.topology;
        let most = order.iter().max().copied().unwrap_or(0) as usize;
        ensure!(most < MAX_CPUS, "it is made for {MAX_CPUS} processors at most, and there is one of number {most}");
        let constants = open.maps.rodata_data.as_mut().context("the BPF object has no constants")?;
        constants.processors = order.len() as u32;
        constants.threshold = settings.threshold;
        constants.inherits = settings.inherits;
        constants.loader = std::process::id();
        constants.rank_of = [u32::MAX; MAX_CPUS];
        for (rank, &cpu) in order.iter().enumerate() {
            constants.cpu_of[rank] = cpu;
            constants.rank_of[cpu as usize] = rank as u32;
        }
        constants.nodes = nodes.len() as u32;
        for (index, node) in nodes.iter().enumerate() {
            let own = &mut constants.node[index];
            (own.number, own.first, own.last) = (node.number, node.places.start as u32, node.places.end as u32);
            for (near, &other) in own.near.iter_mut().zip(&node.near) {
                *near = other as u8;
            }
            for &cpu in &order[node.places.clone()] {
                constants.node_of[cpu as usize] = index as u8;
            }
        }
        // The kernel refuses a scheduler that knows of other processors than there are by now.
        let sequence = std::fs::read_to_string("/sys/kernel/sched_ext/hotplug_seq").unwrap_or_default();
        open.struct_ops.unconvoy_mut().hotplug_seq = sequence.trim().parse().unwrap_or(0);

        let mut skeleton = open.load().context("the kernel refuses the BPF programs")?;
        let heard = Rc::new(RefCell::new(Vec::new()));
        let hears = Rc::clone(&heard);
        let mut rings = RingBufferBuilder::new();
        rings.add(&skeleton.maps.records, move |bytes| {
            hears.borrow_mut().extend(read(bytes));
            0
        })?;
        let ring = rings.build().context("cannot read the ring of records")?;
        let links = vec![
            skeleton.progs.contention_begin.attach().context("cannot trace the beginning of waits")?,
            skeleton.progs.contention_end.attach().context("cannot trace the end of waits")?,
            skeleton.maps.unconvoy.attach_struct_ops().context("the kernel refuses the scheduler")?,
        ];
        Ok(Kernel { skeleton, ring, heard, _links: links })
    }

    /// Waits for up to `timeout` and takes what was recorded.
    pub fn hear(&self, timeout: Duration) -> anyhow::Result<Vec<Record>> {
        match self.ring.poll(timeout) {
            Err(error) if error.kind() != libbpf_rs::ErrorKind::Interrupted => Err(error)?,
            _ => self.ring.consume()?,
        }
        Ok(self.heard.take())
    }

    /// Whether the task is there still; from now on it belongs to the set or does not, and so do its children from their start.
    pub fn tell(&self, task: u64, tid: u32, is_special: bool, passes_on: bool) -> anyhow::Result<bool> {
        let (is_special, passes_on) = (is_special.into(), passes_on.into());
        let mut verdict = types::verdict { task, tid, is_special, passes_on, ..Default::default() };
        // SAFETY: a structure of integers, without padding, as long as the slice lives.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut((&raw mut verdict).cast::<u8>(), size_of::<types::verdict>()) };
        let input = ProgramInput { context_in: Some(bytes), ..Default::default() };
        self.skeleton.progs.tell.test_run(input).context("cannot tell the kernel of a task")?;
        // SAFETY: the program wrote to it, behind the compiler's back.
        Ok(unsafe { (&raw const verdict.is_gone).read_volatile() } == 0)
    }

    /// The set has another size.
    pub fn rebound(&mut self, bound: Bound) -> anyhow::Result<()> {
        let data = self.skeleton.maps.data_data.as_mut().context("the BPF object has no data")?;
        // SAFETY: mapped memory that the programs read.
        unsafe { (&raw mut data.set).write_volatile(bound.pack()) };
        self.skeleton.progs.rebound.test_run(ProgramInput::default()).context("cannot tell the kernel of the set")?;
        Ok(())
    }

    /// Lock-intensive tasks that are alive, as the kernel's side counts them.
    pub fn specials(&self) -> u64 {
        // SAFETY: mapped memory that the programs write to.
        self.skeleton.maps.bss_data.as_ref().map_or(0, |bss| unsafe { (&raw const bss.specials).read_volatile() })
    }

    /// Why the kernel has unloaded the scheduler, if it has.
    pub fn ending(&self) -> Option<Ending> {
        const UNREGISTERED: u32 = 64; // SCX_EXIT_UNREG: this process did it
        const RESTART: u64 = 1 << 48; // SCX_ECODE_ACT_RESTART
        let bss = self.skeleton.maps.bss_data.as_ref()?;
        // SAFETY: mapped memory that the programs write to; integers and bytes, of which any are valid.
        let ending: types::ending = unsafe { (&raw const bss.ending).read_volatile() };
        if ending.kind == 0 || ending.kind == UNREGISTERED {
            return None;
        }
        let text = |bytes: &[i8]| {
            let bytes: Vec<u8> = bytes.iter().map(|byte| byte.cast_unsigned()).collect();
            CStr::from_bytes_until_nul(&bytes).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
        };
        let (reason, message) = (text(&ending.reason), text(&ending.message));
        let reason = if message.is_empty() { reason } else { format!("{reason} ({message})") };
        Some(Ending { reason, is_hotplug: ending.code & RESTART != 0 })
    }

    /// The sums up to now.
    pub fn totals(&self) -> anyhow::Result<Totals> {
        let values = self.skeleton.maps.totals.lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY)?;
        let mut sum = Totals::default();
        for bytes in values.ok_or_else(|| anyhow!("the kernel's side has no sums"))? {
            ensure!(bytes.len() >= size_of::<types::totals>(), "the kernel's side has other sums");
            // SAFETY: long enough, and of integers.
            let one: types::totals = unsafe { bytes.as_ptr().cast::<types::totals>().read_unaligned() };
            for kind in 0..LOCK_KINDS.len() {
                sum.waits[kind] += one.waits[kind];
                sum.spun_ns[kind] += one.spun_ns[kind];
                sum.slept_ns[kind] += one.slept_ns[kind];
            }
            sum.slices += one.slices;
            sum.told += one.told;
            sum.lost += one.lost;
            sum.lost_ends += one.lost_ends;
            sum.inherited += one.inherited;
            sum.borrowed += one.borrowed;
            sum.crossings += one.crossings;
            sum.displaced += one.displaced;
        }
        Ok(sum)
    }
}

fn read(bytes: &[u8]) -> Option<Record> {
    if bytes.len() < size_of::<types::record>() {
        return None;
    }
    // SAFETY: long enough, and of integers.
    let record: types::record = unsafe { bytes.as_ptr().cast::<types::record>().read_unaligned() };
    let slice = Slice { core: record.core, ran_ns: record.ran_ns, waited_ns: record.waited_ns };
    let event = match record.kind {
        RECORD_SLICE => Event::Slice { slice, bound: Bound::unpack(record.bound) },
        RECORD_CHILD => Event::Child,
        _ => Event::Exit,
    };
    let parent = (record.parent != 0).then_some(Parent { task: record.parent, tid: record.parent_tid });
    Some(Record { task: record.task, tid: record.tid, is_special: record.is_special != 0, parent, event })
}
