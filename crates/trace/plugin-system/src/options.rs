//! The plug-in's options: `-plugin libunconvoy_plugin_system.so,out=FILE,symbols=FILE,rate=10`.

use std::path::PathBuf;
use unconvoy_trace_collector::argument::Argument;

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// `out`: the file or pipe that the stream goes to; required.
    pub out: PathBuf,
    /// `symbols`: the kernel's symbols, as its `/proc/kallsyms` has them; required.
    pub symbols: PathBuf,
    /// `offsets`: where members lie in the kernel's structures, see [`crate::objects`]; without it objects have no names.
    pub offsets: Option<PathBuf>,
    /// `rate`: one in how many sections is sampled, 1 to 1000000; 10, the paper's 10 % (section 4.2).
    pub rate: u32,
    /// `seed`: what the draws start from; 1.
    pub seed: u64,
    /// `words`: the most words of 8 bytes of a section's address set, 1 to 40000; 16384, which is 128 KiB.
    pub words: usize,
}

/// Reads QEMU's `name=value` arguments; what is wrong with them otherwise.
pub fn parse<'a>(arguments: impl Iterator<Item = &'a str>) -> Result<Options, String> {
    let (mut out, mut symbols, mut offsets) = (None, None, None);
    let (mut rate, mut seed, mut words) = (10, 1, 1 << 14);
    for argument in arguments {
        let argument = Argument::new(argument)?;
        let Argument { name, value } = argument;
        match name {
            "out" => out = Some(PathBuf::from(value)),
            "symbols" => symbols = Some(PathBuf::from(value)),
            "offsets" => offsets = Some(PathBuf::from(value)),
            "rate" => rate = argument.number(1..=1_000_000)? as u32,
            "seed" => seed = argument.number(0..=u64::MAX)?,
            "words" => words = argument.number(1..=40_000)? as usize,
            _ => {
                return Err(format!(
                    "{name}: there is no such option; there are out, symbols, offsets, rate, seed and words"
                ));
            }
        }
    }
    let out = out.ok_or("out=FILE is missing: where the stream goes to")?;
    let symbols = symbols.ok_or("symbols=FILE is missing: the kernel's /proc/kallsyms")?;
    Ok(Options { out, symbols, offsets, rate, seed, words })
}
