//! Source of a program's locks: libc, or unconvoy by name.

use std::str::FromStr;

use serde::Serialize;
use unconvoy::catalogue::{Availability, CONTENTION, Entry, LOAD, POLICY, SENSOR, availability};

use unconvoy::catalogue::environment;
use unconvoy::load::rules::ABLATIONS;

use crate::messages;

/// A contention manager and a load manager, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Pair {
    /// `UNCONVOY_LOCK`.
    pub lock: &'static str,
    /// `UNCONVOY_LOAD`.
    pub load: &'static str,
}

impl Pair {
    /// Returns the user's notation: `LOCK+LOAD`.
    pub fn name(self) -> String {
        format!("{}+{}", self.lock, self.load)
    }
}

impl FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (lock, load) = text.split_once('+').ok_or_else(|| {
            messages::not_a_pair(&format!("{}+{}", CONTENTION[1].name, LOAD[0].name))
        })?;
        let pair = Self { lock: find(lock, CONTENTION)?, load: find(load, LOAD)? };
        usable(pair.lock)
            .map(|()| pair)
            .map_err(|reason| messages::lock_not_available(lock, reason))
    }
}

/// Checks that this machine can run `lock`; the error is the reason.
fn usable(lock: &str) -> Result<(), &'static str> {
    match availability(lock) {
        Availability::Refused(reason) => Err(reason),
        _ => Ok(()),
    }
}

/// Checks that `lock` works without reductions on this machine; the error is the reason.
fn entire(lock: &str) -> Result<(), &'static str> {
    match availability(lock) {
        Availability::Full => Ok(()),
        Availability::Reduced(reason) | Availability::Refused(reason) => Err(reason),
    }
}

fn find(name: &str, entries: &'static [Entry]) -> Result<&'static str, String> {
    let names = || entries.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ");
    let found = entries.iter().find(|entry| entry.name == name);
    found.map(|entry| entry.name).ok_or_else(|| messages::unknown_name(name, &names()))
}

/// A control policy or sensor instead of the default's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Tuning {
    /// Variable of the interposer.
    pub variable: &'static str,
    /// Name in the catalogue.
    pub value: &'static str,
}

impl FromStr for Tuning {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // `fixed:N` needs a number, and `bpf` needs `unconvoy run`.
        let sensors = || {
            SENSOR.iter().filter(|entry| !entry.name.starts_with("fixed") && entry.name != "bpf")
        };
        let policies = POLICY
            .iter()
            .map(|entry| Self { variable: environment::CONTROL_POLICY.name, value: entry.name });
        let tunings = policies.chain(
            sensors()
                .map(|entry| Self { variable: environment::LOAD_SENSOR.name, value: entry.name }),
        );
        let rules =
            ABLATIONS.iter().map(|&(value, _)| Self { variable: environment::RULES.name, value });
        let tunings = tunings.chain(rules);
        let names = || tunings.clone().map(|tuning| tuning.value).collect::<Vec<_>>().join(", ");
        tunings
            .clone()
            .find(|tuning| tuning.value == text)
            .ok_or_else(|| messages::unknown_name(text, &names()))
    }
}

/// Source of a program's locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Setup {
    /// The C library.
    Libc,
    /// The interposer with its default lock.
    Default,
    /// The interposer's default lock with another policy or sensor.
    Tuned(Tuning),
    /// The interposer with a lock by name.
    Named(Pair),
}

impl Setup {
    /// Returns the name: `libc`, `default`, `default@POLICY`, `default@SENSOR` or `LOCK+LOAD`.
    pub fn name(self) -> String {
        match self {
            Self::Libc => "libc".to_string(),
            Self::Default => "default".to_string(),
            Self::Tuned(tuning) => format!("default@{}", tuning.value),
            Self::Named(pair) => pair.name(),
        }
    }

    /// Returns how the interposer's line on standard error begins if a lock has reduced function.
    pub fn notice(self) -> Option<String> {
        let Self::Named(pair) = self else { return None };
        match availability(pair.lock) {
            Availability::Reduced(reason) => Some(format!("unconvoy: {}: {reason}", pair.lock)),
            _ => None,
        }
    }
}

/// One element of the list of `--locks`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// Every pair of the catalogue that works without reductions on this machine.
    All,
    /// libc's normal mutex.
    Libc,
    /// libc's adaptive mutex, for which the program has an option.
    LibcAdaptive,
    /// unconvoy's default.
    Default,
    /// The default with another policy or sensor.
    Tuned(Tuning),
    /// A pair by name.
    Named(Pair),
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(tuning) = text.strip_prefix("default@") {
            return tuning.parse().map(Self::Tuned);
        }
        match text {
            "all" => Ok(Self::All),
            "libc" => Ok(Self::Libc),
            "libc-adaptive" => Ok(Self::LibcAdaptive),
            "default" => Ok(Self::Default),
            _ => text.parse().map(Self::Named).map_err(|error| messages::unknown_choice(&error)),
        }
    }
}

/// One row of a table: locks, and the kind of mutex in the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configuration {
    /// Name in the user's notation.
    pub name: String,
    /// Source of the locks.
    pub setup: Setup,
    /// Whether the program uses libc's adaptive mutex.
    pub is_adaptive: bool,
}

/// Returns the rows for some choices without duplicates, always with libc and the default, and
/// remarks about locks that are left out or reduced.
///
/// `has_kind` says whether the program has an option for the adaptive mutex. Without that option
/// the row is rejected if named, and otherwise absent.
///
/// # Errors
///
/// A choice that the program does not support.
pub fn configurations(
    choices: &[Choice],
    has_kind: bool,
) -> Result<(Vec<Configuration>, Vec<String>), String> {
    let row = |name: String, setup, is_adaptive| Configuration { name, setup, is_adaptive };
    let of_setup = |setup: Setup| row(setup.name(), setup, false);
    let mut rows = vec![of_setup(Setup::Libc)];
    if has_kind {
        rows.push(row("libc-adaptive".to_string(), Setup::Libc, true));
    }
    rows.push(of_setup(Setup::Default));
    let mut left_out = Vec::new();
    for choice in choices {
        match *choice {
            Choice::Libc | Choice::Default => {}
            Choice::LibcAdaptive if has_kind => {}
            Choice::LibcAdaptive => {
                return Err(messages::no_option_for_kind().to_string());
            }
            Choice::Tuned(tuning) => rows.push(of_setup(Setup::Tuned(tuning))),
            Choice::Named(pair) => {
                left_out.extend(
                    entire(pair.lock).err().map(|why| messages::lock_reduced(pair.lock, why)),
                );
                rows.push(of_setup(Setup::Named(pair)));
            }
            Choice::All => {
                let (pairs, unavailable) = every_pair(entire);
                rows.extend(pairs.into_iter().map(|pair| of_setup(Setup::Named(pair))));
                left_out.extend(unavailable);
            }
        }
    }
    left_out.dedup();
    let mut seen = Vec::new();
    rows.retain(|row| {
        !seen.contains(&row.name) && {
            seen.push(row.name.clone());
            true
        }
    });
    Ok((rows, left_out))
}

/// Returns all pairs of names that `available` accepts, and a remark with the reason for each
/// rejected name.
fn every_pair(available: impl Fn(&str) -> Result<(), &'static str>) -> (Vec<Pair>, Vec<String>) {
    let mut left_out = Vec::new();
    let mut names = |entries: &'static [Entry]| -> Vec<&'static str> {
        let names = entries.iter().map(|entry| entry.name);
        names
            .filter(|name| match available(name) {
                Ok(()) => true,
                Err(why) => {
                    left_out.push(messages::lock_skipped(name, why));
                    false
                }
            })
            .collect()
    };
    let (locks, loads) = (names(CONTENTION), names(LOAD));
    let pairs =
        locks.iter().flat_map(|&lock| loads.iter().map(move |&load| Pair { lock, load })).collect();
    (pairs, left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pair_parses_catalogue_names_only() {
        assert_eq!("tpmcs+control".parse::<Pair>().map(Pair::name).as_deref(), Ok("tpmcs+control"));
        assert!("tpmcs".parse::<Pair>().is_err_and(|error| error.contains("LOCK+LOAD")));
        assert!("nosuch+none".parse::<Pair>().is_err_and(|error| error.contains("ticket")));
        assert!("mcs+nosuch".parse::<Pair>().is_err_and(|error| error.contains("yield")));
    }

    #[test]
    fn all_is_the_cross_product_without_duplicates() {
        let choices: Vec<Choice> =
            ["all", "tpmcs+none", "default"].map(|text| text.parse().expect("a choice")).to_vec();
        let (rows, left_out) = configurations(&choices, true).expect("a program with --kind");
        let locks = CONTENTION.iter().filter(|entry| entire(entry.name).is_ok()).count();
        assert_eq!(rows.len(), 3 + locks * LOAD.len());
        assert_eq!(left_out.len(), CONTENTION.len() - locks);
        assert_eq!(rows.iter().filter(|row| row.name == "tpmcs+none").count(), 1);
        assert!(
            configurations(&[Choice::LibcAdaptive], false)
                .is_err_and(|error| error.contains("kind"))
        );
        assert!("nosuch".parse::<Choice>().is_err_and(|error| error.contains("libc-adaptive")));
    }

    #[test]
    fn default_accepts_policies_and_sensors() {
        let tuned = |text: &str| match text.parse() {
            Ok(Choice::Tuned(tuning)) => (Setup::Tuned(tuning).name(), tuning.variable),
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(
            tuned("default@pid"),
            ("default@pid".to_string(), environment::CONTROL_POLICY.name)
        );
        assert_eq!(
            tuned("default@without-grace"),
            ("default@without-grace".to_string(), environment::RULES.name)
        );
        assert_eq!(
            tuned("default@psi"),
            ("default@psi".to_string(), environment::LOAD_SENSOR.name)
        );
        assert!("default@nosuch".parse::<Choice>().is_err_and(|error| error.contains("kalman")));
        assert!("default@bpf".parse::<Choice>().is_err(), "needs `unconvoy run`");
    }

    #[test]
    fn unavailable_lock_is_skipped_with_reason() {
        let lacking = |name: &str| if name == "mcs" { Err("no such processor") } else { Ok(()) };
        let (pairs, left_out) = every_pair(lacking);
        assert_eq!(pairs.len(), (CONTENTION.len() - 1) * LOAD.len());
        assert_eq!(left_out, ["mcs skipped: no such processor"]);
    }
}
