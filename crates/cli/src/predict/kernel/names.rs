//! Names for a kernel's report.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

use addr2line::Loader;
use unconvoy_syncchar::Names;

use super::memory::{Memory, Name};
use crate::predict::kept::Kept;
use crate::predict::names::admits_readers;
use crate::predict::trace::{Lock, Trace};

/// Names of a kernel's locks, words and places.
pub struct KernelNames<'a> {
    trace: &'a Trace,
    memory: Memory<'a>,
    /// Source lines, if there is debug information.
    lines: Option<&'a Loader>,
    locks: BTreeMap<u32, String>,
    classes: BTreeMap<u32, String>,
    words: RefCell<BTreeMap<u64, String>>,
}

impl<'a> KernelNames<'a> {
    /// Names the locks of a kernel's trace.
    pub fn new(trace: &'a Trace, memory: Memory<'a>, lines: Option<&'a Loader>) -> Self {
        let (locks, classes) = (BTreeMap::new(), BTreeMap::new());
        let mut names = Self { trace, memory, lines, locks, classes, words: RefCell::default() };
        let mut like: HashMap<String, u32> = HashMap::new();
        for lock in trace.locks.values() {
            let name = names.lock_name(lock);
            let full = match names.memory.symbols.function(lock.pc) {
                Some(function) => format!("{name} (first taken in {function})"),
                None => name.to_string(),
            };
            let number = like.entry(name.to_string()).or_default();
            *number += 1;
            let full =
                if *number == 1 { full } else { full.replacen(" (", &format!(" #{number} ("), 1) };
            names.locks.insert(lock.number, full);
            names.classes.insert(lock.number, name.class());
        }
        names
    }

    fn lock_name(&self, lock: &Lock) -> Name {
        let function = self.memory.symbols.function(lock.pc);
        let member = || {
            let object = lock.object.and_then(|object| self.trace.objects.get(object))?;
            Some(self.memory.member(object, lock.address, true, function))
        };
        let name = self.memory.variable(lock.address, true).or_else(member);
        name.or_else(|| self.memory.page(lock.address, true)).unwrap_or_else(|| match function {
            // The memory is in no known cache. Name the lock and its class after the function that
            // takes it.
            Some(function) => Name::of(format!("lock taken by {function}")),
            None => Name::of(format!("lock at {:#x}", lock.address)),
        })
    }

    /// Returns the names that another analysis of the same trace needs.
    pub fn keep(&self) -> Kept {
        let places = self.trace.places.keys();
        Kept {
            locks: self.locks.clone(),
            classes: self.classes.clone(),
            places: places.filter_map(|place| Some((*place, self.place(*place)?))).collect(),
            words: self.words.borrow().clone(),
            ..Kept::default()
        }
    }

    /// Names an instruction by its function, and by its line if there is debug information.
    fn code(&self, pc: u64) -> Option<String> {
        let place = self.memory.symbols.place(pc);
        let line =
            self.lines.and_then(|lines| lines.find_location(pc).ok()?).and_then(|location| {
                let file = location.file?;
                Some(format!("{}:{}", file.rsplit('/').next().unwrap_or(file), location.line?))
            });
        match (place, line) {
            (Some(place), Some(line)) => Some(format!("{place} ({line})")),
            (place, line) => place.or(line),
        }
    }
}

impl Names for KernelNames<'_> {
    fn lock(&self, lock: u32) -> Option<String> {
        self.locks.get(&lock).cloned()
    }

    fn class(&self, lock: u32) -> Option<String> {
        self.classes.get(&lock).cloned()
    }

    fn word(&self, address: u64) -> Option<String> {
        let in_object = || {
            let object = self.trace.object(address)?;
            Some(self.memory.member(object, address, false, None))
        };
        let name = self
            .memory
            .variable(address, false)
            .or_else(in_object)
            .or_else(|| self.memory.page(address, false))?;
        let name = name.to_string();
        self.words.borrow_mut().insert(address, name.clone());
        Some(name)
    }

    fn place(&self, place: u32) -> Option<String> {
        self.code(*self.trace.places.get(&place)?)
    }

    fn admits_readers(&self, lock: u32) -> bool {
        admits_readers(self.trace, lock)
    }

    fn is_conditional_store(&self, _place: u32) -> bool {
        // The answer requires the machine code, which a compressed image hides.
        false
    }
}
