//! The program's files as they were mapped in memory: names of the addresses in them.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use addr2line::{Loader, demangle_auto};
use object::{Object, ObjectSegment, ObjectSymbol, ReadCache, SymbolKind};

use crate::debug_files;
use crate::demangled::{brief, on_one_line};
use crate::members::{self, DebugFile, Frame, LockType};

/// Sources of libraries: a chain of inlined functions is named after the first one outside of them.
const LIBRARY_SOURCES: [&str; 4] = ["/usr/include/", "/c++/", "/rustc/", "/library/std/"];

/// One mapping of a part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// The first address.
    pub base: u64,
    /// The first address after it.
    pub end: u64,
    /// The file's offset at `base`.
    pub offset: u64,
    /// The file.
    pub path: PathBuf,
}

/// Longest x86 instruction, in bytes.
const LONGEST_INSTRUCTION: usize = 15;

/// All mapped files.
#[derive(Default)]
pub struct Images {
    by_base: BTreeMap<u64, Image>,
    named: RefCell<HashMap<u64, Option<Code>>>,
}

struct Image {
    path: PathBuf,
    base: u64,
    end: u64,
    /// Difference between memory addresses and the file's own addresses.
    bias: u64,
    variables: OnceCell<Vec<Variable>>,
    code: OnceCell<Option<Loader>>,
    debug: OnceCell<Option<DebugFile>>,
    source: Option<Source>,
}

/// Path of a file, which is open only during a read: a process may map more files than this command
/// may have open.
struct Source {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl Source {
    fn new(path: PathBuf) -> Option<Self> {
        let identity = identity(&debug_files::open(&path)?)?;
        Some(Source { path, identity })
    }

    /// Opens the file, unless another file has replaced it since.
    fn open(&self) -> Option<ReadCache<File>> {
        let file = debug_files::open(&self.path)?;
        (identity(&file)? == self.identity).then(|| ReadCache::new(file))
    }
}

fn identity(file: &File) -> Option<(u64, u64)> {
    let found = file.metadata().ok()?;
    Some((found.dev(), found.ino()))
}

/// The function and line of an instruction.
#[derive(Clone)]
struct Code {
    /// Both, as far as known.
    name: String,
    /// Whether the source is a library's header.
    is_header: bool,
    /// Whether the source belongs to a library, in headers or in the library itself.
    is_library: bool,
}

struct Variable {
    address: u64,
    size: u64,
    name: String,
}

/// A position in a file, the same in each run.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Origin {
    /// Path of the file, symbolic links resolved.
    pub file: PathBuf,
    /// Distance from the lowest address at which the file is mapped.
    pub offset: u64,
}

/// A symbol, with the name as in the file or readable, and the distance of an address from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    pub name: String,
    pub offset: u64,
    pub file: PathBuf,
}

impl Images {
    /// Builds the files from their mappings. A file that cannot be read has addresses but no names.
    pub fn new(mappings: &[Mapping]) -> Self {
        Self::located(mappings, |index| Some(mappings[index].path.clone()))
    }

    /// As [`Self::new`], but the file of each mapping is read at another place, if at all.
    pub fn located(mappings: &[Mapping], place: impl Fn(usize) -> Option<PathBuf>) -> Self {
        let mut by_base: BTreeMap<u64, Image> = BTreeMap::new();
        let starts = mappings.iter().enumerate().filter(|(_, mapping)| mapping.offset == 0);
        for (index, first) in starts {
            let rest = mappings.iter().filter(|it| it.path == first.path && it.base >= first.base);
            let next = rest.clone().filter(|it| it.offset == 0 && it.base > first.base);
            let next = next.map(|it| it.base).min().unwrap_or(u64::MAX);
            let ends = rest.filter(|it| it.base < next).map(|it| it.end);
            let mapped = ends.max().unwrap_or(first.end);
            let source = place(index).and_then(Source::new);
            let file = source.as_ref().and_then(Source::open);
            let (low, high) = file.as_ref().and_then(extent).unwrap_or((0, mapped - first.base));
            // The collector reports a mapping again when its neighbour's permissions change.
            by_base.entry(first.base).or_insert_with(|| Image {
                path: first.path.clone(),
                base: first.base,
                end: first.base + (high - low),
                bias: first.base.wrapping_sub(low),
                variables: OnceCell::new(),
                code: OnceCell::new(),
                debug: OnceCell::new(),
                source,
            });
        }
        Self { by_base, named: RefCell::default() }
    }

    fn at(&self, address: u64) -> Option<&Image> {
        let (_, image) = self.by_base.range(..=address).next_back()?;
        (address < image.end).then_some(image)
    }

    /// Returns the position of an address in its file, if it is in a file.
    pub fn origin(&self, address: u64) -> Option<Origin> {
        let image = self.at(address)?;
        Some(Origin { file: image.path.clone(), offset: address - image.base })
    }

    /// Returns the variable at an address, or the file and the offset in it.
    pub fn variable(&self, address: u64) -> Option<String> {
        Some(match self.variable_symbol(address) {
            Some(Symbol { name, offset: 0, .. }) => name,
            Some(Symbol { name, offset, .. }) => format!("{name}+{offset:#x}"),
            None => self.at(address)?.place(address),
        })
    }

    /// The variable that contains an address.
    pub fn variable_symbol(&self, address: u64) -> Option<Symbol> {
        let image = self.at(address)?;
        let own = address.wrapping_sub(image.bias);
        let variables = image
            .variables
            .get_or_init(|| image.open().as_ref().and_then(variables).unwrap_or_default());
        let before = variables.partition_point(|variable| variable.address <= own);
        let found = &variables[before.checked_sub(1)?];
        let Variable { address, size, name } = found;
        let symbol = (name.clone(), own - address);
        (own < address + size).then(|| image.symbol(symbol))
    }

    /// The function that contains the call which returns to an address.
    pub fn function_symbol(&self, return_address: u64) -> Option<Symbol> {
        let pc = return_address.wrapping_sub(1);
        let image = self.at(pc)?;
        let own = pc.wrapping_sub(image.bias);
        let symbol = image.loader()?.find_symbol_info(own)?;
        Some(image.symbol((readable(symbol.name()), own + 1 - symbol.address())))
    }

    /// Names the lock that the innermost of several calls takes or initialises, if it is a member
    /// of an object.
    pub fn locked_member(&self, return_addresses: &[u64], lock: LockType) -> Option<String> {
        let frames = return_addresses.iter().map(|&pc| match self.at(pc) {
            Some(image) => match image.debug() {
                Some(debug) => {
                    let code = Box::new(|range| image.bytes(range));
                    Frame::Known(debug, pc.wrapping_sub(image.bias), code)
                }
                None if image.is_library() => Frame::Library,
                None => Frame::Unknown,
            },
            None => Frame::Unknown,
        });
        members::locked_member(frames, lock).map(|name| on_one_line(&name))
    }

    /// Names the lock at an address inside of a static object.
    pub fn static_member(&self, address: u64, lock: LockType) -> Option<String> {
        let image = self.at(address)?;
        let own = address.wrapping_sub(image.bias);
        members::static_member(image.debug()?, own, lock).map(|name| on_one_line(&name))
    }

    /// Returns the function and source line of an instruction, as far as known.
    pub fn code(&self, pc: u64) -> Option<String> {
        Some(self.look(pc)?.name)
    }

    /// As `code`, for the innermost of several calls that is in a developer's own code, or else for
    /// the innermost call.
    pub fn own_call(&self, return_addresses: &[u64]) -> Option<String> {
        let calls: Vec<Code> =
            return_addresses.iter().filter_map(|pc| self.look(pc.wrapping_sub(1))).collect();
        let own = calls.iter().find(|call| !call.is_library);
        own.or(calls.first()).map(|call| call.name.clone())
    }

    /// The call that returns to an address, and the functions that it is inlined in: innermost
    /// first, each with whether it is in a developer's own code. Empty outside of all files.
    pub fn calls(&self, return_address: u64) -> Vec<(String, bool)> {
        let pc = return_address.wrapping_sub(1);
        let chain = self.at(pc).map(|image| image.chain(pc)).unwrap_or_default();
        chain.into_iter().map(|code| (code.name, !code.is_library)).collect()
    }

    /// The function and the offset of a call in it, if the call's line is unknown.
    pub fn call_site(&self, return_address: u64) -> Option<String> {
        let pc = return_address.wrapping_sub(1);
        let image = self.at(pc)?;
        if image.loader()?.find_location(pc.wrapping_sub(image.bias)).ok().flatten().is_some() {
            return None;
        }
        let Symbol { name, offset, .. } = self.function_symbol(return_address)?;
        Some(format!("{name}+{offset:#x} in {}", image.file_name()))
    }

    fn look(&self, pc: u64) -> Option<Code> {
        let mut named = self.named.borrow_mut();
        named.entry(pc).or_insert_with(|| self.at(pc).map(|image| image.code(pc))).clone()
    }

    /// Returns the code of the function around `pc`, from the function's start to at least the end
    /// of the instruction at `pc`, with its start address; `None` if this exceeds `most` bytes.
    pub fn function_until(&self, pc: u64, most: usize) -> Option<(u64, Vec<u8>)> {
        let image = self.at(pc)?;
        let own = pc.wrapping_sub(image.bias);
        let start = image.loader()?.find_symbol_info(own)?.address();
        let length = usize::try_from(own - start).ok().filter(|length| *length <= most)?
            + LONGEST_INSTRUCTION;
        let file = image.open()?;
        let file = object::File::parse(&file).ok()?;
        let segment = |segment: object::Segment<_>| {
            let from = usize::try_from(start.checked_sub(segment.address())?).ok()?;
            let data = segment.data().ok()?.get(from..)?;
            Some(data[..length.min(data.len())].to_vec())
        };
        Some((start.wrapping_add(image.bias), file.segments().find_map(segment)?))
    }
}

impl Image {
    fn file_name(&self) -> String {
        on_one_line(&self.path.file_name().unwrap_or_default().to_string_lossy())
    }

    fn symbol(&self, (name, offset): (String, u64)) -> Symbol {
        Symbol { name, offset, file: self.path.clone() }
    }

    /// Returns a name for an address without a symbol.
    fn place(&self, address: u64) -> String {
        format!("{}+{:#x}", self.file_name(), address - self.base)
    }

    fn open(&self) -> Option<ReadCache<File>> {
        self.source.as_ref()?.open()
    }

    fn loader(&self) -> Option<&Loader> {
        let load = || {
            let (file, path) = (self.open()?, &self.source.as_ref()?.path);
            let apart = debug_files::separate(&file).and_then(|apart| {
                let supplement = debug_files::supplement(&apart);
                Loader::new_with_sup(apart, supplement).ok()
            });
            let own = || Loader::new_with_sup(path, debug_files::supplement(path));
            apart.or_else(|| own().ok())
        };
        self.code.get_or_init(load).as_ref()
    }

    /// The file's content at a range of its own addresses.
    fn bytes(&self, range: Range<u64>) -> Option<Vec<u8>> {
        let file = self.open()?;
        let file = object::File::parse(&file).ok()?;
        let content = |segment: object::Segment<_>| {
            let from = usize::try_from(range.start.checked_sub(segment.address())?).ok()?;
            let length = usize::try_from(range.end - range.start).ok()?;
            Some(segment.data().ok()?.get(from..from + length)?.to_vec())
        };
        file.segments().find_map(content)
    }

    fn debug(&self) -> Option<&DebugFile> {
        let read = || {
            let (file, path) = (self.open()?, &self.source.as_ref()?.path);
            let open = |path: PathBuf| Some(ReadCache::new(debug_files::open(&path)?));
            let supplement = |path: &Path| debug_files::supplement(path).and_then(open);
            let apart = debug_files::separate(&file)
                .and_then(|path| DebugFile::read(&open(path.clone())?, supplement(&path).as_ref()));
            apart.or_else(|| DebugFile::read(&file, supplement(path).as_ref()))
        };
        self.debug.get_or_init(read).as_ref()
    }

    /// Returns whether this is the C or C++ library, which calls allocators on behalf of other
    /// code.
    fn is_library(&self) -> bool {
        let name = self.file_name();
        ["libc.so", "libstdc++.so", "libc++.so", "libc-2."]
            .iter()
            .any(|library| name.starts_with(library))
    }

    /// The innermost function outside of library headers, or else the outermost.
    fn code(&self, pc: u64) -> Code {
        let mut chain = self.chain(pc);
        let own = chain.iter().position(|code| !code.is_header);
        chain.swap_remove(own.unwrap_or(chain.len() - 1))
    }

    /// The function at an instruction and those that it is inlined in, innermost first; at least
    /// one.
    fn chain(&self, pc: u64) -> Vec<Code> {
        let own = pc.wrapping_sub(self.bias);
        let by = |name: String| Code { name, is_header: false, is_library: self.is_library() };
        let Some(loader) = self.loader() else { return vec![by(self.place(pc))] };
        let mut chain = Vec::new();
        if let Ok(mut frames) = loader.find_frames(own) {
            while let Ok(Some(frame)) = frames.next() {
                let Some(location) = frame.location.as_ref() else { continue };
                let (Some(file), Some(line)) = (location.file, location.line) else { continue };
                let function = frame
                    .function
                    .as_ref()
                    .and_then(|function| Some(function.demangle().ok()?.into_owned()));
                let file_name = file.rsplit('/').next().unwrap_or(file);
                let at = format!("{}:{line}", on_one_line(file_name));
                let name = match function {
                    Some(function) => format!("{} ({at})", brief(&function)),
                    None => at,
                };
                let is_header = LIBRARY_SOURCES.iter().any(|part| file.contains(part));
                let is_library = is_header || self.is_library();
                chain.push(Code { name, is_header, is_library });
            }
        }
        self.qualify(&mut chain, own);
        if chain.is_empty() {
            let symbol = loader.find_symbol_info(own);
            let named = symbol.map(|it| format!("{} in {}", readable(it.name()), self.file_name()));
            chain.push(by(named.unwrap_or_else(|| self.place(pc))));
        }
        chain
    }
}

impl Image {
    /// Adds namespaces and classes to functions whose symbols have none.
    fn qualify(&self, chain: &mut [Code], own: u64) {
        let is_plain = |code: &Code| !code.name.contains("::") && code.name.contains(" (");
        if !chain.iter().any(is_plain) {
            return;
        }
        let Some(debug) = self.debug() else { return };
        let functions = members::functions_at(debug, own);
        if functions.len() != chain.len() {
            return;
        }
        for (code, function) in chain.iter_mut().zip(functions) {
            let (Some(function), true) = (function, is_plain(code)) else { continue };
            let plain = code.name.split(" (").next().unwrap_or_default();
            if function.strip_suffix(plain).is_some_and(|scope| scope.ends_with("::")) {
                code.name = on_one_line(&format!("{function}{}", &code.name[plain.len()..]));
            }
        }
    }
}

/// Returns the lowest and highest address of a file's segments, the lowest rounded down to a page.
fn extent(file: &ReadCache<File>) -> Option<(u64, u64)> {
    let file = object::File::parse(file).ok()?;
    let low = file.segments().map(|segment| segment.address() & !0xfff).min()?;
    let high = file.segments().map(|segment| segment.address() + segment.size()).max()?;
    Some((low, high))
}

/// Reads a file's variables, ordered by address.
fn variables(file: &ReadCache<File>) -> Option<Vec<Variable>> {
    let apart = debug_files::separate(file)
        .and_then(|path| Some(ReadCache::new(debug_files::open(&path)?)));
    let file = object::File::parse(apart.as_ref().unwrap_or(file)).ok()?;
    let mut variables: Vec<Variable> = file
        .symbols()
        .chain(file.dynamic_symbols())
        .filter(|symbol| {
            symbol.is_definition() && symbol.size() > 0 && symbol.kind() == SymbolKind::Data
        })
        .filter_map(|symbol| {
            let name = readable(symbol.name().ok()?);
            Some(Variable { address: symbol.address(), size: symbol.size(), name })
        })
        .collect();
    variables.sort_by_key(|variable| variable.address);
    Some(variables)
}

/// Demangles a symbol. C names stay as they are, even if they look like a mangled type.
pub fn readable(symbol: &str) -> String {
    let is_mangled = ["_Z", "_R"].iter().any(|start| symbol.starts_with(start));
    if is_mangled { brief(&demangle_auto(symbol.into(), None)) } else { on_one_line(symbol) }
}

#[cfg(test)]
#[path = "images_tests.rs"]
mod tests;
