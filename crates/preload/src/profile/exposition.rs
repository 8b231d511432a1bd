//! Values in Prometheus's text format.

use core::fmt::{self, Write as _};

/// The byte that stands for `byte` in a label's value.
pub(super) fn printable(byte: u8) -> u8 {
    if matches!(byte, b' '..=b'~') { byte } else { b'?' }
}

/// A label's value, escaped as the format demands.
pub(super) struct Value<'a>(pub(super) &'a [u8]);

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &byte in self.0 {
            match printable(byte) {
                b'"' | b'\\' => write!(f, "\\{}", char::from(byte))?,
                shown => f.write_char(shown.into())?,
            }
        }
        Ok(())
    }
}

/// Nanoseconds as seconds.
pub(super) struct Seconds(pub(super) u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_escapes_quotes_and_hides_other_bytes() {
        assert_eq!(Value(b"a\"b\\c\n\xff").to_string(), "a\\\"b\\\\c??");
        assert_eq!(Seconds(1_500_000_001).to_string(), "1.500000001");
    }
}
