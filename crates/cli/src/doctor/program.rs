//! A program's locks, by its file and the libraries that the dynamic loader would add.
//!
//! The loader itself lists the libraries (`LD_TRACE_LOADED_OBJECTS`, see ld.so(8)), so that search
//! paths and `LD_LIBRARY_PATH` count as they would in a run. The program does not start.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSymbol, ReadCache};
use serde::{Serialize, Serializer};

use crate::executable;
use crate::messages::doctor as messages;
use crate::refusal::Refusal;

/// Imported functions of locks that the library replaces. Others of their families, such as
/// `pthread_mutex_init`, say nothing of use.
const REPLACED: [(&str, &str); 17] = [
    ("pthread_mutex_lock", "mutex"),
    ("pthread_mutex_trylock", "mutex"),
    ("pthread_mutex_timedlock", "mutex"),
    ("pthread_mutex_clocklock", "mutex"),
    ("pthread_rwlock_rdlock", "reader-writer lock"),
    ("pthread_rwlock_tryrdlock", "reader-writer lock"),
    ("pthread_rwlock_timedrdlock", "reader-writer lock"),
    ("pthread_rwlock_clockrdlock", "reader-writer lock"),
    ("pthread_rwlock_wrlock", "reader-writer lock"),
    ("pthread_rwlock_trywrlock", "reader-writer lock"),
    ("pthread_rwlock_timedwrlock", "reader-writer lock"),
    ("pthread_rwlock_clockwrlock", "reader-writer lock"),
    ("pthread_cond_wait", "condition variable"),
    ("pthread_cond_timedwait", "condition variable"),
    ("pthread_cond_clockwait", "condition variable"),
    ("pthread_spin_lock", "spin lock"),
    ("pthread_spin_trylock", "spin lock"),
];

/// Imported function of C11's mutexes, which libc locks without calling `pthread_mutex_lock`.
const OF_C11: &str = "mtx_lock";

/// Parts of the names of functions with locks of their own.
const OWN: [(&str, &str); 8] = [
    ("std3sys4sync5mutex", "Rust's std::sync"),
    ("std3sys4sync6rwlock", "Rust's std::sync"),
    ("std3sys12_PAL5linux5locks", "Rust's std::sync"),
    ("parking_lot", "parking_lot"),
    ("4absl", "Abseil's Mutex"),
    ("3tbb", "oneTBB's mutexes"),
    ("folly", "Folly's locks"),
    ("JVM_MonitorWait", "Java's monitors"),
];

/// What `doctor -- PROGRAM` found.
#[derive(Debug, Serialize)]
pub struct Subject {
    /// Whether at least one lock can be replaced, and in which program.
    pub verdict: String,
    /// Whether at least one lock can be replaced.
    pub can_be_served: bool,
    /// The program and its libraries that have locks.
    pub objects: Vec<Locks>,
}

/// The locks of a program or library.
#[derive(Debug, Serialize)]
pub struct Locks {
    #[serde(serialize_with = "as_text")]
    pub path: PathBuf,
    /// Kinds of locks that unconvoy replaces.
    pub replaced: BTreeSet<&'static str>,
    /// Lock implementations of its own.
    pub own: BTreeSet<&'static str>,
    /// What `replaced` and `own` say, for a person.
    pub summary: String,
}

/// JSON has no bytes that are not UTF-8.
fn as_text<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

impl Subject {
    /// Rows of three columns for a table.
    pub fn rows(&self) -> impl Iterator<Item = [Cow<'_, str>; 3]> {
        self.objects.iter().map(|object| {
            let name = object.path.file_name().unwrap_or_default().to_string_lossy();
            ["".into(), name, object.summary.as_str().into()]
        })
    }
}

/// Examines the program that a shell would start for `name`.
///
/// # Errors
///
/// No such program or interpreter (127); a file that is no program or cannot be read, or its
/// libraries cannot be listed (126).
pub fn examine(name: &OsString) -> Result<Subject, Refusal> {
    let missing = || Refusal::not_started(name, &io::ErrorKind::NotFound.into());
    let path = executable::resolve(name).ok_or_else(missing)?;
    // A script's interpreter brings the locks.
    let (file, _) = executable::executed(&path);
    let mut shown = name.to_string_lossy().into_owned();
    if file != path {
        shown = messages::script(&shown, &file);
    }
    check_program(&file).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => missing(),
        _ => Refusal { status: 126, message: messages::not_examined(&shown, error) },
    })?;
    if let Some(warning) = executable::warning(name) {
        return Ok(Subject { verdict: warning, can_be_served: false, objects: Vec::new() });
    }
    let (listed, missing) = libraries(&file).map_err(|error| Refusal {
        status: 126,
        message: messages::libraries_not_listed(&shown, error),
    })?;
    let objects: Vec<Locks> =
        std::iter::once(file).chain(listed).filter_map(|path| locks(&path)).collect();
    let can_be_served = objects.iter().any(|object| !object.replaced.is_empty());
    let verdict = if can_be_served {
        messages::program_served(&shown)
    } else if !missing.is_empty() {
        messages::libraries_not_found(&shown, &missing.join(", "))
    } else {
        messages::program_without_locks(&shown)
    };
    Ok(Subject { verdict, can_be_served, objects })
}

/// Checks that a file can be read and is an ELF file.
fn check_program(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    File::open(path)?;
    if executable::is_elf(path) { Ok(()) } else { Err(io::Error::other(messages::no_program())) }
}

/// Asks the dynamic loader for the libraries, those of libc and the loader excepted: their locks
/// are not replaced. Also returns the names of the libraries that it does not find.
fn libraries(program: &Path) -> io::Result<(Vec<PathBuf>, Vec<String>)> {
    let Some(loader) = executable::interpreter(program) else {
        return Ok((Vec::new(), Vec::new()));
    };
    // The file itself names the loader, which may be any program.
    let own = executable::interpreter(Path::new("/proc/self/exe"));
    let resolved = |path: &str| Path::new(path).canonicalize().ok();
    if own.is_none_or(|own| resolved(&own) != resolved(&loader)) {
        return Err(io::Error::other(messages::foreign_loader(Path::new(&loader))));
    }
    let output = Command::new(loader)
        .arg(program)
        .env("LD_TRACE_LOADED_OBJECTS", "1")
        .env_remove("LD_PRELOAD")
        .output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_string()));
    }
    let is_of_libc = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        ["libc.so", "libpthread.so", "ld-linux"].iter().any(|start| name.starts_with(start))
    };
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for library in output.stdout.split(|&byte| byte == b'\n').filter_map(executable::listed_library)
    {
        match library {
            Ok(path) if is_of_libc(&path) => {}
            Ok(path) => found.push(path),
            Err(name) => missing.push(name),
        }
    }
    Ok((found, missing))
}

/// Returns the locks of an ELF file; `None` if it has none, or cannot be read.
fn locks(path: &Path) -> Option<Locks> {
    let cache = ReadCache::new(File::open(path).ok()?);
    let file = object::File::parse(&cache).ok()?;
    let (mut replaced, mut own) = (BTreeSet::new(), BTreeSet::new());
    for symbol in file.symbols().chain(file.dynamic_symbols()) {
        let Ok(name) = symbol.name() else { continue };
        if symbol.is_undefined() {
            // Names in `.symtab` may end with a version, as in `pthread_mutex_lock@GLIBC_2.2.5`.
            let name = name.split('@').next().unwrap_or(name);
            replaced
                .extend(REPLACED.iter().filter(|(function, _)| *function == name).map(|of| of.1));
            own.extend((name == OF_C11).then_some("C11's mtx_t"));
        } else {
            own.extend(OWN.iter().filter(|(part, _)| name.contains(part)).map(|of| of.1));
        }
    }
    if replaced.is_empty() && own.is_empty() {
        return None;
    }
    let listed = |names: &BTreeSet<&str>| names.iter().copied().collect::<Vec<_>>().join(", ");
    let mut summary = Vec::new();
    if !replaced.is_empty() {
        summary.push(format!("replaced: {}", listed(&replaced)));
    }
    if !own.is_empty() {
        summary.push(format!("of its own: {}", listed(&own)));
    }
    Some(Locks { path: path.into(), replaced, own, summary: summary.join("; ") })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    #[test]
    fn path_that_is_not_utf_8_has_json() {
        let path = OsStr::from_bytes(b"/a\xff").into();
        let (replaced, own) = (BTreeSet::new(), BTreeSet::new());
        let locks = Locks { path, replaced, own, summary: String::new() };
        assert_eq!(serde_json::to_value(&locks).unwrap()["path"], "/a\u{fffd}");
    }
}
