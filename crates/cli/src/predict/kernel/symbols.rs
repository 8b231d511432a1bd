//! The kernel's symbols, from `/proc/kallsyms`.

use std::ops::Range;

/// The symbol types of code, as in nm; the others are data. For the kernel itself the types are not
/// reliable: `/proc/kallsyms` gives some data these types, too.
const CODE: &str = "tTwW";
/// Ranges of the kernel's own code, and the end of the kernel.
const KERNEL_CODE: [(&str, &str); 2] = [("_text", "_etext"), ("_sinittext", "_einittext")];
const KERNEL_END: &str = "_end";

/// Prefixes of symbols that the build generates beside the source's.
const ADDED: [&str; 6] = ["__pfx_", "__ksymtab_", "__kstrtab", "__crc_", "__flags_", "__pi_"];

/// Symbols that the plug-in needs.
const NECESSARY: [&str; 3] = ["_raw_spin_lock", "_raw_spin_unlock", "__x64_sys_sethostname"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    /// Start address.
    pub address: u64,
    /// Name, followed by the module's in brackets.
    pub name: String,
    /// Whether it is code.
    pub is_code: bool,
}

/// All symbols, by address.
#[derive(Debug, Default)]
pub struct Symbols {
    by_address: Vec<Symbol>,
    per_cpu: Range<u64>,
}

impl Symbols {
    /// Parses the symbols and ignores malformed lines.
    pub fn parse(text: &[u8]) -> Self {
        let mut by_address: Vec<Symbol> = String::from_utf8_lossy(text)
            .lines()
            .filter_map(symbol)
            .filter(|symbol| symbol.address != 0)
            .collect();
        // The shortest of several symbols at one address is usually the source's. The sort is
        // stable, so that reports are reproducible.
        by_address.sort_by_key(|symbol| (symbol.address, symbol.name.len()));
        let mut symbols = Self { by_address, per_cpu: 0..0 };
        let end = symbols.address("__per_cpu_end").unwrap_or(0);
        symbols.per_cpu = symbols.address("__per_cpu_start").unwrap_or(0)..end;
        let ranges: Vec<_> = KERNEL_CODE
            .iter()
            .filter_map(|(first, end)| Some(symbols.address(first)?..symbols.address(end)?))
            .collect();
        if let (Some(end), false) = (symbols.address(KERNEL_END), ranges.is_empty()) {
            for symbol in symbols.by_address.iter_mut().take_while(|symbol| symbol.address < end) {
                symbol.is_code = ranges.iter().any(|range| range.contains(&symbol.address));
            }
        }
        symbols
    }

    /// Returns the symbols that the plug-in needs and the kernel lacks.
    pub fn missing(&self) -> Vec<&'static str> {
        NECESSARY.into_iter().filter(|name| self.address(name).is_none()).collect()
    }

    /// Returns a symbol's address.
    pub fn address(&self, name: &str) -> Option<u64> {
        self.by_address.iter().find(|symbol| symbol.name == name).map(|symbol| symbol.address)
    }

    /// The range of the per-CPU variables; empty if it is not known. Before Linux 6.15 it begins at
    /// 0 on x86-64.
    pub fn per_cpu(&self) -> Range<u64> {
        self.per_cpu.clone()
    }

    /// Returns the symbol that contains an address, and the offset in it.
    pub fn at(&self, address: u64) -> Option<(&Symbol, u64)> {
        let after = self.by_address.partition_point(|symbol| symbol.address <= address);
        // Per-CPU variables at low addresses contain nothing of the kernel's half.
        let is_in_half = |symbol: &&Symbol| symbol.address >> 63 == address >> 63;
        let last = self.by_address[..after].last().filter(is_in_half)?;
        // The first symbol at that address.
        let first = self.by_address.partition_point(|symbol| symbol.address < last.address);
        // The last symbol has no end, and a module's memory may lie far above the kernel's.
        self.by_address.get(after)?;
        let symbol = &self.by_address[first];
        Some((symbol, address - symbol.address))
    }

    /// Returns the distance from an address to the next symbol.
    pub fn room(&self, address: u64) -> Option<u64> {
        let after = self.by_address.partition_point(|symbol| symbol.address <= address);
        Some(self.by_address.get(after)?.address - address)
    }

    /// Returns an instruction's function and offset, as `name+0x1c`.
    pub fn place(&self, pc: u64) -> Option<String> {
        let (symbol, offset) = self.at(pc).filter(|(symbol, _)| symbol.is_code)?;
        Some(format!("{}+{offset:#x}", symbol.name))
    }

    /// Returns an instruction's function. A part that the compiler split off has the name of the
    /// original.
    pub fn function(&self, pc: u64) -> Option<&str> {
        let (symbol, _) = self.at(pc).filter(|(symbol, _)| symbol.is_code)?;
        Some(symbol.name.split('.').next().unwrap_or(&symbol.name))
    }
}

fn symbol(line: &str) -> Option<Symbol> {
    let mut words = line.split_whitespace();
    let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
    let address = u64::from_str_radix(address, 16).ok()?;
    if ADDED.iter().any(|added| name.starts_with(added)) {
        return None;
    }
    let name = words.next().map_or_else(|| name.to_string(), |module| format!("{name} {module}"));
    Some(Symbol { address, name, is_code: CODE.contains(kind) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"\
0000000000000000 A fixed_percpu_data
ffffffff81000000 T _stext_of_all
ffffffff81000000 T _text
ffffffff81000100 t __pfx_take
ffffffff81000110 t take.part.0
ffffffff81000200 T _raw_spin_lock
ffffffff81000300 T _etext
ffffffff82000000 D lock
ffffffff82000008 d after
ffffffff82000010 T in_data
ffffffff82000020 D _end
ffffffffc0000000 t probe\t[virtio_blk]
ffffffffc0001000 t end\t[virtio_blk]
rubbish
";

    #[test]
    fn low_per_cpu_variables_contain_only_low_addresses() {
        let text = b"\
0000000000000000 A __per_cpu_start
0000000000034a80 A runqueues
0000000000036000 A __per_cpu_end
ffffffff81000000 T _text
ffffffff82000000 D lock
ffffffff82000010 D after
";
        let symbols = Symbols::parse(text);
        assert_eq!(symbols.per_cpu(), 0..0x36000);
        let name = |address| symbols.at(address).map(|(symbol, offset)| (&*symbol.name, offset));
        assert_eq!(name(0x34a90), Some(("runqueues", 0x10)));
        assert_eq!(name(0xffff_8880_0123_4560), None, "memory of the heap");
        assert_eq!(name(0xffff_ffff_8200_0008), Some(("lock", 8)));
        assert_eq!(Symbols::parse(b"").per_cpu(), 0..0);
    }

    #[test]
    fn symbols_name_addresses() {
        let symbols = Symbols::parse(TEXT);
        assert_eq!(symbols.place(0xffff_ffff_8100_0111).unwrap(), "take.part.0+0x1");
        assert_eq!(symbols.function(0xffff_ffff_8100_0111), Some("take"));
        assert_eq!(
            symbols.at(0xffff_ffff_8100_0002).map(|(symbol, offset)| (&symbol.name[..], offset)),
            Some(("_text", 2))
        );
        assert_eq!(symbols.at(0xffff_ffff_8200_0004).unwrap().1, 4);
        assert_eq!(symbols.place(0xffff_ffff_8200_0004), None, "data has no place");
        assert!(
            !symbols.at(0xffff_ffff_8200_0010).unwrap().0.is_code,
            "outside the code ranges, whatever its type"
        );
        assert_eq!(symbols.room(0xffff_ffff_8200_0004), Some(4));
        assert_eq!(symbols.place(0xffff_ffff_c000_0010).unwrap(), "probe [virtio_blk]+0x10");
        assert!(symbols.at(0xffff_8880_0000_0000).is_none());
        assert!(symbols.at(u64::MAX).is_none());
        assert_eq!(symbols.missing(), ["_raw_spin_unlock", "__x64_sys_sethostname"]);
    }
}
