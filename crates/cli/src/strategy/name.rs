//! Names of variables and functions in a strategy file, and their match with symbols.

use regex::Regex;

use crate::images::readable;

/// A name, a name with an offset (`NAME+0x40`), or a pattern with `*` and `?`.
#[derive(Debug, Clone)]
pub struct Name {
    text: String,
    /// Matches the name without the offset.
    regex: Regex,
    /// Distance from the symbol's address, in bytes.
    pub offset: Option<u64>,
    is_pattern: bool,
}

/// Equal names match the same symbols.
impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Name {}

impl Name {
    pub fn new(text: &str) -> Self {
        let (name, offset) = match text.rsplit_once("+0x") {
            Some((name, offset)) => match u64::from_str_radix(offset, 16) {
                Ok(offset) => (name, Some(offset)),
                Err(_) => (text, None),
            },
            None => (text, None),
        };
        let escaped = regex::escape(name).replace(r"\*", ".*").replace(r"\?", ".");
        let regex = Regex::new(&format!("^(?:{escaped})$")).expect("an escaped text is valid");
        Name { text: text.to_string(), regex, offset, is_pattern: name.contains(['*', '?']) }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Of several names that match, the one with the highest rank applies.
    pub fn rank(&self) -> u8 {
        match (self.is_pattern, self.offset) {
            (true, None) => 0,
            (true, Some(_)) => 1,
            (false, None) => 2,
            (false, Some(_)) => 3,
        }
    }

    /// Whether this matches a symbol: as in the file, without a compiler's suffix (`f.cold`,
    /// `lock.0`), or demangled as in the reports.
    pub fn matches_symbol(&self, symbol: &str) -> bool {
        self.matches(symbol)
            || symbol
                .split_once('.')
                .is_some_and(|(stem, _)| !stem.is_empty() && self.matches(stem))
            || (symbol.starts_with("_Z") || symbol.starts_with("_R"))
                && self.matches(&readable(symbol))
    }

    /// Whether this matches a text.
    pub fn matches(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_matches_symbols_as_written_and_demangled() {
        assert!(Name::new("lock").matches_symbol("lock"));
        assert!(Name::new("lock").matches_symbol("lock.0"));
        assert!(!Name::new("lock").matches_symbol("lock2"));
        assert!(Name::new("Cache::Lookup").matches_symbol("_ZN5Cache6LookupEi"));
        assert!(Name::new("_ZN5Cache6LookupEi").matches_symbol("_ZN5Cache6LookupEi"));
        assert!(Name::new("Cache::*").matches_symbol("_ZN5Cache6LookupEi"));
        assert!(Name::new("table?").matches_symbol("table1"));
        assert!(!Name::new("a.c").matches_symbol("abc"));
    }

    #[test]
    fn exact_names_and_offsets_rank_above_patterns() {
        let rank = |text| Name::new(text).rank();
        assert!(rank("f+0x10") > rank("f") && rank("f") > rank("f*"));
        assert_eq!(Name::new("f+0x10").offset, Some(16));
        assert_eq!(Name::new("f+0xzz").offset, None);
    }
}
