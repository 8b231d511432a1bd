//! Figures: panels side by side with one legend, as SVG, and as PNG if [`raster`] finds
//! `unconvoy-png`.

pub mod axis;
pub mod panel;
pub mod quantity;
mod raster;
mod style;

use std::path::{Path, PathBuf};

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::output::{with_suffix, write};
use panel::Panel;
use style::{FONT, INK, SMALL_LETTER_WIDTH};

pub use raster::PNG;
pub use style::Sign;

const PANEL_WIDTH: u32 = 440;
/// Smallest width, which has room for the legend and the caption of a single panel.
const LEAST_WIDTH: u32 = 2 * PANEL_WIDTH;
const PANELS_HEIGHT: u32 = 360;
const TITLE_HEIGHT: u32 = 44;
const LEGEND_HEIGHT: u32 = 26;
const CAPTION_HEIGHT: u32 = 34;
/// Height of a line of the remark.
const LINE_HEIGHT: u32 = 19;
const MARGIN: i32 = 24;
/// Width of a legend entry's line and marker.
const SIGN_WIDTH: i32 = 34;
/// Width of a letter in the legend. This is an upper estimate, because only the SVG's viewer knows
/// the font.
const LETTER_WIDTH: i32 = 8;
/// Gap between legend entries.
const ENTRY_GAP: i32 = 22;

/// A figure's contents.
#[derive(Debug)]
pub struct Figure {
    /// Title at the top.
    pub title: String,
    /// Names of the series, in the order of each panel's series. [`Sign`] has their colours.
    pub names: Vec<String>,
    /// Panels from left to right.
    pub panels: Vec<Panel>,
    /// Line below the panels: what was measured, and on which machine.
    pub caption: String,
    /// Paragraph below the caption, broken into lines.
    pub remark: Option<String>,
}

impl Figure {
    /// Writes BASENAME.svg and, unless [`png`](Self::png) returns none, BASENAME.png, and returns
    /// the paths.
    ///
    /// # Errors
    ///
    /// The drawing back end or `unconvoy-png` failed, or a file cannot be written.
    pub fn write(&self, basename: &Path) -> anyhow::Result<Vec<PathBuf>> {
        let svg = with_suffix(basename, ".svg");
        write(&svg, self.svg()?)?;
        let Some(pixels) = self.png()? else {
            return Ok(vec![svg]);
        };
        let png = with_suffix(basename, ".png");
        write(&png, pixels)?;
        Ok(vec![svg, png])
    }

    /// Renders the figure as PNG; `None` if `unconvoy-png` is not installed, with one note on
    /// standard error.
    ///
    /// # Errors
    ///
    /// The drawing back end or `unconvoy-png` failed.
    pub fn png(&self) -> anyhow::Result<Option<Vec<u8>>> {
        raster::png(&self.svg()?)
    }

    /// Renders the figure as SVG.
    ///
    /// # Errors
    ///
    /// The drawing back end failed.
    pub fn svg(&self) -> anyhow::Result<String> {
        let width = (PANEL_WIDTH * self.panels.len() as u32).max(LEAST_WIDTH);
        let rows = legend_rows(&self.names, width as i32);
        let remark = self.remark.as_deref().map_or_else(Vec::new, |text| wrapped(text, width));
        let head_height = TITLE_HEIGHT + LEGEND_HEIGHT * rows.len() as u32;
        let foot_height =
            CAPTION_HEIGHT + LINE_HEIGHT * (remark.len() + usize::from(!remark.is_empty())) as u32;
        let mut text = String::new();
        {
            let size = (width, head_height + PANELS_HEIGHT + foot_height);
            let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
            root.fill(&WHITE)?;
            let (head, rest) = root.split_vertically(head_height);
            let (body, foot) = rest.split_vertically(PANELS_HEIGHT);
            self.heading(&head, width, &rows)?;
            for (area, panel) in
                body.split_evenly((1, self.panels.len().max(1))).iter().zip(&self.panels)
            {
                panel.draw(area)?;
            }
            let style = (FONT, 13).into_font().color(&INK.mix(0.75));
            let position = Pos::new(HPos::Center, VPos::Top);
            foot.draw(&Text::new(
                self.caption.clone(),
                (width as i32 / 2, 8),
                style.pos(position),
            ))?;
            let style = (FONT, 13).into_font().color(&INK);
            let position = Pos::new(HPos::Left, VPos::Top);
            for (line, y) in
                remark.into_iter().zip((CAPTION_HEIGHT as i32..).step_by(LINE_HEIGHT as usize))
            {
                foot.draw(&Text::new(line, (MARGIN, y), style.clone().pos(position)))?;
            }
            root.present()?;
        }
        Ok(text.chars().map(in_xml).collect())
    }

    /// Draws title and legend.
    fn heading<DB: DrawingBackend<ErrorType: 'static>>(
        &self,
        area: &DrawingArea<DB, Shift>,
        width: u32,
        rows: &[Vec<usize>],
    ) -> anyhow::Result<()> {
        let centred = Pos::new(HPos::Center, VPos::Center);
        let style = (FONT, 21).into_font().color(&INK).pos(centred);
        area.draw(&Text::new(
            self.title.clone(),
            (width as i32 / 2, TITLE_HEIGHT as i32 / 2 + 4),
            style,
        ))?;

        let names = &self.names;
        let beside = Pos::new(HPos::Left, VPos::Center);
        let style = (FONT, 16).into_font().color(&INK).pos(beside);
        for (row, entries) in rows.iter().enumerate() {
            let y = (TITLE_HEIGHT + LEGEND_HEIGHT * row as u32 + LEGEND_HEIGHT / 2) as i32;
            let total: i32 = entries.iter().map(|&index| entry_width(&names[index])).sum();
            let mut x = (width as i32 - total + ENTRY_GAP) / 2;
            for &index in entries {
                let sign = Sign::of(index);
                area.draw(&PathElement::new(
                    [(x, y), (x + SIGN_WIDTH - 8, y)],
                    sign.colour.stroke_width(3),
                ))?;
                sign.mark(area, (x + (SIGN_WIDTH - 8) / 2, y))?;
                area.draw(&Text::new(names[index].clone(), (x + SIGN_WIDTH, y), style.clone()))?;
                x += entry_width(&names[index]);
            }
        }
        Ok(())
    }
}

/// Returns a character, or `?` if XML has no such character.
pub fn in_xml(character: char) -> char {
    match character {
        '\n' | '\t' => character,
        '\u{fffe}' | '\u{ffff}' => '?',
        control if control.is_control() => '?',
        other => other,
    }
}

/// Returns a name's index in the legend, and appends a new name.
pub fn index_of(name: &str, names: &mut Vec<String>) -> usize {
    names.iter().position(|known| known == name).unwrap_or_else(|| {
        names.push(name.to_string());
        names.len() - 1
    })
}

/// Distributes legend entries over lines.
fn legend_rows(names: &[String], width: i32) -> Vec<Vec<usize>> {
    let mut rows: Vec<Vec<usize>> = vec![Vec::new()];
    let mut used = 0;
    for (index, name) in names.iter().enumerate() {
        let entry = entry_width(name);
        if used + entry > width && used > 0 {
            rows.push(Vec::new());
            used = 0;
        }
        used += entry;
        rows.last_mut().expect("starts with one row").push(index);
    }
    rows
}

fn entry_width(name: &str) -> i32 {
    SIGN_WIDTH + LETTER_WIDTH * name.chars().count() as i32 + ENTRY_GAP
}

/// Breaks a text into lines that fit in a figure of this width.
fn wrapped(text: &str, width: u32) -> Vec<String> {
    let fitting = (f64::from(width as i32 - 2 * MARGIN) / SMALL_LETTER_WIDTH) as usize;
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= fitting => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapped_breaks_between_words() {
        let text = "word ".repeat(60);
        let lines = wrapped(&text, LEAST_WIDTH);
        assert!(
            lines.len() > 1 && lines.iter().all(|line| line.len() < 140 && !line.ends_with(' '))
        );
        assert_eq!(lines.join(" "), text.trim());
        assert!(wrapped("", LEAST_WIDTH).is_empty());
    }

    #[test]
    fn figure_is_xml_whatever_its_title() {
        let figure = Figure {
            title: "a\u{1b}[31m<b>\u{ffff}".into(),
            names: Vec::new(),
            panels: Vec::new(),
            caption: String::new(),
            remark: None,
        };
        let svg = figure.svg().expect("drawn");
        assert!(svg.contains("a?[31m&lt;b&gt;?"), "{svg}");
    }

    #[test]
    fn figure_without_panels_has_title_legend_and_caption() {
        let figure = Figure {
            title: "title".into(),
            names: vec!["one".into()],
            panels: Vec::new(),
            caption: "caption".into(),
            remark: Some("some remark".into()),
        };
        let svg = figure.svg().expect("drawn");
        assert!(["title", "one", "caption", "some remark"].iter().all(|word| svg.contains(word)));
    }
}
