//! One way to run the program: which locks, by the names of `--locks`.

use std::fmt;

use serde::{Serialize, Serializer};
use unconvoy::catalogue::{Availability, CONTENTION, Entry, LOAD, availability};

/// One way to run the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configuration {
    /// As the user wrote it.
    pub name: String,
    /// The lock, or libc's own.
    pub lock: Option<(&'static str, &'static str)>,
    /// Whether threads that wait too much run on a special set of cores.
    pub has_special_set: bool,
}

/// What asks for a special set of cores, after a lock; and what asked for it before.
const CONFINED: [&str; 2] = ["+confine", "+ssc"];

impl Configuration {
    /// Reads `libc`, `default`, `LOCK` or `LOCK+LOAD`, each but the first with `+confine` behind it or without.
    ///
    /// # Errors
    ///
    /// An unknown name, with the list of what there is; a lock that cannot run here.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (named_lock, has_special_set) = match CONFINED.iter().find_map(|suffix| text.strip_suffix(suffix)) {
            Some("libc") => return Err("a special set of cores is unconvoy's, and libc is without it".to_string()),
            Some(before) => (before, true),
            None => (text, false),
        };
        let lock = match named_lock {
            "libc" => None,
            "default" => Some((CONTENTION[0].name, LOAD[0].name)),
            _ => {
                let (lock, load) = named_lock.split_once('+').unwrap_or((named_lock, LOAD[0].name));
                let Some(lock) = named(CONTENTION, lock) else {
                    return Err(format!("unknown lock '{lock}'\n{}", what_there_is()));
                };
                let Some(load) = named(LOAD, load) else {
                    return Err(format!("unknown load manager '{load}'\n{}", what_there_is()));
                };
                // The interposer would run the default instead, and it would be measured under this name.
                if let Availability::Refused(reason) = availability(lock) {
                    return Err(format!("'{lock}' is not available here: {reason}"));
                }
                Some((lock, load))
            }
        };
        Ok(Self { name: text.to_string(), lock, has_special_set })
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

fn what_there_is() -> String {
    let names = |entries: &[Entry]| entries.iter().map(|e| e.name).collect::<Vec<_>>().join(", ");
    format!(
        "  configurations: libc, default, LOCK, LOCK+LOAD; all but libc with +confine for a special set of cores\n  locks: {}\n  load managers: {}",
        names(CONTENTION),
        names(LOAD)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations() {
        let lock = |text| Configuration::parse(text).unwrap().lock;
        assert_eq!(lock("libc"), None);
        assert_eq!(lock("default"), Some((CONTENTION[0].name, LOAD[0].name)));
        assert_eq!(lock("mcs"), Some(("mcs", LOAD[0].name)));
        assert_eq!(lock("tpmcs+none"), Some(("tpmcs", "none")));
        assert_eq!(lock("mcs+confine"), lock("mcs"));
        assert_eq!(lock("mcs+ssc"), lock("mcs"));
        let has_special_set = |text| Configuration::parse(text).unwrap().has_special_set;
        assert!(has_special_set("default+confine") && has_special_set("mcs+none+ssc") && !has_special_set("mcs+none"));
        assert!(Configuration::parse("libc+confine").unwrap_err().contains("without it"));
        for wrong in ["", "mcs+", "+none", "+confine", "nosuch", "mcs+nosuch", "libc+none"] {
            let error = Configuration::parse(wrong).unwrap_err();
            assert!(error.contains("tpmcs") && error.contains("yield"), "{wrong}: {error}");
        }
    }
}
