//! The figure: metric, processor time and fairness against threads, as SVG and as PNG.
//!
//! The PNG is the SVG, rasterised with a font that comes with unconvoy, so that both look the
//! same and neither needs fonts or a font configuration on the machine.

use std::sync::Arc;

use anyhow::{Context, bail};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use resvg::{tiny_skia, usvg};

use super::Exporter;
use super::axis::Axis;
use super::panel::{Panel, Point, Series};
use super::quantity::Unit;
use crate::compare::record::Record;
use crate::compare::statistics::Spread;
use crate::compare::summary::Summary;

/// What the figure's text is set in; a browser without it takes the next.
pub const FONT: &str = "DejaVu Sans, Verdana, Helvetica, sans-serif";
/// The font's file, see `assets/DejaVuSans.LICENSE.txt`.
const FONT_FILE: &[u8] = include_bytes!("../../assets/DejaVuSans.ttf");
/// Pixels of the PNG per unit of the SVG: legible on a dense display and in print.
const PIXELS: f32 = 2.0;

const PANEL_WIDTH: u32 = 440;
const PANELS_HEIGHT: u32 = 360;
const TITLE_HEIGHT: u32 = 44;
const LEGEND_HEIGHT: u32 = 26;
const CAPTION_HEIGHT: u32 = 34;
/// Width of a line and marker in the legend, before their name.
const SIGN_WIDTH: i32 = 34;
/// Width of a letter of the legend, on the high side: only the SVG's reader knows the font.
const LETTER_WIDTH: i32 = 8;
/// Between the entries of the legend.
const ENTRY_GAP: i32 = 22;

/// Text and lines that are not data.
pub const INK: RGBColor = RGBColor(0x33, 0x33, 0x33);
/// Colours that stay apart for colour-blind eyes and on grey paper: Okabe and Ito, "Color
/// Universal Design" (2008), without their yellow, which is too pale for a line.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0x55, 0x55, 0x55),
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
];

/// The figure as SVG.
pub struct Svg;

impl Exporter for Svg {
    fn render(&self, record: &Record) -> anyhow::Result<Vec<u8>> {
        Ok(svg(record)?.into_bytes())
    }
}

/// The figure as PNG.
pub struct Png;

impl Exporter for Png {
    fn render(&self, record: &Record) -> anyhow::Result<Vec<u8>> {
        let mut fonts = usvg::fontdb::Database::new();
        fonts.load_font_data(FONT_FILE.to_vec());
        fonts.set_sans_serif_family("DejaVu Sans");
        let options = usvg::Options { fontdb: Arc::new(fonts), ..usvg::Options::default() };
        let tree = usvg::Tree::from_str(&svg(record)?, &options).context("the SVG does not parse")?;
        let (width, height) = (tree.size().width() * PIXELS, tree.size().height() * PIXELS);
        let mut pixels = tiny_skia::Pixmap::new(width as u32, height as u32).context("the figure has no size")?;
        let scale = tiny_skia::Transform::from_scale(PIXELS, PIXELS);
        resvg::render(&tree, scale, &mut pixels.as_mut());
        Ok(pixels.encode_png()?)
    }
}

fn svg(record: &Record) -> anyhow::Result<String> {
    if record.summary.is_empty() {
        bail!("no run was finished, so there is nothing to draw");
    }
    let panels = panels(record);
    let width = PANEL_WIDTH * panels.len() as u32;
    let names = &record.plan.configurations;
    let rows = legend_rows(names, width as i32);
    let legend_height = LEGEND_HEIGHT * rows.len() as u32;
    let height = TITLE_HEIGHT + legend_height + PANELS_HEIGHT + CAPTION_HEIGHT;
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (width, height)).into_drawing_area();
        root.fill(&WHITE)?;
        let (head, rest) = root.split_vertically(TITLE_HEIGHT + legend_height);
        let (body, foot) = rest.split_vertically(PANELS_HEIGHT);
        heading(record, &head, width, &rows)?;
        for (area, panel) in body.split_evenly((1, panels.len())).iter().zip(&panels) {
            panel.draw(area)?;
        }
        let style = (FONT, 13).into_font().color(&INK.mix(0.75));
        let position = Pos::new(HPos::Center, VPos::Top);
        foot.draw(&Text::new(caption(record), (width as i32 / 2, 8), style.pos(position)))?;
        root.present()?;
    }
    Ok(text)
}

/// The panels there is data for.
fn panels(record: &Record) -> Vec<Panel> {
    let unit = if record.metric.is_wall_time() { Unit::Seconds } else { Unit::Plain };
    let better = if record.metric.lower_is_better { "lower" } else { "higher" };
    let mut panels = vec![panel(
        record,
        format!("{} ({better} is better)", record.metric.name),
        |summary| Some(summary.metric),
        |values| Axis::values(values, unit),
    )];
    let is_per_operation = record.summary.iter().any(|s| s.cpu_per_operation_s.is_some());
    panels.push(if is_per_operation {
        panel(
            record,
            "processor time per operation (lower is better)".to_string(),
            |summary| summary.cpu_per_operation_s,
            |values| Axis::values(values, Unit::Seconds),
        )
    } else {
        panel(
            record,
            "processor time per run (lower is better)".to_string(),
            |summary| Some(summary.cpu_s),
            |values| Axis::values(values, Unit::Seconds),
        )
    });
    if record.summary.iter().any(|summary| summary.fairness.is_some()) {
        panels.push(panel(
            record,
            "Jain's fairness index (1 is fair)".to_string(),
            |summary| summary.fairness,
            |_| Axis::index(),
        ));
    }
    panels
}

fn panel(
    record: &Record,
    title: String,
    value: impl Fn(&Summary) -> Option<Spread>,
    axis: impl Fn(&[f64]) -> Axis,
) -> Panel {
    let counts: Vec<u32> = record.plan.threads.iter().copied().flatten().collect();
    let names = &record.plan.configurations;
    let across = if counts.is_empty() { Axis::names(names) } else { Axis::threads(&counts) };
    let shown: Vec<Spread> = record.summary.iter().filter_map(&value).collect();
    let up = axis(&shown.iter().flat_map(|s| [s.min, s.max]).collect::<Vec<_>>());
    let series = names.iter().enumerate().map(|(index, name)| {
        let of_name = record.summary.iter().filter(|summary| summary.configuration == *name);
        let mut points: Vec<Point> = of_name
            .filter_map(|summary| {
                let spread = value(summary)?;
                let [low, middle, high] = [spread.min, spread.median, spread.max].map(|v| up.position(v));
                let at = summary.threads.map_or(index as f64, |count| f64::from(count).log2());
                Some(Point { at, low, middle, high })
            })
            .collect();
        points.sort_by(|a, b| a.at.total_cmp(&b.at));
        Series { colour: colour(index), points }
    });
    let series = series.collect();
    let mark = (!counts.is_empty()).then(|| {
        let processors = record.context.processors;
        let label = if processors == 1 { "1 processor".into() } else { format!("{processors} processors") };
        (f64::from(processors).log2(), label)
    });
    let across_title = if counts.is_empty() { "" } else { "threads" };
    Panel { title, across, across_title, up, series, mark }
}

fn colour(index: usize) -> RGBColor {
    COLOURS[index % COLOURS.len()]
}

/// Which configurations share a line of the legend: as many as fit.
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

/// Title and legend.
fn heading<DB: DrawingBackend<ErrorType: 'static>>(
    record: &Record,
    area: &DrawingArea<DB, Shift>,
    width: u32,
    rows: &[Vec<usize>],
) -> anyhow::Result<()> {
    let title = record.title.clone().unwrap_or_else(|| {
        record
            .plan
            .program
            .first()
            .map_or(String::new(), |program| format!("{} under {}", program, record.plan.configurations.join(", ")))
    });
    let centred = Pos::new(HPos::Center, VPos::Center);
    let style = (FONT, 21).into_font().color(&INK).pos(centred);
    area.draw(&Text::new(title, (width as i32 / 2, TITLE_HEIGHT as i32 / 2 + 4), style))?;

    let names = &record.plan.configurations;
    let beside = Pos::new(HPos::Left, VPos::Center);
    let style = (FONT, 16).into_font().color(&INK).pos(beside);
    for (row, entries) in rows.iter().enumerate() {
        let y = (TITLE_HEIGHT + LEGEND_HEIGHT * row as u32 + LEGEND_HEIGHT / 2) as i32;
        let total: i32 = entries.iter().map(|&index| entry_width(&names[index])).sum();
        let mut x = (width as i32 - total + ENTRY_GAP) / 2;
        for &index in entries {
            let colour = colour(index);
            area.draw(&PathElement::new([(x, y), (x + SIGN_WIDTH - 8, y)], colour.stroke_width(3)))?;
            area.draw(&Circle::new((x + (SIGN_WIDTH - 8) / 2, y), 5, colour.filled()))?;
            area.draw(&Text::new(names[index].clone(), (x + SIGN_WIDTH, y), style.clone()))?;
            x += entry_width(&names[index]);
        }
    }
    Ok(())
}

/// What was measured, and on which machine.
fn caption(record: &Record) -> String {
    let partial = if record.complete { "" } else { "INCOMPLETE, " };
    let runs = record.plan.runs;
    format!("{partial}median of {runs} runs, band: smallest to largest. {}", record.context.line())
}
