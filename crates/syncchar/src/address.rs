//! Addresses in JSON, as hexadecimal text. Readers that store numbers as floating point cannot
//! represent kernel addresses exactly.

use serde::{Deserialize, Deserializer, Serializer, de::Error};

pub fn serialize<S: Serializer>(address: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{address:#x}"))
}

pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    parse(&String::deserialize(from)?)
}

fn parse<E: Error>(text: &str) -> Result<u64, E> {
    let digits = text.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    digits.ok_or_else(|| E::custom(format_args!("{text}: expected a hexadecimal address with 0x")))
}

/// A map from addresses to names.
pub mod names {
    use super::parse;
    use serde::{Deserialize, Deserializer, Serializer};
    use std::collections::BTreeMap;

    pub fn serialize<S: Serializer>(
        names: &BTreeMap<u64, String>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_map(names.iter().map(|(address, name)| (format!("{address:#x}"), name)))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<u64, String>, D::Error> {
        let names = BTreeMap::<String, String>::deserialize(from)?;
        names.into_iter().map(|(address, name)| Ok((parse(&address)?, name))).collect()
    }
}
