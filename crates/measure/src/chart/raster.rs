//! Conversion from SVG to PNG by `unconvoy-png`. The rasteriser is larger than the rest of the
//! command, and most readers open the SVG, so it is a separate program.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Once;
use std::thread;

use anyhow::{Context as _, bail};

use crate::messages;
use crate::output::complain;
use crate::parts::Part;

/// The rasteriser.
pub const PNG: Part = Part { name: "unconvoy-png", variable: None, package: "unconvoy-png" };

/// Converts `svg` to PNG; `None` if the program is not installed, with one note on standard error.
///
/// # Errors
///
/// The program failed.
pub fn png(svg: &str) -> anyhow::Result<Option<Vec<u8>>> {
    let program = match PNG.find() {
        Ok(program) => program,
        Err(why) => {
            static NOTE: Once = Once::new();
            NOTE.call_once(|| complain(&messages::svg_only(&why)));
            return Ok(None);
        }
    };
    let mut child = Command::new(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| messages::cannot_run(&program))?;
    let mut input = child.stdin.take().context(messages::no_standard_input())?;
    let output = thread::scope(|scope| {
        // A program that fails early stops reading. Its exit status reports the failure.
        scope.spawn(move || input.write_all(svg.as_bytes()));
        child.wait_with_output()
    })?;
    if !output.status.success() {
        let printed = String::from_utf8_lossy(&output.stderr);
        bail!(messages::program_failed(PNG.name, output.status, printed.trim_end()));
    }
    Ok(Some(output.stdout))
}
