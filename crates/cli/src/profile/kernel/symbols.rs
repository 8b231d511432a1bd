//! The running kernel's symbols, from `/proc/kallsyms`.

/// A symbol. It extends to the next one.
#[derive(Debug)]
struct Symbol {
    address: u64,
    name: String,
    kind: char,
}

/// All symbols.
#[derive(Debug, Default)]
pub struct Symbols {
    /// In the order of their addresses.
    all: Vec<Symbol>,
    /// Whether they include the kernel's variables (CONFIG_KALLSYMS_ALL). Without them, only the
    /// marks of sections are data.
    has_variables: bool,
}

impl Symbols {
    /// Reads the symbols. Empty if the kernel hides their addresses from this command.
    pub fn read() -> Self {
        Self::parse(&std::fs::read_to_string("/proc/kallsyms").unwrap_or_default())
    }

    pub fn parse(lines: &str) -> Self {
        let mut all: Vec<Symbol> = lines.lines().filter_map(symbol).collect();
        all.sort_by_key(|symbol| symbol.address);
        let has_variables = all.iter().any(|symbol| matches!(symbol.kind, 'd' | 'b'));
        Symbols { all, has_variables }
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    fn at(&self, address: u64) -> Option<&Symbol> {
        let after = self.all.partition_point(|symbol| symbol.address <= address);
        // Behind the last symbol there may be anything.
        let is_inside = after < self.all.len();
        after.checked_sub(1).map(|index| &self.all[index]).filter(|_| is_inside)
    }

    /// The function with this instruction, and the distance from its start.
    pub fn function(&self, address: u64) -> Option<(&str, u64)> {
        let symbol =
            self.at(address).filter(|symbol| matches!(symbol.kind, 'T' | 't' | 'W' | 'w'))?;
        Some((&symbol.name, address - symbol.address))
    }

    /// The static variable at an address.
    pub fn variable(&self, address: u64) -> Option<&str> {
        let is_data = |symbol: &&Symbol| matches!(symbol.kind, 'D' | 'd' | 'B' | 'b' | 'R' | 'r');
        let symbol = self.at(address).filter(is_data).filter(|_| self.has_variables)?;
        Some(&symbol.name)
    }
}

/// Parses a line: address, type, name, and the module in brackets.
fn symbol(line: &str) -> Option<Symbol> {
    let mut fields = line.split_whitespace();
    // Per-processor variables have small addresses, which are offsets.
    const LOWEST: u64 = 1 << 63;
    let address = u64::from_str_radix(fields.next()?, 16).ok()?;
    let kind = fields.next()?.chars().next()?;
    let name = fields.next()?;
    let name = match fields.next() {
        Some(module) => format!("{name} {module}"),
        None => name.to_string(),
    };
    (address >= LOWEST).then_some(Symbol { address, name, kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "\
0000000000000000 A fixed_percpu_data
ffffffff81000000 T _text
ffffffff81000100 t do_unlinkat
ffffffff82000000 d tasklist_lock
ffffffff82000040 B jiffies_lock
ffffffffc0000000 t ext4_create\t[ext4]
ffffffffc0000100 b ext4_stats [ext4]
";

    #[test]
    fn address_has_name_of_symbol_before_it() {
        let symbols = Symbols::parse(LINES);
        assert_eq!(symbols.function(0xffff_ffff_8100_0123), Some(("do_unlinkat", 0x23)));
        assert_eq!(symbols.function(0xffff_ffff_c000_0001), Some(("ext4_create [ext4]", 1)));
        assert_eq!(symbols.variable(0xffff_ffff_8200_0008), Some("tasklist_lock"));
        assert_eq!(symbols.variable(0xffff_ffff_8100_0123), None);
        assert_eq!(symbols.function(0xffff_ffff_8200_0008), None);
        assert_eq!(symbols.variable(0xffff_ffff_c000_0108), None);
        assert_eq!(symbols.variable(0x10), None);
    }

    #[test]
    fn marks_of_sections_name_no_lock() {
        let marks = "ffffffff81000000 T f\nffffffff82000000 D __start_data\nffffffff83000000 T g\n";
        assert_eq!(Symbols::parse(marks).variable(0xffff_ffff_8200_0040), None);
    }

    #[test]
    fn hidden_addresses_are_no_symbols() {
        assert!(Symbols::parse("0000000000000000 T _text\n").is_empty());
    }
}
