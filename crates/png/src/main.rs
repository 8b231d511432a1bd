//! `unconvoy-png < FIGURE.svg > FIGURE.png`: rasterises the figures of `unconvoy`.
//!
//! The command draws only SVG if this program is not installed. The font is embedded, so the
//! machine needs neither fonts nor a font configuration.

use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use resvg::{tiny_skia, usvg};

/// Licence: `assets/DejaVuSans.LICENSE.txt`.
const FONT_FILE: &[u8] = include_bytes!("../assets/DejaVuSans.ttf");

/// Pixels per unit of the SVG, legible on a dense display and in print.
const PIXELS: f32 = 2.0;

fn main() -> ExitCode {
    if std::env::args_os().len() > 1 {
        eprintln!("usage: unconvoy-png < FIGURE.svg > FIGURE.png");
        return ExitCode::from(2);
    }
    match convert() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("unconvoy-png: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn convert() -> anyhow::Result<()> {
    let mut svg = String::new();
    io::stdin().read_to_string(&mut svg).context("cannot read the SVG from standard input")?;
    io::stdout().write_all(&rasterise(&svg)?).context("cannot write the PNG to standard output")
}

/// Renders an SVG as PNG, with [`PIXELS`] pixels per unit.
fn rasterise(svg: &str) -> anyhow::Result<Vec<u8>> {
    let mut fonts = usvg::fontdb::Database::new();
    fonts.load_font_data(FONT_FILE.to_vec());
    fonts.set_sans_serif_family("DejaVu Sans");
    let options = usvg::Options { fontdb: Arc::new(fonts), ..usvg::Options::default() };
    let tree = usvg::Tree::from_str(svg, &options).context("cannot parse the SVG")?;
    let (width, height) = (tree.size().width() * PIXELS, tree.size().height() * PIXELS);
    let mut pixels = tiny_skia::Pixmap::new(width as u32, height as u32)
        .context("the figure is empty or too large")?;
    resvg::render(&tree, tiny_skia::Transform::from_scale(PIXELS, PIXELS), &mut pixels.as_mut());
    Ok(pixels.encode_png()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = r#"<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20">"#;

    fn pixels(svg: &str) -> tiny_skia::Pixmap {
        tiny_skia::Pixmap::decode_png(&rasterise(svg).unwrap()).unwrap()
    }

    #[test]
    fn svg_unit_becomes_two_pixels() {
        let image = pixels(&format!("{HEAD}<rect width=\"40\" height=\"20\" fill=\"red\"/></svg>"));
        assert_eq!((image.width(), image.height()), (80, 40));
        assert_eq!(image.pixel(79, 39).unwrap().red(), 255);
    }

    #[test]
    fn text_without_system_fonts_is_drawn() {
        let image = pixels(&format!(
            "{HEAD}<text x=\"2\" y=\"16\" \
             font-family=\"sans-serif\" font-size=\"16\">W</text></svg>"
        ));
        assert!(image.pixels().iter().any(|pixel| pixel.alpha() > 0));
    }

    #[test]
    fn text_that_is_no_svg_is_rejected() {
        assert!(rasterise("not an SVG").unwrap_err().to_string().contains("cannot parse"));
    }
}
