//! One panel of a figure: one quantity over another, with a line per series.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis::Axis;
use super::style::{FONT, INK, SMALL_LETTER_WIDTH, Sign};
use crate::statistics::Spread;

const TITLE_HEIGHT: i32 = 30;
const LEFT: i32 = 70;
const RIGHT: i32 = 18;
const BOTTOM: i32 = 46;
/// Half the width of an error bar's cap.
const CAP: i32 = 4;

/// Median and range of repeated runs, as positions on the axes.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    /// Position on the horizontal axis.
    pub at: f64,
    /// Smallest value.
    pub low: f64,
    /// Median.
    pub middle: f64,
    /// Largest value.
    pub high: f64,
}

impl Point {
    /// Creates the point of a spread, with `up` as the vertical axis.
    pub fn of(at: f64, spread: &Spread, up: &Axis) -> Self {
        let [low, middle, high] =
            [spread.min, spread.median, spread.max].map(|value| up.position(value));
        Self { at, low, middle, high }
    }

    /// Creates the point of a single value, given as a position.
    pub fn single(at: f64, middle: f64) -> Self {
        Self { at, low: middle, middle, high: middle }
    }
}

/// One line with its band and markers.
#[derive(Debug)]
pub struct Series {
    /// Colour and markers.
    pub sign: Sign,
    /// Points from left to right.
    pub points: Vec<Point>,
    /// Whether points have markers. Thousands of markers would hide the line.
    pub has_markers: bool,
}

/// One quantity over another.
#[derive(Debug)]
pub struct Panel {
    /// The quantity.
    pub title: String,
    /// Horizontal axis.
    pub across: Axis,
    /// Title of the horizontal axis.
    pub across_title: String,
    /// Vertical axis.
    pub up: Axis,
    /// Series, drawn from the first to the last.
    pub series: Vec<Series>,
    /// Position of a dashed vertical line, with its label.
    pub mark: Option<(f64, String)>,
}

/// Rectangle inside the axes, in the panel's coordinates.
struct Frame {
    left: i32,
    right: i32,
    top: i32,
    bottom: i32,
}

impl Panel {
    /// Draws the panel into its part of the figure.
    ///
    /// # Errors
    ///
    /// The drawing back end failed.
    pub fn draw<DB: DrawingBackend<ErrorType: 'static>>(
        &self,
        area: &DrawingArea<DB, Shift>,
    ) -> anyhow::Result<()> {
        let (width, height) = area.dim_in_pixel();
        let frame = Frame {
            left: LEFT,
            right: width as i32 - RIGHT,
            top: TITLE_HEIGHT,
            bottom: height as i32 - BOTTOM,
        };
        self.draw_axes(area, &frame)?;
        for series in &self.series {
            self.draw_band(area, &frame, series)?;
        }
        for series in &self.series {
            self.draw_line(area, &frame, series)?;
        }
        Ok(())
    }

    fn x(&self, frame: &Frame, at: f64) -> i32 {
        let range = &self.across.range;
        let part = (at - range.start) / (range.end - range.start);
        frame.left + (part * f64::from(frame.right - frame.left)).round() as i32
    }

    fn y(&self, frame: &Frame, at: f64) -> i32 {
        let range = &self.up.range;
        let part = ((at - range.start) / (range.end - range.start)).clamp(0.0, 1.0);
        frame.bottom - (part * f64::from(frame.bottom - frame.top)).round() as i32
    }

    fn draw_axes<DB: DrawingBackend<ErrorType: 'static>>(
        &self,
        area: &DrawingArea<DB, Shift>,
        frame: &Frame,
    ) -> anyhow::Result<()> {
        let text = |size: i32, h, v| (FONT, size).into_font().color(&INK).pos(Pos::new(h, v));
        let middle = i32::midpoint(frame.left, frame.right);
        let style = text(16, HPos::Center, VPos::Center);
        area.draw(&Text::new(self.title.clone(), (middle, TITLE_HEIGHT / 2 - 2), style))?;

        for (at, label) in &self.up.ticks {
            let y = self.y(frame, *at);
            let line = [(frame.left, y), (frame.right, y)];
            area.draw(&PathElement::new(line, RGBColor(0xe2, 0xe2, 0xe2).stroke_width(1)))?;
            let style = text(14, HPos::Right, VPos::Center);
            area.draw(&Text::new(label.clone(), (frame.left - 8, y), style))?;
        }
        let mut free_from = i32::MIN;
        for (at, label) in &self.across.ticks {
            let x = self.x(frame, *at);
            area.draw(&PathElement::new(
                [(x, frame.bottom), (x, frame.bottom + 4)],
                INK.stroke_width(1),
            ))?;
            let half = SMALL_LETTER_WIDTH as i32 * label.chars().count() as i32 / 2;
            if x - half < free_from {
                continue; // it would cover the last label
            }
            free_from = x + half + SMALL_LETTER_WIDTH as i32;
            let style = text(14, HPos::Center, VPos::Top);
            area.draw(&Text::new(label.clone(), (x, frame.bottom + 8), style))?;
        }
        let style = text(15, HPos::Center, VPos::Top);
        area.draw(&Text::new(self.across_title.clone(), (middle, frame.bottom + 26), style))?;
        if let Some((at, label)) =
            self.mark.as_ref().filter(|(at, _)| self.across.range.contains(at))
        {
            self.draw_mark(area, frame, *at, label)?;
        }
        let corner =
            [(frame.left, frame.top), (frame.left, frame.bottom), (frame.right, frame.bottom)];
        area.draw(&PathElement::new(corner, INK.stroke_width(1)))?;
        Ok(())
    }

    /// Draws a dashed vertical line, with its label at the bottom, where data lines are rare.
    fn draw_mark<DB: DrawingBackend<ErrorType: 'static>>(
        &self,
        area: &DrawingArea<DB, Shift>,
        frame: &Frame,
        at: f64,
        label: &str,
    ) -> anyhow::Result<()> {
        let x = self.x(frame, at);
        let mut y = frame.top;
        while y < frame.bottom {
            let dash = [(x, y), (x, (y + 5).min(frame.bottom))];
            area.draw(&PathElement::new(dash, INK.mix(0.6).stroke_width(1)))?;
            y += 9;
        }
        let is_near_the_right = x > i32::midpoint(frame.left, frame.right);
        let (h, x) = if is_near_the_right { (HPos::Right, x - 5) } else { (HPos::Left, x + 5) };
        let style = (FONT, 13).into_font().color(&INK.mix(0.8)).pos(Pos::new(h, VPos::Bottom));
        area.draw(&Text::new(label.to_string(), (x, frame.bottom - 5), style))?;
        Ok(())
    }

    /// Draws the range between smallest and largest run, if there are several points.
    fn draw_band<DB: DrawingBackend<ErrorType: 'static>>(
        &self,
        area: &DrawingArea<DB, Shift>,
        frame: &Frame,
        series: &Series,
    ) -> anyhow::Result<()> {
        if series.points.len() < 2 {
            return Ok(());
        }
        let upper = series.points.iter().map(|p| (self.x(frame, p.at), self.y(frame, p.high)));
        let lower = series.points.iter().rev().map(|p| (self.x(frame, p.at), self.y(frame, p.low)));
        let outline: Vec<(i32, i32)> = upper.chain(lower).collect();
        area.draw(&Polygon::new(outline, series.sign.colour.mix(0.15)))?;
        Ok(())
    }

    fn draw_line<DB: DrawingBackend<ErrorType: 'static>>(
        &self,
        area: &DrawingArea<DB, Shift>,
        frame: &Frame,
        series: &Series,
    ) -> anyhow::Result<()> {
        let colour = series.sign.colour;
        for point in &series.points {
            let x = self.x(frame, point.at);
            let (low, high) = (self.y(frame, point.low), self.y(frame, point.high));
            // A bar shorter than the marker would only blur it.
            if low - high > 10 {
                for bar in [
                    [(x, low), (x, high)],
                    [(x - CAP, low), (x + CAP, low)],
                    [(x - CAP, high), (x + CAP, high)],
                ] {
                    area.draw(&PathElement::new(bar, colour.stroke_width(1)))?;
                }
            }
        }
        let medians: Vec<(i32, i32)> =
            series.points.iter().map(|p| (self.x(frame, p.at), self.y(frame, p.middle))).collect();
        area.draw(&PathElement::new(medians.clone(), colour.stroke_width(3)))?;
        for at in medians.into_iter().filter(|_| series.has_markers) {
            series.sign.mark(area, at)?;
        }
        Ok(())
    }
}
