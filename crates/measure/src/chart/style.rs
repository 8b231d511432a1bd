//! Font and colours of a figure.

use plotters::coord::Shift;
use plotters::prelude::*;

/// Fonts of the text, in order of preference.
pub(super) const FONT: &str = "DejaVu Sans, Verdana, Helvetica, sans-serif";
/// Width of a letter of small text: an upper estimate, because only the viewer knows the font.
pub(super) const SMALL_LETTER_WIDTH: f64 = 6.2;
/// Colour of text and of lines that are not data.
pub(super) const INK: RGBColor = RGBColor(0x33, 0x33, 0x33);
/// Colours that are distinct for colour-blind readers and in greyscale: Okabe and Ito, "Color
/// Universal Design" (2008), without yellow, which is too pale for a line.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0x55, 0x55, 0x55),
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
];

/// Colour and marker of the series with this index.
#[derive(Debug, Clone, Copy)]
pub struct Sign {
    /// Colour of line, band and markers.
    pub(super) colour: RGBColor,
    /// Whether the markers are hollow: the colours repeat.
    pub(super) is_hollow: bool,
}

impl Sign {
    /// Returns the sign of the series with this index.
    pub fn of(index: usize) -> Self {
        let colour = COLOURS[index % COLOURS.len()];
        Sign { colour, is_hollow: index / COLOURS.len() % 2 == 1 }
    }

    /// Draws a marker.
    pub(super) fn mark<DB: DrawingBackend<ErrorType: 'static>>(
        self,
        area: &DrawingArea<DB, Shift>,
        at: (i32, i32),
    ) -> anyhow::Result<()> {
        area.draw(&Circle::new(at, 5, WHITE.filled()))?;
        area.draw(&Circle::new(at, 4, self.colour.filled()))?;
        if self.is_hollow {
            area.draw(&Circle::new(at, 2, WHITE.filled()))?;
        }
        Ok(())
    }
}
