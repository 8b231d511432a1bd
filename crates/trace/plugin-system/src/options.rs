//! The plug-in's options: `-plugin libunconvoy_plugin_system.so,out=FILE,symbols=FILE,rate=10`.

use crate::messages;
use std::path::PathBuf;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The options common to all collectors.
    pub common: unconvoy_trace_collector::options::Options,
    /// `symbols`: a copy of the kernel's `/proc/kallsyms`; required.
    pub symbols: PathBuf,
    /// `offsets`: offsets of members in the kernel's structures, see [`crate::objects`]. Without
    /// it, objects have no names.
    pub offsets: Option<PathBuf>,
}

/// Parses QEMU's `name=value` arguments.
///
/// # Errors
///
/// An unknown, malformed or missing option; the text says which.
pub fn parse<'a>(arguments: impl Iterator<Item = &'a str>) -> Result<Options, String> {
    let (mut symbols, mut offsets) = (None, None);
    let known = "out, symbols, offsets, rate, sampling, seed and words";
    let common =
        unconvoy_trace_collector::options::Options::parse(arguments, known, |name, value| {
            let file = match name {
                "symbols" => &mut symbols,
                "offsets" => &mut offsets,
                _ => return Ok(false),
            };
            *file = Some(PathBuf::from(value));
            Ok(true)
        })?;
    let symbols = symbols.ok_or(messages::no_symbols_option())?;
    Ok(Options { common, symbols, offsets })
}
