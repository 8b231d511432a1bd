//! Which locks a program gets: libc's, or unconvoy's by name.

use std::str::FromStr;

use serde::Serialize;
use unconvoy::catalogue::{CONTENTION, Entry, LOAD};

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
        Ok(Self { lock: find(lock, CONTENTION)?, load: find(load, LOAD)? })
    }
}

fn find(name: &str, entries: &'static [Entry]) -> Result<&'static str, String> {
    let names = || entries.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ");
    let found = entries.iter().find(|entry| entry.name == name);
    found.map(|entry| entry.name).ok_or_else(|| format!("{name} is none of {}", names()))
}

/// Where a program's locks come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Setup {
    /// The C library.
    Libc,
    /// The interposer, with nothing said about which lock.
    Default,
    /// The interposer, with a lock by name.
    Named(Pair),
}

impl Setup {
    /// `libc`, `default` or `LOCK+LOAD`.
    pub fn name(self) -> String {
        match self {
            Self::Libc => "libc".to_string(),
            Self::Default => "default".to_string(),
            Self::Named(pair) => pair.name(),
        }
    }
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
}
