//! What is inspected: a running process or a core dump, as memory, mappings and threads.

use std::fs::File;
use std::path::PathBuf;

use crate::profile::outside::target::{Mapping, UNKNOWN_FILE};
use crate::profile::outside::unwind::{MappedFiles, Registers};

/// The system call in which a thread waits at a futex.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Futex {
    pub address: u64,
    /// The operation, without its flags.
    pub command: u32,
}

impl Futex {
    /// Interprets the number and the arguments of a system call.
    pub fn of_call(number: u64, address: u64, operation: u64) -> Option<Self> {
        let command = operation as u32 & libc::FUTEX_CMD_MASK.cast_unsigned();
        (number == libc::SYS_futex as u64).then_some(Futex { address, command })
    }
}

/// A thread of the subject.
#[derive(Debug, Clone)]
pub struct Thread {
    /// Its id in its own PID namespace.
    pub id: u32,
    /// Its id for this command.
    pub outer: u32,
    /// Its name; empty if unknown.
    pub name: String,
    pub futex: Option<Futex>,
    /// Its registers, as far as known without stopping the thread; 0 for a frame pointer that is
    /// not known. `None` while the thread runs.
    pub registers: Option<Registers>,
}

/// A mapping of a part of a file.
#[derive(Debug, Clone)]
pub struct Region {
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    pub is_code: bool,
    pub is_writable: bool,
    /// The file, as the process sees it.
    pub path: PathBuf,
}

/// A process, running or dumped.
pub trait Subject {
    /// Process id and program.
    fn title(&self) -> String;
    /// Reads memory; returns the number of bytes.
    fn read(&self, address: u64, to: &mut [u8]) -> usize;
    /// The mappings of files.
    fn regions(&self) -> &[Region];
    /// The path at which this command reads a mapped file; `None` if the file is missing.
    fn file(&self, region: &Region) -> Option<PathBuf>;
    /// Opens a mapped file.
    fn open(&self, region: &Region) -> Option<File>;
    /// All threads.
    fn threads(&self) -> &[Thread];
    /// The present time on the monotonic clock, if time goes on.
    fn now(&self) -> Option<u64>;
    /// The registers of a thread, for which the thread may be stopped for a moment, and its stack
    /// from the stack pointer on.
    fn stop_and_read(&self, thread: &Thread) -> Option<(Registers, Vec<u8>)>;
    /// How often the thread has slept, if it still waits at the futex of [`Self::threads`]. Between
    /// two equal numbers it has not woken.
    fn sleeps(&self, thread: &Thread) -> Option<u64>;
    /// Whether memory is missing because a dump is cut off.
    fn is_cut_off(&self) -> bool {
        false
    }
    /// What the report cannot show, and why.
    fn remarks(&self) -> Vec<String>;
}

/// Bytes of a stack that are read at most.
pub const STACK: usize = 64 << 10;

impl dyn Subject + '_ {
    /// Reads a number of 32 bits.
    pub fn read_u32(&self, address: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        (self.read(address, &mut bytes) == 4).then(|| u32::from_ne_bytes(bytes))
    }

    /// Reads a stack from the stack pointer on.
    pub fn read_stack(&self, sp: u64) -> Vec<u8> {
        let mut stack = Vec::new();
        // In pieces: the stack may end before, and a dump may lack a page.
        let mut piece = [0; 4096];
        while stack.len() < STACK {
            let at = sp + stack.len() as u64;
            let length = (4096 - at % 4096) as usize;
            let read = self.read(at, &mut piece[..length]);
            stack.extend_from_slice(&piece[..read]);
            if read < length {
                break;
            }
        }
        stack
    }
}

/// The files of a subject, for the unwinder.
pub struct Files<'a>(pub &'a dyn Subject);

impl MappedFiles for Files<'_> {
    fn mappings(&self) -> Vec<Mapping> {
        let is_of_use = |region: &&Region| region.is_code || region.offset == 0;
        let regions = self.0.regions().iter().filter(is_of_use);
        let mapping = |region: &Region| Mapping {
            start: region.start,
            end: region.end,
            offset: region.offset,
            is_code: region.is_code,
            path: region.path.clone(),
            file: UNKNOWN_FILE.into(),
        };
        regions.map(mapping).collect()
    }

    fn open_mapped(&self, mapping: &Mapping) -> Option<File> {
        let region = self.0.regions().iter().find(|region| region.start == mapping.start)?;
        self.0.open(region)
    }
}
