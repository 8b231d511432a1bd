//! A plug-in's options: `-plugin libunconvoy_plugin_user.so,out=FILE,rate=10`.

use std::ops::RangeInclusive;
use std::path::PathBuf;

/// What every collector is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// `out`: the file or pipe that the stream goes to; required.
    pub out: PathBuf,
    /// `rate`: one in how many sections is sampled, 1 to 1000000; 10, the paper's 10 % (section
    /// 4.2).
    pub rate: u32,
    /// `seed`: what the draws start from; 1.
    pub seed: u64,
    /// `words`: the most words of 8 bytes of a section's address set, 1 to 40000; 16384, which is
    /// 128 KiB.
    pub words: usize,
}

impl Options {
    /// Reads QEMU's `name=value` arguments; what is wrong with them otherwise. `take` takes the
    /// options that one front end alone has, and says whether the argument was one; `known` names
    /// all of them.
    pub fn parse<'a>(
        arguments: impl Iterator<Item = &'a str>,
        known: &str,
        mut take: impl FnMut(&'a str, &'a str) -> Result<bool, String>,
    ) -> Result<Options, String> {
        let mut out = None;
        let mut options = Options { out: PathBuf::new(), rate: 10, seed: 1, words: 1 << 14 };
        for argument in arguments {
            let (name, value) =
                argument.split_once('=').ok_or_else(|| format!("{argument}: not of the form name=value"))?;
            let number = |range: RangeInclusive<u64>| match value.parse() {
                Ok(number) if range.contains(&number) => Ok(number),
                _ => Err(format!("{name}={value}: not a number from {} to {}", range.start(), range.end())),
            };
            match name {
                "out" => out = Some(PathBuf::from(value)),
                "rate" => options.rate = number(1..=1_000_000)? as u32,
                "seed" => options.seed = number(0..=u64::MAX)?,
                "words" => options.words = number(1..=40_000)? as usize,
                _ if take(name, value)? => {}
                _ => return Err(format!("{name}: there is no such option; there are {known}")),
            }
        }
        options.out = out.ok_or("out=FILE is missing: where the stream goes to")?;
        Ok(options)
    }
}
