//! Names of a profile's locks and stacks.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use unconvoy_profile::read::WaitedLock;
use unconvoy_profile::{Kind, Recorded, Source};

use super::kernel::names::KernelNames;
use super::sources;
use crate::images::{Images, Mapping};
use crate::kinds;
use crate::members::LockType;
use crate::names::{self, UNKNOWN};

/// Names for one profile.
pub enum Names<'a> {
    Files(FileNames<'a>),
    Kernel(KernelNames<'a>),
}

/// Names from the files that were mapped in the process.
pub struct FileNames<'a> {
    recorded: &'a Recorded,
    names: Rc<names::Names>,
}

/// Reads files that were mapped in the process. `path` has the place of a file for this command.
pub fn of_files(recorded: &Recorded, path: impl Fn(&Path) -> PathBuf) -> Rc<names::Names> {
    let mapping = |one: &unconvoy_profile::Mapping| Mapping {
        base: one.start,
        end: one.end,
        offset: one.offset,
        path: path(&one.path),
    };
    let mappings: Vec<Mapping> = recorded.mappings.iter().map(mapping).collect();
    let place =
        |index: usize| sources::locate(recorded, &recorded.mappings[index], &mappings[index].path);
    Rc::new(names::Names::new(Images::located(&mappings, place)))
}

impl<'a> Names<'a> {
    /// Reads the files that were mapped in the process.
    pub fn new(recorded: &'a Recorded) -> Self {
        match recorded.source {
            Source::Kernel => Names::Kernel(KernelNames::new(recorded)),
            Source::Interposer | Source::Outside => {
                Self::with(recorded, of_files(recorded, Path::to_path_buf))
            }
        }
    }

    /// Takes the names from files that were read before.
    pub fn with(recorded: &'a Recorded, names: Rc<names::Names>) -> Self {
        Names::Files(FileNames { recorded, names })
    }

    /// A lock's name.
    pub fn lock(&self, lock: &WaitedLock) -> String {
        match self {
            Names::Files(names) => names.lock(lock),
            Names::Kernel(names) => names.lock(lock),
        }
    }

    /// Whether nothing says what threads waited for: a lock, or anything else.
    pub fn is_unknown(&self, lock: &WaitedLock) -> bool {
        match self {
            Names::Files(names) => lock.kind == Kind::Futex && names.label(lock) == kinds::UNKNOWN,
            Names::Kernel(_) => false,
        }
    }

    /// The names from the program's files; `None` for a profile of the kernel.
    pub fn of_files(&self) -> Option<&names::Names> {
        match self {
            Names::Files(files) => Some(&files.names),
            Names::Kernel(_) => None,
        }
    }

    /// The innermost place of a stack in the program's own code.
    pub fn place(&self, stack: u32) -> String {
        match self {
            Names::Files(names) => names.place(stack),
            Names::Kernel(names) => names.place(stack),
        }
    }

    /// The system call and the task that led to a wait in the kernel.
    pub fn caller(&self, stack: u32) -> Option<String> {
        match self {
            Names::Files(_) => None,
            Names::Kernel(names) => Some(names.caller(stack)),
        }
    }

    /// The functions of a stack, outermost first, inlined ones included.
    pub fn frames(&self, stack: u32) -> Vec<String> {
        match self {
            Names::Files(names) => names.frames(stack),
            Names::Kernel(names) => names.frames(stack),
        }
    }
}

impl FileNames<'_> {
    fn lock(&self, lock: &WaitedLock) -> String {
        let uses = [
            (self.recorded.stack(lock.origin), "initialised in"),
            (self.recorded.stack(lock.first_stack), "first waited for in"),
        ];
        let label = self.label(lock);
        // An address in libc says less than the function that waited.
        let address = Some(lock.named_at).filter(|_| !label.starts_with(kinds::OF_LIBC));
        let name = self.names.lock(address, lock_type(lock.kind), &label, &uses);
        name.unwrap_or_else(|| format!("{label} without a sampled wait"))
    }

    fn label(&self, lock: &WaitedLock) -> String {
        match lock.kind {
            Kind::Futex | Kind::Event => kinds::object(&self.functions(lock.first_stack)).label,
            kind => kind.name().to_string(),
        }
    }

    fn place(&self, stack: u32) -> String {
        let place = self.names.place(self.recorded.stack(stack));
        place.unwrap_or_else(|| UNKNOWN.to_string())
    }

    /// The names of the functions of a stack, innermost first.
    fn functions(&self, stack: u32) -> Vec<String> {
        let mut functions = self.names.functions(self.recorded.stack(stack));
        functions.reverse();
        functions
    }

    fn frames(&self, stack: u32) -> Vec<String> {
        match self.recorded.stack(stack) {
            [] => vec![UNKNOWN.to_string()],
            frames => self.names.functions(frames),
        }
    }
}

/// The type of a pthread object.
fn lock_type(kind: Kind) -> Option<LockType> {
    match kind {
        Kind::Mutex => Some(LockType::Mutex),
        Kind::RwLock => Some(LockType::RwLock),
        Kind::Spin => Some(LockType::Spin),
        Kind::Cond => Some(LockType::Cond),
        Kind::Futex | Kind::Event | Kind::RwSem | Kind::PercpuRwSem | Kind::RtMutex => None,
    }
}
