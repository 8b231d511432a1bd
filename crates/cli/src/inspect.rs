//! Looks into a program before it starts: can a preloaded library replace anything in it?
//!
//! The dynamic loader ignores `LD_PRELOAD` without a word in several cases, and an empty profile
//! without a reason helps nobody. Each case here has its sentence. The inspection never keeps a
//! program from running, and whatever it cannot read it passes over in silence.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::AccessFlags;
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Architecture, Object, ObjectSymbol, ReadCache, ReadRef};

/// Scripts may name scripts; the kernel stops after about as many steps.
const DEEPEST_SCRIPT: u32 = 4;
/// The kernel reads this much of a `#!` line (`BINPRM_BUF_SIZE`).
const LONGEST_SCRIPT_LINE: usize = 256;

/// Why nothing can be replaced in a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// Go's runtime has its own locks and does not call libc's.
    Go,
    /// No dynamic loader, so nobody reads `LD_PRELOAD`.
    Static,
    /// The loader drops `LD_PRELOAD` in secure execution (`AT_SECURE`, see ld.so(8)).
    Secure(&'static str),
    /// Another libc than the library was built for.
    Musl(String),
    /// Another machine than the library was built for.
    Foreign(Architecture),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Go => f.write_str("it is a Go program, whose locks are those of the Go runtime"),
            Self::Static => f.write_str("it is statically linked (static: it has no dynamic loader)"),
            Self::Secure(what) => write!(f, "it is {what}, and the dynamic loader then ignores LD_PRELOAD"),
            Self::Musl(loader) => write!(f, "it uses musl ({loader}), libunconvoy.so needs glibc"),
            Self::Foreign(architecture) => {
                write!(f, "it is a program for {architecture:?}, libunconvoy.so is for {}", std::env::consts::ARCH)
            }
        }
    }
}

/// The file that `execvp` would take for `program`, if any: the first executable one in `PATH`,
/// else the first that at least is there.
pub fn resolve(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        let path = PathBuf::from(program);
        return path.exists().then_some(path);
    }
    let directories = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/bin:/usr/bin"));
    let files = || {
        let paths = std::env::split_paths(&directories).map(|directory| directory.join(program));
        paths.filter(|path| path.is_file())
    };
    let is_executable = |path: &PathBuf| nix::unistd::access(path, AccessFlags::X_OK).is_ok();
    files().find(is_executable).or_else(|| files().next())
}

/// Why nothing can be replaced in the program at `path`; for a script, in its interpreter.
pub fn obstacle(path: &Path) -> Option<Obstacle> {
    obstacle_at_depth(path, 0)
}

/// The line for standard error, naming the program and, for a script, its interpreter's fault.
pub fn warning(program: &OsStr) -> Option<String> {
    let path = resolve(program)?;
    let obstacle = obstacle(&path)?;
    let script = match script_interpreter(&path) {
        Some(Script { interpreter, .. }) => format!(" (a script for {})", interpreter.display()),
        None => String::new(),
    };
    Some(format!("nothing is replaced in {}{script}: {obstacle}", program.to_string_lossy()))
}

/// The loader or script interpreter that the file at `path` asks for.
pub fn interpreter(path: &Path) -> Option<String> {
    if let Some(script) = script_interpreter(path) {
        return Some(script.interpreter.display().to_string());
    }
    let cache = ReadCache::new(File::open(path).ok()?);
    elf_interpreter(&cache)
}

/// What the kernel would execute for the file at `path`, and what it would put before the file's own arguments: for a script, its interpreter (for
/// `env NAME`, that of that name) and its words, then the script; else the file and nothing.
pub fn executed(path: &Path) -> (PathBuf, Vec<OsString>) {
    let (mut file, mut before) = (path.to_path_buf(), Vec::new());
    for _ in 0..DEEPEST_SCRIPT {
        let Some(script) = script_interpreter(&file) else { break };
        let mut words: Vec<OsString> = script.words.iter().map(OsString::from).collect();
        let name = named_by_env(&script);
        let next = match name.and_then(|name| resolve(OsStr::new(name))) {
            Some(next) => {
                let after = script.words.iter().position(|word| Some(word) == name).map_or(0, |place| place + 1);
                words.drain(..after);
                next
            }
            None => script.interpreter.clone(),
        };
        words.push(file.into_os_string());
        words.append(&mut before);
        (file, before) = (next, words);
    }
    (file, before)
}

/// `#!/usr/bin/env NAME`: what matters is NAME, which env replaces itself with.
fn named_by_env(script: &Script) -> Option<&String> {
    let is_env = script.interpreter.file_name() == Some(OsStr::new("env"));
    script.words.iter().find(|word| !word.starts_with('-') && !word.contains('=')).filter(|_| is_env)
}

fn obstacle_at_depth(path: &Path, depth: u32) -> Option<Obstacle> {
    if depth == DEEPEST_SCRIPT {
        return None;
    }
    if let Some(script) = script_interpreter(path) {
        let next = match named_by_env(&script) {
            Some(name) => resolve(OsStr::new(name))?,
            None => script.interpreter,
        };
        return obstacle_at_depth(&next, depth + 1);
    }
    let file = File::open(path).ok()?;
    let secure = secure_execution(path, &file.metadata().ok()?);
    elf_obstacle(&ReadCache::new(file)).or(secure.map(Obstacle::Secure))
}

/// The `#!` line of a script.
struct Script {
    interpreter: PathBuf,
    words: Vec<String>,
}

fn script_interpreter(path: &Path) -> Option<Script> {
    let mut start = Vec::new();
    File::open(path).ok()?.take(LONGEST_SCRIPT_LINE as u64).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let text = String::from_utf8_lossy(line);
    let mut words = text.split_whitespace().map(String::from);
    Some(Script { interpreter: PathBuf::from(words.next()?), words: words.collect() })
}

/// Whether the file at `path` is a program for some machine, and so no text for a shell.
pub fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == *b"\x7fELF"
}

/// What the ELF file itself says.
fn elf_obstacle(cache: &ReadCache<File>) -> Option<Obstacle> {
    let file = object::File::parse(cache).ok()?;
    if file.format() != object::BinaryFormat::Elf {
        return None;
    }
    if file.architecture() != OWN_ARCHITECTURE && OWN_ARCHITECTURE != Architecture::Unknown {
        return Some(Obstacle::Foreign(file.architecture()));
    }
    let is_go = [".go.buildinfo", ".note.go.buildid"].iter().any(|name| file.section_by_name(name).is_some());
    // With cgo the C part of a Go program does lock through libc.
    if is_go && !file.dynamic_symbols().any(|symbol| symbol.is_undefined() && is_pthread(&symbol)) {
        return Some(Obstacle::Go);
    }
    match elf_interpreter(cache) {
        None => Some(Obstacle::Static),
        Some(loader) if loader.contains("ld-musl") => Some(Obstacle::Musl(loader)),
        Some(_) => None,
    }
}

fn is_pthread<'data>(symbol: &impl ObjectSymbol<'data>) -> bool {
    symbol.name().is_ok_and(|name| name.starts_with("pthread_"))
}

/// What this command, and so the library beside it, was built for.
const OWN_ARCHITECTURE: Architecture = if cfg!(target_arch = "x86_64") {
    Architecture::X86_64
} else if cfg!(target_arch = "aarch64") {
    Architecture::Aarch64
} else {
    Architecture::Unknown
};

/// The path in `PT_INTERP`.
fn elf_interpreter(cache: &ReadCache<File>) -> Option<String> {
    fn find<'data, Elf: FileHeader, R: ReadRef<'data>>(header: &Elf, data: R) -> Option<String> {
        let endian = header.endian().ok()?;
        let headers = header.program_headers(endian, data).ok()?;
        let path = headers.iter().find_map(|header| header.interpreter(endian, data).ok()?)?;
        Some(String::from_utf8_lossy(path).into_owned())
    }
    match object::File::parse(cache).ok()? {
        object::File::Elf32(elf) => find(elf.elf_header(), cache),
        object::File::Elf64(elf) => find(elf.elf_header(), cache),
        _ => None,
    }
}

/// Whether the kernel would start this file in secure execution for the user who runs us: a
/// set-user-ID file of the same user changes nothing, nor does one where privileges cannot grow.
fn secure_execution(path: &Path, file: &Metadata) -> Option<&'static str> {
    let cannot_grow = nix::sys::prctl::get_no_new_privs().unwrap_or(false)
        || nix::sys::statvfs::statvfs(path).is_ok_and(|fs| fs.flags().contains(nix::sys::statvfs::FsFlags::ST_NOSUID));
    if cannot_grow {
        return None;
    }
    let (user, group) = (nix::unistd::getuid(), nix::unistd::getgid());
    if file.mode() & libc::S_ISUID != 0 && file.uid() != user.as_raw() {
        return Some("set-user-ID");
    }
    // Without the group's execute bit, set-group-ID once meant mandatory locking.
    if file.mode() & (libc::S_ISGID | libc::S_IXGRP) == libc::S_ISGID | libc::S_IXGRP && file.gid() != group.as_raw() {
        return Some("set-group-ID");
    }
    let has_capabilities = matches!(xattr::get(path, "security.capability"), Ok(Some(_)));
    // Root has them anyway, and the kernel does not call that secure execution.
    (has_capabilities && !user.is_root()).then_some("given file capabilities")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn script(directory: &tempfile::TempDir, line: &str) -> PathBuf {
        let path = directory.path().join("script");
        std::fs::write(&path, format!("{line}\necho\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn a_dynamic_program_has_no_obstacle() {
        assert_eq!(obstacle(&std::env::current_exe().unwrap()), None);
    }

    #[test]
    fn a_script_is_as_good_as_its_interpreter() {
        let directory = tempfile::tempdir().unwrap();
        for line in ["#!/bin/sh", "#! /bin/sh -e", "#!/usr/bin/env sh", "#!/usr/bin/env -S A=1 sh"] {
            assert_eq!(obstacle(&script(&directory, line)), None, "{line}");
        }
    }

    #[test]
    fn a_script_that_names_itself_ends() {
        let directory = tempfile::tempdir().unwrap();
        let line = format!("#!{}", directory.path().join("script").display());
        assert_eq!(obstacle(&script(&directory, &line)), None);
    }

    #[test]
    fn an_own_set_user_id_file_is_not_secure_execution() {
        let directory = tempfile::tempdir().unwrap();
        let path = script(&directory, "#!/bin/sh");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4755)).unwrap();
        assert_eq!(secure_execution(&path, &path.metadata().unwrap()), None);
    }

    #[test]
    fn what_is_no_program_is_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(obstacle(directory.path()), None);
        assert_eq!(obstacle(Path::new("/nonexistent")), None);
        assert_eq!(obstacle(&script(&directory, "no magic here")), None);
    }
}
