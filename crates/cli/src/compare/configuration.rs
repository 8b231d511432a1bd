//! One way to run the program: a value of `--locks`.

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;

use serde::{Serialize, Serializer};
use unconvoy::catalogue::{Availability, CONTENTION, Entry, LOAD, availability};

use crate::messages::compare as messages;
use crate::paragraph::commented;
use crate::refusal::Refusal;
use crate::strategy::{Settings, Strategy};

/// One way to run the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configuration {
    /// As the user wrote it.
    pub name: String,
    /// Lock and load manager, or `None` for libc's locks.
    pub lock: Option<(&'static str, &'static str)>,
    /// Whether threads that wait too much run on a special set of cores.
    pub has_special_set: bool,
    /// The strategy file that the user named.
    strategy: Option<Strategy>,
    /// The strategy's settings for the program.
    pub settings: Settings,
}

/// End of the name of a strategy file.
const STRATEGY: &str = ".toml";

/// Suffixes that ask for a special set of cores: the current and the former one.
const CONFINED: [&str; 2] = ["+confine", "+ssc"];

impl Configuration {
    /// Parses `libc`, `default`, `LOCK` or `LOCK+LOAD`, which except for `libc` accept `+confine`,
    /// or the path of a strategy file, which is read.
    ///
    /// # Errors
    ///
    /// An unknown name, with the list of valid ones; a lock that this machine cannot run; a wrong
    /// strategy file.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.ends_with(STRATEGY) {
            let strategy = Strategy::read(Path::new(text)).map_err(|refusal| refusal.message)?;
            return Ok(Self::of_strategy(text, strategy));
        }
        let (named_lock, has_special_set) =
            match CONFINED.iter().find_map(|suffix| text.strip_suffix(suffix)) {
                Some("libc") => {
                    return Err(messages::libc_has_no_special_set().to_string());
                }
                Some(before) => (before, true),
                None => (text, false),
            };
        let lock = match named_lock {
            "libc" => None,
            "default" => Some((CONTENTION[0].name, LOAD[0].name)),
            _ => {
                let (lock, load) = named_lock.split_once('+').unwrap_or((named_lock, LOAD[0].name));
                if lock == "default" {
                    return Err(messages::default_is_a_pair(CONTENTION[0].name, load));
                }
                let Some(lock) = named(CONTENTION, lock) else {
                    return Err(messages::unknown_lock(lock, &known_names()));
                };
                let Some(load) = named(LOAD, load) else {
                    return Err(messages::unknown_load_manager(load, &known_names()));
                };
                // The interposer would fall back to the default, and its results would appear
                // under this name.
                if let Availability::Refused(reason) = availability(lock) {
                    return Err(messages::lock_not_available(lock, reason));
                }
                Some((lock, load))
            }
        };
        Ok(Self::of(text, lock, has_special_set))
    }

    /// A strategy under this name.
    pub fn of_strategy(name: &str, strategy: Strategy) -> Self {
        let lock = Some((CONTENTION[0].name, LOAD[0].name));
        Self { strategy: Some(strategy), ..Self::of(name, lock, false) }
    }

    fn of(text: &str, lock: Option<(&'static str, &'static str)>, has_special_set: bool) -> Self {
        let name = text.to_string();
        Self { name, lock, has_special_set, strategy: None, settings: Settings::new() }
    }

    /// Looks a strategy's names up in `program`. Returns what of the strategy has no effect.
    ///
    /// # Errors
    ///
    /// As [`Strategy::settings_for`].
    pub fn resolve(&mut self, program: &OsStr) -> Result<Vec<String>, Refusal> {
        let Some(strategy) = &self.strategy else { return Ok(Vec::new()) };
        let (settings, warnings) = strategy.settings_for(program)?;
        self.settings = settings;
        Ok(warnings)
    }
}

impl Serialize for Configuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name)
    }
}

impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

fn named(entries: &'static [Entry], name: &str) -> Option<&'static str> {
    entries.iter().map(|entry| entry.name).find(|known| *known == name)
}

fn known_names() -> String {
    let names = |entries: &[Entry]| entries.iter().map(|e| e.name).collect::<Vec<_>>().join(", ");
    let paragraphs = [
        "configurations: libc, default, LOCK, LOCK+LOAD, or a strategy file (*.toml); a LOCK \
         takes +confine, for a special set of cores"
            .to_string(),
        format!("locks: {}", names(CONTENTION)),
        format!("load managers: {}", names(LOAD)),
    ];
    let lines: String = paragraphs.iter().map(|text| commented("  ", text)).collect();
    lines.trim_end().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paragraph::COLUMNS;

    #[test]
    fn configuration_parses_known_names_only() {
        let lock = |text| Configuration::parse(text).unwrap().lock;
        assert_eq!(lock("libc"), None);
        assert_eq!(lock("default"), Some((CONTENTION[0].name, LOAD[0].name)));
        assert_eq!(lock("mcs"), Some(("mcs", LOAD[0].name)));
        assert_eq!(lock("tpmcs+none"), Some(("tpmcs", "none")));
        assert_eq!(lock("mcs+confine"), lock("mcs"));
        assert_eq!(lock("mcs+ssc"), lock("mcs"));
        let has_special_set = |text| Configuration::parse(text).unwrap().has_special_set;
        assert!(
            has_special_set("default+confine")
                && has_special_set("mcs+none+ssc")
                && !has_special_set("mcs+none")
        );
        assert!(Configuration::parse("libc+confine").unwrap_err().contains("no special set"));
        for wrong in ["", "mcs+", "+none", "+confine", "nosuch", "mcs+nosuch", "libc+none"] {
            let error = Configuration::parse(wrong).unwrap_err();
            assert!(error.contains("tpmcs") && error.contains("yield"), "{wrong}: {error}");
            assert!(error.lines().all(|line| line.len() <= COLUMNS), "{wrong}: {error}");
        }
    }
}
