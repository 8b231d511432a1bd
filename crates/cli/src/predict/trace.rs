//! Address sets from the emulator or a kept trace. Sections go to the analysis; the rest stays for
//! names.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Deserialize;
use unconvoy_syncchar::{Analysis, LockAnalysis};
use unconvoy_trace_stream::{self as stream, MAX_FRAMES, Record, Region};

use super::kept::Kept;
use super::parquet::{self, Keeper, Unpacked};
use crate::images::Mapping;
use crate::messages::{command, predict as messages};
use crate::refusal::Refusal;

/// Name that a kernel's collector gives to memory nodes, which exist before any slab cache and are
/// never freed.
const MEMORY_NODE: &str = "pglist_data";

/// First bytes of a Parquet file.
const PARQUET: [u8; 4] = *b"PAR1";

/// Opens a kept trace, or a collector's stream in a file.
///
/// # Errors
///
/// The file cannot be read or has neither format, with the offset; `unconvoy-parquet` is missing.
pub fn open(path: &Path) -> anyhow::Result<stream::Reader<Box<dyn Read>>> {
    let unreadable = || command::cannot_read(path);
    let mut file = File::open(path).with_context(unreadable)?;
    let mut magic = [0; PARQUET.len()];
    let is_kept = file.read_exact(&mut magic).is_ok() && magic == PARQUET;
    file.rewind().with_context(unreadable)?;
    let bytes: Box<dyn Read> = if is_kept {
        let program = parquet::find().map_err(Refusal::installation)?;
        Box::new(BufReader::with_capacity(1 << 16, Unpacked::begin(&program, file)?))
    } else {
        Box::new(BufReader::new(file))
    };
    stream::Reader::new(bytes)
        .map_err(|error| anyhow::anyhow!("{}: {}", path.display(), reason(error)))
}

/// Describes a stream's error; for a kept trace, with the message of `unconvoy-parquet`.
pub fn reason(error: stream::Error) -> String {
    match error {
        stream::Error::Read { error, .. } if error.kind() == std::io::ErrorKind::Other => {
            error.to_string()
        }
        error => error.to_string(),
    }
}

/// Description of the run by the collector.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Context {
    /// Name of the collector.
    pub source: String,
    /// The program and its arguments.
    pub program: Vec<String>,
    /// Sampling rate: one section in this many.
    pub rate: u32,
    /// Number of processors.
    pub processors: u32,
}

/// Parses the JSON of a record.
///
/// # Errors
///
/// The text is invalid.
pub fn parsed<T: serde::de::DeserializeOwned>(name: &str, json: &str) -> anyhow::Result<T> {
    serde_json::from_str(json).with_context(|| messages::invalid_record(name))
}

/// Totals from the collector. A missing field is zero or empty.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct End {
    /// Sections seen, sampled or not.
    pub seen: u64,
    /// Records lost because they could not be written.
    pub lost: u64,
    /// Number of the program's threads.
    pub threads: u64,
    /// Number of child processes, which were not observed.
    pub forks_not_followed: u64,
    /// Whether the program called `exec`.
    pub replaced_by_exec: bool,
    /// Number of unlocks of locks whose acquisition the collector did not see.
    pub unmatched_unlocks: u64,
    /// Number of acquisitions of a kernel's locks whose release the collector did not see.
    pub abandoned: u64,
    /// Locking functions that were found, with their files.
    pub functions: Vec<String>,
    /// Problems of the collector.
    pub notes: Vec<String>,
    /// Instructions executed, for a kernel.
    pub instructions: Option<Instructions>,
    /// Offsets from per-CPU variables to each processor's copies, for a kernel.
    #[serde(deserialize_with = "hexadecimal")]
    pub per_cpu: Vec<u64>,
    /// What unconvoy added to a kept trace.
    #[serde(rename = "unconvoy")]
    pub kept: Option<Kept>,
}

/// A lock of the trace.
#[derive(Debug, Clone, Copy)]
pub struct Lock {
    /// Number of the lock.
    pub number: u32,
    /// Address of the lock.
    pub address: u64,
    /// Size in bytes, which identifies its type.
    pub size: u64,
    /// Return address of its first acquisition.
    pub pc: u64,
    /// Number of acquisitions; in a truncated trace, at least as many as the samples stand for.
    pub acquisitions: u64,
    /// Instructions for which it was held and waited for, if counted.
    pub held: Option<(u64, u64)>,
    /// Index into [`Trace::objects`] of the kernel object that contains it.
    pub object: Option<usize>,
}

/// A heap allocation.
#[derive(Debug, Clone, Copy)]
pub struct Allocation {
    /// Size in bytes.
    pub size: u64,
    frames: [u64; MAX_FRAMES],
}

impl Allocation {
    /// Returns the return addresses, the allocator's caller first.
    pub fn frames(&self) -> &[u64] {
        let length = self.frames.iter().position(|frame| *frame == 0);
        &self.frames[..length.unwrap_or(MAX_FRAMES)]
    }
}

/// Contents of a trace.
#[derive(Default)]
pub struct Trace {
    /// Description of the run; `None` if the trace has no context record.
    pub context: Option<Context>,
    /// Mapped files.
    pub mappings: Vec<Mapping>,
    /// Locks by number.
    pub locks: BTreeMap<u32, Lock>,
    /// Addresses of places.
    pub places: HashMap<u32, u64>,
    /// Allocations by address; the latest if several were at one address.
    pub heap: BTreeMap<u64, Allocation>,
    /// Kernel objects in the order of their records. Memory that is freed and allocated again holds
    /// several objects in turn.
    pub objects: Vec<Object>,
    /// Index of the latest object at an address.
    objects_at: BTreeMap<u64, usize>,
    /// Totals.
    pub end: Option<End>,
    /// Text of the end record.
    pub end_json: Option<String>,
    /// Why the trace is truncated.
    pub cut_off: Option<String>,
    /// Why the trace could not be kept.
    pub not_kept: Option<String>,
    /// Results of the analysis.
    pub analyses: Vec<LockAnalysis>,
}

impl Trace {
    /// Returns an empty trace, for a stream whose header could not be read.
    pub fn without_a_start(why: String) -> Self {
        Self { cut_off: Some(why), ..Self::default() }
    }

    /// Reads the whole stream. Records except the last are also written to `keep`, if given.
    pub fn read(
        records: stream::Reader<impl Read>,
        analysis: Analysis,
        keep: Option<&mut Keeper>,
    ) -> Self {
        let mut trace = Self::default();
        let mut reading = Reading { trace: &mut trace, analysis, keep, at: BTreeMap::new() };
        if let Err(error) = reading.all(records) {
            reading.trace.cut_off = Some(format!("{error:#}"));
        }
        let analyses = reading.analysis.finish();
        trace.analyses = analyses;
        if trace.end.is_none() {
            let rate = trace.context.as_ref().map_or(1, |context| u64::from(context.rate.max(1)));
            for analysis in &trace.analyses {
                if let Some(lock) = trace.locks.get_mut(&analysis.lock) {
                    lock.acquisitions = lock.acquisitions.max(analysis.sections * rate);
                }
            }
        }
        trace
    }

    /// Returns the allocation that contains an address, and its start.
    pub fn allocation(&self, address: u64) -> Option<(u64, &Allocation)> {
        let (start, allocation) = self.heap.range(..=address).next_back()?;
        (address - start < allocation.size.max(1)).then_some((*start, allocation))
    }

    /// Returns the kernel object that contains an address.
    pub fn object(&self, address: u64) -> Option<&Object> {
        self.objects.get(self.object_index(address)?)
    }

    /// Removes the objects that overlap a range.
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
    /// Address of its first byte.
    pub address: u64,
    /// Size in bytes; 0 if unknown.
    pub size: u64,
    /// Name of its slab cache.
    pub cache: String,
}

/// Instructions executed on all processors during the collection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Instructions {
    /// In the kernel, waiting loops of locks included.
    pub kernel: u64,
    /// In programs.
    pub user: u64,
    /// In waiting loops of locks, part of `kernel`.
    pub waited: u64,
}

/// Parses numbers as text with `0x`, because JSON readers may round large numbers.
fn hexadecimal<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<u64>, D::Error> {
    let number = |text: String| {
        u64::from_str_radix(text.trim_start_matches("0x"), 16).map_err(serde::de::Error::custom)
    };
    Vec::<String>::deserialize(from)?.into_iter().map(number).collect()
}

impl Instructions {
    /// Returns the instructions outside waiting loops, which do no work.
    pub fn work(&self) -> u64 {
        (self.kernel + self.user).saturating_sub(self.waited)
    }
}

struct Reading<'a> {
    trace: &'a mut Trace,
    analysis: Analysis,
    keep: Option<&'a mut Keeper>,
    /// The current lock at each address.
    at: BTreeMap<u64, u32>,
}

impl Reading<'_> {
    fn all(&mut self, mut records: stream::Reader<impl Read>) -> anyhow::Result<()> {
        while let Some(record) =
            records.next_record().map_err(|error| anyhow::anyhow!(reason(error)))?
        {
            self.take(&record)?;
            if let Record::End(_) = record {
                // Stop here: the program's children may keep the pipe open.
                return Ok(());
            }
            if let Some(writer) = &mut self.keep
                && let Err(error) = writer.write(&record)
            {
                self.trace.not_kept = Some(error.to_string());
                self.keep = None;
            }
        }
        anyhow::bail!(messages::trace_without_end())
    }

    fn take(&mut self, record: &Record) -> anyhow::Result<()> {
        let Self { trace, analysis, at, .. } = self;
        match record {
            Record::Context(json) => trace.context = Some(parsed("context", json)?),
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
                }
                let object = trace.object_index(address);
                let lock = Lock {
                    number,
                    address,
                    size: lock.region.size,
                    pc: lock.pc,
                    acquisitions: 0,
                    held: None,
                    object,
                };
                trace.locks.insert(number, lock);
            }
            Record::Section(section, entries) => analysis.section(*section, entries.iter()),
            Record::Place(place) => drop(trace.places.insert(place.number, place.pc)),
            Record::Allocation(allocation) => {
                let mut frames = [0; MAX_FRAMES];
                frames.iter_mut().zip(allocation.frames()).for_each(|(to, from)| *to = from);
                let Region { address: start, size } = allocation.region;
                // Overlapped allocations have been freed.
                let former: Vec<u64> = trace
                    .heap
                    .range(start..start.saturating_add(size.max(1)))
                    .map(|(address, _)| *address)
                    .collect();
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
                trace.end = Some(parsed("end", json)?);
                trace.end_json = Some((*json).to_string());
            }
            Record::Object(object) => {
                let Region { address: start, size } = object.region;
                let cache = String::from_utf8_lossy(object.name).into_owned();
                let new = Object { address: start, size, cache };
                // An object is reported again when it is rediscovered. A memory node is in no slab,
                // so a report that its address is in no slab does not remove it.
                let is_lasting =
                    trace.object(start).is_some_and(|known| known.cache == MEMORY_NODE);
                let is_news =
                    trace.object(start) != Some(&new) && !(is_lasting && new.cache.is_empty());
                if is_news {
                    trace.forget(start, size);
                    // An empty cache name marks memory that is no longer an object.
                    if !new.cache.is_empty() {
                        trace.objects_at.insert(start, trace.objects.len());
                        trace.objects.push(new);
                    }
                }
                // A lock keeps the object of its first report, even if the memory is reused later.
                let index = trace.objects_at.get(&start).copied();
                for (_, number) in at.range(start..start.saturating_add(size.max(1))) {
                    if let Some(lock) =
                        trace.locks.get_mut(number).filter(|lock| lock.object.is_none())
                    {
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

    /// Returns the cache name of each lock's object in a trace of these records.
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
        Record::Lock(stream::Lock {
            number,
            region: Region::new(address, 4),
            incarnation: 0,
            pc: 0,
            name: b"",
        })
    }

    #[test]
    fn lock_keeps_object_of_first_report() {
        let reported = objects(&[
            object(0x1000, 64, "dentry"),
            lock(0, 0x1008),
            // The slab moves to another cache with another object size.
            object(0x1000, 96, "file"),
            lock(1, 0x1048),
            object(0x1008, 0, ""),
            lock(2, 0x1008),
            lock(3, 0x9000),
            object(0x9000, 8, "inode"),
        ]);
        let names: Vec<Option<&str>> = reported.iter().map(Option::as_deref).collect();
        assert_eq!(names, [Some("dentry"), Some("file"), None, Some("inode")]);
    }

    #[test]
    fn memory_node_outlives_report_without_slab() {
        let reported =
            objects(&[object(0x1000, 512, "pglist_data"), object(0x1040, 0, ""), lock(0, 0x1040)]);
        assert_eq!(reported, [Some("pglist_data".to_string())]);
    }
}
