//! Names of a profile's locks and stacks.

use unconvoy_profile::read::WaitedLock;
use unconvoy_profile::{Kind, Recorded};

use crate::images::{Images, Mapping};
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
        let name = self.names.lock(Some(lock.named_at), lock_type(lock.kind), &uses);
        name.unwrap_or_else(|| format!("{} without a sampled wait", lock.kind.name()))
    }

    /// The innermost place of a stack in the program's own code.
    pub fn place(&self, stack: u32) -> String {
        let place = self.names.place(self.recorded.stack(stack));
        place.unwrap_or_else(|| UNKNOWN.to_string())
    }

    /// The functions of a stack, outermost first, inlined ones included.
    pub fn frames(&self, stack: u32) -> Vec<String> {
        match self.recorded.stack(stack) {
            [] => vec![UNKNOWN.to_string()],
            frames => self.names.functions(frames),
        }
    }
}

fn lock_type(kind: Kind) -> LockType {
    match kind {
        Kind::Mutex => LockType::Mutex,
        Kind::RwLock => LockType::RwLock,
        Kind::Spin => LockType::Spin,
        Kind::Cond => LockType::Cond,
    }
}
