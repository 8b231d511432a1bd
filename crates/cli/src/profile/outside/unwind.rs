//! Unwinds the copied stacks with the unwind information of the mapped files, or by frame pointers
//! where code has none.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, Module, Unwinder as _};
use object::elf::PF_X;
use object::{Object, ObjectSection, ObjectSegment, ReadCache, SegmentFlags};
use unconvoy_profile::layout::DEPTH;

use super::target::{Mapping, Target};

/// Where a process's mapped files are found.
pub trait MappedFiles {
    /// The mappings that contain code or the start of a file.
    fn mappings(&self) -> Vec<Mapping>;
    /// Opens a mapped file.
    fn open_mapped(&self, mapping: &Mapping) -> Option<File>;
}

impl MappedFiles for Target {
    fn mappings(&self) -> Vec<Mapping> {
        self.mappings()
    }

    fn open_mapped(&self, mapping: &Mapping) -> Option<File> {
        self.open_mapped(mapping)
    }
}

/// Shortest time between two readings of the mappings.
const REFRESH_EVERY: Duration = Duration::from_millis(100);

/// The registers from which a stack is unwound.
#[derive(Debug, Clone, Copy)]
pub struct Registers {
    pub ip: u64,
    pub sp: u64,
    pub bp: u64,
}

/// The process's files, and what is known about their code.
pub struct Unwinder {
    unwinder: UnwinderX86_64<Vec<u8>>,
    cache: CacheX86_64,
    /// All mappings seen, in the order in which they were found.
    pub mappings: Vec<Mapping>,
    known: HashSet<(u64, u64)>,
    /// Mappings that contain code, by their starts.
    code: BTreeMap<u64, Code>,
    read_at: Instant,
}

struct Code {
    end: u64,
    is_libc: bool,
}

impl Unwinder {
    pub fn new(target: &impl MappedFiles) -> Self {
        let mut unwinder = Unwinder {
            unwinder: UnwinderX86_64::new(),
            cache: CacheX86_64::new(),
            mappings: Vec::new(),
            known: HashSet::new(),
            code: BTreeMap::new(),
            read_at: Instant::now(),
        };
        unwinder.refresh(target);
        unwinder
    }

    fn refresh(&mut self, target: &impl MappedFiles) {
        for mapping in target.mappings() {
            if !self.known.insert((mapping.start, mapping.end)) {
                continue;
            }
            if mapping.is_code {
                let code = Code { end: mapping.end, is_libc: is_libc(&mapping.path) };
                self.code.insert(mapping.start, code);
                let file = target.open_mapped(&mapping);
                if let Some(module) = file.and_then(|file| module(&mapping, file)) {
                    self.unwinder.remove_module(mapping.start);
                    self.unwinder.add_module(module);
                }
            }
            self.mappings.push(mapping);
        }
        self.read_at = Instant::now();
    }

    /// Returns the return addresses of a stack, innermost first. `stack` is the memory from the
    /// stack pointer on.
    pub fn unwind(
        &mut self,
        target: &impl MappedFiles,
        registers: Registers,
        stack: &[u8],
    ) -> Vec<u64> {
        if self.code_at(registers.ip).is_none() && self.read_at.elapsed() >= REFRESH_EVERY {
            self.refresh(target);
        }
        let frames = self.walk(registers, stack);
        // A library may have been loaded since.
        let is_new = frames.iter().any(|&pc| self.code_at(pc).is_none());
        if is_new && self.read_at.elapsed() >= REFRESH_EVERY {
            self.refresh(target);
            return self.walk(registers, stack);
        }
        frames
    }

    fn code_at(&self, pc: u64) -> Option<&Code> {
        let (_, code) = self.code.range(..=pc).next_back()?;
        (pc < code.end).then_some(code)
    }

    /// The frames from the caller of libc on, as the interposer records them; all if none calls
    /// libc.
    pub fn without_libc<'a>(&self, frames: &'a [u64]) -> &'a [u64] {
        let is_outside = |&pc: &u64| !self.code_at(pc).is_some_and(|code| code.is_libc);
        &frames[frames.iter().position(is_outside).unwrap_or(0)..]
    }

    fn walk(&mut self, registers: Registers, stack: &[u8]) -> Vec<u64> {
        let Registers { ip, sp, bp } = registers;
        let mut read = |address: u64| {
            let from = usize::try_from(address.checked_sub(sp).ok_or(())?).map_err(|_| ())?;
            let word = stack.get(from..from + 8).ok_or(())?;
            Ok(u64::from_le_bytes(word.try_into().map_err(|_| ())?))
        };
        let registers = UnwindRegsX86_64::new(ip, sp, bp);
        let mut frames = self.unwinder.iter_frames(ip, registers, &mut self.cache, &mut read);
        let mut found = Vec::new();
        while let Ok(Some(frame)) = frames.next() {
            found.push(frame.address());
            if found.len() == DEPTH {
                break;
            }
        }
        found
    }
}

/// Whether a file is libc, or its part with the locks before glibc 2.34.
pub fn is_libc(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    ["libc.so", "libc-2.", "libpthread"].iter().any(|start| name.starts_with(start))
}

/// Reads the unwind information of a mapped file.
fn module(mapping: &Mapping, file: File) -> Option<Module<Vec<u8>>> {
    let cache = ReadCache::new(file);
    let file = object::File::parse(&cache).ok()?;
    let bias = file.segments().find_map(|segment| {
        let (from, size) = segment.file_range();
        let SegmentFlags::Elf { p_flags, .. } = segment.flags() else { return None };
        let is_code = p_flags & PF_X == PF_X;
        // Segments may share a page of the file, which is then mapped twice.
        let is_mapped = is_code && (from & !0xfff..from + size).contains(&mapping.offset);
        let address = segment.address().wrapping_sub(from).wrapping_add(mapping.offset);
        is_mapped.then(|| mapping.start.wrapping_sub(address))
    })?;
    let section = |name: &str| file.section_by_name(name);
    let data = |name: &str| Some(section(name)?.uncompressed_data().ok()?.into_owned());
    let range = |name: &str| {
        let section = section(name)?;
        Some(section.address()..section.address() + section.size())
    };
    Some(Module::new(
        mapping.path.to_string_lossy().into_owned(),
        mapping.start..mapping.end,
        bias,
        ExplicitModuleSectionInfo {
            base_svma: 0,
            text_svma: range(".text"),
            got_svma: range(".got"),
            eh_frame_svma: range(".eh_frame"),
            eh_frame: data(".eh_frame"),
            eh_frame_hdr_svma: range(".eh_frame_hdr"),
            eh_frame_hdr: data(".eh_frame_hdr"),
            debug_frame: data(".debug_frame"),
            ..Default::default()
        },
    ))
}
