//! The plug-in's options: `-plugin libunconvoy_plugin_system.so,out=FILE,symbols=FILE,rate=10`.

use std::path::PathBuf;

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// What every collector is asked for.
    pub common: unconvoy_trace_collector::options::Options,
    /// `symbols`: the kernel's symbols, as its `/proc/kallsyms` has them; required.
    pub symbols: PathBuf,
    /// `offsets`: where members lie in the kernel's structures, see [`crate::objects`]; without it
    /// objects have no names.
    pub offsets: Option<PathBuf>,
}

/// Reads QEMU's `name=value` arguments; what is wrong with them otherwise.
pub fn parse<'a>(arguments: impl Iterator<Item = &'a str>) -> Result<Options, String> {
    let (mut symbols, mut offsets) = (None, None);
    let known = "out, symbols, offsets, rate, seed and words";
    let common = unconvoy_trace_collector::options::Options::parse(arguments, known, |name, value| {
        let file = match name {
            "symbols" => &mut symbols,
            "offsets" => &mut offsets,
            _ => return Ok(false),
        };
        *file = Some(PathBuf::from(value));
        Ok(true)
    })?;
    let symbols = symbols.ok_or("symbols=FILE is missing: the kernel's /proc/kallsyms")?;
    Ok(Options { common, symbols, offsets })
}
