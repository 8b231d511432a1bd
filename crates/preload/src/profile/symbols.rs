//! The symbols of an ELF file, read without allocation.

use core::fmt::Write as _;
use core::mem::{MaybeUninit, size_of};
use core::ops::Range;

use libc::{Elf64_Ehdr, Elf64_Phdr, Elf64_Shdr, Elf64_Sym};
use syscalls::{Sysno, syscall};

use super::name::Name;

const SHT_SYMTAB: u32 = 2;
const SHT_DYNSYM: u32 = 11;
const STT_OBJECT: u8 = 1;
const STT_FUNC: u8 = 2;
/// `STT_GNU_IFUNC`.
const STT_INDIRECT: u8 = 10;

/// Number of symbols in one read.
const CHUNK: usize = 128;

/// Most symbols of a file that are searched: some 50 ms.
const MOST: usize = 4_000_000;

/// The kind of symbol that is looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Variable,
    Function,
}

/// An open file.
struct File(usize);

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: this owns the descriptor.
        let _ = unsafe { syscall!(Sysno::close, self.0) };
    }
}

impl File {
    fn open(path: &[u8]) -> Option<Self> {
        let mut room = [0; 4096];
        room.get_mut(..path.len())?.copy_from_slice(path);
        if room[4095] != 0 {
            return None;
        }
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: the path ends in a zero.
        unsafe { syscall!(Sysno::openat, libc::AT_FDCWD, room.as_ptr(), flags) }.ok().map(File)
    }

    /// Fills `to`; returns the number of bytes.
    fn read_bytes(&self, to: &mut [u8], at: u64) -> usize {
        // SAFETY: the kernel writes at most that many bytes.
        unsafe { syscall!(Sysno::pread64, self.0, to.as_mut_ptr(), to.len(), at) }.unwrap_or(0)
    }

    /// Reads values for which all bytes are valid; returns their number.
    fn read_all<T: Copy>(&self, to: &mut [MaybeUninit<T>], at: u64) -> usize {
        let size = size_of_val(to);
        // SAFETY: the kernel writes at most that many bytes.
        let read = unsafe { syscall!(Sysno::pread64, self.0, to.as_mut_ptr(), size, at) };
        read.unwrap_or(0) / size_of::<T>()
    }

    fn read<T: Copy>(&self, at: u64) -> Option<T> {
        let mut value = [MaybeUninit::zeroed()];
        // SAFETY: the types read here are numbers, and all of the value was read.
        (self.read_all(&mut value, at) == 1).then(|| unsafe { value[0].assume_init() })
    }
}

/// Appends the name of the symbol at `offset` from the file's lowest mapped address, or the offset
/// if no symbol is there. Returns the offsets that have this name; `None` if the address is not in
/// the file.
pub(super) fn find<const N: usize>(
    path: &[u8],
    offset: u64,
    wanted: Wanted,
    name: &mut Name<N>,
) -> Option<Range<u64>> {
    let file = File::open(path)?;
    let header: Elf64_Ehdr = file.read(0)?;
    if header.e_ident[..5] != *b"\x7fELF\x02" {
        return None;
    }
    let address = address_in(&file, &header, offset)?;
    let section = |index: u64| -> Option<Elf64_Shdr> {
        file.read(header.e_shoff + index * size_of::<Elf64_Shdr>() as u64)
    };
    for kind in [SHT_SYMTAB, SHT_DYNSYM] {
        let mut sections = (0..u64::from(header.e_shnum)).filter_map(section);
        let Some(table) = sections.find(|section| section.sh_type == kind) else { continue };
        let Some(strings) = section(table.sh_link.into()) else { continue };
        if let Some(symbol) = symbol_at(&file, &table, address, wanted) {
            let mut text = [0; 256];
            let at = strings.sh_offset + u64::from(symbol.st_name);
            let read = file.read_bytes(&mut text, at);
            let length = text[..read].iter().position(|&byte| byte == 0).unwrap_or(read);
            name.add(&text[..length]);
            let start = offset.saturating_sub(address - symbol.st_value);
            return Some(start..start.saturating_add(symbol.st_size));
        }
    }
    let _ = write!(name, "+{offset:#x}");
    Some(offset..offset + 1)
}

/// The file's own address; `None` if the file does not reach that far.
fn address_in(file: &File, header: &Elf64_Ehdr, offset: u64) -> Option<u64> {
    let (mut low, mut high) = (u64::MAX, 0);
    for index in 0..u64::from(header.e_phnum) {
        let at = header.e_phoff + index * size_of::<Elf64_Phdr>() as u64;
        let part: Elf64_Phdr = file.read(at)?;
        if part.p_type == libc::PT_LOAD {
            low = low.min(part.p_vaddr);
            high = high.max(part.p_vaddr.saturating_add(part.p_memsz));
        }
    }
    let low = low & !0xfff;
    let address = low.checked_add(offset)?;
    (address < high).then_some(address)
}

fn symbol_at(file: &File, table: &Elf64_Shdr, address: u64, wanted: Wanted) -> Option<Elf64_Sym> {
    let count = (table.sh_size as usize / size_of::<Elf64_Sym>()).min(MOST);
    let mut chunk = [const { MaybeUninit::<Elf64_Sym>::zeroed() }; CHUNK];
    let mut first = 0;
    while first < count {
        let at = table.sh_offset + (first * size_of::<Elf64_Sym>()) as u64;
        let read = file.read_all(&mut chunk, at).min(count - first);
        if read == 0 {
            return None;
        }
        for symbol in &chunk[..read] {
            // SAFETY: numbers, of which all bytes were read.
            let symbol = unsafe { symbol.assume_init_ref() };
            let is_wanted = match symbol.st_info & 15 {
                STT_OBJECT => wanted == Wanted::Variable,
                STT_FUNC | STT_INDIRECT => wanted == Wanted::Function,
                _ => false,
            };
            let end = symbol.st_value.saturating_add(symbol.st_size);
            if is_wanted && (symbol.st_value..end).contains(&address) {
                return Some(*symbol);
            }
        }
        first += read;
    }
    None
}
