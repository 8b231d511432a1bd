//! A core dump, perhaps from another machine: its files are searched for by build id.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use object::elf::{
    ET_CORE, FileHeader64, NT_FILE, NT_PRPSINFO, NT_PRSTATUS, NoteType, PF_W, PF_X, PT_LOAD,
    ProgramFlags,
};
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::{NativeEndian, Object as _, ReadCache};

use super::subject::{Futex, Region, Subject, Thread};
use crate::messages::command::cannot_read;
use crate::messages::inspect as messages;
use crate::profile::outside::unwind::Registers;

type Header = FileHeader64<NativeEndian>;

/// A core dump.
pub struct Core {
    file: File,
    path: PathBuf,
    /// The dumped memory: start, end in memory, offset in the file, and number of bytes there.
    pieces: Vec<Piece>,
    pid: u32,
    program: String,
    regions: Vec<Region>,
    threads: Vec<Thread>,
    /// What became of each mapped file.
    files: BTreeMap<PathBuf, Found>,
    missing_bytes: u64,
}

struct Piece {
    start: u64,
    end: u64,
    offset: u64,
    bytes: u64,
    flags: ProgramFlags,
}

/// A mapped file on this machine.
enum Found {
    Here(PathBuf),
    /// The file at the path has another build id.
    Differs,
    Missing,
}

// Offsets in `struct elf_prstatus` and `struct elf_prpsinfo` of x86-64 (linux/elfcore.h).
const STATUS_PID: usize = 32;
const STATUS_REGISTERS: usize = 112;
const INFO_PID: usize = 24;
const INFO_NAME: usize = 40;
const INFO_ARGUMENTS: usize = 56;

// Indices of registers in `struct user_regs_struct`.
const BP: usize = 4;
const SI: usize = 13;
const DI: usize = 14;
const CALL: usize = 15;
const IP: usize = 16;
const SP: usize = 19;

impl Core {
    /// Opens a core dump. `folder` may have copies of the mapped files, under any names.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is no core dump of a 64-bit program of this machine's kind.
    pub fn open(path: &Path, folder: Option<&Path>) -> anyhow::Result<Self> {
        let file = File::open(path).with_context(|| cannot_read(path))?;
        let length = file.metadata().with_context(|| cannot_read(path))?.len();
        let cache = ReadCache::new(file.try_clone()?);
        let Ok(header) = Header::parse(&cache) else { bail!(messages::no_core(path)) };
        let endian = NativeEndian;
        let is_ours = header.is_little_endian() == cfg!(target_endian = "little")
            && header.e_machine.get(endian) == object::elf::EM_X86_64;
        if header.e_type.get(endian) != ET_CORE {
            bail!(messages::no_core(path));
        }
        if !is_ours {
            bail!(messages::other_machine(path));
        }
        let Ok(segments) = header.program_headers(endian, &cache) else {
            bail!(messages::truncated_at_start(path))
        };
        let mut core = Core {
            file,
            path: path.to_path_buf(),
            pieces: Vec::new(),
            pid: 0,
            program: String::new(),
            regions: Vec::new(),
            threads: Vec::new(),
            files: BTreeMap::new(),
            missing_bytes: 0,
        };
        for segment in segments {
            if segment.p_type.get(endian) == PT_LOAD {
                core.add_piece(segment, length);
            }
            let Ok(Some(mut notes)) = segment.notes(endian, &cache) else { continue };
            while let Ok(Some(note)) = notes.next() {
                core.add_note(note.n_type(endian), note.desc());
            }
        }
        if core.threads.is_empty() {
            bail!(messages::truncated_at_start(path));
        }
        core.set_access();
        core.find_files(folder);
        Ok(core)
    }

    fn add_piece(&mut self, segment: &object::elf::ProgramHeader64<NativeEndian>, length: u64) {
        let endian = NativeEndian;
        let (start, size) = (segment.p_vaddr.get(endian), segment.p_memsz.get(endian));
        let (offset, bytes) = (segment.p_offset.get(endian), segment.p_filesz.get(endian));
        let present = length.saturating_sub(offset).min(bytes).min(u64::MAX - start);
        self.missing_bytes = self.missing_bytes.saturating_add(bytes - present);
        let end = start.saturating_add(size);
        let flags = segment.p_flags.get(endian);
        self.pieces.push(Piece { start, end, offset, bytes: present, flags });
    }

    fn add_note(&mut self, kind: NoteType, content: &[u8]) {
        let word = |at: usize| {
            let bytes = content.get(at..at + 8)?;
            Some(u64::from_ne_bytes(bytes.try_into().ok()?))
        };
        let text = |at: usize, most: usize| {
            let bytes = content.get(at..content.len().min(at + most)).unwrap_or_default();
            let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
            String::from_utf8_lossy(text).into_owned()
        };
        match kind {
            NT_PRSTATUS => self.threads.extend(status(content)),
            NT_PRPSINFO => {
                self.pid = word(INFO_PID).unwrap_or(0) as u32;
                let arguments = text(INFO_ARGUMENTS, 80);
                let program = arguments.split(' ').next().unwrap_or_default();
                self.program =
                    if program.is_empty() { text(INFO_NAME, 16) } else { program.to_string() };
            }
            NT_FILE => self.regions = mapped_files(content).unwrap_or_default(),
            _ => {}
        }
    }

    /// Takes the access of the mapped files from the dumped pieces. gdb does not list what it does
    /// not dump, which may be code.
    fn set_access(&mut self) {
        for region in &mut self.regions {
            let piece = self.pieces.iter().find(|it| (it.start..it.end).contains(&region.start));
            region.is_code = piece.is_none_or(|piece| piece.flags & PF_X == PF_X);
            region.is_writable = piece.is_some_and(|piece| piece.flags & PF_W == PF_W);
        }
    }

    /// Looks for each file that has code at its own path, beside the core and in `folder`.
    fn find_files(&mut self, folder: Option<&Path>) {
        let beside = self.path.parent().filter(|path| !path.as_os_str().is_empty());
        let folders = [folder, Some(beside.unwrap_or(Path::new(".")))];
        let mut known: BTreeMap<Vec<u8>, PathBuf> = BTreeMap::new();
        for entry in folders.into_iter().flatten().filter_map(|it| it.read_dir().ok()).flatten() {
            let Ok(entry) = entry else { continue };
            if let Some(id) = build_id_of(&entry.path()) {
                known.entry(id).or_insert(entry.path());
            }
        }
        let firsts = self.regions.iter().filter(|region| region.offset == 0);
        let mut files = BTreeMap::new();
        for first in firsts {
            let has_code = |it: &Region| it.path == first.path && it.is_code;
            if !self.regions.iter().any(has_code) || files.contains_key(&first.path) {
                continue;
            }
            let at_path = first.path.clone();
            let there = build_id_of(&at_path);
            let found = match self.dumped_build_id(first.start) {
                // The core lacks the id: trust the file at the path.
                None if at_path.is_file() => Found::Here(at_path),
                None => Found::Missing,
                Some(id) if there.as_ref() == Some(&id) => Found::Here(at_path),
                Some(id) => match known.get(&id) {
                    Some(copy) => Found::Here(copy.clone()),
                    None if at_path.is_file() => Found::Differs,
                    None => Found::Missing,
                },
            };
            files.insert(first.path.clone(), found);
        }
        self.files = files;
    }

    /// The build id of a file mapped at an address, if the core has the file's first page.
    fn dumped_build_id(&self, start: u64) -> Option<Vec<u8>> {
        let mut page = [0; 4096];
        (self.read(start, &mut page) == page.len()).then_some(())?;
        let header = Header::parse(&page[..]).ok()?;
        let segments = header.program_headers(NativeEndian, &page[..]).ok()?;
        segments.iter().find_map(|segment| {
            let mut notes = segment.notes(NativeEndian, &page[..]).ok()??;
            while let Ok(Some(note)) = notes.next() {
                if note.n_type(NativeEndian) == object::elf::NT_GNU_BUILD_ID
                    && note.name() == object::elf::ELF_NOTE_GNU
                {
                    return Some(note.desc().to_vec());
                }
            }
            None
        })
    }
}

fn build_id_of(path: &Path) -> Option<Vec<u8>> {
    if !path.is_file() {
        return None;
    }
    let cache = ReadCache::new(File::open(path).ok()?);
    Some(object::File::parse(&cache).ok()?.build_id().ok()??.to_vec())
}

/// Reads a note of type `NT_PRSTATUS`.
fn status(content: &[u8]) -> Option<Thread> {
    let id = u32::from_ne_bytes(content.get(STATUS_PID..STATUS_PID + 4)?.try_into().ok()?);
    let register = |index: usize| {
        let at = STATUS_REGISTERS + 8 * index;
        Some(u64::from_ne_bytes(content.get(at..at + 8)?.try_into().ok()?))
    };
    let futex = Futex::of_call(register(CALL)?, register(DI)?, register(SI)?);
    let registers = Registers { ip: register(IP)?, sp: register(SP)?, bp: register(BP)? };
    Some(Thread { id, outer: id, name: String::new(), futex, registers: Some(registers) })
}

/// Reads a note of type `NT_FILE`: a count, the size of a page, the start, end and page of each
/// mapping, and then their names.
fn mapped_files(content: &[u8]) -> Option<Vec<Region>> {
    let word = |index: usize| {
        let bytes = content.get(8 * index..8 * index + 8)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    };
    let (count, page) = (usize::try_from(word(0)?).ok()?, word(1)?);
    let names = content.get(count.checked_mul(24)?.checked_add(16)?..)?;
    let names = names.split(|&byte| byte == 0);
    let region = |(index, name): (usize, &[u8])| {
        let at = 2 + 3 * index;
        Some(Region {
            start: word(at)?,
            end: word(at + 1)?,
            offset: word(at + 2)?.checked_mul(page)?,
            is_code: false,
            is_writable: false,
            path: OsStr::from_bytes(name).into(),
        })
    };
    names.take(count).enumerate().map(region).collect()
}

impl Subject for Core {
    fn title(&self) -> String {
        format!("core {} of process {} ({})", self.path.display(), self.pid, self.program)
    }

    fn read(&self, address: u64, to: &mut [u8]) -> usize {
        let piece =
            self.pieces.iter().find(|it| (it.start..it.start + it.bytes).contains(&address));
        let Some(piece) = piece else { return 0 };
        let from = address - piece.start;
        let length = (piece.bytes - from).min(to.len() as u64) as usize;
        self.file.read_at(&mut to[..length], piece.offset.saturating_add(from)).unwrap_or(0)
    }

    fn regions(&self) -> &[Region] {
        &self.regions
    }

    fn file(&self, region: &Region) -> Option<PathBuf> {
        match self.files.get(&region.path) {
            Some(Found::Here(path)) => Some(path.clone()),
            _ => None,
        }
    }

    fn open(&self, region: &Region) -> Option<File> {
        File::open(self.file(region)?).ok()
    }

    fn threads(&self) -> &[Thread] {
        &self.threads
    }

    fn now(&self) -> Option<u64> {
        None
    }

    fn stop_and_read(&self, thread: &Thread) -> Option<(Registers, Vec<u8>)> {
        let registers = thread.registers?;
        Some((registers, (self as &dyn Subject).read_stack(registers.sp)))
    }

    fn sleeps(&self, _: &Thread) -> Option<u64> {
        Some(0)
    }

    fn is_cut_off(&self) -> bool {
        self.missing_bytes > 0
    }

    fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.missing_bytes > 0 {
            remarks.push(messages::truncated(self.missing_bytes));
        }
        for (path, found) in &self.files {
            match found {
                Found::Here(_) => {}
                Found::Differs => remarks.push(messages::other_build(path)),
                Found::Missing => remarks.push(messages::missing_file(path)),
            }
        }
        remarks
    }
}
