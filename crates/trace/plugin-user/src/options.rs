//! The plug-in's options: `-plugin libunconvoy_plugin_user.so,out=FILE,rate=10`.

use std::path::PathBuf;
use unconvoy_trace_collector::argument::Argument;

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// `out`: the file or pipe that the stream goes to; required.
    pub out: PathBuf,
    /// `rate`: one in how many sections is sampled, 1 to 1000000; 10, the paper's 10 % (section 4.2).
    pub rate: u32,
    /// `seed`: what the draws start from; 1.
    pub seed: u64,
    /// `words`: the most words of 8 bytes of a section's address set, 1 to 40000; 16384, which is 128 KiB.
    pub words: usize,
    /// `heap`: whether allocations are told, `on` or `off`; on. They cost every `malloc` and `free` of the program.
    pub heap: bool,
}

/// Reads QEMU's `name=value` arguments; what is wrong with them otherwise.
pub fn parse<'a>(arguments: impl Iterator<Item = &'a str>) -> Result<Options, String> {
    let mut out = None;
    let mut options = Options { out: PathBuf::new(), rate: 10, seed: 1, words: 1 << 14, heap: true };
    for argument in arguments {
        let argument = Argument::new(argument)?;
        let Argument { name, value } = argument;
        match name {
            "out" => out = Some(PathBuf::from(value)),
            "rate" => options.rate = argument.number(1..=1_000_000)? as u32,
            "seed" => options.seed = argument.number(0..=u64::MAX)?,
            "words" => options.words = argument.number(1..=40_000)? as usize,
            "heap" => {
                options.heap = match value {
                    "on" => true,
                    "off" => false,
                    _ => return Err(format!("heap={value}: neither on nor off")),
                }
            }
            _ => return Err(format!("{name}: there is no such option; there are out, rate, seed, words and heap")),
        }
    }
    options.out = out.ok_or("out=FILE is missing: where the stream goes to")?;
    Ok(options)
}
