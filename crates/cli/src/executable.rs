//! The file of a program before it starts: can a preloaded library replace anything in it?
//!
//! The dynamic loader silently ignores `LD_PRELOAD` in several cases. Each case here has a message
//! that explains why the program runs unchanged. This check never stops a program from running,
//! and ignores files that it cannot read.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::unistd::AccessFlags;
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Architecture, Object, ObjectSymbol, ReadCache, ReadRef};

use crate::messages::command as messages;

/// Longest chain of script interpreters that is followed, which is about the kernel's own limit.
const DEEPEST_SCRIPT: u32 = 4;
/// Bytes that the kernel reads of a `#!` line (`BINPRM_BUF_SIZE`).
const LONGEST_SCRIPT_LINE: usize = 256;

/// Reason why nothing can be replaced in a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// A Go program: its runtime has locks of its own and does not call libc's.
    Go,
    /// A static program: no dynamic loader reads `LD_PRELOAD`.
    Static,
    /// The loader ignores `LD_PRELOAD` in secure execution (`AT_SECURE`, see ld.so(8)).
    Secure(&'static str),
    /// A program for another libc than the library's.
    Musl(String),
    /// A program for another architecture than the library's.
    Foreign(Architecture),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Go => f.write_str(messages::go_program()),
            Self::Static => f.write_str(messages::static_program()),
            Self::Secure(what) => f.write_str(&messages::secure_program(what)),
            Self::Musl(loader) => f.write_str(&messages::musl_program(loader)),
            Self::Foreign(architecture) => {
                f.write_str(&messages::foreign_program(&format!("{architecture:?}")))
            }
        }
    }
}

/// Returns the file that `execvp` would execute for `program`: the first executable one in `PATH`,
/// else the first one that exists.
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

/// Returns why nothing can be replaced in the program at `path`, or in a script's interpreter.
pub fn obstacle(path: &Path) -> Option<Obstacle> {
    obstacle_at_depth(path, 0)
}

/// Returns the warning for standard error, with the program and a script's interpreter.
pub fn warning(program: &OsStr) -> Option<String> {
    let path = resolve(program)?;
    let obstacle = obstacle(&path)?;
    let script = match script_interpreter(&path) {
        Some(Script { interpreter, .. }) => format!(" (a script for {})", interpreter.display()),
        None => String::new(),
    };
    Some(messages::no_lock_replaced(&program.to_string_lossy(), &script, obstacle))
}

/// Parses a line of the dynamic loader's list of libraries (ld.so(8), `--list`): `NAME => PATH
/// (ADDRESS)`, or `PATH (ADDRESS)` for a name that is a path. The error is the name of a library
/// that the loader does not find.
pub fn listed_library(line: &[u8]) -> Option<Result<PathBuf, String>> {
    let arrow = line.windows(4).position(|bytes| bytes == b" => ");
    let place = arrow.map_or(line, |at| &line[at + 4..]).trim_ascii_start();
    if let Some(at) = arrow
        && place == b"not found"
    {
        let name = String::from_utf8_lossy(line[..at].trim_ascii_start());
        return Some(Err(name.into_owned()));
    }
    let end = place.windows(2).rposition(|bytes| bytes == b" (")?;
    // The kernel's own library has only a name.
    place[..end].contains(&b'/').then(|| Ok(OsStr::from_bytes(&place[..end]).into()))
}

/// Returns the loader or script interpreter that the file at `path` names.
pub fn interpreter(path: &Path) -> Option<String> {
    if let Some(script) = script_interpreter(path) {
        return Some(script.interpreter.display().to_string());
    }
    let cache = ReadCache::new(File::open(path).ok()?);
    elf_interpreter(&cache)
}

/// Returns the file that the kernel would execute for `path`, and the arguments that it would
/// insert before the file's own. For a script these are its interpreter (with `env NAME`, the file
/// found for NAME), and the words of its `#!` line and the script's path.
pub fn executed(path: &Path) -> (PathBuf, Vec<OsString>) {
    let (mut file, mut before) = (path.to_path_buf(), Vec::new());
    for _ in 0..DEEPEST_SCRIPT {
        let Some(script) = script_interpreter(&file) else { break };
        let mut words: Vec<OsString> = script.words.iter().map(OsString::from).collect();
        let name = named_by_env(&script);
        let next = match name.and_then(|name| resolve(OsStr::new(name))) {
            Some(next) => {
                let after = script
                    .words
                    .iter()
                    .position(|word| Some(word) == name)
                    .map_or(0, |place| place + 1);
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

/// Returns the NAME of `#!/usr/bin/env NAME`, the program that env executes.
fn named_by_env(script: &Script) -> Option<&String> {
    let is_env = script.interpreter.file_name() == Some(OsStr::new("env"));
    script
        .words
        .iter()
        .find(|word| !word.starts_with('-') && !word.contains('='))
        .filter(|_| is_env)
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

/// The command that runs a program. It passes a script without a `#!` line to sh, as shells and
/// execvp(3) do.
pub fn command(program: &[OsString]) -> Command {
    let script = resolve(&program[0]).filter(|path| is_shell_script(path));
    let mut command = Command::new(script.as_ref().map_or(&*program[0], |_| OsStr::new("/bin/sh")));
    command.args(script).args(&program[1..]);
    command
}

/// Whether a file is executable text without a `#!` line. The kernel executes some files that are
/// neither text nor ELF (`binfmt_misc`).
fn is_shell_script(path: &Path) -> bool {
    let is_executable = nix::unistd::access(path, AccessFlags::X_OK).is_ok();
    let start = start_of(path).unwrap_or_default();
    let is_text = !start.is_empty() && !start.contains(&0);
    is_executable && is_text && !start.starts_with(b"#!") && !is_elf(path)
}

fn start_of(path: &Path) -> Option<Vec<u8>> {
    let mut start = Vec::new();
    File::open(path).ok()?.take(LONGEST_SCRIPT_LINE as u64).read_to_end(&mut start).ok()?;
    Some(start)
}

fn script_interpreter(path: &Path) -> Option<Script> {
    let start = start_of(path)?;
    if is_shell_script(path) {
        return Some(Script { interpreter: PathBuf::from("/bin/sh"), words: Vec::new() });
    }
    let line = start.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let text = String::from_utf8_lossy(line);
    let mut words = text.split_whitespace().map(String::from);
    Some(Script { interpreter: PathBuf::from(words.next()?), words: words.collect() })
}

/// Returns whether the file at `path` is an ELF file, for any machine, and so no shell script.
pub fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok()
        && magic == *b"\x7fELF"
}

fn elf_obstacle(cache: &ReadCache<File>) -> Option<Obstacle> {
    let file = object::File::parse(cache).ok()?;
    if file.format() != object::BinaryFormat::Elf {
        return None;
    }
    if file.architecture() != OWN_ARCHITECTURE && OWN_ARCHITECTURE != Architecture::Unknown {
        return Some(Obstacle::Foreign(file.architecture()));
    }
    let is_go = [".go.buildinfo", ".note.go.buildid"]
        .iter()
        .any(|name| file.section_by_name(name).is_some());
    // A Go program with cgo does lock through libc, in its C part.
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

/// Architecture of this command, and so of the library beside it.
const OWN_ARCHITECTURE: Architecture = if cfg!(target_arch = "x86_64") {
    Architecture::X86_64
} else if cfg!(target_arch = "aarch64") {
    Architecture::Aarch64
} else {
    Architecture::Unknown
};

/// Returns the path in `PT_INTERP`.
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

/// Returns why the kernel would start this file in secure execution for the current user, if it
/// would. A file whose owner or group is the user's own does not count, nor does any file if this
/// process or the file system forbids new privileges.
fn secure_execution(path: &Path, file: &Metadata) -> Option<&'static str> {
    let cannot_grow = nix::sys::prctl::get_no_new_privs().unwrap_or(false)
        || nix::sys::statvfs::statvfs(path)
            .is_ok_and(|fs| fs.flags().contains(nix::sys::statvfs::FsFlags::ST_NOSUID));
    if cannot_grow {
        return None;
    }
    let (user, group) = (nix::unistd::getuid(), nix::unistd::getgid());
    if file.mode() & libc::S_ISUID != 0 && file.uid() != user.as_raw() {
        return Some("set-user-ID");
    }
    // Set-group-ID without the group's execute bit once requested mandatory locking.
    if file.mode() & (libc::S_ISGID | libc::S_IXGRP) == libc::S_ISGID | libc::S_IXGRP
        && file.gid() != group.as_raw()
    {
        return Some("set-group-ID");
    }
    let has_capabilities = matches!(xattr::get(path, "security.capability"), Ok(Some(_)));
    // Root has the capabilities anyway, and the kernel does not treat that as secure execution.
    (has_capabilities && !user.is_root()).then_some("given file capabilities")
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    #[test]
    fn path_of_a_library_keeps_bytes_that_are_not_utf_8() {
        let path = |line: &[u8]| Some(listed_library(line)?.ok()?.into_os_string().into_vec());
        let line = b"\tlib (1).so => /a\xff => b/lib (1).so (0x00007f00)";
        assert_eq!(path(line), Some(b"/a\xff => b/lib (1).so".to_vec()));
        assert_eq!(path(b"\t/lib64/ld.so (0x00007f00)"), Some(b"/lib64/ld.so".to_vec()));
        assert_eq!(path(b"\tlib.so => ./lib.so (0x00007f00)"), Some(b"./lib.so".to_vec()));
        assert_eq!(
            listed_library(b"\tlibmissing.so => not found"),
            Some(Err("libmissing.so".into()))
        );
        assert_eq!(listed_library(b"\tlinux-vdso.so.1 (0x00007ffc)"), None);
    }
    use std::os::unix::fs::PermissionsExt;

    fn script(directory: &tempfile::TempDir, line: &str) -> PathBuf {
        let path = directory.path().join("script");
        std::fs::write(&path, format!("{line}\necho\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn obstacle_of_dynamic_program_is_none() {
        assert_eq!(obstacle(&std::env::current_exe().unwrap()), None);
    }

    #[test]
    fn obstacle_of_script_is_that_of_interpreter() {
        let directory = tempfile::tempdir().unwrap();
        for line in ["#!/bin/sh", "#! /bin/sh -e", "#!/usr/bin/env sh", "#!/usr/bin/env -S A=1 sh"]
        {
            assert_eq!(obstacle(&script(&directory, line)), None, "{line}");
        }
    }

    #[test]
    fn obstacle_of_self_referring_script_terminates() {
        let directory = tempfile::tempdir().unwrap();
        let line = format!("#!{}", directory.path().join("script").display());
        assert_eq!(obstacle(&script(&directory, &line)), None);
    }

    #[test]
    fn set_user_id_file_of_same_user_is_not_secure_execution() {
        let directory = tempfile::tempdir().unwrap();
        let path = script(&directory, "#!/bin/sh");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4755)).unwrap();
        assert_eq!(secure_execution(&path, &path.metadata().unwrap()), None);
    }

    #[test]
    fn obstacle_of_non_program_is_none() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(obstacle(directory.path()), None);
        assert_eq!(obstacle(Path::new("/nonexistent")), None);
        assert_eq!(obstacle(&script(&directory, "no magic here")), None);
    }

    #[test]
    fn text_without_an_interpreter_is_a_script_for_sh() {
        let directory = tempfile::tempdir().unwrap();
        let run = |path: &Path| {
            let mut command = command(&[path.as_os_str().to_owned(), "of it".into()]);
            command.output().map(|output| String::from_utf8(output.stdout).unwrap())
        };
        let plain = script(&directory, "printf '%s' \"$1\"");
        assert_eq!(run(&plain).unwrap(), "of it\n");
        assert_eq!(executed(&plain), (PathBuf::from("/bin/sh"), vec![plain.clone().into()]));
        assert_eq!(run(&script(&directory, "#!/bin/echo")).unwrap().lines().count(), 1);
        std::fs::write(&plain, "MZ\0\0").unwrap();
        assert!(run(&plain).is_err(), "no text");
    }
}
