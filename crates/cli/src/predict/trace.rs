//! Address sets, as they come from the emulator or from a kept trace: sections go to the analysis, what names need stays.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Deserialize;
use unconvoy_syncchar::{Analysis, LockAnalysis};
use unconvoy_trace_stream::{self as stream, MAX_FRAMES, Record, Region};

use super::images::Mapping;
use super::kept::Kept;
use super::parquet::{self, Keeper, Unpacked};
use crate::refusal::Refusal;

/// What a kernel's collector calls the description of a memory node, which was there before any slab cache and stays.
const MEMORY_NODE: &str = "pglist_data";

/// Opens a kept trace, or a stream that somebody wrote into a file.
///
/// # Errors
///
/// It cannot be read or is neither, with the offset; `unconvoy-parquet` is missing.
pub fn open(path: &Path) -> anyhow::Result<stream::Reader<Box<dyn Read>>> {
    let unreadable = || format!("cannot read {}", path.display());
    let mut file = File::open(path).with_context(unreadable)?;
    let mut magic = [0; stream::MAGIC.len()];
    let is_stream = file.read_exact(&mut magic).is_ok() && magic == stream::MAGIC;
    file.rewind().with_context(unreadable)?;
    let bytes: Box<dyn Read> = if is_stream {
        Box::new(BufReader::new(file))
    } else {
        let program = parquet::find().map_err(Refusal::installation)?;
        Box::new(BufReader::with_capacity(1 << 16, Unpacked::begin(&program, file)?))
    };
    stream::Reader::new(bytes).map_err(|error| anyhow::anyhow!("{}: {}", path.display(), reason(error)))
}

/// What is wrong with a stream; with a kept trace, what `unconvoy-parquet` says of its file.
fn reason(error: stream::Error) -> String {
    match error {
        stream::Error::Read { error, .. } if error.kind() == std::io::ErrorKind::Other => error.to_string(),
        error => error.to_string(),
    }
}

/// What ran, as the collector says.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Context {
    /// Who collected.
    pub source: String,
    /// The program and its arguments.
    pub program: Vec<String>,
    /// One in how many sections was sampled.
    pub rate: u32,
}

/// The collector's totals; what it does not tell is zero or empty.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct End {
    /// Sections seen, sampled or not.
    pub seen: u64,
    /// Records that could not be written.
    pub lost: u64,
    /// The program's status.
    pub exit_status: Option<i32>,
    /// Threads that it had.
    pub threads: u64,
    /// Processes that it made, and nobody followed.
    pub forks_not_followed: u64,
    /// Unlocks of what was never seen locked.
    pub unmatched_unlocks: u64,
    /// Where functions that lock were found.
    pub functions: Vec<String>,
    /// What went wrong.
    pub notes: Vec<String>,
    /// Of a kernel: what was executed.
    pub instructions: Option<Instructions>,
    /// Of a kernel: where each processor's copies of per-CPU variables are, less the variables' own addresses.
    #[serde(deserialize_with = "hexadecimal")]
    pub per_cpu: Vec<u64>,
    /// What unconvoy added when it kept the trace.
    #[serde(rename = "unconvoy")]
    pub kept: Option<Kept>,
}

/// A lock.
#[derive(Debug, Clone, Copy)]
pub struct Lock {
    /// Its number.
    pub number: u32,
    /// Where it is.
    pub address: u64,
    /// Whether another lock came to be at its address.
    pub replaced: bool,
    /// Where the caller of its first acquisition goes on.
    pub pc: u64,
    /// Times it was acquired; of a trace that was cut off, the sections that were sampled.
    pub acquisitions: u64,
    /// Instructions for which it was held and waited for, where they are counted.
    pub held: Option<(u64, u64)>,
    /// The kernel's object that it lies in, by index into [`Trace::objects`].
    pub object: Option<usize>,
}

/// A piece of heap.
#[derive(Debug, Clone, Copy)]
pub struct Allocation {
    /// Bytes.
    pub size: u64,
    frames: [u64; MAX_FRAMES],
}

impl Allocation {
    /// Return addresses, the allocator's caller first.
    pub fn frames(&self) -> &[u64] {
        let told = self.frames.iter().position(|frame| *frame == 0);
        &self.frames[..told.unwrap_or(MAX_FRAMES)]
    }
}

/// All that a trace told.
#[derive(Default)]
pub struct Trace {
    /// What ran; nothing if not even that was told.
    pub context: Option<Context>,
    /// Mapped files.
    pub mappings: Vec<Mapping>,
    /// Locks by number.
    pub locks: BTreeMap<u32, Lock>,
    /// Addresses of places.
    pub places: HashMap<u32, u64>,
    /// Heap by address; of several pieces at one address, the last that was told.
    pub heap: BTreeMap<u64, Allocation>,
    /// The kernel's objects, as they were told: memory that was freed and allocated again is told again.
    pub objects: Vec<Object>,
    /// By address, the last that was told.
    objects_at: BTreeMap<u64, usize>,
    /// Totals.
    pub end: Option<End>,
    /// The end record as it came.
    pub end_json: Option<String>,
    /// Why it ended before its end.
    pub cut_off: Option<String>,
    /// Why it was not kept.
    pub not_kept: Option<String>,
    /// What the analysis found.
    pub analyses: Vec<LockAnalysis>,
}

impl Trace {
    /// One that could not even be begun to be read.
    pub fn without_a_start(why: String) -> Self {
        Self { cut_off: Some(why), ..Self::default() }
    }

    /// Reads all of it. Records other than the last are kept in `keep`, if it is given.
    pub fn read(records: stream::Reader<impl Read>, analysis: Analysis, keep: Option<&mut Keeper>) -> Self {
        let mut trace = Self::default();
        let mut reading = Reading { trace: &mut trace, analysis, keep, at: BTreeMap::new() };
        if let Err(error) = reading.all(records) {
            reading.trace.cut_off = Some(format!("{error:#}"));
        }
        let analyses = reading.analysis.finish();
        trace.analyses = analyses;
        if trace.end.is_none() {
            for analysis in &trace.analyses {
                if let Some(lock) = trace.locks.get_mut(&analysis.lock) {
                    lock.acquisitions = analysis.sections;
                }
            }
        }
        trace
    }

    /// The piece of heap that the address is in, and where it begins.
    pub fn allocation(&self, address: u64) -> Option<(u64, &Allocation)> {
        let (start, allocation) = self.heap.range(..=address).next_back()?;
        (address - start < allocation.size.max(1)).then_some((*start, allocation))
    }

    /// The kernel's object that the address is in.
    pub fn object(&self, address: u64) -> Option<&Object> {
        self.objects.get(self.object_index(address)?)
    }

    /// Objects that overlap are no more.
    fn forget(&mut self, start: u64, size: u64) {
        let end = start.saturating_add(size.max(1));
        let before = self.object_index(start).map(|index| self.objects[index].address);
        let within = self.objects_at.range(start..end).map(|(address, _)| *address);
        let gone: Vec<u64> = within.chain(before).collect();
        for address in gone {
            self.objects_at.remove(&address);
        }
    }

    fn object_index(&self, address: u64) -> Option<usize> {
        let (start, index) = self.objects_at.range(..=address).next_back()?;
        (address - start < self.objects[*index].size.max(1)).then_some(*index)
    }
}

/// An object of a kernel's heap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// The first byte.
    pub address: u64,
    /// Its bytes; 0 if they are not known.
    pub size: u64,
    /// The cache that it was allocated from.
    pub cache: String,
}

/// Instructions that all processors executed while sections were collected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Instructions {
    /// In the kernel, with those that waited for locks.
    pub kernel: u64,
    /// In programs.
    pub user: u64,
    /// Of these, within locks' waiting loops.
    pub waited: u64,
}

/// Numbers as text with `0x`, since readers of JSON may round large ones.
fn hexadecimal<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<u64>, D::Error> {
    let number =
        |text: String| u64::from_str_radix(text.trim_start_matches("0x"), 16).map_err(serde::de::Error::custom);
    Vec::<String>::deserialize(from)?.into_iter().map(number).collect()
}

impl Instructions {
    /// Without those that only waited: what processors spin for is no work.
    pub fn work(&self) -> u64 {
        (self.kernel + self.user).saturating_sub(self.waited)
    }
}

struct Reading<'a> {
    trace: &'a mut Trace,
    analysis: Analysis,
    keep: Option<&'a mut Keeper>,
    /// The lock that now is at an address.
    at: BTreeMap<u64, u32>,
}

impl Reading<'_> {
    fn all(&mut self, mut records: stream::Reader<impl Read>) -> anyhow::Result<()> {
        while let Some(record) = records.next_record().map_err(|error| anyhow::anyhow!(reason(error)))? {
            self.take(&record)?;
            if let Record::End(_) = record {
                // Of a pipe, the program's own children may keep the other end open.
                return Ok(());
            }
            if let Some(writer) = &mut self.keep
                && let Err(error) = writer.write(&record)
            {
                self.trace.not_kept = Some(error.to_string());
                self.keep = None;
            }
        }
        anyhow::bail!("it has no end record: its collector was cut off")
    }

    fn take(&mut self, record: &Record) -> anyhow::Result<()> {
        let Self { trace, analysis, at, .. } = self;
        match record {
            Record::Context(json) => trace.context = Some(serde_json::from_str(json).context("its context record")?),
            Record::Module(module) => trace.mappings.push(Mapping {
                base: module.region.address,
                end: module.region.end(),
                offset: module.offset,
                path: PathBuf::from(std::ffi::OsStr::from_bytes(module.path)),
            }),
            Record::Lock(lock) => {
                let (number, address) = (lock.number, lock.region.address);
                if let Some(former) = at.insert(address, number) {
                    analysis.retire(former);
                    if let Some(former) = trace.locks.get_mut(&former) {
                        former.replaced = true;
                    }
                }
                let object = trace.object_index(address);
                let lock = Lock { number, address, replaced: false, pc: lock.pc, acquisitions: 0, held: None, object };
                trace.locks.insert(number, lock);
            }
            Record::Section(section, entries) => analysis.section(*section, entries.iter()),
            Record::Place(place) => drop(trace.places.insert(place.number, place.pc)),
            Record::Allocation(allocation) => {
                let mut frames = [0; MAX_FRAMES];
                frames.iter_mut().zip(allocation.frames()).for_each(|(to, from)| *to = from);
                let Region { address: start, size } = allocation.region;
                // What lay there is gone.
                let former: Vec<u64> =
                    trace.heap.range(start..start.saturating_add(size.max(1))).map(|(address, _)| *address).collect();
                for address in former {
                    trace.heap.remove(&address);
                }
                trace.heap.insert(start, Allocation { size, frames });
            }
            Record::Counts(counts) => {
                if let Some(lock) = trace.locks.get_mut(&counts.lock) {
                    lock.acquisitions = counts.acquisitions;
                }
            }
            Record::End(json) => {
                trace.end = Some(serde_json::from_str(json).context("its end record")?);
                trace.end_json = Some((*json).to_string());
            }
            Record::Object(object) => {
                let Region { address: start, size } = object.region;
                let cache = String::from_utf8_lossy(object.name).into_owned();
                let told = Object { address: start, size, cache };
                // The same object is told whenever it comes to be known again; that an address is in no slab says nothing of what is none.
                let is_lasting = trace.object(start).is_some_and(|known| known.cache == MEMORY_NODE);
                let is_news = trace.object(start) != Some(&told) && !(is_lasting && told.cache.is_empty());
                if is_news {
                    trace.forget(start, size);
                    // Memory that is no object any more has no name.
                    if !told.cache.is_empty() {
                        trace.objects_at.insert(start, trace.objects.len());
                        trace.objects.push(told);
                    }
                }
                // A lock keeps the object that it was told with, whatever its memory becomes later.
                let index = trace.objects_at.get(&start).copied();
                for (_, number) in at.range(start..start.saturating_add(size.max(1))) {
                    if let Some(lock) = trace.locks.get_mut(number).filter(|lock| lock.object.is_none()) {
                        lock.object = index;
                    }
                }
            }
            Record::Held(held) => {
                if let Some(lock) = trace.locks.get_mut(&held.lock) {
                    lock.held = Some((held.held, held.waited));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unconvoy_syncchar::Options;
    use unconvoy_trace_stream::{MAGIC, append};

    /// What a trace of these objects and locks says of the locks' objects; a lock's address is its number's, too.
    fn objects(records: &[Record]) -> Vec<Option<String>> {
        let mut stream = MAGIC.to_vec();
        for record in records {
            append(&mut stream, record);
        }
        append(&mut stream, &Record::End(&stream::End::default().json()));
        let analysis = Analysis::new(Options::default()).unwrap();
        let trace = Trace::read(stream::Reader::new(&stream[..]).unwrap(), analysis, None);
        assert_eq!(trace.cut_off, None);
        trace.locks.values().map(|lock| Some(trace.objects[lock.object?].cache.clone())).collect()
    }

    fn object(address: u64, size: u64, name: &str) -> Record<'_> {
        Record::Object(stream::Object { region: Region::new(address, size), name: name.as_bytes() })
    }

    fn lock(number: u32, address: u64) -> Record<'static> {
        Record::Lock(stream::Lock { number, region: Region::new(address, 4), incarnation: 0, pc: 0, name: b"" })
    }

    #[test]
    fn a_lock_keeps_the_object_that_it_was_told_with() {
        let told = objects(&[
            object(0x1000, 64, "dentry"),
            lock(0, 0x1008),
            // The slab becomes one of another cache, whose objects lie otherwise.
            object(0x1000, 96, "file"),
            lock(1, 0x1048),
            object(0x1008, 0, ""),
            lock(2, 0x1008),
            lock(3, 0x9000),
            object(0x9000, 8, "inode"),
        ]);
        let names: Vec<Option<&str>> = told.iter().map(Option::as_deref).collect();
        assert_eq!(names, [Some("dentry"), Some("file"), None, Some("inode")]);
    }

    #[test]
    fn memory_nodes_are_in_no_slab_and_stay() {
        let told = objects(&[object(0x1000, 512, "pglist_data"), object(0x1040, 0, ""), lock(0, 0x1040)]);
        assert_eq!(told, [Some("pglist_data".to_string())]);
    }
}
