//! A plug-in's options: `-plugin libunconvoy_plugin_user.so,out=FILE,rate=10`.

use crate::messages;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use unconvoy_trace_stream::sampling::Sampling;

/// The options of every collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// `out`: the file or pipe to write the stream to; required.
    pub out: PathBuf,
    /// `rate`: sample 1 section in N, 1 to 1000000; default 10, the paper's 10 % (section 4.2).
    pub rate: u32,
    /// `sampling`: how these sections are drawn; default [`Sampling::Bursts`].
    pub sampling: Sampling,
    /// `seed`: seed of the random draws; default 1.
    pub seed: u64,
    /// `words`: the largest number of 8-byte words in a section's address set, 1 to 40000; default
    /// 16384 (128 KiB).
    pub words: usize,
}

impl Options {
    /// Parses QEMU's `name=value` arguments. `take` handles the front end's own options and returns
    /// whether it knew the name; `known` lists all names for the error text.
    ///
    /// # Errors
    ///
    /// An unknown, malformed or missing option; the text says which.
    pub fn parse<'a>(
        arguments: impl Iterator<Item = &'a str>,
        known: &str,
        mut take: impl FnMut(&'a str, &'a str) -> Result<bool, String>,
    ) -> Result<Options, String> {
        let mut out = None;
        let mut options = Options {
            out: PathBuf::new(),
            rate: 10,
            sampling: Sampling::default(),
            seed: 1,
            words: 1 << 14,
        };
        for argument in arguments {
            let (name, value) =
                argument.split_once('=').ok_or_else(|| messages::no_value(argument))?;
            let number = |range: RangeInclusive<u64>| match value.parse() {
                Ok(number) if range.contains(&number) => Ok(number),
                _ => Err(messages::number_out_of_range(name, value, &range)),
            };
            match name {
                "out" => out = Some(PathBuf::from(value)),
                "rate" => options.rate = number(1..=1_000_000)? as u32,
                "sampling" => {
                    options.sampling =
                        Sampling::named(value).ok_or_else(|| messages::unknown_sampling(value))?;
                }
                "seed" => options.seed = number(0..=u64::MAX)?,
                "words" => options.words = number(1..=40_000)? as usize,
                _ if take(name, value)? => {}
                _ => return Err(messages::unknown_option(name, known)),
            }
        }
        options.out = out.ok_or(messages::no_out())?;
        Ok(options)
    }
}
