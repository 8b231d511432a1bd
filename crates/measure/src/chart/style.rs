//! Font and colours of a figure.

use plotters::style::RGBColor;

/// Fonts of the text, in order of preference.
pub(super) const FONT: &str = "DejaVu Sans, Verdana, Helvetica, sans-serif";
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

/// Returns the colour of the series with this index.
pub fn colour(index: usize) -> RGBColor {
    COLOURS[index % COLOURS.len()]
}
