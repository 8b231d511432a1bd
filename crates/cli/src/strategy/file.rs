//! The strategy file: TOML, with a version. Every error names the file, the line and the key.

use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use unconvoy::catalogue::environment::{self, Values, Variable};
use unconvoy::catalogue::strategy::{SPIN_US, split_load};
use unconvoy::catalogue::{CONTENTION, Entry as Named, LOAD};
use unconvoy::runtime::sensor::choice::Choice as Sensor;

use super::name::Name;
use crate::messages::strategy as messages;

/// The version of the format that this command reads.
const VERSION: &str = "1";

/// The name of libc's locks.
const LIBC: &str = "libc";
/// The name of the default lock and of the default load manager.
const DEFAULT: &str = "default";

/// The locks that can serve a reader-writer lock, besides libc's.
const FOR_RWLOCKS: [&str; 2] = ["loiter", "elided"];

/// No name is longer, and the pattern of a longer one would be too large.
const LONGEST_TEXT: usize = 4096;

/// The keys of `[process]`, and the variables that they set.
const PROCESS: [(&str, Variable); 10] = [
    ("lock", environment::LOCK),
    ("load", environment::LOAD_MANAGER),
    ("sensor", environment::LOAD_SENSOR),
    ("interval-ms", environment::INTERVAL),
    ("sleep-timeout-ms", environment::SLEEP),
    ("policy", environment::CONTROL_POLICY),
    ("backoff-ms", environment::BACKOFF),
    ("nested", environment::NESTED),
    ("confine", environment::SPECIAL_SET),
    ("children", environment::CHILDREN),
];

/// The keys of `[[lock]]`.
const KEYS: [&str; 8] =
    ["symbol", "initialised", "first-taken", "object", "build-id", "kind", "lock", "load"];

/// The environment of a program under a strategy: variables and their values.
pub type Settings = Vec<(&'static str, String)>;

/// A strategy file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strategy {
    pub path: PathBuf,
    /// What `[process]` sets.
    pub settings: Settings,
    /// Whether libc serves the locks that no entry names.
    pub default_is_libc: bool,
    pub entries: Vec<Entry>,
}

/// One `[[lock]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub line: usize,
    pub place: Place,
    pub name: Name,
    /// Path or pattern of file names; `None` for the program and its libraries.
    object: Option<String>,
    pub build_id: Option<String>,
    /// Restricts the entry to one type of lock.
    pub kind: Option<Kind>,
    pub chosen: Chosen,
    /// File, line and key of the choice, for messages.
    pub lock_at: String,
}

/// What an entry's name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A static lock, or a variable that contains locks.
    Symbol,
    /// A function that initialises locks.
    Initialised,
    /// A function that takes locks for the first time.
    FirstTaken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Mutex,
    RwLock,
}

/// Who serves the locks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chosen {
    Libc,
    /// A lock and a load manager, perhaps with a [spinning time](split_load).
    Pair(&'static str, String),
}

impl Place {
    pub const ALL: [Place; 3] = [Place::Symbol, Place::Initialised, Place::FirstTaken];

    pub fn key(self) -> &'static str {
        match self {
            Place::Symbol => "symbol",
            Place::Initialised => "initialised",
            Place::FirstTaken => "first-taken",
        }
    }

    /// What the name stands for.
    pub fn noun(self) -> &'static str {
        match self {
            Place::Symbol => "variable",
            Place::Initialised | Place::FirstTaken => "function",
        }
    }
}

impl Entry {
    /// Whether the entry is about a file.
    pub fn is_in(&self, file: &Path) -> bool {
        let Some(object) = &self.object else { return true };
        let file_name = file.file_name().unwrap_or_default().to_string_lossy();
        if object.contains('/') {
            let object = Path::new(object);
            return object.canonicalize().unwrap_or(object.to_path_buf()) == file;
        }
        Name::new(object).matches(&file_name)
    }

    /// File, line and key of the name, for messages.
    pub fn place_at(&self, path: &Path) -> String {
        messages::position(path, self.line, self.place.key())
    }

    /// Whether two entries have the same name.
    fn names_the_same(&self, other: &Self) -> bool {
        let kinds_overlap = self.kind.is_none() || other.kind.is_none() || self.kind == other.kind;
        (self.place, &self.name, &self.object, &self.build_id)
            == (other.place, &other.name, &other.object, &other.build_id)
            && kinds_overlap
    }
}

impl Strategy {
    /// Parses a file's text. An empty file changes nothing.
    ///
    /// # Errors
    ///
    /// File, line, key and what is wrong.
    pub fn parse(path: &Path, text: &str) -> Result<Self, String> {
        let source = Source { path, text };
        let document = DeTable::parse(text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start);
            messages::not_toml(path, source.line(start), error.message())
        })?;
        let mut strategy = Strategy {
            path: path.to_path_buf(),
            settings: Vec::new(),
            default_is_libc: false,
            entries: Vec::new(),
        };
        let table = document.get_ref();
        source.check_version(table)?;
        for (key, value) in table {
            match (key.get_ref().as_ref(), value.get_ref()) {
                ("version", _) => {}
                ("process", DeValue::Table(process)) => source.process(process, &mut strategy)?,
                ("lock", DeValue::Array(entries)) => {
                    for entry in entries.iter() {
                        let DeValue::Table(table) = entry.get_ref() else {
                            return Err(source.at(
                                entry.span().start,
                                "lock",
                                messages::no_table(),
                            ));
                        };
                        let entry = source.entry(table, entry.span().start)?;
                        source.compare_names(&strategy.entries, &entry)?;
                        strategy.entries.push(entry);
                    }
                }
                ("process", _) => {
                    return Err(source.at(value.span().start, "process", messages::no_table()));
                }
                ("lock", _) => {
                    return Err(source.at(value.span().start, "lock", messages::no_entries()));
                }
                (name, _) => {
                    let known = "version, process, lock";
                    return Err(source.at(key.span().start, name, &messages::unknown_key(known)));
                }
            }
        }
        Ok(strategy)
    }

    /// Whether single locks, or those that no entry names, have an algorithm of their own.
    pub fn has_choices(&self) -> bool {
        self.default_is_libc || !self.entries.is_empty()
    }

    /// The files that entries name by path.
    pub fn named_objects(&self) -> Vec<PathBuf> {
        let objects = self.entries.iter().filter_map(|entry| entry.object.as_ref());
        objects.filter(|object| object.contains('/')).map(PathBuf::from).collect()
    }
}

type Value<'a, 'i> = &'a Spanned<DeValue<'i>>;

/// The text of a file, for messages.
struct Source<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Source<'_> {
    fn line(&self, offset: usize) -> usize {
        1 + self.text[..offset.min(self.text.len())].matches('\n').count()
    }

    fn at(&self, offset: usize, key: &str, what: &str) -> String {
        format!("{}: {what}", messages::position(self.path, self.line(offset), key))
    }

    fn check_version(&self, table: &DeTable<'_>) -> Result<(), String> {
        let Some(version) = table.get("version") else {
            if table.is_empty() {
                return Ok(());
            }
            return Err(self.at(0, "version", &messages::no_version(VERSION)));
        };
        let found = match version.get_ref() {
            DeValue::Integer(number) => number.as_str().to_string(),
            other => other.as_str().map_or(other.type_str(), |text| text).to_string(),
        };
        let is_known = version.get_ref().is_integer() && found == VERSION;
        let wrong = || messages::other_version(&found, VERSION);
        is_known.then_some(()).ok_or_else(|| self.at(version.span().start, "version", &wrong()))
    }

    fn process(&self, table: &DeTable<'_>, strategy: &mut Strategy) -> Result<(), String> {
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            let Some((_, variable)) = PROCESS.iter().find(|(known, _)| *known == name) else {
                let known: Vec<_> = PROCESS.iter().map(|(known, _)| *known).collect();
                let wrong = messages::unknown_key(&known.join(", "));
                return Err(self.at(key.span().start, name, &wrong));
            };
            if name == "lock" && value.get_ref().as_str() == Some(LIBC) {
                strategy.default_is_libc = true;
                continue;
            }
            let text = self.setting(name, variable, value)?;
            strategy.settings.push((variable.name, text));
        }
        Ok(())
    }

    /// The value of a key of `[process]`, as its variable takes it.
    fn setting(
        &self,
        key: &str,
        variable: &Variable,
        value: Value<'_, '_>,
    ) -> Result<String, String> {
        let wrong = |what: &str| self.at(value.span().start, key, what);
        let number = match value.get_ref() {
            DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str()),
            DeValue::Float(number) => Some(number.as_str()),
            _ => None,
        };
        match &variable.values {
            // The sensor also takes `fixed:N`.
            _ if key == "sensor" => {
                let text = value.get_ref().as_str().filter(|text| Sensor::parse(text).is_some());
                let names = unconvoy::catalogue::SENSOR;
                text.map(String::from).ok_or_else(|| wrong(&messages::one_of(&listed(names))))
            }
            Values::Entry(entries) => {
                self.named(key, entries, value).map(|entry| entry.name.to_string())
            }
            Values::Milliseconds(range) => number
                .filter(|text| text.parse().is_ok_and(|ms: f64| range.contains(&ms)))
                .map(String::from)
                .ok_or_else(|| wrong(&messages::milliseconds(*range.start(), *range.end()))),
            Values::Switch => match value.get_ref().as_bool() {
                Some(is_on) => Ok(if is_on { "1" } else { "0" }.to_string()),
                None => Err(wrong(&messages::one_of("true, false"))),
            },
            _ => {
                let searches = ["refined", "published"];
                let text = value.get_ref().as_str().filter(|text| searches.contains(text));
                text.map(String::from).ok_or_else(|| wrong(&messages::one_of(&searches.join(", "))))
            }
        }
    }

    /// The entry of the catalogue that a value names.
    fn named(
        &self,
        key: &str,
        entries: &'static [Named],
        value: Value<'_, '_>,
    ) -> Result<Named, String> {
        let text = value.get_ref().as_str();
        if text == Some(DEFAULT) {
            return Ok(entries[0]);
        }
        entries.iter().copied().find(|entry| Some(entry.name) == text).ok_or_else(|| {
            let libc = if key == "lock" { "libc, " } else { "" };
            let known = format!("{libc}{DEFAULT}, {}", listed(entries));
            self.at(value.span().start, key, &messages::one_of(&known))
        })
    }

    /// The load manager of an entry, perhaps with a spinning time.
    fn load(&self, value: Value<'_, '_>) -> Result<String, String> {
        let text = value.get_ref().as_str().unwrap_or_default();
        if text.contains(':') && split_load(text).is_some() {
            return Ok(text.to_string());
        }
        let named = self.named("load", LOAD, value).map(|entry| entry.name.to_string());
        named.map_err(|wrong| wrong + &messages::or_spinning(SPIN_US))
    }

    fn entry(&self, table: &DeTable<'_>, start: usize) -> Result<Entry, String> {
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            if !KEYS.contains(&name) {
                let wrong = messages::unknown_key(&KEYS.join(", "));
                return Err(self.at(key.span().start, name, &wrong));
            }
            let text = value.get_ref().as_str().unwrap_or_default();
            if text.is_empty() {
                return Err(self.at(value.span().start, name, messages::no_text()));
            }
            if text.len() > LONGEST_TEXT {
                return Err(self.at(value.span().start, name, &messages::too_long(LONGEST_TEXT)));
            }
        }
        let text = |key: &str| table.get(key).and_then(|value| value.get_ref().as_str());
        let mut places = Place::ALL.into_iter().filter(|place| text(place.key()).is_some());
        let Some(place) = places.next() else {
            return Err(self.at(start, "lock", messages::no_name()));
        };
        if let Some(second) = places.next() {
            let offset = table[second.key()].span().start;
            return Err(self.at(offset, second.key(), &messages::two_names(place.key())));
        }
        let kind = match table.get("kind").map(|value| (value.span(), value.get_ref().as_str())) {
            None => None,
            Some((_, Some("mutex"))) => Some(Kind::Mutex),
            Some((_, Some("rwlock"))) => Some(Kind::RwLock),
            Some((span, _)) => return Err(self.at(span.start, "kind", messages::wrong_kind())),
        };
        let (chosen, lock_at) = self.choice(table, kind, start)?;
        let named = &table[place.key()];
        Ok(Entry {
            line: self.line(named.span().start),
            place,
            name: Name::new(named.get_ref().as_str().unwrap_or_default()),
            object: text("object").map(String::from),
            build_id: text("build-id").map(str::to_lowercase),
            kind,
            chosen,
            lock_at,
        })
    }

    /// Who serves an entry's locks, and where the entry says so.
    fn choice(
        &self,
        table: &DeTable<'_>,
        kind: Option<Kind>,
        start: usize,
    ) -> Result<(Chosen, String), String> {
        let (lock, load) = (table.get("lock"), table.get("load"));
        let key = if lock.is_some() { "lock" } else { "load" };
        let Some(chosen) = lock.or(load) else {
            return Err(self.at(start, "lock", messages::no_choice()));
        };
        let at = messages::position(self.path, self.line(chosen.span().start), key);
        let load_manager = match load {
            Some(value) => self.load(value)?,
            None => LOAD[0].name.to_string(),
        };
        if lock.is_some_and(|lock| lock.get_ref().as_str() == Some(LIBC)) {
            return match load {
                None => Ok((Chosen::Libc, at)),
                Some(value) => Err(self.at(value.span().start, "load", messages::load_of_libc())),
            };
        }
        let name = match lock {
            Some(value) => self.named("lock", CONTENTION, value)?.name,
            None => CONTENTION[0].name,
        };
        if kind == Some(Kind::RwLock) && !FOR_RWLOCKS.contains(&name) {
            return Err(format!("{at}: {}", messages::not_for_rwlocks()));
        }
        Ok((Chosen::Pair(name, load_manager), at))
    }

    /// Rejects an entry that contradicts an earlier one of the same name.
    fn compare_names(&self, earlier: &[Entry], entry: &Entry) -> Result<(), String> {
        let rival = earlier
            .iter()
            .find(|known| known.names_the_same(entry) && known.chosen != entry.chosen);
        match rival {
            Some(rival) => Err(messages::contradiction(&entry.place_at(self.path), rival.line)),
            None => Ok(()),
        }
    }
}

fn listed(entries: &[Named]) -> String {
    entries.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ")
}
