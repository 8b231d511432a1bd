//! Loads `bpf/main.bpf.c` and exchanges data with it.

use std::cell::RefCell;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::rc::Rc;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, ensure};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{
    Link, MapCore, MapFlags, OpenObject, PrintLevel, ProgramInput, RingBuffer, RingBufferBuilder,
};
use unconvoy_sched::Slice;

use crate::back_end::{Bound, Event, Parent, Record};
use crate::messages;
use crate::topology::Topology;

#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/main.skel.rs"));
}

use skeleton::types;
use skeleton::{MainSkel, MainSkelBuilder};

/// Names of the kinds of locks, in the order of `enum lock_kind`.
pub const LOCK_KINDS: [&str; 5] = ["spin", "rwlock", "mutex", "rwsem", "other"];

const MAX_CPUS: usize = 1024; // of shared.h
/// Maximum number of memory nodes with their own queues.
pub const MAX_NODES: usize = 64; // of shared.h
const RECORD_SLICE: u32 = 0; // enum record_kind
const RECORD_CHILD: u32 = 1;

/// Load-time settings of the kernel side.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The online processors, on at most [`MAX_NODES`] memory nodes.
    pub topology: Topology,
    /// Waiting share above which slices are recorded, in thousandths.
    pub threshold: u32,
    /// Whether children of tasks in the set start in the set.
    pub inherits: bool,
}

/// Sums of `struct totals` in shared.h, which documents the fields, over all processors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    pub waits: [u64; LOCK_KINDS.len()],
    pub spun_ns: [u64; LOCK_KINDS.len()],
    pub slept_ns: [u64; LOCK_KINDS.len()],
    pub slices: u64,
    pub recorded: u64,
    pub lost: u64,
    pub lost_ends: u64,
    pub inherited: u64,
    pub borrowed: u64,
    pub crossings: u64,
    pub displaced: u64,
}

/// Reason for which the kernel unloaded the scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    pub reason: String,
    /// Whether processors went online or offline, so that a reloaded scheduler may continue.
    pub is_hotplug: bool,
}

/// The loaded scheduler. When it is dropped or its process ends, the kernel returns to its default
/// scheduler.
pub struct Kernel<'object> {
    skeleton: MainSkel<'object>,
    ring: RingBuffer<'static>,
    records: Rc<RefCell<Vec<Record>>>,
    _links: Vec<Link>,
}

/// Messages of libbpf, including the verifier's reasons.
static LIBBPF_MESSAGES: Mutex<String> = Mutex::new(String::new());

fn collect_message(_: PrintLevel, text: String) {
    if let Ok(mut collected) = LIBBPF_MESSAGES.lock() {
        collected.push_str(&text);
    }
}

impl<'object> Kernel<'object> {
    /// Loads the scheduler, which takes effect at once. libbpf keeps its state in `object`.
    ///
    /// # Errors
    ///
    /// The kernel rejects the scheduler; the error includes its reasons.
    pub fn load(
        object: &'object mut MaybeUninit<OpenObject>,
        settings: &Settings,
    ) -> anyhow::Result<Self> {
        libbpf_rs::set_print(Some((PrintLevel::Warn, collect_message)));
        Self::try_load(object, settings).map_err(|error| {
            let text = LIBBPF_MESSAGES.lock().map(|text| text.clone()).unwrap_or_default();
            if text.is_empty() { error } else { error.context(text.trim_end().to_owned()) }
        })
    }

    fn try_load(
        object: &'object mut MaybeUninit<OpenObject>,
        settings: &Settings,
    ) -> anyhow::Result<Self> {
        let mut open =
            MainSkelBuilder::default().open(object).context(messages::UNREADABLE_OBJECT)?;
        let Topology { order, nodes } = &settings.topology;
        let most = order.iter().max().copied().unwrap_or(0) as usize;
        ensure!(most < MAX_CPUS, messages::too_many_processors(MAX_CPUS, most));
        let constants = open.maps.rodata_data.as_mut().context(messages::UNREADABLE_OBJECT)?;
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
            (own.number, own.first, own.last) =
                (node.number, node.places.start as u32, node.places.end as u32);
            for (near, &other) in own.near.iter_mut().zip(&node.near) {
                *near = other as u8;
            }
            for &cpu in &order[node.places.clone()] {
                constants.node_of[cpu as usize] = index as u8;
            }
        }
        // Given this number, the kernel rejects the scheduler if a processor has gone online or
        // offline since the number was read.
        let sequence =
            std::fs::read_to_string("/sys/kernel/sched_ext/hotplug_seq").unwrap_or_default();
        open.struct_ops.unconvoy_mut().hotplug_seq = sequence.trim().parse().unwrap_or(0);

        let mut skeleton = open.load().context(messages::PROGRAMS_REJECTED)?;
        let records = Rc::new(RefCell::new(Vec::new()));
        let new_records = Rc::clone(&records);
        let mut rings = RingBufferBuilder::new();
        rings.add(&skeleton.maps.records, move |bytes| {
            new_records.borrow_mut().extend(read(bytes));
            0
        })?;
        let ring = rings.build().context(messages::NO_RING)?;
        let links = vec![
            skeleton.progs.contention_begin.attach().context(messages::NO_CONTENTION_TRACE)?,
            skeleton.progs.contention_end.attach().context(messages::NO_CONTENTION_TRACE)?,
            skeleton.maps.unconvoy.attach_struct_ops().context(messages::SCHEDULER_REJECTED)?,
        ];
        Ok(Kernel { skeleton, ring, records, _links: links })
    }

    pub fn take_records(&self, timeout: Duration) -> anyhow::Result<Vec<Record>> {
        match self.ring.poll(timeout) {
            Err(error) if error.kind() != libbpf_rs::ErrorKind::Interrupted => Err(error)?,
            _ => self.ring.consume()?,
        }
        Ok(self.records.take())
    }

    /// Updates a task: whether it is part of the set, and whether its children start there. Returns
    /// whether the task still exists.
    pub fn update_task(
        &self,
        task: u64,
        tid: u32,
        is_special: bool,
        passes_on: bool,
    ) -> anyhow::Result<bool> {
        let (is_special, passes_on) = (is_special.into(), passes_on.into());
        let mut verdict = types::verdict { task, tid, is_special, passes_on, ..Default::default() };
        // SAFETY: a struct of integers without padding; `verdict` outlives the slice.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(
                (&raw mut verdict).cast::<u8>(),
                size_of::<types::verdict>(),
            )
        };
        let input = ProgramInput { context_in: Some(bytes), ..Default::default() };
        self.skeleton.progs.update_task.test_run(input).context(messages::TASK_NOT_UPDATED)?;
        // SAFETY: reads an initialized integer of a live local; volatile, since the program wrote
        // to it without the compiler's knowledge.
        Ok(unsafe { (&raw const verdict.is_gone).read_volatile() } == 0)
    }

    pub fn update_set(&mut self, bound: Bound) -> anyhow::Result<()> {
        let data = self.skeleton.maps.data_data.as_mut().context(messages::UNREADABLE_OBJECT)?;
        // SAFETY: `set` lies in memory mapped for the lifetime of the skeleton, which the BPF
        // programs read.
        unsafe { (&raw mut data.set).write_volatile(bound.pack()) };
        self.skeleton
            .progs
            .update_set
            .test_run(ProgramInput::default())
            .context(messages::SET_NOT_UPDATED)?;
        Ok(())
    }

    /// Number of live lock-intensive tasks, as counted by the kernel side.
    pub fn specials(&self) -> u64 {
        // SAFETY: `specials` lies in memory mapped for the lifetime of the skeleton, which the BPF
        // programs write to.
        self.skeleton
            .maps
            .bss_data
            .as_ref()
            .map_or(0, |bss| unsafe { (&raw const bss.specials).read_volatile() })
    }

    /// Reason for which the kernel unloaded the scheduler, if it did.
    pub fn ending(&self) -> Option<Ending> {
        const UNREGISTERED: u32 = 64; // SCX_EXIT_UNREG: this process unloaded it
        const RESTART: u64 = 1 << 48; // SCX_ECODE_ACT_RESTART
        let bss = self.skeleton.maps.bss_data.as_ref()?;
        // SAFETY: as in `specials`; the struct has only integers and bytes, for which all bit
        // patterns are valid.
        let ending: types::ending = unsafe { (&raw const bss.ending).read_volatile() };
        if ending.kind == 0 || ending.kind == UNREGISTERED {
            return None;
        }
        let text = |bytes: &[i8]| {
            let bytes: Vec<u8> = bytes.iter().map(|byte| byte.cast_unsigned()).collect();
            CStr::from_bytes_until_nul(&bytes)
                .map(|text| text.to_string_lossy().into_owned())
                .unwrap_or_default()
        };
        let (reason, message) = (text(&ending.reason), text(&ending.message));
        let reason = if message.is_empty() { reason } else { format!("{reason} ({message})") };
        Some(Ending { reason, is_hotplug: ending.code & RESTART != 0 })
    }

    pub fn totals(&self) -> anyhow::Result<Totals> {
        let values =
            self.skeleton.maps.totals.lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY)?;
        let mut sum = Totals::default();
        for bytes in values.context(messages::UNREADABLE_COUNTERS)? {
            ensure!(bytes.len() >= size_of::<types::totals>(), messages::UNREADABLE_COUNTERS);
            // SAFETY: `bytes` is long enough; the struct has only integers.
            let one: types::totals =
                unsafe { bytes.as_ptr().cast::<types::totals>().read_unaligned() };
            for kind in 0..LOCK_KINDS.len() {
                sum.waits[kind] += one.waits[kind];
                sum.spun_ns[kind] += one.spun_ns[kind];
                sum.slept_ns[kind] += one.slept_ns[kind];
            }
            sum.slices += one.slices;
            sum.recorded += one.recorded;
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
    // SAFETY: `bytes` is long enough; the struct has only integers.
    let record: types::record = unsafe { bytes.as_ptr().cast::<types::record>().read_unaligned() };
    let slice = Slice { core: record.core, ran_ns: record.ran_ns, waited_ns: record.waited_ns };
    let event = match record.kind {
        RECORD_SLICE => Event::Slice { slice, bound: Bound::unpack(record.bound) },
        RECORD_CHILD => Event::Child,
        _ => Event::Exit,
    };
    let parent =
        (record.parent != 0).then_some(Parent { task: record.parent, tid: record.parent_tid });
    Some(Record {
        task: record.task,
        tid: record.tid,
        is_special: record.is_special != 0,
        parent,
        event,
    })
}
