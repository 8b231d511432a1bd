//! The ELF files of a program: its executable and the libraries that are loaded with it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use object::{Object, ObjectSymbol, ReadCache, SymbolKind};
use unconvoy::catalogue::strategy::{Segment, module_identity};

use crate::debug_files;
use crate::executable;

/// The size of a mutex, the smaller type of lock.
const SMALLEST_LOCK: u64 = size_of::<libc::pthread_mutex_t>() as u64;

/// A file, with what its names mean.
pub struct Module {
    pub path: PathBuf,
    /// The path under which the dynamic linker lists it, which may be a link to `path`.
    pub listed: PathBuf,
    /// See [`module_identity`].
    pub identity: u64,
    /// Hexadecimal; empty if the file has none.
    pub build_id: String,
    pub symbols: Vec<Symbol>,
}

/// A function or a variable.
pub struct Symbol {
    pub name: String,
    pub address: u64,
    pub size: u64,
    pub is_function: bool,
}

impl Module {
    pub fn file_name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn read(path: &Path) -> Option<Self> {
        let bytes = std::fs::read(path).ok()?;
        let note = |segment: Segment| {
            let start = usize::try_from(segment.offset).ok()?;
            bytes.get(start..start.checked_add(usize::try_from(segment.size).ok()?)?)
        };
        // The library sees the first page only.
        let identity = module_identity(&bytes[..bytes.len().min(4096)], note)?;
        let file = object::File::parse(&*bytes).ok()?;
        let build_id = file.build_id().ok().flatten().unwrap_or_default();
        let build_id = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut symbols = symbols(&file);
        let opened = std::fs::File::open(path).ok().map(ReadCache::new);
        let apart = opened.and_then(|file| debug_files::separate(&file));
        if let Some(apart) = apart.and_then(|path| std::fs::read(path).ok())
            && let Ok(apart) = object::File::parse(&*apart)
        {
            symbols.extend(self::symbols(&apart));
        }
        let [path, listed] = [path.to_path_buf(), path.to_path_buf()];
        Some(Module { path, listed, identity, build_id, symbols })
    }
}

fn symbols(file: &object::File<'_>) -> Vec<Symbol> {
    let symbols = file.symbols().chain(file.dynamic_symbols());
    let named = symbols.filter(|symbol| symbol.is_definition() && symbol.size() > 0);
    let has_room = |symbol: &object::Symbol<'_, '_>| symbol.size() >= SMALLEST_LOCK;
    named
        .filter_map(|symbol| {
            let is_function = match symbol.kind() {
                SymbolKind::Text => true,
                SymbolKind::Data if has_room(&symbol) => false,
                _ => return None,
            };
            let name = symbol.name().ok()?.to_string();
            Some(Symbol { name, address: symbol.address(), size: symbol.size(), is_function })
        })
        .collect()
}

/// The files of a program, or of a script's interpreter, and those at `others`. Files that cannot
/// be read are left out.
pub fn of_program(program: &OsStr, others: &[PathBuf]) -> Vec<Module> {
    let mut paths = Vec::new();
    if let Some(path) = executable::resolve(program) {
        let (executed, _) = executable::executed(&path);
        paths.push(executed.clone());
        let libraries = libraries(&executed).unwrap_or_default();
        paths.extend(libraries.into_iter().filter(|path| !is_libcs(path)));
    }
    paths.extend(others.iter().cloned());
    let mut modules: Vec<Module> = Vec::new();
    for path in paths {
        let listed = path.clone();
        let path = path.canonicalize().unwrap_or(path);
        if !modules.iter().any(|known| known.path == path) {
            modules.extend(Module::read(&path).map(|module| Module { listed, ..module }));
        }
    }
    modules
}

/// Whether a file belongs to the C library, whose own locks nothing replaces.
fn is_libcs(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    ["libc.so.", "ld-linux", "libm.so.", "libdl.so.", "libpthread.so.", "librt.so."]
        .iter()
        .any(|start| name.starts_with(start))
}

/// The libraries that the dynamic linker loads with a program, as it lists them itself (ld.so(8),
/// `--list`).
fn libraries(program: &Path) -> Option<Vec<PathBuf>> {
    let linker = executable::interpreter(program)?;
    // The kernel resolves links, and so does `$ORIGIN` in a search path.
    let program = program.canonicalize().ok()?;
    let mut list = Command::new(linker);
    list.arg("--list").arg(program).stdin(Stdio::null()).stderr(Stdio::null());
    let output = list.output().ok().filter(|output| output.status.success())?;
    Some(listed(&output.stdout))
}

/// The paths in such a list.
fn listed(list: &[u8]) -> Vec<PathBuf> {
    let lines = list.split(|&byte| byte == b'\n').filter_map(executable::listed_library);
    lines.filter_map(Result::ok).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_of_the_dynamic_linker_is_read() {
        let text = "\tlinux-vdso.so.1 (0x00007ffe)\n\tlibc.so.6 => /lib/libc.so.6 (0x00007f)\n\
                    \tlibx.so => not found\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let expected = ["/lib/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from);
        assert_eq!(listed(text.as_bytes()), expected);
    }

    #[test]
    fn own_modules_have_symbols_and_libraries() {
        let own = std::env::current_exe().unwrap();
        let modules = of_program(own.as_os_str(), &[]);
        assert!(modules[0].symbols.iter().any(|symbol| symbol.is_function));
        assert!(modules.iter().any(|module| module.file_name().starts_with("libgcc_s.so")));
        assert!(!modules.iter().any(|module| module.file_name().starts_with("libc.so")));
        assert!(of_program(OsStr::new("/no/such/program"), &[]).is_empty());
    }
}
