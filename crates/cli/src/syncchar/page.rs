//! The report as one HTML page that needs nothing else.

use askama::Template;
use unconvoy_syncchar::Report;

#[derive(Template)]
#[template(path = "syncchar.html")]
struct Page<'a> {
    report: &'a Report,
    title: String,
    top: usize,
}

/// The page, with the `top` locks in detail.
///
/// # Errors
///
/// A number has no text.
pub fn render(report: &Report, top: usize) -> anyhow::Result<Vec<u8>> {
    let title = report.run.program.join(" ");
    Ok(Page { report, title, top }.render()?.into_bytes())
}
