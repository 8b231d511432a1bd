//! The program's files as they lay in memory: which one an address belongs to, and what it is called there.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::PathBuf;

use addr2line::{Loader, demangle_auto};
use object::{Object, ObjectSegment, ObjectSymbol, ReadCache, SymbolKind};

/// Code of these is not what a developer would change: of an inlined chain, the first function from elsewhere counts.
const LIBRARY_SOURCES: [&str; 4] = ["/usr/include/", "/c++/", "/rustc/", "/library/std/"];

/// A piece of a file, mapped.
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

/// Bytes of an x86 instruction, at most.
const LONGEST_INSTRUCTION: usize = 15;

/// All files.
#[derive(Default)]
pub struct Images {
    by_base: BTreeMap<u64, Image>,
    named: RefCell<HashMap<u64, Option<Code>>>,
}

/// One file.
struct Image {
    path: PathBuf,
    base: u64,
    end: u64,
    /// What is added to the file's own addresses.
    bias: u64,
    variables: OnceCell<Vec<Variable>>,
    code: OnceCell<Option<Loader>>,
    /// What has been read of the file.
    file: Option<ReadCache<File>>,
}

/// What an instruction belongs to.
#[derive(Clone)]
struct Code {
    /// The function and the line, as far as they are known.
    name: String,
    /// The source is a library's, in headers or of its own.
    is_librarys: bool,
}

struct Variable {
    address: u64,
    size: u64,
    name: String,
}

/// Where something lies in a file: the same in each run.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The file, without links.
    pub file: PathBuf,
    /// From the lowest address at which it is mapped.
    pub offset: u64,
}

impl Images {
    /// The files that are mapped so. One that cannot be read has addresses, but no names.
    pub fn new(mappings: &[Mapping]) -> Self {
        let mut by_base: BTreeMap<u64, Image> = BTreeMap::new();
        for first in mappings.iter().filter(|mapping| mapping.offset == 0) {
            let pieces = mappings.iter().filter(|other| other.path == first.path && other.base >= first.base);
            let mapped = pieces.map(|piece| piece.end).max().unwrap_or(first.end);
            let file = File::open(&first.path).ok().map(ReadCache::new);
            let (low, high) = file.as_ref().and_then(extent).unwrap_or((0, mapped - first.base));
            // The same piece is told again when its neighbour is given other permissions.
            by_base.entry(first.base).or_insert_with(|| Image {
                path: first.path.clone(),
                base: first.base,
                end: first.base + (high - low),
                bias: first.base.wrapping_sub(low),
                variables: OnceCell::new(),
                code: OnceCell::new(),
                file,
            });
        }
        Self { by_base, named: RefCell::default() }
    }

    fn at(&self, address: u64) -> Option<&Image> {
        let (_, image) = self.by_base.range(..=address).next_back()?;
        (address < image.end).then_some(image)
    }

    /// Where the address lies; nothing if in no file.
    pub fn origin(&self, address: u64) -> Option<Origin> {
        let image = self.at(address)?;
        Some(Origin { file: image.path.clone(), offset: address - image.base })
    }

    /// The variable that the address is in, or the file and the place in it.
    pub fn variable(&self, address: u64) -> Option<String> {
        let image = self.at(address)?;
        let own = address.wrapping_sub(image.bias);
        let variables = image.variables.get_or_init(|| image.file.as_ref().and_then(variables).unwrap_or_default());
        let before = variables.partition_point(|variable| variable.address <= own);
        let found = before.checked_sub(1).map(|index| &variables[index]);
        match found.filter(|variable| own < variable.address + variable.size) {
            Some(Variable { address, name, .. }) if *address == own => Some(name.clone()),
            Some(Variable { address, name, .. }) => Some(format!("{name}+{:#x}", own - address)),
            None => Some(image.place(address)),
        }
    }

    /// The function and source line of an instruction, as far as they are known.
    pub fn code(&self, pc: u64) -> Option<String> {
        Some(self.look(pc)?.name)
    }

    /// The same of a call, by where it goes on.
    pub fn call(&self, return_address: u64) -> Option<String> {
        self.code(return_address.wrapping_sub(1))
    }

    /// The same of the innermost of several calls that is in a developer's own code, or else of the innermost of all.
    pub fn own_call(&self, return_addresses: &[u64]) -> Option<String> {
        let calls: Vec<Code> = return_addresses.iter().filter_map(|pc| self.look(pc.wrapping_sub(1))).collect();
        let own = calls.iter().find(|call| !call.is_librarys);
        own.or(calls.first()).map(|call| call.name.clone())
    }

    fn look(&self, pc: u64) -> Option<Code> {
        let mut named = self.named.borrow_mut();
        named.entry(pc).or_insert_with(|| self.at(pc).map(|image| image.code(pc))).clone()
    }

    /// The function around `pc`, from its first instruction until at least the one at `pc` has ended, with the address of the first; nothing if that are more
    /// than `most` bytes.
    pub fn function_until(&self, pc: u64, most: usize) -> Option<(u64, Vec<u8>)> {
        let image = self.at(pc)?;
        let own = pc.wrapping_sub(image.bias);
        let start = image.loader()?.find_symbol_info(own)?.address();
        let length = usize::try_from(own - start).ok().filter(|length| *length <= most)? + LONGEST_INSTRUCTION;
        let file = object::File::parse(image.file.as_ref()?).ok()?;
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
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// A place without a name.
    fn place(&self, address: u64) -> String {
        format!("{}+{:#x}", self.file_name(), address - self.base)
    }

    fn loader(&self) -> Option<&Loader> {
        let load = || {
            let apart = self.file.as_ref().and_then(separate_debug_file).and_then(|file| Loader::new(file).ok());
            apart.or_else(|| Loader::new(&self.path).ok())
        };
        self.code.get_or_init(load).as_ref()
    }

    /// Whether it is the C or C++ library's, whose code calls allocators for others.
    fn is_library(&self) -> bool {
        let name = self.file_name();
        ["libc.so", "libstdc++.so", "libc++.so", "libc-2."].iter().any(|library| name.starts_with(library))
    }

    fn code(&self, pc: u64) -> Code {
        let own = pc.wrapping_sub(self.bias);
        let by = |name: String| Code { name, is_librarys: self.is_library() };
        let Some(loader) = self.loader() else { return by(self.place(pc)) };
        let mut outermost = None;
        if let Ok(mut frames) = loader.find_frames(own) {
            while let Ok(Some(frame)) = frames.next() {
                let Some(location) = frame.location.as_ref() else { continue };
                let (Some(file), Some(line)) = (location.file, location.line) else { continue };
                let function =
                    frame.function.as_ref().and_then(|function| Some(function.demangle().ok()?.into_owned()));
                let at = format!("{}:{line}", file.rsplit('/').next().unwrap_or(file));
                let name = match function {
                    Some(function) => format!("{} ({at})", brief(&function)),
                    None => at,
                };
                if !LIBRARY_SOURCES.iter().any(|part| file.contains(part)) {
                    return by(name);
                }
                outermost = Some(Code { name, is_librarys: true });
            }
        }
        let symbol = || {
            let symbol = loader.find_symbol_info(own)?;
            Some(by(format!("{} in {}", readable(symbol.name()), self.file_name())))
        };
        outermost.or_else(symbol).unwrap_or_else(|| by(self.place(pc)))
    }
}

/// The lowest and highest address that a file asks for, from page to page below.
fn extent(file: &ReadCache<File>) -> Option<(u64, u64)> {
    let file = object::File::parse(file).ok()?;
    let low = file.segments().map(|segment| segment.address() & !0xfff).min()?;
    let high = file.segments().map(|segment| segment.address() + segment.size()).max()?;
    Some((low, high))
}

/// Where distributions install what they strip from a file, by its build id: as gdb looks for it ("Separate Debug Files" in its manual).
fn separate_debug_file(file: &ReadCache<File>) -> Option<PathBuf> {
    let file = object::File::parse(file).ok()?;
    let id: String = file.build_id().ok()??.iter().map(|byte| format!("{byte:02x}")).collect();
    let (first, rest) = id.split_at_checked(2)?;
    let debug = PathBuf::from(format!("/usr/lib/debug/.build-id/{first}/{rest}.debug"));
    debug.is_file().then_some(debug)
}

/// A file's variables, by address.
fn variables(file: &ReadCache<File>) -> Option<Vec<Variable>> {
    let apart = separate_debug_file(file).and_then(|path| Some(ReadCache::new(File::open(path).ok()?)));
    let file = object::File::parse(apart.as_ref().unwrap_or(file)).ok()?;
    let mut variables: Vec<Variable> = file
        .symbols()
        .chain(file.dynamic_symbols())
        .filter(|symbol| symbol.is_definition() && symbol.size() > 0 && symbol.kind() == SymbolKind::Data)
        .filter_map(|symbol| {
            let name = readable(symbol.name().ok()?);
            Some(Variable { address: symbol.address(), size: symbol.size(), name })
        })
        .collect();
    variables.sort_by_key(|variable| variable.address);
    Some(variables)
}

/// A symbol as a developer writes it. A name of C is left alone, though it may look like a mangled type.
fn readable(symbol: &str) -> String {
    let is_mangled = ["_Z", "_R"].iter().any(|start| symbol.starts_with(start));
    if is_mangled { brief(&demangle_auto(symbol.into(), None)) } else { symbol.to_string() }
}

/// A function's name without its parameters, which fill lines in C++.
fn brief(name: &str) -> String {
    let name = name.replace("(anonymous namespace)::", "");
    let from = name.find("operator()").map_or(0, |at| at + "operator()".len());
    let end = name[from..].find('(').map_or(name.len(), |at| from + at);
    name[..end].to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_brief() {
        assert_eq!(brief("leveldb::DBImpl::Write(leveldb::WriteOptions const&)"), "leveldb::DBImpl::Write");
        assert_eq!(brief("(anonymous namespace)::Cache::Lookup(int)"), "Cache::Lookup");
        assert_eq!(brief("main"), "main");
        assert_eq!(brief("f()::{lambda(int)#1}::operator()(int) const"), "f()::{lambda(int)#1}::operator()");
    }

    #[test]
    fn only_mangled_names_are_demangled() {
        assert_eq!(readable("m"), "m");
        assert_eq!(readable("_ZN5Cache6LookupEi"), "Cache::Lookup");
    }

    #[test]
    fn this_test_has_a_name() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let mapping = |line: &str| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (base, end) = fields[0].split_once('-').unwrap();
            let path = PathBuf::from(fields.get(5).filter(|path| path.starts_with('/'))?);
            Some(Mapping { base: hex(base), end: hex(end), offset: hex(fields[2]), path })
        };
        let images = Images::new(&maps.lines().filter_map(mapping).collect::<Vec<_>>());
        let function = names_are_brief as fn() as usize as u64;
        let name = images.code(function).unwrap();
        // With its line where the build has debug information, which releases have not.
        assert!(name.contains("names_are_brief"), "{name}");
        static VARIABLE: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let address = VARIABLE.as_ptr() as u64;
        assert!(images.variable(address).unwrap().contains("VARIABLE"));
        assert_eq!(images.origin(address).unwrap().file, std::env::current_exe().unwrap().canonicalize().unwrap());
        assert_eq!(images.origin(8), None);
    }
}
