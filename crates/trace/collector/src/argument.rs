//! QEMU's arguments to a plug-in: `name=value`.

use std::ops::RangeInclusive;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument<'a> {
    /// Before the first `=`.
    pub name: &'a str,
    /// After it.
    pub value: &'a str,
}

impl<'a> Argument<'a> {
    /// Splits it; what is wrong with it otherwise.
    pub fn new(text: &'a str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').ok_or_else(|| format!("{text}: not of the form name=value"))?;
        Ok(Argument { name, value })
    }

    /// Its value as a number of this range; what is wrong with it otherwise.
    pub fn number(&self, range: RangeInclusive<u64>) -> Result<u64, String> {
        let Argument { name, value } = self;
        match value.parse() {
            Ok(number) if range.contains(&number) => Ok(number),
            _ => Err(format!("{name}={value}: not a number from {} to {}", range.start(), range.end())),
        }
    }
}
