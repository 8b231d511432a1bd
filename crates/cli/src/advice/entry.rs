//! The entries of a strategy file that name a profile's locks.
//!
//! A static lock is named by its symbol. Another lock is named by the function that initialised it,
//! or else by the function that took it first. An offset restricts an entry to one lock or call, if
//! the symbol alone would also name other locks that threads waited for.

use std::collections::BTreeSet;
use std::path::Path;

use object::{Object, ReadCache};
use serde::{Deserialize, Serialize};
use unconvoy_profile::read::WaitedLock;
use unconvoy_profile::{Kind, Recorded};

use crate::images::Symbol;
use crate::names::Names;
use crate::paragraph::commented;
use crate::process_file;
use crate::strategy::Place;

/// Number of innermost calls around a lock function that a strategy compares with an entry.
const DEPTH: usize = 8;

/// More entries for the locks of one name are not worth reading: they lose their offsets.
const MOST: usize = 8;

/// Number of locks that get names.
const NAMED: usize = 256;

/// What a strategy file calls some locks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Entry {
    /// `symbol`, `initialised` or `first-taken`.
    pub key: String,
    /// The key's value: a symbol, or a symbol and an offset.
    pub name: String,
    /// Path of the file with the symbol; `None` if that is the program.
    pub object: Option<String>,
    /// Set if the name has an offset, which another build of the file may change.
    pub build_id: Option<String>,
    /// `mutex` or `rwlock`.
    pub kind: String,
}

impl Entry {
    /// The entry as TOML, with a comment that says why, and these keys and values.
    pub fn toml(&self, why: &str, chosen: &[(&str, &str)]) -> String {
        let mut text = commented("# ", why);
        text += "[[lock]]\n";
        let optional = [("object", &self.object), ("build-id", &self.build_id)];
        let optional = optional.iter().filter_map(|(key, value)| Some((*key, value.as_deref()?)));
        let named = [(&*self.key, &*self.name)].into_iter().chain(optional);
        for (key, value) in named.chain([("kind", &*self.kind)]).chain(chosen.iter().copied()) {
            text += &format!("{key} = {}\n", quoted(value));
        }
        text
    }
}

/// A text as TOML, whose basic strings have JSON's escapes.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The names of a profile's locks.
pub struct Entries<'a> {
    recorded: &'a Recorded,
    anchors: Vec<Anchors>,
}

impl<'a> Entries<'a> {
    /// Looks up the symbols of the locks with the most time waited.
    pub fn new(recorded: &'a Recorded, names: &Names) -> Self {
        let locks = recorded.locks.iter().take(NAMED);
        let anchors = locks.map(|lock| Anchors::of(recorded, names, lock)).collect();
        Entries { recorded, anchors }
    }

    /// The entries that name the locks with these indices in the profile. Empty if a strategy
    /// cannot name one of them.
    pub fn of(&self, indices: &[usize]) -> Vec<Entry> {
        let anchors = indices.iter().map(|&index| self.anchors.get(index));
        let named = anchors.map(|anchors| Some((anchors?.best()?, anchors?.kind)));
        let Some(named) = named.collect::<Option<Vec<_>>>() else { return Vec::new() };
        let others = self.anchors.iter().enumerate();
        let others: Vec<&Anchors> = others
            .filter_map(|(index, anchors)| (!indices.contains(&index)).then_some(anchors))
            .collect();
        let entries = |may_narrow: bool| -> BTreeSet<Entry> {
            let entry = |&((place, symbol), kind): &((Place, &Symbol), Kind)| {
                let is_shared = others.iter().any(|other| other.are_named(place, symbol, kind));
                entry(self.recorded, place, symbol, kind, may_narrow && is_shared)
            };
            named.iter().map(entry).collect()
        };
        let narrow = entries(true);
        let all = if narrow.len() > MOST { entries(false) } else { narrow };
        all.into_iter().collect()
    }
}

/// What may name a lock in each run.
struct Anchors {
    kind: Kind,
    variable: Option<Symbol>,
    /// The functions around the initialisation and the first acquisition: the place, if it is
    /// known, and then the calls, innermost first.
    calls: [(Place, Vec<Symbol>); 2],
}

impl Anchors {
    fn of(recorded: &Recorded, names: &Names, lock: &WaitedLock) -> Self {
        let calls = [(Place::Initialised, lock.origin), (Place::FirstTaken, lock.first_taken)];
        Anchors {
            kind: lock.kind,
            variable: names.images().variable_symbol(lock.named_at),
            calls: calls.map(|(place, stack)| (place, functions(names, recorded.stack(stack)))),
        }
    }

    /// The name that survives most changes of the program; `None` if a strategy cannot name it.
    fn best(&self) -> Option<(Place, &Symbol)> {
        if !matches!(self.kind, Kind::Mutex | Kind::RwLock) {
            return None;
        }
        let variable = self.variable.as_ref().map(|symbol| (Place::Symbol, symbol));
        let mut calls = self.calls.iter();
        variable.or_else(|| calls.find_map(|(place, calls)| Some((*place, calls.first()?))))
    }

    /// Whether this symbol, without an offset, also names this lock.
    fn are_named(&self, place: Place, symbol: &Symbol, kind: Kind) -> bool {
        let is_it = |it: &Symbol| (&it.name, &it.file) == (&symbol.name, &symbol.file);
        self.kind == kind
            && match place {
                Place::Symbol => self.variable.as_ref().is_some_and(is_it),
                _ => self.calls.iter().any(|(of, calls)| *of == place && calls.iter().any(is_it)),
            }
    }
}

fn entry(recorded: &Recorded, place: Place, symbol: &Symbol, kind: Kind, is_shared: bool) -> Entry {
    let Symbol { name, offset, file } = symbol;
    let own = process_file::own_path(file);
    // A lock at the start of a variable may be narrowed, too: its neighbours have other offsets.
    let name = if is_shared { format!("{name}+{offset:#x}") } else { name.clone() };
    Entry {
        key: place.key().to_string(),
        name,
        object: (recorded.is_indirect || own != recorded.program)
            .then(|| own.display().to_string()),
        build_id: is_shared.then(|| build_id(file)).flatten(),
        kind: kind.name().to_string(),
    }
}

/// The functions of a stack that a strategy compares with an entry: that of the stack's place
/// first.
fn functions(names: &Names, frames: &[u64]) -> Vec<Symbol> {
    let innermost = &frames[..frames.len().min(DEPTH)];
    let place = names.place_address(frames).filter(|place| innermost.contains(place));
    let calls = place.into_iter().chain(innermost.iter().copied());
    calls.filter_map(|pc| names.images().function_symbol(pc)).collect()
}

/// A file's build id in hexadecimal.
fn build_id(file: &Path) -> Option<String> {
    let cache = ReadCache::new(std::fs::File::open(file).ok()?);
    let id = object::File::parse(&cache).ok()?.build_id().ok()??.to_vec();
    Some(id.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::Relaxed;

    use unconvoy_profile::{Profile, layout};

    use super::*;
    use crate::profile::names::of_files;
    use crate::strategy::Strategy;

    /// Locks of this test program, and calls that initialise or take others.
    static LOCKS: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];

    #[inline(never)]
    extern "C" fn initialise_here() -> u64 {
        std::hint::black_box(LOCKS[0].load(Relaxed) + 41)
    }

    fn own_program() -> PathBuf {
        std::env::current_exe().unwrap().canonicalize().unwrap()
    }

    /// The entries of this process's locks at these addresses, with the calls that initialised and
    /// first took them.
    fn entries_of(locks: &[(u64, u64, u64)], indices: &[usize]) -> Vec<Entry> {
        entries_as(false, locks, indices)
    }

    fn entries_as(is_indirect: bool, locks: &[(u64, u64, u64)], indices: &[usize]) -> Vec<Entry> {
        let profile = layout::zeroed();
        let text = |to: &[std::sync::atomic::AtomicU8], from: &str| {
            to.iter().zip(from.bytes()).for_each(|(to, byte)| to.store(byte, Relaxed));
        };
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        text(&profile.header.program, own_program().to_str().unwrap());
        text(&profile.modules, &maps);
        profile.header.modules_used.store(maps.len() as u32, Relaxed);
        record(&profile, locks);
        let mut recorded = Recorded::of(&profile);
        recorded.is_indirect = is_indirect;
        let names = of_files(&recorded, Path::to_path_buf);
        Entries::new(&recorded, &names).of(indices)
    }

    fn record(profile: &Profile, locks: &[(u64, u64, u64)]) {
        for (index, &(address, origin, first_taken)) in locks.iter().enumerate() {
            profile.record_origin(address as usize, profile.stack(&[origin], 0));
            profile.record_first_taken(address as usize, profile.stack(&[first_taken], 0));
            let (_, lock) = profile.lock(Kind::Mutex, address as usize).unwrap();
            profile.record_wait(lock, 1_000_000 - index as u64, 1, false);
        }
    }

    /// The warnings about a strategy with these entries for this program.
    fn warnings(entries: &[Entry]) -> Vec<String> {
        warnings_for(own_program().as_os_str(), entries)
    }

    fn warnings_for(program: &std::ffi::OsStr, entries: &[Entry]) -> Vec<String> {
        let mut text = String::from("version = 1\n");
        entries.iter().for_each(|entry| text += &entry.toml("A \"why\".", &[("lock", "libc")]));
        let strategy = Strategy::parse(Path::new("s.toml"), &text).expect(&text);
        assert_eq!(strategy.entries.len(), entries.len(), "{text}");
        strategy.settings_for(program).unwrap_or_else(|_| panic!("{text}")).1
    }

    #[test]
    fn entry_for_a_program_that_a_script_starts_names_its_file() {
        let lock = (LOCKS[0].as_ptr() as u64, 0, 0);
        let script = std::ffi::OsStr::new("/bin/sh");
        assert_eq!(warnings_for(script, &entries_of(&[lock], &[0])).len(), 1);
        let entries = entries_as(true, &[lock], &[0]);
        assert_eq!(entries[0].object.as_deref(), own_program().to_str());
        assert_eq!(warnings_for(script, &entries), Vec::<String>::new());
    }

    #[test]
    fn static_lock_is_named_by_its_symbol() {
        let lock = |index: usize| LOCKS[index].as_ptr() as u64;
        let [entry] = &entries_of(&[(lock(0), 0, 0)], &[0])[..] else { panic!("one lock") };
        assert_eq!((&*entry.key, &*entry.kind, &entry.object), ("symbol", "mutex", &None));
        assert!(entry.name.ends_with("::LOCKS"), "{entry:?}");
        assert_eq!(warnings(std::slice::from_ref(entry)), Vec::<String>::new());
        // Two locks of one row, and one lock beside another row's.
        let locks = [(lock(0), 0, 0), (lock(8), 0, 0)];
        assert_eq!(entries_of(&locks, &[0, 1]).len(), 1);
        let [entry] = &entries_of(&locks, &[1])[..] else { panic!("one lock") };
        assert!(entry.name.ends_with("::LOCKS+0x40"), "{entry:?}");
        assert_eq!(warnings(std::slice::from_ref(entry)), Vec::<String>::new());
    }

    #[test]
    fn other_lock_is_named_by_its_initialisation_or_first_acquisition() {
        let call = initialise_here as extern "C" fn() -> u64 as usize as u64 + 2;
        let [entry] = &entries_of(&[(0x1000, call, 0)], &[0])[..] else { panic!("one lock") };
        assert_eq!(entry.key, "initialised");
        assert!(entry.name.ends_with("::initialise_here"), "{entry:?}");
        let [entry] = &entries_of(&[(0x1000, 0, call)], &[0])[..] else { panic!("one lock") };
        assert_eq!((&*entry.key, entry.build_id.is_none()), ("first-taken", true));
        assert_eq!(warnings(std::slice::from_ref(entry)), Vec::<String>::new());
        // Another lock that the same function takes first.
        let locks = [(0x1000, 0, call), (0x2000, 0, call + 1)];
        let [entry] = &entries_of(&locks, &[0])[..] else { panic!("one lock") };
        assert!(entry.name.ends_with("::initialise_here+0x2"), "{entry:?}");
        assert_eq!(warnings(std::slice::from_ref(entry)), Vec::<String>::new());
    }

    #[test]
    fn lock_without_symbols_has_no_entry() {
        assert_eq!(entries_of(&[(0x1000, 0, 0)], &[0]), []);
        assert_eq!(entries_of(&[(0x1000, 0x40, 0x40)], &[0]), []);
    }
}
