//! Names of a profile's locks and stacks.

use unconvoy_profile::read::WaitedLock;
use unconvoy_profile::{Kind, Recorded};

use crate::images::{Images, Mapping};
use crate::kinds;
use crate::members::LockType;
use crate::names;

/// The place of a stack that was not recorded.
const UNKNOWN: &str = "unknown";

/// Names for one profile.
pub struct Names<'a> {
    recorded: &'a Recorded,
    names: names::Names,
}

impl<'a> Names<'a> {
    /// Reads the files that were mapped in the process.
    pub fn new(recorded: &'a Recorded) -> Self {
        let mappings: Vec<Mapping> = recorded
            .mappings
            .iter()
            .map(|one| Mapping {
                base: one.start,
                end: one.end,
                offset: one.offset,
                path: one.path.clone(),
            })
            .collect();
        Names { recorded, names: names::Names::new(Images::new(&mappings)) }
    }

    /// A lock's name.
    pub fn lock(&self, lock: &WaitedLock) -> String {
        let uses = [
            (self.recorded.stack(lock.origin), "initialised in"),
            (self.recorded.stack(lock.first_stack), "first waited for in"),
        ];
        let label = match lock.kind {
            Kind::Futex | Kind::Event => kinds::object(&self.functions(lock.first_stack)).label,
            kind => kind.name().to_string(),
        };
        // An address in libc says less than the function that waited.
        let address = Some(lock.named_at).filter(|_| !label.starts_with(kinds::OF_LIBC));
        let name = self.names.lock(address, lock_type(lock.kind), &label, &uses);
        name.unwrap_or_else(|| format!("{label} without a sampled wait"))
    }

    /// The innermost place of a stack in the program's own code.
    pub fn place(&self, stack: u32) -> String {
        let place = self.names.place(self.recorded.stack(stack));
        place.unwrap_or_else(|| UNKNOWN.to_string())
    }

    /// The names of the functions of a stack, innermost first.
    fn functions(&self, stack: u32) -> Vec<String> {
        let mut functions = self.names.functions(self.recorded.stack(stack));
        functions.reverse();
        functions
    }

    /// The functions of a stack, outermost first, inlined ones included.
    pub fn frames(&self, stack: u32) -> Vec<String> {
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
        Kind::Futex | Kind::Event => None,
    }
}
