//! Names for a report's numbers, from the program's files or from a kept trace.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

use unconvoy_syncchar::{self as syncchar, Names as _};

use super::conditional;
use super::kept::{Kept, Version};
use super::trace::{Lock, Trace};
use crate::images::Images;
use crate::members::LockType;
use crate::names::{FIRST_TAKEN, Names};

/// Size of a kernel's `rwlock_t` without debugging, in bytes.
const KERNEL_RWLOCK: u64 = 8;

/// See the [module](self).
pub struct Namer<'a> {
    trace: &'a Trace,
    names: &'a Names,
    kept: Option<&'a Kept>,
    locks: BTreeMap<u32, String>,
    words: RefCell<BTreeMap<u64, String>>,
}

impl<'a> Namer<'a> {
    /// Creates the names of a trace. Names in a kept trace take precedence, because the files may
    /// have changed.
    pub fn new(trace: &'a Trace, names: &'a Names) -> Self {
        let kept = trace.end.as_ref().and_then(|end| end.kept.as_ref());
        let mut namer =
            Self { trace, names, kept, locks: BTreeMap::new(), words: RefCell::default() };
        namer.locks = namer.lock_names();
        namer
    }

    /// Names all locks. Locks with the same name are numbered from the second on.
    fn lock_names(&self) -> BTreeMap<u32, String> {
        let mut like: HashMap<String, u32> = HashMap::new();
        let mut names = BTreeMap::new();
        for lock in self.trace.locks.values() {
            let kept = self.kept.and_then(|kept| kept.locks.get(&lock.number)).cloned();
            if let Some(kept) = kept {
                names.insert(lock.number, kept);
                continue;
            }
            let name = self.lock_name(lock);
            let number = like.entry(name.clone()).or_default();
            *number += 1;
            names
                .insert(lock.number, if *number == 1 { name } else { format!("{name} #{number}") });
        }
        names
    }

    fn lock_name(&self, lock: &Lock) -> String {
        let uses = [(&[lock.pc][..], FIRST_TAKEN)];
        let name = LockType::of_size(lock.size)
            .and_then(|kind| self.names.lock(Some(lock.address), Some(kind), kind.name(), &uses));
        name.unwrap_or_else(|| format!("lock at {:#x}", lock.address))
    }

    fn images(&self) -> &Images {
        self.names.images()
    }

    /// Returns the names that another analysis of the same trace needs.
    pub fn keep(&self) -> Kept {
        let mut places: Vec<u32> = self.trace.places.keys().copied().collect();
        places.sort_unstable();
        let conditional =
            places.iter().copied().filter(|place| self.is_conditional_store(*place)).collect();
        Kept {
            locks: self.locks.clone(),
            places: places.iter().filter_map(|place| Some((*place, self.place(*place)?))).collect(),
            conditional,
            words: self.words.borrow().clone(),
            files: self
                .trace
                .mappings
                .iter()
                // JSON has no other paths.
                .filter(|it| it.path.to_str().is_some())
                .filter_map(|it| Some((it.path.clone(), Version::of(&it.path)?)))
                .collect(),
            ..Kept::default()
        }
    }
}

impl syncchar::Names for Namer<'_> {
    fn lock(&self, lock: u32) -> Option<String> {
        self.locks.get(&lock).cloned()
    }

    fn class(&self, lock: u32) -> Option<String> {
        self.kept?.classes.get(&lock).cloned()
    }

    fn word(&self, address: u64) -> Option<String> {
        let kept = self.kept.and_then(|kept| kept.words.get(&address)).cloned();
        let name = kept.or_else(|| self.images().variable(address)).or_else(|| {
            let (start, allocation) = self.trace.allocation(address)?;
            let (place, size) = (format!("byte {}", address - start), allocation.size);
            Some(match self.images().own_call(allocation.frames()) {
                Some(site) => format!("{place} of {size} bytes allocated in {site}"),
                None => format!("{place} of {size} bytes of heap"),
            })
        })?;
        self.words.borrow_mut().insert(address, name.clone());
        Some(name)
    }

    fn place(&self, place: u32) -> Option<String> {
        let kept = self.kept.and_then(|kept| kept.places.get(&place)).cloned();
        kept.or_else(|| self.images().code(*self.trace.places.get(&place)?))
    }

    fn admits_readers(&self, lock: u32) -> bool {
        admits_readers(self.trace, lock)
    }

    fn is_conditional_store(&self, place: u32) -> bool {
        match self.kept {
            Some(kept) => kept.conditional.contains(&place),
            None => self
                .trace
                .places
                .get(&place)
                .is_some_and(|pc| conditional::is_conditional_store(self.images(), *pc)),
        }
    }
}

/// Returns whether a lock is a reader-writer lock, of a program or of a kernel.
pub fn admits_readers(trace: &Trace, lock: u32) -> bool {
    trace.locks.get(&lock).is_some_and(|lock| {
        LockType::of_size(lock.size) == Some(LockType::RwLock) || lock.size == KERNEL_RWLOCK
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_identifies_reader_writer_locks() {
        let mut trace = Trace::default();
        for (number, size) in [(0, 40), (1, 56), (2, 4), (3, 8)] {
            let (address, acquisitions) = (0x1000, 1);
            let lock =
                Lock { number, address, size, pc: 0, acquisitions, held: None, object: None };
            trace.locks.insert(number, lock);
        }
        let admitting: Vec<u32> = (0..5).filter(|lock| admits_readers(&trace, *lock)).collect();
        assert_eq!(admitting, [1, 3]);
    }
}
