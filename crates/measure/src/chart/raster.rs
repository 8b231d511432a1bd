//! SVG to PNG by `unconvoy-png`, a program of its own: what rasterises is larger than all the rest of
//! the command, and most readers of a figure open its SVG.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Once;
use std::thread;

use anyhow::{Context as _, bail};

use crate::parts::Part;

const PROGRAM: Part = Part { name: "unconvoy-png", variable: None, package: "unconvoy-png" };

/// The PNG of `svg`; `None`, with a note on standard error, where the program is not installed.
///
/// # Errors
///
/// The program failed.
pub fn png(svg: &str) -> anyhow::Result<Option<Vec<u8>>> {
    let program = match PROGRAM.find() {
        Ok(program) => program,
        Err(why) => {
            static NOTE: Once = Once::new();
            NOTE.call_once(|| eprintln!("note: the figure is an SVG only: {why}"));
            return Ok(None);
        }
    };
    let mut child = Command::new(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", program.display()))?;
    let mut input = child.stdin.take().context("no standard input")?;
    let output = thread::scope(|scope| {
        // A program that fails early leaves the rest unread; its exit status says so.
        scope.spawn(move || input.write_all(svg.as_bytes()));
        child.wait_with_output()
    })?;
    if !output.status.success() {
        bail!("{} failed ({}): {}", PROGRAM.name, output.status, String::from_utf8_lossy(&output.stderr).trim_end());
    }
    Ok(Some(output.stdout))
}
