//! The plug-in's options: `-plugin libunconvoy_plugin_user.so,out=FILE,rate=10`.

use crate::messages;

pub use unconvoy_trace_collector::options::Options;

/// Parses QEMU's `name=value` arguments. The result has the common options, and whether to record
/// allocations: `heap=on` (default) or `heap=off`. Recording has a cost per `malloc` and `free`.
///
/// # Errors
///
/// An unknown, malformed or missing option; the text says which.
pub fn parse<'a>(arguments: impl Iterator<Item = &'a str>) -> Result<(Options, bool), String> {
    let mut heap = true;
    let options =
        Options::parse(arguments, "out, rate, sampling, seed, words and heap", |name, value| {
            if name == "heap" {
                heap = match value {
                    "on" => true,
                    "off" => false,
                    _ => return Err(messages::heap_option(value)),
                };
            }
            Ok(name == "heap")
        })?;
    Ok((options, heap))
}
