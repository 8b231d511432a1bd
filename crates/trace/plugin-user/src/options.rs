//! The plug-in's options: `-plugin libunconvoy_plugin_user.so,out=FILE,rate=10`.

/// What every collector is asked for.
pub use unconvoy_trace_collector::options::Options;

/// Reads QEMU's `name=value` arguments, and of `heap` whether allocations are recorded, `on` or
/// `off`; on. They cost every `malloc` and `free` of the program. What is wrong with them
/// otherwise.
pub fn parse<'a>(arguments: impl Iterator<Item = &'a str>) -> Result<(Options, bool), String> {
    let mut heap = true;
    let options = Options::parse(arguments, "out, rate, seed, words and heap", |name, value| {
        if name == "heap" {
            heap = match value {
                "on" => true,
                "off" => false,
                _ => return Err(format!("heap={value}: neither on nor off")),
            };
        }
        Ok(name == "heap")
    })?;
    Ok((options, heap))
}
