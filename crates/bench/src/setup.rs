//! Which locks a program gets: libc's, or unconvoy's by name.

use std::str::FromStr;

use serde::Serialize;
use unconvoy::catalogue::{Availability, CONTENTION, Entry, LOAD, POLICY, SENSOR, availability};

use unconvoy::catalogue::environment;

/// A contention manager and a load manager by their catalogue names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Pair {
    /// `UNCONVOY_LOCK`.
    pub lock: &'static str,
    /// `UNCONVOY_LOAD`.
    pub load: &'static str,
}

impl Pair {
    /// As a user writes it: `LOCK+LOAD`.
    pub fn name(self) -> String {
        format!("{}+{}", self.lock, self.load)
    }
}

impl FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (lock, load) = text
            .split_once('+')
            .ok_or_else(|| format!("expected LOCK+LOAD, such as {}+{}", CONTENTION[1].name, LOAD[0].name))?;
        let pair = Self { lock: find(lock, CONTENTION)?, load: find(load, LOAD)? };
        usable(pair.lock).map(|()| pair).map_err(|reason| format!("{lock} is not available here: {reason}"))
    }
}

/// Whether this machine can run `lock` at all; else why not.
fn usable(lock: &str) -> Result<(), &'static str> {
    match availability(lock) {
        Availability::Refused(reason) => Err(reason),
        _ => Ok(()),
    }
}

/// Whether `lock` is on this machine what it is made to be; else why not.
fn entire(lock: &str) -> Result<(), &'static str> {
    match availability(lock) {
        Availability::Full => Ok(()),
        Availability::Reduced(reason) | Availability::Refused(reason) => Err(reason),
    }
}

fn find(name: &str, entries: &'static [Entry]) -> Result<&'static str, String> {
    let names = || entries.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ");
    let found = entries.iter().find(|entry| entry.name == name);
    found.map(|entry| entry.name).ok_or_else(|| format!("{name} is none of {}", names()))
}

/// Another control policy or sensor than the default's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Tuning {
    /// The interposer's variable for it.
    pub variable: &'static str,
    /// Its catalogue name.
    pub value: &'static str,
}

impl FromStr for Tuning {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // `fixed:N` wants a number, and `bpf` what `unconvoy run` prepares before it starts the program.
        let sensors = || SENSOR.iter().filter(|entry| !entry.name.starts_with("fixed") && entry.name != "bpf");
        let policies =
            POLICY.iter().map(|entry| Self { variable: environment::CONTROL_POLICY.name, value: entry.name });
        let tunings =
            policies.chain(sensors().map(|entry| Self { variable: environment::LOAD_SENSOR.name, value: entry.name }));
        let names = || tunings.clone().map(|tuning| tuning.value).collect::<Vec<_>>().join(", ");
        tunings.clone().find(|tuning| tuning.value == text).ok_or_else(|| format!("{text} is none of {}", names()))
    }
}

/// Where a program's locks come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Setup {
    /// The C library.
    Libc,
    /// The interposer, with nothing said about which lock.
    Default,
    /// The interposer's default lock, with another policy or sensor.
    Tuned(Tuning),
    /// The interposer, with a lock by name.
    Named(Pair),
}

impl Setup {
    /// `libc`, `default`, `default@POLICY`, `default@SENSOR` or `LOCK+LOAD`.
    pub fn name(self) -> String {
        match self {
            Self::Libc => "libc".to_string(),
            Self::Default => "default".to_string(),
            Self::Tuned(tuning) => format!("default@{}", tuning.value),
            Self::Named(pair) => pair.name(),
        }
    }

    /// How the line begins that the interposer writes to standard error about a lock which runs without what sets it
    /// apart.
    pub fn notice(self) -> Option<String> {
        let Self::Named(pair) = self else { return None };
        match availability(pair.lock) {
            Availability::Reduced(reason) => Some(format!("unconvoy: {}: {reason}", pair.lock)),
            _ => None,
        }
    }
}

/// What a user may write between the commas of `--locks`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// Every pair of the catalogue that is on this machine what it is made to be.
    All,
    /// libc's normal mutex.
    Libc,
    /// libc's adaptive mutex, which a program asks for itself.
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
            _ => text.parse().map(Self::Named).map_err(|error| {
                format!("{error}; or libc, libc-adaptive, default, default@POLICY, default@SENSOR, all")
            }),
        }
    }
}

/// One row of a table: locks, and the kind of mutex that the program asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configuration {
    /// As a user writes it.
    pub name: String,
    /// Where the locks come from.
    pub setup: Setup,
    /// Whether the program asks for libc's adaptive mutex.
    pub is_adaptive: bool,
}

/// The rows that some choices ask for, each once, libc and the default always among them, and what was left out or is less than its name says, and why.
///
/// `has_kind`: the program can ask for an adaptive mutex. Unless it can, that row is refused if named, and not there otherwise.
///
/// # Errors
///
/// A choice that the program cannot serve.
pub fn configurations(choices: &[Choice], has_kind: bool) -> Result<(Vec<Configuration>, Vec<String>), String> {
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
                return Err("libc-adaptive: this program does not ask for a kind of mutex".to_string());
            }
            Choice::Tuned(tuning) => rows.push(of_setup(Setup::Tuned(tuning))),
            Choice::Named(pair) => {
                left_out
                    .extend(entire(pair.lock).err().map(|why| format!("{} runs as another lock: {why}", pair.lock)));
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

/// The cross product of the catalogue, but for halves that `available` refuses; these with its reason.
fn every_pair(available: impl Fn(&str) -> Result<(), &'static str>) -> (Vec<Pair>, Vec<String>) {
    let mut left_out = Vec::new();
    let mut names = |entries: &'static [Entry]| -> Vec<&'static str> {
        let names = entries.iter().map(|entry| entry.name);
        names
            .filter(|name| match available(name) {
                Ok(()) => true,
                Err(why) => {
                    left_out.push(format!("{name} is left out: {why}"));
                    false
                }
            })
            .collect()
    };
    let (locks, loads) = (names(CONTENTION), names(LOAD));
    let pairs = locks.iter().flat_map(|&lock| loads.iter().map(move |&load| Pair { lock, load })).collect();
    (pairs, left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_come_from_the_catalogue() {
        assert_eq!("tpmcs+control".parse::<Pair>().map(Pair::name).as_deref(), Ok("tpmcs+control"));
        assert!("tpmcs".parse::<Pair>().is_err_and(|error| error.contains("LOCK+LOAD")));
        assert!("nosuch+none".parse::<Pair>().is_err_and(|error| error.contains("ticket")));
        assert!("mcs+nosuch".parse::<Pair>().is_err_and(|error| error.contains("yield")));
    }

    #[test]
    fn all_is_the_cross_product_once() {
        let choices: Vec<Choice> =
            ["all", "tpmcs+none", "default"].map(|text| text.parse().expect("a choice")).to_vec();
        let (rows, left_out) = configurations(&choices, true).expect("a program with --kind");
        let locks = CONTENTION.iter().filter(|entry| entire(entry.name).is_ok()).count();
        assert_eq!(rows.len(), 3 + locks * LOAD.len());
        assert_eq!(left_out.len(), CONTENTION.len() - locks);
        assert_eq!(rows.iter().filter(|row| row.name == "tpmcs+none").count(), 1);
        assert!(configurations(&[Choice::LibcAdaptive], false).is_err_and(|error| error.contains("kind")));
        assert!("nosuch".parse::<Choice>().is_err_and(|error| error.contains("libc-adaptive")));
    }

    #[test]
    fn the_default_has_policies_and_sensors() {
        let tuned = |text: &str| match text.parse() {
            Ok(Choice::Tuned(tuning)) => (Setup::Tuned(tuning).name(), tuning.variable),
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(tuned("default@pid"), ("default@pid".to_string(), environment::CONTROL_POLICY.name));
        assert_eq!(tuned("default@psi"), ("default@psi".to_string(), environment::LOAD_SENSOR.name));
        assert!("default@nosuch".parse::<Choice>().is_err_and(|error| error.contains("kalman")));
        assert!("default@bpf".parse::<Choice>().is_err(), "needs `unconvoy run`");
    }

    #[test]
    fn what_the_machine_lacks_is_left_out_with_the_reason() {
        let lacking = |name: &str| if name == "mcs" { Err("no such processor") } else { Ok(()) };
        let (pairs, left_out) = every_pair(lacking);
        assert_eq!(pairs.len(), (CONTENTION.len() - 1) * LOAD.len());
        assert_eq!(left_out, ["mcs is left out: no such processor"]);
    }
}
